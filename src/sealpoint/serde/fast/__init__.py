"""Shortcuts for speed. Each can be removed, and gives what the general path gives."""

__all__: list[str] = []
