"""How findings look: rows of tables, lines and JSON objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sealpoint.cli.exits import Exit
from sealpoint.cli.output import complain, printable, put, say, show_table, stamp
from sealpoint.databases.rows import Failure
from sealpoint.errors import excerpt
from sealpoint.maintenance.audit import Audit
from sealpoint.maintenance.inspect import Readable, plain
from sealpoint.maintenance.inventory import Constructor, Inventory
from sealpoint.maintenance.rotate import lacks_keys
from sealpoint.maintenance.status import MAX_TYPES, Share
from sealpoint.serde.allowlist import Allowlist

MAX_FAILURES: Final = 1000
MAX_TOLD: Final = 100
MAX_CAUSES: Final = 20
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


class Tally:
    """How many failures there were, and whether it is keys alone that were missing."""

    def __init__(self) -> None:
        self.count = 0
        self._lack_keys = True

    def add(self, failure: Failure) -> None:
        """Take in another one."""
        self.count += 1
        self._lack_keys = self._lack_keys and lacks_keys(failure)

    @property
    def code(self) -> Exit:
        """How a program ends that has met these: another ring may mend what failed for want of a key."""
        if not self.count:
            return Exit.DONE
        return Exit.KEYS if self._lack_keys else Exit.UNOPENED


class Causes:
    """Why values failed: how many for each cause, and what to do about it."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}  # by hint, which is given once for all of its causes
        self._known = 0

    def add(self, failure: Failure) -> None:
        """Take in another one. Causes beyond `MAX_CAUSES` are counted in one."""
        hint, cause = getattr(failure.error, "hint", ""), str(failure.error)
        if cause not in self._counts.get(hint, {}):
            if self._known == MAX_CAUSES:  # a stranger makes up as many as he likes, and hints too
                hint, cause = hint if hint in self._counts else "", "other causes"
            else:
                self._known += 1
        counts = self._counts.setdefault(hint, {})
        counts[cause] = counts.get(cause, 0) + 1

    def tell(self) -> None:
        """Say them, each with its count, and below what to do."""
        for hint, counts in self._counts.items():
            for cause, number in counts.items():
                say(f"{values_line(number)}: {cause}")
            if hint:
                say(f"hint: {hint}")


def values_line(number: int) -> str:
    """How many values, for people."""
    return f"{number:,} value" + ("" if number == 1 else "s")


class Failures(Tally):
    """Failures that are told as they come, or kept for the end: the first `MAX_TOLD` or `MAX_FAILURES`.

    They are kept as JSON: the traceback of an error would keep the bytes of its value with it.
    """

    def __init__(self, *, aloud: bool) -> None:
        super().__init__()
        self.kept: list[dict[str, Any]] = []
        self._aloud = aloud
        self._causes = Causes()

    def add(self, failure: Failure) -> None:
        """Take in another one."""
        super().add(failure)
        if not self._aloud:
            if len(self.kept) < MAX_FAILURES:
                self.kept.append(failure_object(failure))
            return
        self._causes.add(failure)
        if self.count <= MAX_TOLD:
            complain(failure_line(failure))
        elif self.count == MAX_TOLD + 1:
            say("there are more; `sealpoint verify DB` names all of them")

    def advise(self) -> None:
        """Sum up those that were told, and say what to do about them."""
        self._causes.tell()


class LineReport:
    """A line a failure."""

    def __init__(self) -> None:
        self._causes = Causes()

    def add(self, failure: Failure) -> None:
        """Print a failure."""
        self._causes.add(failure)
        put(printable(failure_line(failure)))

    def end(self, rows: int, failed: int, *, complete: bool) -> None:
        """Sum up the failures, and say how many values open, if all have been looked at."""
        self._causes.tell()
        if complete:
            say(f"{rows - failed} of {rows} values open")


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

    def end(self, rows: int, failed: int, *, complete: bool) -> None:
        """Print how many there were, and whether all have been looked at."""
        end = {"rows": rows, "failed": failed, "complete": complete, "ok": complete and not failed}
        put(f"\n], {json.dumps(end)[1:]}")
