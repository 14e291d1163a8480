"""`sealpoint audit`: what is readable without a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer

from sealpoint.admin.cli import render
from sealpoint.admin.cli.databases import find_entries, one_database, opened, say_if_unknown
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Document, Run
from sealpoint.admin.cli.options import (
    AllowUnprovenOption,
    DatabaseArgument,
    VariableOption,
)
from sealpoint.admin.cli.output import put, show_table
from sealpoint.admin.maintenance.audit import audit as look_at
from sealpoint.admin.maintenance.audit import audit_object, audit_reasons
from sealpoint.admin.maintenance.status import with_states


def audit(
    run: Run,
    database: DatabaseArgument = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 3 for what is readable beside the values.")
    ] = False,
    allow_metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-metadata",
            metavar="KEY",
            help="With --strict, accept this key of metadata. Give it once for each.",
        ),
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
    variable: VariableOption = None,
) -> Exit:
    """Show what is readable without a key. No value is shown, only shapes.

    Exits with 3 if there are values that are not sealed, or tables in which LangGraph keeps values unsealed.
    """
    allowed = tuple(allow_metadata or ())
    run.asks(strict=strict, allow_metadata=list(allowed))
    named = one_database(run, database, variable)
    entries = find_entries(run)
    with opened([named]) as (store,):
        part, found = run.result.looks_at(store), look_at(store, allowed)
    found = replace(found, shares=tuple(with_states(found.shares, entries)))
    say_if_unknown(entries, found.shares)
    run.result.add(*audit_reasons(found, strict=strict))
    return run.end({**part, **audit_object(found)}, _show, allow_unproven=allow_unproven)


def _show(document: Document) -> None:
    """Print the object of `audit`: a table for each kind of finding."""
    show_table(render.SHARES, map(render.share_row, document["shares"]))
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
    render.count(
        metadata["unreadable"], f"of {metadata['rows']} checkpoints have metadata that is not strict JSON"
    )
    render.count(metadata["other_rows"], "more members of metadata have other keys")
    addresses = [
        (part["column"], part["texts"], "|".join(part["examples"])) for part in document["addresses"]
    ]
    _show_more(("column with e-mail addresses", "texts", "shapes"), addresses)
    inline = [(part["channel"], part["kind"], part["rows"]) for part in document["inline"]]
    _show_more(("inline channel", "type", "rows"), inline)
    render.count(document["other_inline"], "more inline values are of other channels")
    tables = [(name, _content(name, document)) for name in document["scope"]["not_read"]]
    _show_more(("table that was not read", "content"), tables)
    for what, size in (document["residue"] or {}).items():
        if size is None:
            put("the unused space of pages could not be examined")
        else:
            render.count(size, f"bytes of {_RESIDUE[what]} were not read")
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
