"""`sealpoint keys`: show the keys of a ring, and change their states."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.cli.exits import Exit, message
from sealpoint.cli.options import JsonOption, KeysOption
from sealpoint.cli.output import complain, require_command, say, show_json, show_table, warn
from sealpoint.cli.stores import opened, report_keys
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import KeyRingError
from sealpoint.keys import edit
from sealpoint.keys.entry import RingEntry, require_entry
from sealpoint.keys.leftovers import KEY_FOLDER, key_file
from sealpoint.keys.ringfile import SYSTEM_PATH, find_ring_file, read_ring_entries
from sealpoint.keys.sources import FileSource, InlineSource
from sealpoint.maintenance import transitions

EPILOG: Final = (
    'With --json: {"sealpoint", "command", "at", "ring": FILE, "keys": [{"id", "state", "suite", "check",'
    ' "source", "location", "material", "owner", "created", "activated", "retired", "disabled",'
    ' "compromised", "destroyed", "expires", "transitions"}]} with the keys that the command changed or'
    ' shows; check adds "problem". Key material is never printed, and never passed as an argument.'
)

_IF_ANY: Final = ("compromised", "expires", "owner")  # columns that most rings do not need

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
    _show("init", file, [made], as_json)
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
    as_json: JsonOption = False,
) -> None:
    """Add a staged key: it opens values, but does not seal yet."""
    file = find_ring_file(path)
    made = edit.stage_key(file, key_id, expires=expires, owner=owner)
    _show("generate", file, [made], as_json)
    then = _command(f"keys promote {made}", path)
    say(
        f"Give every host {key_file(file, made)} first, and then the ring."
        f" When `keys check` passes on each: {then}"
    )


@app.command("list")
def list_keys(path: KeysOption = None, as_json: JsonOption = False) -> None:
    """List all keys, including destroyed ones. Loads no key material."""
    _show("list", find_ring_file(path), None, as_json)


@app.command()
def check(path: KeysOption = None, as_json: JsonOption = False) -> Exit:
    """Load every key and compare it with its check value.

    Prints the problem of each key. Exits with 5 if a key that may open values is not available; disabled
    keys do not count.
    """
    file = find_ring_file(path)
    found = edit.check_ring(file)
    entries = [entry for entry in _read_entries(file) if entry.id in found]
    problems = {key_id: message(error) if error else None for key_id, error in found.items()}
    if as_json:
        rows = [{**_as_object(entry), "problem": problems[entry.id]} for entry in entries]
        show_json("keys check", {"ring": str(file), "keys": rows})
    else:
        cells = [(entry.id, entry.state.value, entry.source, problems[entry.id] or "ok") for entry in entries]
        show_table(("key", "state", "source", "material"), cells)
    missing = [found[entry.id] for entry in entries if entry.state.opens]
    for error in missing:
        if error is not None:
            complain(message(error), error.hint)
    if any(missing):
        return Exit.KEYS
    KeyRing.load(file).load_material()  # what is wrong with the ring as a whole, or with its index key
    return Exit.DONE


@app.command()
def show(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of a key, and its transitions."""
    file = find_ring_file(path)
    if as_json:
        return _show("show", file, [key_id], as_json)
    entry = require_entry(_read_entries(file), key_id)
    fields = {**_as_object(entry), "transitions": ", ".join(entry.transitions) or None}
    shown = [(field, value) for field, value in fields.items() if value is not None]
    return show_table(("field", "value"), shown)


@app.command()
def promote(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key active. The previously active key becomes decrypt-only.

    Refused if a database given with --db has rows under a key of the ring other than these two.
    """
    file = find_ring_file(path)
    with opened(databases or []) as stores:
        before = transitions.promote_key(file, key_id, stores)
    _show("promote", file, [key_id] if before in (None, key_id) else [key_id, str(before)], as_json)
    if before == key_id:
        say(f"{key_id} was active already.")
    else:
        say(f"Existing rows remain under their old key until you run: {_command('rotate DB --apply', path)}")
    _warn_unless_it_loads(file)


@app.command()
def disable(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop opening values under a key. `enable` undoes it.

    Refused if a database given with --db has rows under the key.
    """
    file = find_ring_file(path)
    with opened(databases or []) as stores:
        transitions.disable_key(file, key_id, stores)
        entries = read_ring_entries(file)
        unrelated = [store.name for store in stores if not transitions.is_related(store, entries)]
    _show("disable", file, [key_id], as_json)
    say(f"If values under it are still needed, undo it: {_command(f'keys enable {key_id}', path)}")
    if not databases:
        hint = f"use --db DB, or run: {_command('status DB', path)}"
        warn(f"no database was checked for values under {key_id!r}", hint)
    for name in unrelated:
        warn(f"{name} has no value under any key of the ring: is it the right database?")


@app.command()
def enable(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Let a disabled key open values again."""
    file = find_ring_file(path)
    edit.enable_key(file, key_id)
    _show("enable", file, [key_id], as_json)


@app.command()
def compromise(key_id: KeyArgument, path: KeysOption = None, as_json: JsonOption = False) -> None:
    """Mark a key as compromised: it opens, but never seals again.

    Every command that reads the ring reports it. Refused while the key is active: promote another key first.
    """
    file = find_ring_file(path)
    edit.compromise_key(file, key_id)
    _show("compromise", file, [key_id], as_json)
    say(f"Reseal the values under it: {_command('rotate DB --apply', path)}")
    say("Copies and backups made before then can still be opened with it.")


@app.command()
def destroy(
    key_id: KeyArgument,
    path: KeysOption = None,
    databases: DatabaseOption = None,
    no_database_check: Annotated[
        bool, typer.Option("--no-database-check", help="Check no database for rows under the key.")
    ] = False,
    allow_unrelated: Annotated[
        bool,
        typer.Option(
            "--allow-unrelated", help="Accept a database that has no value under any key of the ring."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> Exit:
    """Destroy a key: remove its key file. This cannot be undone, and the id is never reused.

    Refused unless the key is staged, disabled or compromised; if a database has rows under the key; and if
    a database has no rows under any key of the ring, because it is probably the wrong one. The key file is
    removed, not overwritten: snapshots, backups and flash memory may keep copies.
    """
    file = find_ring_file(path)
    entry = require_entry(read_ring_entries(file), key_id)
    if entry.state is not KeyState.DESTROYED:
        entry.require_transition("destroy")
        refusal = _refusal(databases, no_database_check, yes)
        if refusal:
            complain(*refusal)
            return Exit.USAGE
        if not yes and not _agreed(key_id):
            say("Nothing was done.")
            return Exit.STOPPED
    with opened(databases or []) as stores:
        removed = transitions.destroy_key(file, key_id, stores, allow_unrelated=allow_unrelated)
    _show("destroy", file, [key_id], as_json)
    if removed:
        say(f"{removed} is removed. Remove its copies on other hosts and in backups yourself.")
    elif entry.source == FileSource.kind:
        say("Its file was already gone. Remove its copies on other hosts and in backups yourself.")
    elif entry.source not in (None, InlineSource.kind):
        say(f"Its material came from source {entry.source!r} and is still there: remove it there, too.")
    return Exit.DONE


def _warn_unless_it_loads(file: Path) -> None:
    """Warn of keys that are not available: promoting asks only for the material of the promoted key."""
    try:
        KeyRing.load(file).load_material()
    except KeyRingError as error:
        warn(f"the ring does not load: {message(error)}", error.hint)


def _command(words: str, path: Path | None) -> str:
    """Return a command for the ring of this one, to be copied and run."""
    return f"sealpoint {words}" + ("" if path is None else f" --keys {shlex.quote(str(path))}")


def _refusal(databases: list[str] | None, unchecked: bool, yes: bool) -> tuple[str, str] | None:
    if not databases and not unchecked:
        hint = "give --db for each database that has ever used the key, or --no-database-check"
        return "no database was given that may still have rows under the key", hint
    if not yes and not sys.stdin.isatty():
        return "there is no terminal to ask for confirmation", "use --yes to destroy the key without it"
    return None


def _agreed(key_id: str) -> bool:
    say(f"Values under {key_id!r}, also in backups, can never be opened again. To confirm, type its id:")
    return sys.stdin.readline().strip() == key_id


def _read_entries(file: Path) -> tuple[RingEntry, ...]:
    entries = read_ring_entries(file)
    report_keys(entries)
    return entries


def _show(command: str, file: Path, ids: list[str] | None, as_json: bool) -> None:
    entries = [entry for entry in _read_entries(file) if ids is None or entry.id in ids]
    if as_json:
        show_json(f"keys {command}", {"ring": str(file), "keys": [_as_object(entry) for entry in entries]})
        return
    columns = ["id", "state", "suite", "created", "destroyed", "source"]
    columns += [name for name in _IF_ANY if any(getattr(entry, name) for entry in entries)]
    cells = [[_as_cell(getattr(entry, name)) for name in columns] for entry in entries]
    show_table(["key", *columns[1:]], cells)


def _as_cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d")
    return value.value if isinstance(value, KeyState) else value


def _as_object(entry: RingEntry) -> dict[str, Any]:
    """Return all that a ring says about a key. Its times are in the form of ISO 8601."""
    fields = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    shown = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()
    }
    return {**shown, "state": entry.state.value, "transitions": list(entry.transitions)}
