"""Databases of LangGraph's Postgres savers."""
