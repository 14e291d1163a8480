"""Databases for maintenance: stored values with their tags and places."""

__all__: list[str] = []
