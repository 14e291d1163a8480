"""How `sealpoint keys` shows keys: as the rows of a table, and as JSON."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sealpoint.cli.output import print_json, show_table, warn
from sealpoint.cli.stores import read_entries
from sealpoint.cli.verdict import show_verdict
from sealpoint.databases.rows import RowStore
from sealpoint.keys.entry import DATES, RingEntry
from sealpoint.keys.ringfile import read_ring_entries
from sealpoint.maintenance import transitions
from sealpoint.maintenance.result import Reason, Result
from sealpoint.utc import as_utc

_IF_ANY: Final = (
    "wrapper",
    "version",
    "compromised",
    "expires",
    "owner",
)  # columns that most rings do not need


def show_keys(
    result: Result, file: Path, ids: list[str] | None, as_json: bool, body: Mapping[str, Any] | None = None
) -> None:
    """Print the keys with these ids, or all, as the ring has them by now."""
    entries = read_entries(file, result)
    shown = [entry for entry in entries if ids is None or entry.id in ids]
    document = result.document({**(body or {}), "keys": [key_object(entry) for entry in shown]})
    if as_json:
        print_json(document)
        return
    columns = ["id", "state", "suite", "created", "destroyed", "source"]
    columns += [name for name in _IF_ANY if any(key[name] for key in document["keys"])]
    cells = [[_cell(name, key[name]) for name in columns] for key in document["keys"]]
    show_table(["key", *columns[1:]], cells)
    if not result.ok:  # a transition that is done shows in the table
        show_verdict(document)


def _cell(name: str, value: Any) -> object:
    """Return a field of a key as it stands in a table: of its times the date alone."""
    return value[:10] if value and name in DATES else value


def key_object(entry: RingEntry) -> dict[str, Any]:
    """Return all that a ring says about a key. Its times are in the form of ISO 8601, in UTC."""
    fields = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    shown = {
        name: as_utc(value).isoformat() if isinstance(value, datetime) else value
        for name, value in fields.items()
    }
    lists = {"waived": list(entry.waived), "transitions": list(entry.transitions)}
    return {**shown, "state": entry.state.value, **lists}


def warn_of_unrelated(file: Path, stores: Sequence[RowStore], result: Result) -> None:
    """Warn of each database without a value under any key of the ring: examining it proves nothing."""
    entries = read_ring_entries(file)
    for store in stores:
        if not transitions.is_related(store, entries):
            result.add(Reason.UNRELATED_ALLOWED)
            warn(f"{store.name} has no value under any key of the ring: is it the right database?")


def command_line(words: str, path: Path | None) -> str:
    """Return a command for the ring of this one, to be copied and run."""
    return f"sealpoint {words}" + ("" if path is None else f" --keys {shlex.quote(str(path))}")
