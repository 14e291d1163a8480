"""Evidence: what an assessor reads and checks."""

__all__: list[str] = []
