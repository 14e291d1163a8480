"""Databases of LangGraph's SQLite savers."""
