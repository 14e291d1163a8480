"""The JSON object of a command: valid against the published schema, and in agreement with its exit code."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]


def read_schema(name: str) -> dict[str, Any]:
    """A published schema."""
    found: dict[str, Any] = json.loads(resources.files("sealpoint.schemas").joinpath(name).read_text("utf-8"))
    return found


def closed(schema: Any, *, whole: bool = True) -> Any:
    """Return a schema that refuses members that it does not name; not ``whole`` is one that others add to."""
    if isinstance(schema, list):
        return [closed(each, whole=whole) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, part in schema.items():
        if name in ("$defs", "properties"):
            found[name] = {each: closed(inner, whole=name != "$defs") for each, inner in part.items()}
        else:
            found[name] = closed(part, whole=name not in _ADDED)
    if whole and schema.keys() & {"properties", "allOf", "$ref"}:
        found["unevaluatedProperties"] = False
    return found


_ADDED: Final = ("allOf", "if", "then", "else", "not", "contains")
SCHEMA: Final = read_schema("result-1.json")
REPORT: Final = read_schema("report-1.json")
_VALIDATORS: Final = {each["$id"]: Draft202012Validator(closed(each)) for each in (SCHEMA, REPORT)}

UNPROVEN_IS_3: Final = frozenset(
    {"verify", "ledger verify", "erasures", "merge", "audit", "report", "keys destroy"}
)
"""Commands that end with 3 where others end with 0: if ``ok`` is null."""


def require_valid(document: Any) -> dict[str, Any]:
    """Return an object of a command, if the schema allows it.

    Raises:
        ValidationError: If the schema does not allow it.
    """
    assert isinstance(document, dict)
    _VALIDATORS.get(document.get("schema"), _VALIDATORS[SCHEMA["$id"]]).validate(document)
    assert list(document)[:2] == ["schema", "command"]
    assert document["began"] <= document["ended"]
    return document


def expected_code(document: dict[str, Any], *, allow_unproven: bool = False) -> int:
    """Return the exit code that the pages give for an object: from ``ok`` and ``reasons`` alone."""
    reasons = set(document["reasons"])
    if document["ok"] is True:
        assert not reasons
        return 0
    assert reasons
    codes = {
        "damaged": 4,
        "values-failed": 4,
        "heads-differ": 4,
        "pin-differs": 4,
        "keys-missing": 5,
        "none-opens": 5,
        "wrappers-failing": 5,
    }
    for reason, code in {**codes, "ended-early": 7}.items():
        if reason in reasons:
            return code
    if document["ok"] is False:
        return 3
    if "not-opened" in reasons:
        return 5
    return 3 if document["command"] in UNPROVEN_IS_3 and not allow_unproven else 0
