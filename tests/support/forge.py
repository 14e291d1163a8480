"""Bytes as a writer of a database could forge them: any extension, any name, any argument."""

from __future__ import annotations

import json
from typing import Any

import ormsgpack


def extension(code: int, payload: Any) -> tuple[str, bytes]:
    """Return a row that is one extension."""
    inner = ormsgpack.packb(payload, option=ormsgpack.OPT_NON_STR_KEYS)
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(code, inner))


def record(code: int, module: str, name: str, argument: Any, *method: str) -> tuple[str, bytes]:
    """Return a row that names a type."""
    return extension(code, [module, name, argument, *method])


def envelope(*path: str, lc: int = 2, kind: str = "constructor", **fields: Any) -> tuple[str, bytes]:
    """Return a legacy json row that names a type."""
    return "json", json.dumps({"lc": lc, "type": kind, "id": list(path), **fields}).encode()
