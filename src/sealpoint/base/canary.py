"""Canaries: values that only a serializer under `watched` can write.

Pickle, JSON and msgpack refuse them. While it is watched, a serializer replaces each canary by a random text,
and seals that. If a saver stores a canary in any other way, that raises, or the canary has not been sealed
when it is looked at.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from sealpoint.serde.base import SerializerProtocol

_DEPTH: Final = 8
"""How deep in a serialized value canaries are looked for: savers put a few containers around them."""

_METHODS: Final = ("dumps_typed", "loads_typed", "seal", "with_msgpack_allowlist")
"""What a watch stands before: `SealedSaver` calls ``seal``, other savers ``dumps_typed``."""

_lock: Final = threading.Lock()


class Canary:
    """A value that only a serializer under `watched` can write.

    Attributes:
        place: Where the saver was given it.
        text: What is sealed in its place.
        blob: What the serializer returned for it; ``None`` if the serializer was not given it.
        was_loaded: Whether ``blob`` was deserialized.
        was_shown: Whether it was converted to text.
    """

    __slots__ = ("blob", "place", "text", "was_loaded", "was_shown")

    def __init__(self, place: str) -> None:
        self.place = place
        self.text = secrets.token_hex(32)
        self.blob: bytes | None = None
        self.was_loaded = False
        self.was_shown = False

    def __repr__(self) -> str:
        self.was_shown = True
        return f"<{self.place} of require_sealing>"

    def __copy__(self) -> Canary:
        return self  # a saver may copy a checkpoint before it passes it on

    def __deepcopy__(self, memo: object) -> Canary:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a canary of require_sealing was pickled")


@contextmanager
def watched(serde: SerializerProtocol) -> Iterator[None]:
    """Make ``serde`` accept canaries. Others may use it meanwhile, and may be watching it too."""
    attributes = vars(serde)
    with _lock:
        watch = getattr(attributes.get("dumps_typed"), "__self__", None)
        if not isinstance(watch, _Watch):
            watch = _Watch(serde)
            # On the object, and not on the saver: a saver may hold its serializer in several places.
            attributes.update(watch.methods)
        watch.users += 1
    try:
        yield
    finally:
        with _lock:
            watch.users -= 1
            if not watch.users:
                watch.restore(attributes)


class _Watch:
    """The methods that stand before those of a serializer, until the last check of it ends."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.users = 0
        self._serde = serde
        self._originals = {name: getattr(serde, name) for name in _METHODS if hasattr(serde, name)}
        self.methods = {name: getattr(self, name) for name in self._originals}
        self._hidden = {name: vars(serde)[name] for name in _METHODS if name in vars(serde)}
        self._sealed: list[Canary] = []

    def restore(self, attributes: dict[str, Any]) -> None:
        """Make a serializer with these attributes as it was before."""
        for name, method in self.methods.items():
            if attributes.get(name) != method:
                continue  # a serializer that was derived without copying attributes
            if name in self._hidden:
                attributes[name] = self._hidden[name]
            else:
                del attributes[name]

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self._dump("dumps_typed", obj)

    def seal(self, obj: Any, **options: Any) -> tuple[str, bytes]:
        return self._dump("seal", obj, **options)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        for canary in self._sealed:
            canary.was_loaded |= canary.blob == data[1]
        return self._originals["loads_typed"](data)

    def with_msgpack_allowlist(self, extra_allowlist: Any) -> Any:
        derived = self._originals["with_msgpack_allowlist"](extra_allowlist)
        if derived is not self._serde:  # a copy, also of the watch
            self.restore(vars(derived))
        return derived

    def _dump(self, method: str, obj: Any, **options: Any) -> tuple[str, bytes]:
        canaries = [*_canaries(obj, _DEPTH)]
        stored: tuple[str, bytes] = self._originals[method](_replaced(obj) if canaries else obj, **options)
        for canary in canaries:
            canary.blob = stored[1]
        self._sealed += canaries
        return stored


def _canaries(value: Any, depth: int) -> Iterator[Canary]:
    if isinstance(value, Canary):
        yield value
    elif depth and isinstance(value, dict | list | tuple):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _canaries(member, depth - 1)


def _replaced(value: Any) -> Any:
    """Return a value that contains canaries with their texts in their place."""
    if isinstance(value, Canary):
        return value.text
    if isinstance(value, dict):
        return {key: _replaced(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        members = [_replaced(member) for member in value]
        return tuple(members) if isinstance(value, tuple) else members
    return value
