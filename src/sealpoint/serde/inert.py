"""The same bytes as plain data: nothing is imported, nothing is called.

What the audit, the type inventory and the inspection tools read databases with. Every
record that would become an object becomes an `Inert` value that says what it names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import ormsgpack

from sealpoint.errors import BlobError, DecodeError, UnknownTypeError, excerpt
from sealpoint.serde.codes import (
    DELTA_SNAPSHOT,
    KEYWORD_ARGUMENTS,
    METHOD,
    NUMPY_ARRAY,
    POSITIONAL_ARGUMENTS,
    PYDANTIC_V1,
    PYDANTIC_V2,
    SINGLE_ARGUMENT,
)
from sealpoint.serde.decode import require_record
from sealpoint.serde.legacy_json import envelope_target, parse_json
from sealpoint.serde.scan.headers import NAMELESS, read_names
from sealpoint.serde.scan.walk import DEFAULT_LIMITS, Limits, scan

KINDS: Final[Mapping[int, str]] = {
    SINGLE_ARGUMENT: "single",
    POSITIONAL_ARGUMENTS: "positional",
    KEYWORD_ARGUMENTS: "keyword",
    METHOD: "method",
    PYDANTIC_V1: "pydantic-v1",
    PYDANTIC_V2: "pydantic-v2",
    NUMPY_ARRAY: "numpy",
    DELTA_SNAPSHOT: "delta-snapshot",
}


class Inert(NamedTuple):
    """A record that names a type, left as it is.

    Attributes:
        kind: How the type would be called: one of `KINDS`, ``envelope`` for a legacy json
            row, or ``pickle`` for a whole row of pickle, which is not looked into.
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
        kind: What the serializer called the bytes: ``null``, ``bytes``, ``bytearray``,
            ``msgpack``, ``json`` or ``pickle``.
        data: The bytes.
        limits: What they may be.

    Raises:
        DecodeError: If they are malformed or ambiguous, see `scan`.
        UnknownTypeError: If ``kind`` is none of these.
    """
    _require_bytes(data)
    if kind == "msgpack":
        scan(data, limits)
        return _unpack(data)
    if kind == "json":
        return parse_json(data, _inert_envelope, limits)
    if kind == "pickle":
        return Inert("pickle", "", "", data)
    if kind == "bytes":
        return data
    if kind == "bytearray":
        return bytearray(data)
    if kind == "null" and not data:
        return None
    if kind == "null":
        raise DecodeError("a value of type 'null' has bytes")
    raise UnknownTypeError(f"Unknown serialization type: {excerpt(kind)}")


def inventory(
    data: bytes, kind: str = "msgpack", limits: Limits = DEFAULT_LIMITS
) -> Counter[tuple[str, str]]:
    """Count the types that a serialized value names, as (module, name). Builds nothing.

    Raises:
        DecodeError: If the bytes are malformed or ambiguous, see `scan`.
    """
    _require_bytes(data)
    if kind == "msgpack":
        return Counter([read_names(data, payload) for payload in scan(data, limits)])
    found: Counter[tuple[str, str]] = Counter()
    if kind == "json":
        parse_json(data, lambda value: found.update([envelope_target(value)]), limits, strict=False)
    elif kind == "pickle":
        found["pickle", "?"] += 1
    return found


def _require_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise BlobError(f"serialized value is {type(data).__name__}, not bytes")


def _unpack(data: bytes) -> Any:
    try:
        return ormsgpack.unpackb(data, ext_hook=_inert_record, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError as error:
        raise DecodeError(f"not the msgpack of a value: {excerpt(str(error))}") from None


def _inert_record(code: int, data: bytes) -> Inert:
    value = _unpack(data)
    if code in NAMELESS:
        return Inert(KINDS[code], *NAMELESS[code], value)
    return Inert(KINDS[code], *require_record(code, value), value[2])


def _inert_envelope(value: dict[str, Any]) -> Inert:
    module, name = envelope_target(value)
    return Inert("envelope", module, name, {key: value[key] for key in value if key not in ("lc", "id")})
