"""Legacy ``json`` rows: LangChain's envelopes in JSON, as LangGraph wrote before msgpack.

    {"lc": 2, "type": "constructor", "id": [*module, name], "args": [...], "kwargs": {...}}
    {"lc": 1, "type": "constructor", "id": ["langchain", ..., name], "kwargs": {...}}

The allowlist of msgpack values applies to envelopes, too. Envelopes of secrets, which would be read from
the environment, and LangChain's other kinds of envelope are refused.

LangGraph.js writes its Set, Map, RegExp, Error, Uint8Array and undefined with an ``id`` of at most one
element. Such an envelope is returned unchanged, as LangGraph does, because it names no Python type.

The text is read as LangGraph reads it: NaN and infinities, which LangGraph wrote, are accepted, the last of
duplicate keys counts, and lone surrogates are kept. So every reader finds the same value in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import (
    BlockedTypeError,
    DecodeError,
    LimitError,
    UnbuildableValueError,
    excerpt,
)
from sealpoint.serde import codes
from sealpoint.serde.catalogue import CATALOGUE, SAFE_TYPES, Allowlist
from sealpoint.serde.classes import warn_once
from sealpoint.serde.jsontext import parse
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan import require_counts

if TYPE_CHECKING:
    from sealpoint.serde.decode import OnBlocked

_LANGCHAIN: Final = {
    name: (module, name) for module, name in SAFE_TYPES if module.startswith("langchain_core.")
}


def parse_json(data: bytes, revive: Callable[[dict[str, Any]], Any], limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return the value of a legacy json row, with the results of ``revive`` in place of envelopes.

    Args:
        data: The bytes of the row.
        revive: Function called with each envelope, innermost first.
        limits: Limits of the row.

    Raises:
        DecodeError: If ``data`` is not JSON, or exceeds ``limits``.
    """
    most = limits.size_bytes // 2  # as text it may take four bytes a character, beside the bytes
    if len(data) > most:
        raise limits.over("size_bytes", f"a json row has {len(data)} bytes; at most {most} are read")

    def build(value: dict[str, Any]) -> Any:
        is_envelope = value.get("lc") in (1, 2) and "type" in value
        return revive(value) if is_envelope and ("id" in value or value["type"] == "undefined") else value

    try:
        return parse(data, limits.depth, limits.elements, build, strict=False)
    except LimitError as error:
        raise (limits.over(error.limit, str(error)) if error.limit else error) from None


def decode_json(data: bytes, allowlist: Allowlist, on_blocked: OnBlocked, limits: Limits) -> Any:
    """Return the value of a legacy json row, with the objects that its envelopes name."""
    named: Counter[tuple[str, str]] = Counter()
    records = count(1)

    def revive(value: dict[str, Any]) -> Any:
        named[envelope_target(value)] += 1
        if next(records) > limits.records:
            raise limits.over("records", f"value has over {limits.records} records")
        require_counts(named, limits)
        try:
            return _revive(value, allowlist)
        except (BlockedTypeError, UnbuildableValueError) as error:
            if on_blocked == "raise":
                raise
            warn_once(type(error).__name__, error.module, error.name, f"returned as its envelope: {error}")
            return value

    return parse_json(data, revive, limits)


def _revive(value: dict[str, Any], allowlist: Allowlist) -> Any:
    from sealpoint.serde.rebuild import make_builder

    module, name = envelope_target(value)
    if not module:
        if value["lc"] == 1 and value["type"] in ("constructor", "not_implemented", "secret"):
            hint = 'LangGraph for Python refuses it, too; on_blocked="raw" returns the envelope'
            raise UnbuildableValueError("JavaScript", name, "its envelope names no module", hint=hint)
        return value
    if not allowlist.permissive and (module, name) not in allowlist.types:
        raise BlockedTypeError(module, name, "allowed_json_modules")
    if value["type"] != "constructor":
        raise UnbuildableValueError(module, name, f"its envelope is a {excerpt(value['type'])}")
    args, kwargs, method = value.get("args") or [], value.get("kwargs") or {}, value.get("method")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise DecodeError("the args of an envelope must be a list, and its kwargs an object")
    if method == "fromisoformat" and len(args) == 1 and not kwargs:
        return make_builder(codes.METHOD, module, name, guarded=True)(args[0])
    if not (method is None or (isinstance(method, list) and None in method)):
        raise UnbuildableValueError(module, name, f"its envelope calls the method {excerpt(method)}")
    if (module, name) == ("re", "compile") and len(args) == 1:
        args, kwargs = [*args, kwargs.get("flags", 0)], {}
    return _call(module, name, args, kwargs)


def _call(module: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Build the object of an envelope, as from a msgpack record of such arguments, with the same checks."""
    if args and kwargs:
        raise UnbuildableValueError(module, name, "its envelope has arguments of both kinds")
    row = CATALOGUE.get((module, name))
    code = row.codes[0] if row else codes.KEYWORD_ARGUMENTS if kwargs else codes.POSITIONAL_ARGUMENTS
    from sealpoint.serde.rebuild import make_builder

    build = make_builder(code, module, name, guarded=True)
    if code == codes.SINGLE_ARGUMENT and len(args) == 1:
        return build(args[0])
    if code in (codes.KEYWORD_ARGUMENTS, codes.PYDANTIC_V1, codes.PYDANTIC_V2) and not args:
        return build(kwargs)
    if code == codes.POSITIONAL_ARGUMENTS and not kwargs:
        return build(args)
    raise UnbuildableValueError(module, name, "its envelope has other arguments than LangGraph writes")


def envelope_target(value: dict[str, Any]) -> tuple[str, str]:
    """Return the (module, name) that an envelope names; old modules of LangChain are replaced by new ones.

    The module is empty for an envelope of LangGraph.js.
    """
    path = value.get("id", [value["type"]])
    if not isinstance(path, list) or not path or not all(isinstance(part, str) for part in path):
        raise DecodeError("an envelope's id is not a list of strings")
    *module, name = path
    if value["lc"] == 1 and path[0] in ("langchain", "langchain_core") and name in _LANGCHAIN:
        return _LANGCHAIN[name]
    return ".".join(module), name
