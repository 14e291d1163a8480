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
from sealpoint.cli.stores import examined
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import KeyRingError
from sealpoint.keys import edit
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RELATION_CHECK,
    RingEntry,
    require_entry,
)
from sealpoint.keys.ringfile import RingFile, find_ring_file, read_ring_entries
from sealpoint.keys.sources import FileSource
from sealpoint.maintenance import transitions
from sealpoint.maintenance.result import Reason, Result

DatabaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db",
        metavar="DB",
        show_default=False,
        help="Database to examine first for rows under the key, beside those that the ring file lists. Can be"
        " repeated.",
    ),
]
NoDatabaseCheckOption = Annotated[
    bool, typer.Option("--no-database-check", help="Examine no database but those given with --db.")
]


def promote(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    no_database_check: NoDatabaseCheckOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a key active. The previously active key becomes decrypt-only.

    Refused if a database that --db names, or the ring file lists, has rows under a key of the ring other
    than these two.
    """
    result = Result("keys promote", {"no_database_check": no_database_check})
    file, named = find_ring_file(path), all_databases(databases, variables)
    with examined(file, named, with_listed=not no_database_check) as found:
        parts = [result.looks_at(store) for store in found.stores]
        before = transitions.promote_key(file, key_id, found.stores, listed=found.entries)
        warn_of_unrelated(file, found.stores, result)
    changed = [key_id] if before in (None, key_id) else [key_id, str(before)]
    show_keys(result, file, changed, as_json, {"databases": parts})
    if before == key_id:
        say(f"{key_id} was active already.")
    else:
        then = command_line("rotate DB --apply", path)
        say(f"Existing rows remain under their old key until you run: {then}")
    _warn_unless_others_load(file, None if before == key_id else key_id)


def disable(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    no_database_check: NoDatabaseCheckOption = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Do not ask. Rows in a database that --db names prevent it all the same."),
    ] = False,
    as_json: JsonOption = False,
) -> Exit:
    """Refuse values under a key that only opened. `enable` undoes it.

    Refused while a database that --db names has rows under it. Asks first if a database that the ring file
    lists has some, or if none is examined.
    """
    result = Result("keys disable", {"no_database_check": no_database_check})
    file, named = find_ring_file(path), all_databases(databases, variables)
    entry = require_entry(read_ring_entries(file), key_id)
    is_done = entry.state is KeyState.DISABLED
    if not is_done:
        entry.require_transition("disable")
    with examined(file, named, with_listed=not no_database_check) as found:
        counts = [] if is_done else [(store, transitions.count_rows(store, entry)) for store in found.listed]
        # Without a terminal rows are not accepted, so that they prevent the transition.
        accepted = [(store, rows) for store, rows in counts if rows and (yes or sys.stdin.isatty())]
        under = [f"{store.name} has {rows} rows under {key_id!r}" for store, rows in accepted]
        if not found.stores:
            under = ["no database is examined for values under the key"]
        if (
            not (yes or is_done)
            and under
            and (code := _ask(f"{', '.join(under)}, which will not open", key_id))
        ):
            return code
        parts = [result.looks_at(store) for store in found.stores]
        unused = [*found.named, *(store for store, rows in counts if (store, rows) not in accepted)]
        transitions.disable_key(file, key_id, unused, listed=found.entries)
        warn_of_unrelated(file, found.stores, result)
    for store, rows in accepted:
        warn(f"{store.name} has {rows} rows under {key_id!r}, which do not open now")
    result.add(Reason.NO_DATABASE, when=not found.stores)
    result.add(Reason.KEY_IN_USE, when=bool(accepted))
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
    say(f"Reseal its rows: {command_line('rotate DB --apply', path)}")
    say(f"Then refuse it at once: {command_line(f'keys disable {key_id} --db DB', path)}")
    say("Copies and backups made before can still be read with it.")


def destroy(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    no_database_check: NoDatabaseCheckOption = False,
    allow_unrelated: Annotated[
        bool,
        typer.Option(
            "--allow-unrelated", help="Accept a database that has no value under any key of the ring."
        ),
    ] = False,
    leave_material: Annotated[
        bool,
        typer.Option(
            "--leave-material",
            help="Do not remove the key file, for example if it has links: only mark the key. The material is"
            " still there until you remove it.",
        ),
    ] = False,
    allow_unproven: AllowUnprovenOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> Exit:
    """Destroy a key: remove its key file. This cannot be undone, and the id is never reused.

    Refused unless the key is staged, disabled or compromised; if a database that --db names, or the ring
    file lists, has rows under the key; and if one has no rows under any key of the ring, because it is
    probably the wrong one. Also refused if the key file does not hold the key, or has links. The key file is
    removed, not overwritten: snapshots, backups and flash memory may keep copies.
    """
    options = {
        "no_database_check": no_database_check,
        "allow_unrelated": allow_unrelated,
        "leave_material": leave_material,
    }
    result, file = Result("keys destroy", options), find_ring_file(path)
    named = all_databases(databases, variables)
    ring = RingFile(file)
    entry = require_entry(ring.entries, key_id)
    is_done = entry.state is KeyState.DESTROYED  # of what an interrupted run has left, no row is looked for
    if not is_done:
        entry.require_transition("destroy")
        if not (named or ring.databases or no_database_check):
            hint = (
                "name each that has ever used it with --db or in [[database]] of the ring file, or say"
                " --no-database-check"
            )
            complain("no database was named that may still have rows under the key", hint)
            return Exit.USAGE
        if not yes:
            code = _ask(f"Values under {key_id!r} can never be opened again, backups among them", key_id)
            if code:
                return code
    with examined(file, named, with_listed=not (no_database_check or is_done)) as found:
        parts = [result.looks_at(store) for store in found.stores]
        removed = transitions.destroy_key(
            file,
            key_id,
            found.stores,
            listed=found.entries,
            allow_unrelated=allow_unrelated,
            leave_material=leave_material,
        )
    entry = require_entry(read_ring_entries(file), key_id)
    result.add(Reason.DATABASE_CHECK_WAIVED, when=DATABASE_CHECK in entry.waived)
    result.add(Reason.UNRELATED_ALLOWED, when=RELATION_CHECK in entry.waived)
    result.add(Reason.MATERIAL_NOT_REMOVED, when=entry.material not in (None, MATERIAL_REMOVED))
    show_keys(result, file, [key_id], as_json, {"databases": parts})
    _say_what_is_left(entry, removed)
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)


def _say_what_is_left(entry: RingEntry, removed: Path | None) -> None:
    """Say where the material of a destroyed key still is."""
    if removed:
        say(f"{removed} is removed. Remove its copies on other hosts and in backups yourself.")
    if entry.wrapper is not None:
        say("The wrapped key is removed from the ring. Copies and backups of the ring file still have it:")
        say(f"remove them yourself, or the key with which wrapper {entry.wrapper!r} can unwrap it.")
    elif entry.material == MATERIAL_GONE:
        say("Its file was already gone. Remove its copies on other hosts and in backups yourself.")
    elif entry.material == MATERIAL_LEFT and entry.source == FileSource.kind:
        say(f"The key is not removed: its file {entry.location} and all links to it are still there.")
        say("When it has no links, the same command without --leave-material removes it.")
    elif entry.material == MATERIAL_LEFT:
        say(f"Its material came from source {entry.source!r} and is still there: remove it there, too.")


def _warn_unless_others_load(file: Path, loaded: str | None) -> None:
    """Warn of keys that are not available, apart from one whose material was loaded to promote it."""
    try:
        ring = KeyRing.of_file(RingFile(file))
        ring.with_keys(key for key in ring.keys if key.id != loaded).load_material()
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
