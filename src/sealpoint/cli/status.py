"""`sealpoint status`: what is sealed under which key, read from the tags alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.exits import Exit
from sealpoint.cli.options import DatabasesArgument, JsonOption, KeysOption
from sealpoint.cli.output import complain, complain_of_damage, say, show_json, show_table
from sealpoint.cli.stores import find_entries, opened, say_if_unknown
from sealpoint.errors import SealpointError, UnknownKeyError, excerpt
from sealpoint.maintenance.status import status as take_shares


def status(
    databases: DatabasesArgument,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="ID", show_default=False, help="Exit with 3 if a value is not under this key."
        ),
    ] = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show what is sealed under which key, and what is not. Needs no key, and reads no value.

    It believes the tags: that values also open is what `verify` shows.
    """
    entries = find_entries(keys)
    if only is not None and entries is not None and only not in {entry.id for entry in entries}:
        hint = f"name one of these, or use --keys with the ring file that contains {excerpt(only)}"
        unknown = UnknownKeyError(only, tuple(entry.id for entry in entries), hint=hint)
        complain(str(unknown), unknown.hint)
        return Exit.USAGE
    damage: dict[str, list[SealpointError]] = {}
    with opened(databases) as stores:
        found = [
            (store.name, take_shares(store, entries, damage.setdefault(store.name, []))) for store in stores
        ]
    others = sum(share.rows for _, shares in found for share in shares if share.key_id != only)
    say_if_unknown(entries, [share for _, shares in found for share in shares])
    if as_json:
        parts = [{"database": name, "shares": [asdict(share) for share in shares]} for name, shares in found]
        show_json(
            "status",
            {"databases": parts, "only": only}
            | ({} if only is None else {"ok": not others and not any(damage.values())}),
        )
    else:
        rows = ((name, *render.share_row(share)) for name, shares in found for share in shares)
        show_table(("database", *render.SHARES), rows)
    for name, errors in damage.items():
        complain_of_damage(name, errors)
    if any(damage.values()):
        return Exit.UNOPENED
    if only is None or not others:
        return Exit.DONE
    say(f"{others} values are not under {excerpt(only)}")
    return Exit.FOUND
