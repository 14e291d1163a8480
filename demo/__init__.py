"""The demo, `python -m demo`: an agent's state is sealed, searched for and attacked."""

__all__: list[str] = []
