"""How findings look: rows of tables, lines and JSON objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sealpoint.cli.exits import Exit
from sealpoint.cli.output import complain, printable, put, say, show_table, stamp
from sealpoint.databases.failures import Failure, Failures
from sealpoint.errors import excerpt
from sealpoint.maintenance.audit import Audit
from sealpoint.maintenance.inspect import Readable, plain
from sealpoint.maintenance.inventory import Constructor, Inventory
from sealpoint.maintenance.status import MAX_TYPES, Share
from sealpoint.serde.allowlist import Allowlist

MAX_SHOWN: Final = 100
SHARES: Final = ("table", "kind", "suite", "key", "state", "rows", "bytes", "types")


def share_row(share: Share) -> tuple[object, ...]:
    """A row under `SHARES`."""
    suite = None if share.suite is None else ".".join((share.suite, *share.flags))
    key = f"{share.tags} others" if share.kind == "sealed" and share.key_id is None else share.key_id
    more = ("...",) if share.tags > MAX_TYPES else ()
    shown = ", ".join(dict.fromkeys((*share.types, *more)))
    return share.table, share.kind, suite, key, share.state, share.rows, share.size_bytes, shown


def show_audit(found: Audit) -> None:
    """Print a table for each kind of finding."""
    show_table(SHARES, map(share_row, found.shares))
    metadata = found.metadata
    fields = [
        (
            field.key,
            field.rows,
            ", ".join(field.types),
            "LangGraph's" if field.own else "|".join(field.examples),
        )
        for field in metadata.fields
    ]
    _show_more(("metadata key", "rows", "types", "shapes"), fields)
    _count(metadata.unreadable, f"of {metadata.rows} checkpoints have metadata that is not strict JSON")
    _count(metadata.other_rows, "more members of metadata have other keys")
    addresses = [(part.column, part.texts, "|".join(part.examples)) for part in found.addresses]
    _show_more(("column with e-mail addresses", "texts", "shapes"), addresses)
    _show_more(
        ("inline channel", "type", "rows"), [(part.channel, part.kind, part.rows) for part in found.inline]
    )
    _count(found.other_inline, "more inline values are of other channels")


def _show_more(columns: tuple[str, ...], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        print()
        show_table(columns, rows)


def _count(number: int, what: str) -> None:
    if number:
        say(f"{number} {what}")


# --- types ------------------------------------------------------------------------------------


def verdict(found: Constructor, allowlist: Allowlist | None) -> str | None:
    """Whether a type is allowed; ``None`` without an allowlist."""
    if found.is_safe:
        return "by itself"
    if allowlist is None:
        return None
    return "yes" if found.pair in allowlist.types else "no"


def show_types(found: Inventory, allowlist: Allowlist | None) -> None:
    """Print the types, those named most often first."""
    parts = sorted(found.constructors.values(), key=lambda part: -part.records)
    rows = [
        (f"{part.module}.{part.name}", part.records, part.thread, verdict(part, allowlist)) for part in parts
    ]
    show_table(("type", "records", "first thread", "allowed"), rows)


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
    _count(sum(not part.is_nameable for _, part in needed), "of the names are no type's and were left out")
    if needed:
        say("the values name these types: allow those that are yours, and no other")


def types_object(
    name: str, found: Inventory, failures: Sequence[dict[str, Any]], allowlist: Allowlist | None
) -> dict[str, Any]:
    """What `types --json` prints."""
    return {
        "database": name,
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
    print(printable(f"{found.table} {place_line(found.place)} {found.tag}"))
    for line in json.dumps(found.value, indent=2, ensure_ascii=False).splitlines():
        print(f"  {printable(line)}")


def value_object(found: Readable | Failure) -> dict[str, Any]:
    """One of the values of `inspect --json`."""
    if isinstance(found, Failure):
        return failure_object(found)
    return {"table": found.table, "place": plain(found.place), "tag": found.tag, "value": found.value}


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


def exit_code(failures: Failures) -> Exit:
    """How a program ends that has met these: with another ring, values whose key is missing may open."""
    if not failures.count:
        return Exit.DONE
    return Exit.KEYS if failures.lacks_keys_only else Exit.UNOPENED


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
        put(printable(failure_line(failed)))

    def end(self, rows: int, failures: Failures, *, complete: bool) -> None:
        """Sum up the failures, and print how many values open, if all have been looked at."""
        show_causes(failures)
        if complete:
            say(f"{rows - failures.count} of {rows} values open")


class JsonReport:
    """One JSON object over all of them."""

    def __init__(self, name: str) -> None:
        head = {**stamp("verify"), "database": name}
        put(f'{json.dumps(head)[:-1]}, "failures": [')
        self._separator = ""

    def add(self, failure: Failure) -> None:
        """Print a failure."""
        put(self._separator + json.dumps(failure_object(failure)), end="")
        self._separator = ",\n"

    def end(self, rows: int, failures: Failures, *, complete: bool) -> None:
        """Print how many there were, and whether all have been looked at."""
        failed = failures.count
        end = {"rows": rows, "failed": failed, "complete": complete, "ok": complete and not failed}
        put(f"\n], {json.dumps(end)[1:]}")
