"""`sealpoint keys promote`, `disable`, `enable`, `compromise` and `destroy`: changing the state of a key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.cli.databases import all_databases
from sealpoint.cli.exits import Exit, message, result_code
from sealpoint.cli.keyview import command_line, show_keys, warn_of_unrelated
from sealpoint.cli.options import (
    AllowUnprovenOption,
    JsonOption,
    KeyArgument,
    KeysOption,
    VariablesOption,
)
from sealpoint.cli.output import complain, say, warn
from sealpoint.cli.stores import opened
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import KeyRingError
from sealpoint.keys import edit
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RELATION_CHECK,
    require_entry,
)
from sealpoint.keys.ringfile import find_ring_file, read_ring_entries
from sealpoint.maintenance import transitions
from sealpoint.maintenance.result import Reason, Result

DatabaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db",
        metavar="DB",
        show_default=False,
        help="Database to check first for rows under the key. Can be repeated.",
    ),
]


def promote(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key active. The previously active key becomes decrypt-only.

    Refused if a database given with --db has rows under a key of the ring other than these two.
    """
    result, file = Result("keys promote"), find_ring_file(path)
    with opened(all_databases(databases, variables)) as stores:
        parts = [result.looks_at(store) for store in stores]
        before = transitions.promote_key(file, key_id, stores)
        warn_of_unrelated(file, stores, result)
    changed = [key_id] if before in (None, key_id) else [key_id, str(before)]
    show_keys(result, file, changed, as_json, {"databases": parts})
    if before == key_id:
        say(f"{key_id} was active already.")
    else:
        then = command_line("rotate DB --apply", path)
        say(f"Existing rows remain under their old key until you run: {then}")
    _warn_unless_it_loads(file)


def disable(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, although no database is examined.")] = False,
    as_json: JsonOption = False,
) -> Exit:
    """Refuse values under a key that only opened. `enable` undoes it.

    Refused while a database that is named with --db has rows under it. Without one it asks first.
    """
    result, file = Result("keys disable"), find_ring_file(path)
    named = all_databases(databases, variables)
    entry = require_entry(read_ring_entries(file), key_id)
    if entry.state is not KeyState.DISABLED:
        entry.require_transition("disable")
        if not named and not yes:
            code = _ask("no database is examined for values under the key, which will not open", key_id)
            if code:
                return code
    with opened(named) as stores:
        parts = [result.looks_at(store) for store in stores]
        transitions.disable_key(file, key_id, stores)
        warn_of_unrelated(file, stores, result)
    result.add(Reason.NO_DATABASE, when=not named)
    show_keys(result, file, [key_id], as_json, {"databases": parts})
    say(f"If values under it are still needed: {command_line(f'keys enable {key_id}', path)}")
    return Exit.DONE


def enable(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Let a disabled key open values again."""
    file = find_ring_file(path)
    edit.enable_key(file, key_id)
    show_keys(Result("keys enable"), file, [key_id], as_json)


def compromise(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Mark a key as compromised: it opens, but never seals again.

    Every command that reads the ring reports it. Refused while the key is active: promote another key first.
    """
    file = find_ring_file(path)
    edit.compromise_key(file, key_id)
    show_keys(Result("keys compromise"), file, [key_id], as_json)
    say(f"Seal what is under it anew: {command_line('rotate DB --apply', path)}")
    say("Copies and backups made before can still be read with it.")


def destroy(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    no_database_check: Annotated[
        bool, typer.Option("--no-database-check", help="Check no database for rows under the key.")
    ] = False,
    allow_unrelated: Annotated[
        bool,
        typer.Option(
            "--allow-unrelated", help="Accept a database that has no value under any key of the ring."
        ),
    ] = False,
    allow_unproven: AllowUnprovenOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> Exit:
    """Destroy a key: remove its key file. This cannot be undone, and the id is never reused.

    Refused unless the key is staged, disabled or compromised; if a database has rows under the key; and if
    a database has no rows under any key of the ring, because it is probably the wrong one. The key file is
    removed, not overwritten: snapshots, backups and flash memory may keep copies.
    """
    options = {"no_database_check": no_database_check, "allow_unrelated": allow_unrelated}
    result, file = Result("keys destroy", options), find_ring_file(path)
    named = all_databases(databases, variables)
    entry = require_entry(read_ring_entries(file), key_id)
    if entry.state is not KeyState.DESTROYED:
        entry.require_transition("destroy")
        if not named and not no_database_check:
            hint = "name each that has ever used it with --db, or say --no-database-check"
            complain("no database was named that may still have rows under the key", hint)
            return Exit.USAGE
        if not yes:
            code = _ask(f"Values under {key_id!r} can never be opened again, backups among them", key_id)
            if code:
                return code
    with opened(named) as stores:
        parts = [result.looks_at(store) for store in stores]
        removed = transitions.destroy_key(file, key_id, stores, allow_unrelated=allow_unrelated)
    entry = require_entry(read_ring_entries(file), key_id)
    result.add(Reason.DATABASE_CHECK_WAIVED, when=DATABASE_CHECK in entry.waived)
    result.add(Reason.UNRELATED_ALLOWED, when=RELATION_CHECK in entry.waived)
    result.add(Reason.MATERIAL_NOT_REMOVED, when=entry.material not in (None, MATERIAL_REMOVED))
    show_keys(result, file, [key_id], as_json, {"databases": parts})
    if removed:
        say(f"{removed} is removed. Remove its copies on other hosts and in backups yourself.")
    elif entry.wrapper is not None:
        say(
            "The wrapped key is removed from the ring. Copies and backups of the ring file still have it, and"
        )
        say(f"wrapper {entry.wrapper!r} can unwrap it there: remove them, or the wrapping key, yourself.")
    elif entry.material == MATERIAL_GONE:
        say("Its file was already gone. Remove its copies on other hosts and in backups yourself.")
    elif entry.material == MATERIAL_LEFT:
        say(f"Its material came from source {entry.source!r} and is still there: remove it there, too.")
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)


def _warn_unless_it_loads(file: Path) -> None:
    """Warn of keys that are not available: promoting asks only for the material of the promoted key."""
    try:
        KeyRing.load(file).load_material()
    except KeyRingError as error:
        warn(f"the ring does not load: {message(error)}", error.hint)


def _ask(what: str, key_id: str) -> Exit | None:
    """Ask before a key is changed; return how the command ends, unless it is agreed to."""
    if not sys.stdin.isatty():
        complain("there is no terminal to ask for confirmation", "use --yes to do it without being asked")
        return Exit.USAGE
    say(f"{what}. To confirm, type its id:")
    if sys.stdin.readline().strip() == key_id:
        return None
    say("Nothing was done.")
    return Exit.STOPPED
