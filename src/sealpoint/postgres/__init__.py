"""Postgres, as savers and commands meet it."""

__all__: list[str] = []
