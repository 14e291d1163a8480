"""`sealpoint status`: what is sealed under which key, read from the tags alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import find_databases
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import DatabasesArgument, JsonOption, KeysOption, VariablesOption
from sealpoint.cli.output import complain, complain_of_damage, print_json
from sealpoint.cli.stores import find_entries, opened, say_if_unknown
from sealpoint.cli.verdict import show_verdict
from sealpoint.errors import SealpointError, UnknownKeyError, excerpt
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.status import status as take_shares


def status(
    databases: DatabasesArgument = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="ID", show_default=False, help="Exit with 3 if a value is not under this key."
        ),
    ] = None,
    variables: VariablesOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show what is sealed under which key, and what is not. Needs no key, and reads no value.

    It believes the tags: that values also open is what `verify` shows.
    """
    looked = find_databases(databases, variables, keys)
    result = Result("status")
    entries = find_entries(keys, result)
    if only is not None and entries is not None and only not in {entry.id for entry in entries}:
        hint = f"name one of these, or use --keys with the ring file that contains {excerpt(only)}"
        unknown = UnknownKeyError(only, tuple(entry.id for entry in entries), hint=hint)
        complain(str(unknown), unknown.hint)
        return Exit.USAGE
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
    document = result.document({"only": only, "others": None if only is None else others, "databases": parts})
    if as_json:
        print_json(document)
    else:
        render.show_status(document)
        show_verdict(document)
    for name, errors in damage.items():
        complain_of_damage(name, errors)
    return result_code(result)
