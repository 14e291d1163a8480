"""Everything about keys: ids, states, material, and the ring file that lists them."""

__all__: list[str] = []
