"""The demo, `python -m demo`: seals an agent's state, searches the database for it and attacks it."""

__all__: list[str] = []
