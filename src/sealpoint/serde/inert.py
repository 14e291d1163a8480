"""Inert reading: serialized bytes as plain data. Nothing is imported or called.

The audit, the type inventory and the inspection read databases in this way. Every record of an object
becomes an `Inert` value with the name of its type.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import ormsgpack

from sealpoint.errors import BlobError, DecodeError, excerpt
from sealpoint.serde.codes import EXTENSIONS, require_record
from sealpoint.serde.kinds import JSON, MSGPACK, PICKLE, read_plain
from sealpoint.serde.legacy_json import envelope_target, parse_json
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.packing import UNPACK
from sealpoint.serde.scan import read_names, scan


class Inert(NamedTuple):
    """A record that names a type, as plain data.

    Attributes:
        kind: How the type would be called: a label of `sealpoint.serde.codes.EXTENSIONS`, ``envelope`` in a
            legacy json row, or ``pickle`` for a whole pickle row, which is not examined.
        module: Module of the type, as the bytes name it.
        name: Name of the type, as the bytes name it.
        payload: Its arguments, as plain data.
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
        limits: What they may be.

    Raises:
        BlobError: If ``data`` is not bytes.
        DecodeError: If they are malformed or ambiguous, see `sealpoint.serde.scan`.
        LimitError: If they are larger, deeper or have more elements than ``limits`` say.
        UnknownTypeError: If ``kind`` is not one of these.
    """
    _require_bytes(data)
    if kind == MSGPACK:
        scan(data, limits)
        return _unpack(data)
    if kind == JSON:
        return parse_json(data, _inert_envelope, limits)
    if kind == PICKLE:
        return Inert(PICKLE, "", "", data)
    return read_plain(kind, data)


def inventory(data: bytes, kind: str = MSGPACK, limits: Limits = DEFAULT_LIMITS) -> Counter[tuple[str, str]]:
    """Count the types that a serialized value names, as (module, name). Builds nothing.

    Args:
        data: The bytes.
        kind: Type name from the serializer. Kinds without type names have none.
        limits: What they may be.

    Raises:
        BlobError: If ``data`` is not bytes.
        DecodeError: If they are malformed or ambiguous, see `sealpoint.serde.scan`.
        LimitError: If they are larger, deeper or have more elements than ``limits`` say.
    """
    _require_bytes(data)
    if kind == MSGPACK:
        return Counter([read_names(data, payload) for payload in scan(data, limits)])
    found: Counter[tuple[str, str]] = Counter()
    if kind == JSON:
        parse_json(data, lambda value: found.update([envelope_target(value)]), limits, strict=False)
    elif kind == PICKLE:
        found[PICKLE, "?"] += 1
    return found


def _require_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise BlobError(f"serialized value is {type(data).__name__}, not bytes")


def _unpack(data: bytes) -> Any:
    try:
        return ormsgpack.unpackb(data, ext_hook=_inert_record, option=UNPACK)
    except ormsgpack.MsgpackDecodeError as error:
        raise DecodeError(f"not the msgpack of a value: {excerpt(str(error))}") from None


def _inert_record(code: int, data: bytes) -> Inert:
    value = _unpack(data)
    extension = EXTENSIONS[code]
    if extension.type_name is not None:
        return Inert(extension.label, *extension.type_name, value)
    return Inert(extension.label, *require_record(code, value), value[2])


def _inert_envelope(value: dict[str, Any]) -> Inert:
    module, name = envelope_target(value)
    return Inert("envelope", module, name, {key: value[key] for key in value if key not in ("lc", "id")})
