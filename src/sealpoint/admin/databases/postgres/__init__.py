"""Databases of LangGraph's Postgres savers."""

__all__: list[str] = []
