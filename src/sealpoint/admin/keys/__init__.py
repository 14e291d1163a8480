"""Edits of rings: generate, promote, wrap and destroy keys."""
