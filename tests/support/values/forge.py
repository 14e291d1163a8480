"""Bytes as a writer of a database could forge them: any extension, any name, any argument."""

from __future__ import annotations

import json
from typing import Any

import ormsgpack

from tests.support.values.wire import mapping


def pack(value: Any) -> bytes:
    """Return the msgpack of plain data and of what `ext` and `named` made."""
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)


def ext(code: int, payload: Any) -> ormsgpack.Ext:
    """Make an extension of a value, or of the bytes of one, for use within other values."""
    return ormsgpack.Ext(code, payload if isinstance(payload, bytes) else pack(payload))


def named(code: int, module: Any, name: Any, argument: Any, *method: Any) -> ormsgpack.Ext:
    """Make an extension that names a type."""
    return ext(code, [module, name, argument, *method])


def pairs(*items: tuple[Any, Any]) -> bytes:
    """Return the bytes of a map of at most 15 pairs, whatever the keys. Bytes go in as they are."""
    return mapping(*(part if isinstance(part, bytes) else pack(part) for item in items for part in item))


def extension(code: int, payload: Any) -> tuple[str, bytes]:
    """Return a row that is one extension."""
    return "msgpack", pack(ormsgpack.Ext(code, pack(payload)))


def record(code: int, module: str, name: str, argument: Any, *method: str) -> tuple[str, bytes]:
    """Return a row that names a type."""
    return "msgpack", pack(named(code, module, name, argument, *method))


def envelope(*path: str, lc: int = 2, kind: str = "constructor", **fields: Any) -> tuple[str, bytes]:
    """Return a legacy json row that names a type."""
    return "json", json.dumps({"lc": lc, "type": kind, "id": list(path), **fields}).encode()
