"""How findings look: rows of tables, lines and JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sealpoint.cli.headview import show_heads
from sealpoint.cli.output import complain, print_object, put, say, show_table
from sealpoint.cli.verdict import show_verdict
from sealpoint.databases.failures import Failure, Failures
from sealpoint.errors import excerpt
from sealpoint.maintenance.inspect import Readable, plain
from sealpoint.maintenance.inventory import Constructor, Inventory
from sealpoint.maintenance.result import Reason
from sealpoint.maintenance.status import MAX_TYPES
from sealpoint.serde.allowlist import Allowlist

Document = Mapping[str, Any]
"""An object of `sealpoint.maintenance.result`, or a part of one."""

MAX_SHOWN: Final = 100
SHARES: Final = ("table", "kind", "suite", "key", "state", "rows", "bytes", "types")


def _share_row(share: Document) -> tuple[object, ...]:
    suite = None if share["suite"] is None else ".".join((share["suite"], *share["flags"]))
    key = share["key_id"]
    if share["kind"] == "sealed" and key is None:
        key = f"{share['tags']} others"
    more = ("...",) if share["tags"] > MAX_TYPES else ()
    shown = ", ".join(dict.fromkeys((*share["types"], *more)))
    return (
        share["table"],
        share["kind"],
        suite,
        key,
        share["state"],
        share["rows"],
        share["size_bytes"],
        shown,
    )


def show_status(document: Document) -> None:
    """Print the object of `status` as a table."""
    rows = [
        (part["database"]["name"], *_share_row(share))
        for part in document["databases"]
        for share in part["shares"]
    ]
    show_table(("database", *SHARES), rows)
    if document["others"]:
        verb = "is" if document["others"] == 1 else "are"
        put(f"{values_line(document['others'])} {verb} not under {excerpt(document['only'])}")


def show_audit(document: Document) -> None:
    """Print the object of `audit`: a table for each kind of finding."""
    show_table(SHARES, map(_share_row, document["shares"]))
    metadata = document["metadata"]
    fields = [
        (
            field["key"],
            field["rows"],
            ", ".join(field["types"]),
            _KNOWN[field["known"]] if field["known"] else "|".join(field["examples"]),
        )
        for field in metadata["fields"]
    ]
    _show_more(("metadata key", "rows", "types", "shapes"), fields)
    _count(metadata["unreadable"], f"of {metadata['rows']} checkpoints have metadata that is not strict JSON")
    _count(metadata["other_rows"], "more members of metadata have other keys")
    addresses = [
        (part["column"], part["texts"], "|".join(part["examples"])) for part in document["addresses"]
    ]
    _show_more(("column with e-mail addresses", "texts", "shapes"), addresses)
    inline = [(part["channel"], part["kind"], part["rows"]) for part in document["inline"]]
    _show_more(("inline channel", "type", "rows"), inline)
    _count(document["other_inline"], "more inline values are of other channels")
    tables = [(name, _content(name, document)) for name in document["scope"]["not_read"]]
    _show_more(("table that was not read", "content"), tables)
    for what, size in (document["residue"] or {}).items():
        if size is None:
            put("the unused space of pages could not be examined")
        else:
            _count(size, f"bytes of {_RESIDUE[what]} were not read")
    put("")
    put(f"{document['rows'] - document['open_rows']} of {document['rows']} values are sealed")
    if not document["is_silent"]:
        put("more is readable beside the values, where a serializer cannot seal it")
    elif document["rows"]:
        put("beside the values only ids, names and known keys of metadata are readable")


_KNOWN: Final = {
    "langgraph": "LangGraph's",
    "framework": "a framework's",
    "sealed": "sealed",
    "token": "tokens of SealedSaver",
    "allowed": "allowed",
}
_RESIDUE: Final = {
    "free_bytes": "free pages",
    "log_bytes": "the write-ahead log",
    "journal_bytes": "the rollback journal",
    "slack_bytes": "old content in unused space of pages",
}


def _content(table: str, document: Document) -> str | None:
    return "LangGraph's, readable" if table in document["readable_tables"] else None


def _show_more(columns: tuple[str, ...], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        put("")
        show_table(columns, rows)


def _count(number: int, what: str) -> None:
    if number:
        put(f"{number} {what}")


# --- types ------------------------------------------------------------------------------------


def verdict(found: Constructor, allowlist: Allowlist | None) -> str | None:
    """Whether a type is allowed; ``None`` without an allowlist."""
    if found.is_safe:
        return "built in"
    if allowlist is None:
        return None
    return "yes" if found.pair in allowlist.types else "no"


def show_types(document: Document) -> None:
    """Print the object of `types` as a table, the types named most often first."""
    types = sorted(document["types"], key=lambda part: -part["records"])
    rows = [
        (f"{part['module']}.{part['name']}", part["records"], part["thread"], part["allowed"])
        for part in types
    ]
    show_table(("type", "records", "first thread", "allowed"), rows)
    values = f"of {document['values']} values"
    _count(document["not_opened"], f"{values} are sealed and were not opened")
    _count(document["failed"], f"{values} could not be read")
    foreign = sum(part["allowed"] == "no" for part in types)
    _count(foreign, "types are not on the allowlist")
    _count(document["other_records"], "records name other types, which are not listed")


def emit_types(found: Inventory) -> None:
    """Print the types that need an allowlist as one, in Python."""
    needed = sorted((part.pair, part) for part in found.constructors.values() if not part.is_safe)
    print("[")
    for pair, part in needed:
        if part.is_nameable:
            # The names come from untrusted values: as literals they cannot add code to the printed list.
            module, name = map(ascii, pair)
            print(f"    ({module}, {name}),  # {part.records}, first in thread {excerpt(part.thread)}")
    print("]")
    if found.not_opened:
        number = f"{found.not_opened} of {found.values}"
        say(f"{number} values are sealed and were not opened: their types are not in the list")
    if found.other_records:
        say(f"{found.other_records} records name other types, which are not in the list")
    if unnameable := sum(not part.is_nameable for _, part in needed):
        say(f"{unnameable} of the names are no type's and were left out")
    if needed:
        say("the values name these types: allow those that are yours, and no other")


def types_object(
    found: Inventory, failures: Sequence[dict[str, Any]], allowlist: Allowlist | None
) -> dict[str, Any]:
    """What `types` found, as JSON."""
    return {
        "types": [
            {
                "module": part.module,
                "name": part.name,
                "records": part.records,
                "thread": part.thread,
                "allowed": verdict(part, allowlist),
            }
            for part in found.constructors.values()
        ],
        "other_records": found.other_records,
        "values": found.values,
        "not_opened": found.not_opened,
        "failed": found.failures,
        "failures": failures,
    }


# --- values and failures ----------------------------------------------------------------------


def show_value(found: Readable | Failure) -> None:
    """Print where a value stands, and the value below; or complain of it."""
    if isinstance(found, Failure):
        complain(failure_line(found))
        return
    put(f"{found.table} {place_line(found.place)} {found.tag}")
    for head, value in (("", found.value), ("sealed with it: ", found.sealed_with)):
        if not head or value is not None:
            for line in f"{head}{json.dumps(value, indent=2, ensure_ascii=False)}".splitlines():
                put(f"  {line}")


def value_object(found: Readable | Failure) -> dict[str, Any]:
    """One of the values of `inspect --json`."""
    if isinstance(found, Failure):
        return failure_object(found)
    shown = {"table": found.table, "place": plain(found.place), "tag": found.tag, "value": found.value}
    return shown if found.sealed_with is None else {**shown, "sealed_with": found.sealed_with}


def place_line(place: Mapping[str, Any]) -> str:
    """The columns of a row on one line, each escaped and not too long."""
    return " ".join(f"{name}={text if type(text) is int else excerpt(text)}" for name, text in place.items())


def failure_line(failure: Failure) -> str:
    """A failure on one line."""
    error = f"{type(failure.error).__name__}: {failure.error}"
    return f"{failure.table} {place_line(failure.place)}: {error}"


def failure_object(failure: Failure) -> dict[str, Any]:
    """A failure as JSON."""
    return {
        "table": failure.table,
        "place": plain(failure.place),
        "tag": plain(failure.tag),
        "error": type(failure.error).__name__,
        "message": str(failure.error),
        "hint": getattr(failure.error, "hint", ""),
    }


def failure_reasons(failures: Failures) -> Iterator[Reason]:
    """Yield why a result with these is not true: with another ring, values whose key is missing may open."""
    if failures.count:
        yield Reason.KEYS_MISSING if failures.lacks_keys_only else Reason.VALUES_FAILED


def show_causes(failures: Failures) -> None:
    """Print each cause with its count, and below what to do."""
    for hint, counts in failures.causes.items():
        for cause, number in counts.items():
            say(f"{values_line(number)}: {cause}")
        if hint:
            say(f"hint: {hint}")


def values_line(number: int) -> str:
    """How many values, for people."""
    return f"{number:,} value" + ("" if number == 1 else "s")


class ShownFailures(Failures):
    """Failures of a run, of which the first `MAX_SHOWN` are printed as they come, if they are to be shown."""

    def __init__(self, *, shown: bool, may_repeat: bool = False) -> None:
        super().__init__(may_repeat=may_repeat)
        self._shown = shown

    def add(self, failed: Failure) -> bool:
        """Count a failure, and print it."""
        is_new = super().add(failed)
        if is_new and self._shown:
            if self.count <= MAX_SHOWN:
                complain(failure_line(failed))
            elif self.count == MAX_SHOWN + 1:
                say("there are more; `sealpoint verify DB` names all of them")
        return is_new

    def show_causes(self) -> None:
        """Sum up the failures that were printed, and print what to do about them."""
        if self._shown:
            show_causes(self)

    def objects(self) -> list[dict[str, Any]]:
        """The failures that were kept, as JSON; empty if they were printed."""
        return [] if self._shown else [failure_object(failed) for failed in self.kept]


class LineReport:
    """A line a failure."""

    def add(self, failed: Failure) -> None:
        """Print a failure."""
        put(failure_line(failed))

    def end(self, tail: Document) -> None:
        """Print how many values open, and under which keys."""
        keys = [f"{part['values']} under {part['key']}" for part in tail["opened"]]
        if plain := tail["accepted"] - tail["legacy"]:
            keys.append(f"{plain} not sealed, and accepted")
        if tail["legacy"]:
            keys.append(f"{tail['legacy']} under LANGGRAPH_AES_KEY, and accepted")
        opened = sum(part["values"] for part in tail["opened"]) + tail["accepted"]
        so_far = "" if tail["complete"] else " read so far"
        put(f"{opened} of {tail['rows']} values{so_far} open{': ' if keys else ''}{', '.join(keys)}")
        if tail["failed"]:
            put(f"refused values and rows: {tail['failed']}")
        if tail["unbound"]:
            put(f"values and checkpoints that are not bound to their rows: {tail['unbound']}")
            for place in tail["unbound_places"][:1]:
                put(f"the first is {place_line(place)}")
        if tail["orphans"]:
            put(f"checkpoints whose parent is not there: {tail['orphans']}")
            for place in tail["orphan_places"][:1]:
                put(f"the first is {place_line(place)}")
        if tail["heads"]:
            show_heads(tail["heads"])
        show_verdict(tail)


class JsonReport:
    """One JSON object over all of them, printed as they come: there may be more than fit into memory."""

    def __init__(self, head: Document) -> None:
        print_object(f'{json.dumps(head)[:-1]}, "failures": [')
        self._separator = ""

    def add(self, failure: Failure) -> None:
        """Print a failure."""
        print_object(self._separator + json.dumps(failure_object(failure)), end="")
        self._separator = ",\n"

    def end(self, tail: Document) -> None:
        """Print the members that follow the failures."""
        print_object(f"\n], {json.dumps(tail)[1:]}")
