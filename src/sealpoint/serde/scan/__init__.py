"""The check that unauthenticated bytes pass before they are decoded."""

__all__: list[str] = []
