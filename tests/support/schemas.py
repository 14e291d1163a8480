"""``make schemas``: writes into the JSON Schemas what they repeat of the code, and of themselves.

Types and descriptions are written by hand. Written here are the names that the code has, the dates and lines
of a key, the members that an object must have, which are all that it may have except in `BY_HAND` and
`SOMETIMES`, the members of each command, and what ``ok`` and ``verdict`` say of ``reasons``. A test fails if
a file would be written otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.cli.app import COMMANDS, SEVERAL
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.evidence.erasure import State
from sealpoint.admin.evidence.report.document import QUESTIONS, WORDS
from sealpoint.admin.evidence.report.sources import ORDER
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.tags import Kind
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    DATES,
    LINES,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RELATION_CHECK,
)
from sealpoint.seal.keys import KeyState

BY_HAND: Final = (
    "",
    "/properties/ring/anyOf/0",
    "/$defs/inspect/allOf/1",
    "/$defs/rotate/allOf/1",
    "/$defs/rebind/allOf/1",
)
"""Objects with members that some of them lack."""

SOMETIMES: Final = {"/$defs/key": {"problem"}}
"""Members that some objects lack, where the others are all there."""

KEYS: Final = {
    "result-1.json": [("/$defs/key", LINES), ("/$defs/key", DATES)],
    "report-1.json": [("/$defs/key", LINES), ("/$defs/key/properties/times", DATES)],
}
"""Where members have the names of fields of the ring file."""

KINDS: Final = [SqliteRows.kind, PostgresRows.kind]
MATERIAL: Final = [MATERIAL_REMOVED, MATERIAL_LEFT, MATERIAL_GONE]

ENUMS: Final[dict[str, dict[str, list[Any]]]] = {
    "result-1.json": {
        "/properties/reasons/items": [*Reason],
        "/$defs/database/properties/kind": KINDS,
        "/$defs/share/properties/kind": [*Kind],
        "/$defs/key/properties/state": [state.value for state in KeyState],
        "/$defs/key/properties/material": [*MATERIAL, None],
        "/$defs/key/properties/waived/items": [DATABASE_CHECK, RELATION_CHECK],
        "/$defs/erasure/properties/state": [state.value for state in State],
    },
    "report-1.json": {
        "/properties/reasons/items": [*ORDER],
        "/$defs/reason/properties/reason": [*ORDER],
        "/$defs/question/properties/id": [question.id for question in QUESTIONS],
        "/$defs/question/properties/verdict": [*WORDS.values()],
        "/$defs/database/properties/database/properties/kind": KINDS,
        "/$defs/database/properties/coverage/items/properties/kind": [*Kind],
        "/$defs/key/properties/state": [state.value for state in KeyState],
        "/$defs/key/properties/material/anyOf/0": MATERIAL,
        "/$defs/erasure/properties/state": [state.value for state in State],
    },
}


def file_of(name: str) -> Path:
    """Return where a schema lies."""
    return Path(str(resources.files("sealpoint.schemas").joinpath(name)))


def render(name: str) -> str:
    """Return the text of a schema, as it should be."""
    schema = json.loads(file_of(name).read_text(encoding="utf-8"))
    found = dict(_objects(schema))
    for place, names in ENUMS[name].items():
        found[place]["enum"] = names
    for place, fields in KEYS[name]:
        found[place]["properties"] = dict(_members_like(found[place]["properties"], fields))
    for place, each in found.items():
        if place not in BY_HAND and "required" in each and "properties" in each:
            lacked = SOMETIMES.get(place, ())
            each["required"] = [member for member in each["properties"] if member not in lacked]
    schema["allOf"] = _laws("ok", True, False, {"enum": _refuting(schema["properties"]["reasons"]["items"])})
    if name == "result-1.json":
        commands = schema["properties"]["command"]
        commands["enum"] = [*_in_order(commands["enum"], COMMANDS), "sealpoint"]
        # The members of a report are in a schema of its own.
        schema["allOf"] += [_members(each) for each in commands["enum"][:-1] if each != "report"]
    else:
        question = schema["$defs"]["question"]
        refuting = {"enum": _refuting(schema["$defs"]["reason"]["properties"]["reason"])}
        question["allOf"] = _laws("verdict", WORDS[True], WORDS[False], {"properties": {"reason": refuting}})
    return json.dumps(schema, indent=2) + "\n"


def _objects(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all objects in a schema, by their places."""
    if isinstance(schema, dict):
        yield place, schema
    parts = schema.items() if isinstance(schema, dict) else enumerate(schema)
    for name, part in parts:
        if isinstance(part, dict | list):
            yield from _objects(part, f"{place}/{name}")


def _members_like(members: dict[str, Any], names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield members with all of the names, each new one as the first that is there is."""
    first = next(name for name in members if name in names)
    for name, member in members.items():
        if name == first:
            yield from ((each, members.get(each, member)) for each in names)
        elif name not in names:
            yield name, member


def _in_order(old: Collection[str], now: Collection[str]) -> list[str]:
    """Return the names that there are now: those of old as they stand, then the others."""
    return [*(each for each in old if each in now), *sorted(set(now) - set(old))]


def _refuting(reasons: dict[str, Any]) -> list[str]:
    return [each for each in reasons["enum"] if each.refutes]


def _laws(member: str, yes: Any, no: Any, refuting: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an answer says of its reasons: none if it is yes, and a refuting one only if it is no."""
    some = {"contains": refuting}
    return [
        _law(member, yes, {"maxItems": 0}, {"minItems": 1}),
        _law(member, no, some, {"not": some}),
    ]


def _law(member: str, value: Any, then: dict[str, Any], otherwise: dict[str, Any]) -> dict[str, Any]:
    return {
        "if": {"properties": {member: {"const": value}}},
        "then": {"properties": {"reasons": then}},
        "else": {"properties": {"reasons": otherwise}},
    }


def _members(command: str) -> dict[str, Any]:
    """Return what names the members of a command, which a run that could not begin has not."""
    members: dict[str, Any] = {"$ref": f"#/$defs/{command.replace(' ', '_')}"}
    if command in SEVERAL:
        several = {"$ref": "#/$defs/several"}
        members = {"if": {"required": ["errors"]}, "then": several, "else": members}
    return {
        "if": {"properties": {"command": {"const": command}}, "not": {"required": ["error"]}},
        "then": members,
    }


if __name__ == "__main__":
    for each in ENUMS:
        file_of(each).write_text(render(each), encoding="utf-8")
