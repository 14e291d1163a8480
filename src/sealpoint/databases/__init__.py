"""Databases as maintenance sees them: stored values with their tags, and where they are."""

__all__: list[str] = []
