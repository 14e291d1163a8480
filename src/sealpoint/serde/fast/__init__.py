"""Shortcuts for speed. Each can be removed, and gives what the general path gives."""
