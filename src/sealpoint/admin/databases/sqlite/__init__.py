"""Databases of LangGraph's SQLite savers."""

__all__: list[str] = []
