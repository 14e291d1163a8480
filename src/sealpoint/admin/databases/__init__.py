"""Databases for maintenance: stored values with their tags and rows."""
