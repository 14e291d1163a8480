"""Reads serialized bytes without making objects. Nothing is imported or called.

Inert reading gives plain data: every record of an object becomes an `Inert` value with the name of its type.
The audit, the type inventory and the inspection read databases in this way.

An outline has ``None`` in place of objects: it has only dicts, lists and scalars. Code that needs only the
keys of dicts reads a checkpoint of ten messages in a third of the time. Outlines are read only from values
that the ring has opened; from all other bytes the objects are built, which checks the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import ormsgpack

from sealpoint.crypto import RingCipher
from sealpoint.errors import DecodeError, SealedValueError, excerpt
from sealpoint.seal.tag import JSON, MSGPACK, PICKLE
from sealpoint.serde.base import SerializerProtocol, read_plain
from sealpoint.serde.codes import EXTENSIONS, UNPACK, require_record
from sealpoint.serde.legacy_json import envelope_target, parse_json
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan import read_names, scan
from sealpoint.serde.stack import require_stack

if TYPE_CHECKING:
    from sealpoint.serde.encrypted import EncryptedSerializer


class Inert(NamedTuple):
    """The stored form of an object, which names its type, as plain data.

    Attributes:
        kind: How a serializer would call the type: a label of `sealpoint.serde.codes.EXTENSIONS`,
            ``envelope`` in a legacy json row, ``JavaScript`` for an envelope of LangGraph.js, which names no
            module, or ``pickle`` for a whole pickle row, which is not examined.
        module: Module of the type, as the bytes name it.
        name: Name of the type, as the bytes name it.
        payload: Arguments for the type, as plain data.
    """

    kind: str
    module: str
    name: str
    payload: Any


def decode_inert(kind: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return a serialized value as plain data.

    Args:
        kind: Type name from the serializer: ``null``, ``bytes``, ``bytearray``, ``msgpack``, ``json`` or
            ``pickle``.
        data: The bytes.
        limits: Limits of the bytes.

    Raises:
        SealedValueError: If ``data`` is not bytes.
        DecodeError: If the bytes are malformed or ambiguous, see `sealpoint.serde.scan`.
        LimitError: If the bytes are larger, deeper or have more elements than ``limits`` allow.
        UnknownTypeError: If ``kind`` is none of these type names.

    Example:
        >>> from sealpoint import JsonPlusSerializer
        >>> from sealpoint.serde.inert import decode_inert
        >>> decode_inert(*JsonPlusSerializer().dumps_typed({"items": [1, 2]}))
        {'items': [1, 2]}
    """
    _require_bytes(data)
    if kind == MSGPACK:
        scan(data, limits)
        return read_outline(data, _inert_record)
    if kind == JSON:
        return parse_json(data, _inert_envelope, limits)
    if kind == PICKLE:
        return Inert(PICKLE, "", "", data)
    return read_plain(kind, data)


def inventory(data: bytes, kind: str = MSGPACK, limits: Limits = DEFAULT_LIMITS) -> Counter[tuple[str, str]]:
    """Count the types that a serialized value names, as (module, name), without making objects.

    Args:
        data: The bytes.
        kind: Type name from the serializer. Values of the kind ``bytes``, for example, name no types.
        limits: Limits of the bytes.

    Raises:
        SealedValueError: If ``data`` is not bytes.
        DecodeError: If the bytes are malformed or ambiguous, see `sealpoint.serde.scan`.
        LimitError: If the bytes are larger, deeper or have more elements than ``limits`` allow.

    Example:
        >>> from datetime import date
        >>> from sealpoint import JsonPlusSerializer
        >>> from sealpoint.serde.inert import inventory
        >>> kind, data = JsonPlusSerializer().dumps_typed([date(2026, 1, 1), date(2026, 1, 2)])
        >>> inventory(data, kind)
        Counter({('datetime', 'date'): 2})
    """
    _require_bytes(data)
    if kind == MSGPACK:
        return Counter([read_names(data, payload) for payload in scan(data, limits)])
    found: Counter[tuple[str, str]] = Counter()
    if kind == JSON:
        parse_json(data, lambda value: found.update([envelope_target(value)]), limits)
    elif kind == PICKLE:
        found[PICKLE, "?"] += 1
    return found


def _require_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise SealedValueError(f"serialized value is {type(data).__name__}, not bytes")


def _inert_record(code: int, data: bytes) -> Inert:
    value = _unpack(data, _inert_record)
    extension = EXTENSIONS[code]
    if extension.type_name is not None:
        return Inert(extension.label, *extension.type_name, value)
    return Inert(extension.label, *require_record(code, value), value[2])


def _inert_envelope(value: dict[str, Any]) -> Inert:
    module, name = envelope_target(value)
    kind = "envelope" if module else "JavaScript"
    return Inert(kind, module, name, {key: value[key] for key in value if key not in ("lc", "id")})


# Turns a type name and bytes into a value, or into its outline: ``None`` in place of each object.
Outline = Callable[[str, bytes], Any]


def make_outline(serde: SerializerProtocol) -> Outline:
    """Return the function that reads outlines of values that ``serde`` has stored.

    The function raises the errors of ``serde``, except those of building objects. If ``serde`` is not an
    `EncryptedSerializer`, or overrides methods, the function returns the value itself, with its objects.
    """
    if not _is_own(serde):
        return lambda kind, data: serde.loads_typed((kind, data))

    def outline(kind: str, data: bytes) -> Any:
        opened = serde.open(kind, data)
        if opened.inner == MSGPACK and opened.authenticated:
            try:
                return read_outline(opened.data)
            except DecodeError:
                pass  # building the value raises the error
        return serde.loads_typed((kind, data))

    return outline


def read_outline(data: bytes, stand_in: Callable[[int, bytes], Any] = lambda *_: None) -> Any:
    """Unpack msgpack that was scanned or authenticated; ``stand_in`` returns what replaces an object."""
    require_stack(data)
    return _unpack(data, stand_in)


def _unpack(data: bytes, stand_in: Callable[[int, bytes], Any]) -> Any:
    try:
        return ormsgpack.unpackb(data, ext_hook=stand_in, option=UNPACK)
    except ormsgpack.MsgpackDecodeError as error:
        raise DecodeError(f"not the msgpack of a value: {excerpt(str(error))}") from None


def _is_own(serde: SerializerProtocol) -> TypeGuard[EncryptedSerializer]:
    """Whether ``serde`` opens values with a ring, and decodes them as `JsonPlusSerializer` does."""
    from sealpoint.serde.encrypted import EncryptedSerializer
    from sealpoint.serde.jsonplus import JsonPlusSerializer

    if not isinstance(serde, EncryptedSerializer):
        return False
    cls, inner = type(serde), type(serde.serde)
    return (
        cls.loads_typed is EncryptedSerializer.loads_typed
        and cls.open is EncryptedSerializer.open
        and cls.decode is EncryptedSerializer.decode
        and getattr(inner, "loads_sealed", None) is JsonPlusSerializer.loads_sealed
        and isinstance(serde.cipher, RingCipher)
    )
