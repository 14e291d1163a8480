"""The serializer without some of its shortcuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sealpoint.serde import encode, fast


@contextmanager
def without(shortcuts: Iterable[str]) -> Iterator[None]:
    """Take the general path; in serializers that are made here, and of all that is encoded."""
    fast.switched_off.update(shortcuts)
    encode._encoders.clear()
    try:
        yield
    finally:
        fast.switched_off.difference_update(shortcuts)
        encode._encoders.clear()
