"""Legacy ``json`` rows: LangChain's envelopes in JSON, as LangGraph wrote before msgpack.

    {"lc": 2, "type": "constructor", "id": [*module, name], "args": [...], "kwargs": {...}}
    {"lc": 1, "type": "constructor", "id": ["langchain", ..., name], "kwargs": {...}}

They stand under the same allowlist as msgpack. Secrets, which would be read from the
environment, and LangChain's other kinds of envelope are refused.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sealpoint.errors import BlockedTypeError, DecodeError, SerdeError, UnbuildableValueError, excerpt
from sealpoint.serde.allowlist import SAFE_TYPES, Allowlist
from sealpoint.serde.decode import OnBlocked, warn_once
from sealpoint.serde.encode import METHOD
from sealpoint.serde.rebuild import find_type, make_builder

_LANGCHAIN: Final = {
    name: (module, name) for module, name in SAFE_TYPES if module.startswith("langchain_core.")
}


def decode_json(data: bytes, allowlist: Allowlist, on_blocked: OnBlocked) -> Any:
    """Return the value of a legacy row.

    Raises:
        DecodeError: If ``data`` is not JSON in UTF-8, or an envelope is malformed.
        BlockedTypeError: If it names a type that is not allowed.
        UnbuildableValueError: If a type refuses its arguments.
    """

    def revive(value: dict[str, Any]) -> Any:
        if value.get("lc") not in (1, 2) or "type" not in value or "id" not in value:
            return value
        try:
            return _revive(value, allowlist)
        except (BlockedTypeError, UnbuildableValueError) as error:
            if on_blocked == "raise":
                raise
            warn_once(type(error).__name__, error.module, error.name, f"given as its envelope: {error}")
            return value

    try:
        return json.loads(data.decode(), object_hook=revive)
    except SerdeError:
        raise
    except UnicodeDecodeError:
        raise DecodeError("a json row is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise DecodeError(f"a json row is not JSON (line {error.lineno} column {error.colno})") from None
    except ValueError:
        raise DecodeError("a json row holds an integer of too many digits") from None
    except RecursionError:
        raise DecodeError("a json row is nested too deeply") from None


def _revive(value: dict[str, Any], allowlist: Allowlist) -> Any:
    module, name = _target(value)
    if not allowlist.permissive and (module, name) not in allowlist.types:
        raise BlockedTypeError(module, name, "allowed_json_modules")
    if value["type"] != "constructor":
        raise UnbuildableValueError(module, name, f"its envelope is a {excerpt(value['type'])}")
    args, kwargs, method = value.get("args") or [], value.get("kwargs") or {}, value.get("method")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise DecodeError("an envelope's args are a list and its kwargs an object")
    if method == "fromisoformat" and len(args) == 1 and not kwargs:
        return make_builder(METHOD, module, name)(args[0])
    if not (method is None or (isinstance(method, list) and None in method)):
        raise UnbuildableValueError(module, name, f"it asks for the method {excerpt(method)}")
    cls = find_type(module, name)
    try:
        return cls(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 -- a constructor may raise anything, and its text may quote values
        raise UnbuildableValueError(module, name, type(error).__name__) from None


def _target(value: dict[str, Any]) -> tuple[str, str]:
    """Return the (module, name) of an envelope; LangChain's old paths lead to today's modules."""
    path = value["id"]
    if not isinstance(path, list) or len(path) < 2 or not all(isinstance(part, str) for part in path):
        raise DecodeError("an envelope's id is a list of at least two strings")
    *module, name = path
    if value["lc"] == 1 and module[0] in ("langchain", "langchain_core") and name in _LANGCHAIN:
        return _LANGCHAIN[name]
    return ".".join(module), name
