"""Edits of rings: keys are generated, promoted, wrapped and destroyed."""
