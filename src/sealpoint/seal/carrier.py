"""The serializer of a wrapped saver or cache, and the objects that pass through it.

A wrapped saver never sees a value: it receives objects that seal themselves when its serializer is asked for
their bytes, and reads stored values unopened. The serializer has no key. Only with `allow_write_with` of
`SealedSaver` it also receives values as they are, and passes them to the serializer given there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn, Self

from sealpoint.errors import MetadataError, SealingError
from sealpoint.seal.places import KEY

Dump = Callable[[], tuple[str, bytes]]  # seals a value: returns its tag and the sealed bytes
Dumps = Callable[[Any], tuple[str, bytes]]

OPEN: Final = "sealpoint"  # type of a mapping that `Carrier` stores readable, with sealed parts


class Sealable:
    """A value on its way into a database. It is sealed only if the saver asks its serializer for bytes.

    Every other way to turn the object into bytes raises `SealingError` or TypeError: a saver that does not
    use its serializer fails, and stores nothing readable.

    Args:
        dump: Function that serializes and seals the value, and returns its tag and its bytes.
    """

    __slots__ = ("dump",)

    def __init__(self, dump: Dump) -> None:
        self.dump = dump

    @classmethod
    def of(cls, dump: Dump, *, now: bool) -> Self:
        """Create a `Sealable`.

        Args:
            dump: Serializes and seals the value.
            now: Whether to seal at once, for a saver that stores each value before it requests the next.
        """
        made = dump() if now else None
        return cls(dump if made is None else lambda: made)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SealingError("the saver pickles or copies a value instead of passing it to its serializer")


def _refuse() -> NoReturn:
    raise SealingError("the saver takes a checkpoint apart and stores its values one by one")


# Stands for the values in a `Document` that is sealed as a whole
GUARD: Final = Sealable(_refuse)


class Document(dict[str, Any]):
    """The part of a checkpoint that a wrapped saver reads while it stores the checkpoint.

    Attributes:
        dump: Function that returns the type and the bytes to store for the checkpoint.
    """

    __slots__ = ("dump",)

    dump: Dump

    def copy(self) -> Self:
        """Return a shallow copy of the same class: savers remove parts from a copy."""
        made = type(self)(self)
        made.dump = self.dump
        return made


_PREPARED: Final = (Sealable, Document)  # a union would be created for every value


class Sealed:
    """A stored value that was read from a database and is not opened.

    Attributes:
        tag: Type tag of the value.
        blob: The stored bytes.
        beside: On SQLite, parent and metadata of the row, which the wrapped saver itself does not receive.
    """

    __slots__ = ("beside", "blob", "tag")

    def __init__(self, tag: str, blob: Any, beside: tuple[Any, Any] | None = None) -> None:
        self.tag = tag
        self.blob = blob
        self.beside = beside


class Carrier:
    """The serializer of a wrapped saver: it passes on sealed values only; see the module's text."""

    def __init__(self, before: Dumps | None = None, parse: Callable[[bytes], Any] | None = None) -> None:
        """Make a serializer.

        Args:
            before: ``dumps_typed`` of the serializer that writes values which `SealedSaver` did not prepare.
            parse: Function that parses a mapping that is stored readable; ``None`` if none is stored.
        """
        self._before, self._parse = before, parse

    def dumps_typed(self, obj: Any) -> tuple[str, Any]:
        """Return the tag and the sealed bytes of a value that `SealedSaver` prepared."""
        if isinstance(obj, _PREPARED):
            return obj.dump()
        if type(obj) is list and obj and all(type(item) is Sealed for item in obj):
            return OPEN, obj  # a saver moves the writes of old checkpoints, and does not store this list
        if self._before is not None:
            return self._before(obj)
        value = getattr(obj, "value", None)  # of LangGraph's mark of a snapshot, which savers look at
        if type(value) is Sealable:
            return value.dump()
        if self._parse is not None and isinstance(obj, dict) and KEY in obj:
            return OPEN, dump_mapping(obj)
        raise SealingError(
            f"{type(obj).__name__} was passed to a wrapped saver or cache without being sealed",
            hint=(
                "use it only through its SealedSaver or SealedCache; otherwise it stores what was not"
                " passed to it, and cannot be sealed"
            ),
        )

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        """Return the stored value as `Sealed`, or a mapping or list that `dumps_typed` left readable."""
        tag, blob = data
        if tag == OPEN and type(blob) is list:
            return blob
        if tag == OPEN and self._parse is not None:
            return self._parse(blob)
        return blob if type(blob) is Sealed else Sealed(tag, blob)

    def is_opaque(self, value: object) -> bool:
        """Whether `loads_typed` returned a value without opening it."""
        return type(value) is Sealed


def dump_mapping(mapping: dict[str, Any]) -> bytes:
    """Return the bytes of a mapping that is stored readable."""
    try:
        return json.dumps(mapping).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(f"readable metadata has no form in JSON: {type(error).__name__}") from None


# Pickles and messages name the class by its former module.
Sealable.__module__ = "sealpoint.sealed.carrier"
