"""Databases as maintenance reads and writes them: stored values with their type tags and rows."""
