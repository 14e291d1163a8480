"""`sealpoint audit`: what is readable without a key."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.exits import Exit
from sealpoint.cli.options import DatabaseArgument, JsonOption, KeysOption
from sealpoint.cli.output import say, show_json
from sealpoint.cli.stores import find_entries, opened, say_if_unknown
from sealpoint.maintenance.audit import audit as look_at
from sealpoint.maintenance.status import with_states


def audit(
    database: DatabaseArgument,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 3 for what is readable beside the values.")
    ] = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show what is readable without a key. Shows shapes alone, and needs no key itself.

    Exits with 3 if there are values that are not sealed.
    """
    entries = find_entries(keys)
    with opened([database]) as (store,):
        name, found = store.name, look_at(store)
    found = replace(found, shares=tuple(with_states(found.shares, entries)))
    say_if_unknown(entries, found.shares)
    if as_json:
        counts = {"rows": found.rows, "open_rows": found.open_rows, "is_silent": found.is_silent}
        show_json("audit", {"database": name, **counts, **asdict(found)})
    else:
        render.show_audit(found)
    say(f"{found.rows - found.open_rows} of {found.rows} values are sealed")
    if not found.is_silent:
        say("more is readable beside the values, where a serializer cannot seal it")
    return Exit.DONE if found.is_sealed and (found.is_silent or not strict) else Exit.FOUND
