"""`sealpoint status`: what is sealed under which key, read from the tags alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sealpoint.admin.cli import render
from sealpoint.admin.cli.databases import find_databases, find_entries, opened, say_if_unknown
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Document, Run
from sealpoint.admin.cli.options import DatabasesArgument, VariablesOption
from sealpoint.admin.cli.output import complain_of_damage, put, show_table
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.status import status as take_shares
from sealpoint.errors import SealpointError, UnknownKeyError, excerpt


def status(
    run: Run,
    databases: DatabasesArgument = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="ID", help="Exit with 3 if a value is not under this key.")
    ] = None,
    variables: VariablesOption = None,
) -> Exit:
    """Show what is sealed under which key, and what is not. Needs no key, and reads no value.

    It believes the tags: that values also open is what `verify` shows.
    """
    looked, result = find_databases(run, databases, variables), run.result
    entries = find_entries(run)
    if only is not None and entries is not None and only not in {entry.id for entry in entries}:
        hint = f"name one of these, or use --keys with the ring file that contains {excerpt(only)}"
        unknown = UnknownKeyError(only, tuple(entry.id for entry in entries), hint=hint)
        return run.fail(Exit.USAGE, str(unknown), unknown.hint)
    damage: dict[str, list[SealpointError]] = {}
    with opened(looked.names, ring_file=looked.ring_file) as stores:
        found = [
            (result.looks_at(store), take_shares(store, entries, damage.setdefault(store.name, [])))
            for store in stores
        ]
    shares = [share for _, each in found for share in each]
    say_if_unknown(entries, shares)
    others = sum(share.rows for share in shares if share.key_id != only)
    result.add(Reason.NOT_ASKED, when=only is None)
    result.add(Reason.NO_ROWS, when=not all(each for _, each in found))
    result.add(Reason.OTHER_KEYS, when=only is not None and others > 0)
    result.add(Reason.DAMAGED, when=any(damage.values()))
    parts = [{**part, "shares": [asdict(share) for share in each]} for part, each in found]
    members = {"only": only, "others": None if only is None else others, "databases": parts}
    code = run.end(members, _show)
    for name, errors in damage.items():
        complain_of_damage(name, errors)
    return code


def _show(document: Document) -> None:
    """Print the object of `status` as a table."""
    rows = [
        (part["database"]["name"], *render.share_row(share))
        for part in document["databases"]
        for share in part["shares"]
    ]
    show_table(("database", *render.SHARES), rows)
    if document["others"]:
        verb = "is" if document["others"] == 1 else "are"
        put(f"{render.values_line(document['others'])} {verb} not under {excerpt(document['only'])}")
