"""`sealpoint keys`: show the keys of a ring, and change their states."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.cli.databases import all_databases
from sealpoint.cli.exits import Exit, exit_code, message, result_code
from sealpoint.cli.keyview import command_line, key_object, show_keys, warn_of_unrelated
from sealpoint.cli.options import AllowUnprovenOption, JsonOption, KeysOption, VariablesOption
from sealpoint.cli.output import complain, print_json, require_command, say, show_table, warn
from sealpoint.cli.stores import opened, read_entries
from sealpoint.cli.verdict import show_verdict
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
from sealpoint.keys.leftovers import KEY_FOLDER, key_file
from sealpoint.keys.ringfile import SYSTEM_PATH, find_ring_file, read_ring_entries
from sealpoint.maintenance import transitions
from sealpoint.maintenance.result import Reason, Result

EPILOG: Final = (
    'With --json: one object, see docs/results.md, with "keys": [{"id", "state", "suite", "check",'
    ' "source", "location", "material", "owner", "created", "activated", "retired", "disabled",'
    ' "compromised", "destroyed", "expires", "waived", "transitions"}]}: the keys that the command changed'
    ' or shows; check adds "problem". Key material is never printed, and never passed as an argument.'
)

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, epilog=EPILOG)

KeyArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Id of the key.")]
NewKeyArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        show_default=False,
        help="Id of the new key. Default: year, letter and a random part, e.g. k26b-4f7c.",
    ),
]
DatabaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db",
        metavar="DB",
        show_default=False,
        help="Database to check first for rows under the key. Can be repeated.",
    ),
]


@app.callback()
def keys(context: typer.Context) -> None:
    """Show the keys of a ring, and change their states.

    staged -> active <-> decrypt-only <-> disabled -> destroyed, and any but active -> compromised
    """
    require_command(context)


@app.command()
def init(key_id: NewKeyArgument = None, path: KeysOption = None, as_json: JsonOption = False) -> Exit:
    """Create a ring file with one new, active key.

    --keys or $SEALPOINT_KEYS gives its path; there is no default path.
    """
    named = path or os.environ.get("SEALPOINT_KEYS")
    if not named:
        hint = f"--keys FILE, or export SEALPOINT_KEYS=FILE; without either, {SYSTEM_PATH} is read"
        complain("no path was given for the ring file", hint)
        return Exit.USAGE
    file = Path(named)
    made = edit.create_ring(file, key_id)
    show_keys(Result("keys init"), file, [made], as_json)
    say(f"{file} is the ring, {file.parent / KEY_FOLDER} holds the key itself.")
    say("Keep a copy of the key apart from the backups of the database: a lost key is lost data.")
    return Exit.DONE


@app.command()
def generate(
    key_id: NewKeyArgument = None,
    path: KeysOption = None,
    expires: Annotated[
        datetime | None,
        typer.Option("--expires", show_default=False, help="When the key should stop sealing, in UTC."),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="TEXT", show_default=False, help="Who is responsible for the key."),
    ] = None,
    index: Annotated[
        bool,
        typer.Option(
            "--index", help="Add the index key instead, for tokens and pseudonyms; it is never rotated."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a staged key: it opens values, but does not seal yet."""
    file = find_ring_file(path)
    if index:
        if key_id or expires or owner:
            raise typer.BadParameter("an index key has no ID, --expires or --owner", param_hint="--index")
        made = edit.add_index(file)
        if as_json:
            show_keys(Result("keys generate"), file, [], as_json)
        say(f"{key_file(file, made)} is the index key: give it to every host, and keep a copy.")
        return
    made = edit.stage_key(file, key_id, expires=expires, owner=owner)
    show_keys(Result("keys generate"), file, [made], as_json)
    then = command_line(f"keys promote {made}", path)
    say(
        f"Give every host {key_file(file, made)} first, and then the ring."
        f" When `keys check` passes on each: {then}"
    )


@app.command("list")
def list_keys(path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Show all keys, destroyed ones too. No key material is needed."""
    result = Result("keys list")
    result.add(Reason.NOT_ASKED)
    show_keys(result, find_ring_file(path), None, as_json)


@app.command()
def check(path: KeysOption = None, as_json: JsonOption = False) -> Exit:
    """Load every key and compare it with its check value.

    Prints the problem of each key. Exits with 5 if a key that may open values is not available; disabled
    keys do not count.
    """
    result, file = Result("keys check"), find_ring_file(path)
    found = edit.check_ring(file)
    entries = [entry for entry in read_entries(file, result) if entry.id in found]
    problems = {key_id: message(error) if error else None for key_id, error in found.items()}
    needed = [found[entry.id] for entry in entries if entry.state.opens]
    # What is wrong with the ring as a whole, or with its index key, only shows when all of it is loaded.
    errors = [error for error in needed if error is not None] or _load_errors(file)
    result.add(Reason.KEYS_MISSING, when=bool(errors))
    result.add(Reason.NO_KEYS, when=not needed)
    document = result.document(
        {"keys": [{**key_object(entry), "problem": problems[entry.id]} for entry in entries]}
    )
    if as_json:
        print_json(document)
    else:
        cells = [(key["id"], key["state"], key["source"], key["problem"] or "ok") for key in document["keys"]]
        show_table(("key", "state", "source", "material"), cells)
        show_verdict(document)
    for error in errors:
        complain(message(error), error.hint)
    return exit_code(errors[0]) if errors and not any(needed) else result_code(result)


def _load_errors(file: Path) -> list[KeyRingError]:
    try:
        KeyRing.load(file).load_material()
    except KeyRingError as error:
        return [error]
    return []


@app.command()
def show(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of a key, and its transitions."""
    result, file = Result("keys show"), find_ring_file(path)
    result.add(Reason.NOT_ASKED)
    entry = require_entry(read_ring_entries(file), key_id)
    if as_json:
        show_keys(result, file, [key_id], as_json)
        return
    read_entries(file, result)
    fields = key_object(entry).items()
    shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in fields}
    show_table(("field", "value"), [(name, value) for name, value in shown.items() if value])


@app.command()
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


@app.command()
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


@app.command()
def enable(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Let a disabled key open values again."""
    file = find_ring_file(path)
    edit.enable_key(file, key_id)
    show_keys(Result("keys enable"), file, [key_id], as_json)


@app.command()
def compromise(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Mark a key as compromised: it opens, but never seals again.

    Every command that reads the ring reports it. Refused while the key is active: promote another key first.
    """
    file = find_ring_file(path)
    edit.compromise_key(file, key_id)
    show_keys(Result("keys compromise"), file, [key_id], as_json)
    say(f"Seal what is under it anew: {command_line('rotate DB --apply', path)}")
    say("Copies and backups made before can still be read with it.")


@app.command()
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
