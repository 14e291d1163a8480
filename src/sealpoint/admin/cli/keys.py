"""`sealpoint keys`: the keys of a ring, and their states."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import UNASKED, Run
from sealpoint.admin.cli.options import (
    AllowUnprovenOption,
    KeyArgument,
    KeysOption,
    VariablesOption,
    all_databases,
    examined,
    read_entries,
)
from sealpoint.admin.cli.output import Document, complain, say, show_table, show_verdict, warn
from sealpoint.admin.keys import edit, wrapping
from sealpoint.admin.keys.edit import KEY_FOLDER, key_file
from sealpoint.admin.maintenance import transitions
from sealpoint.admin.results.exits import exit_code, message
from sealpoint.admin.results.reasons import Reason
from sealpoint.errors import ConfigError, KeyRingError
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    DATES,
    LINES,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RELATION_CHECK,
    RingEntry,
    WrappedSource,
    require_entry,
)
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import SYSTEM_PATH, RingFile, find_ring_file, read_ring_entries
from sealpoint.keys.sources import FileSource
from sealpoint.seal.keys import KeyState
from sealpoint.utc import as_utc

if TYPE_CHECKING:
    from sealpoint.admin.databases.rows import RowStore

_FIELDS: Final = ", ".join(
    f'"{field.name}"' for field in dataclasses.fields(RingEntry) if field.name != "waived"
)

GROUP: Final = {
    "help": """Show the keys of a ring, and change their states.

    States: staged -> active <-> decrypt-only <-> disabled -> destroyed. A key that is not active can be
    marked as compromised, then disabled or destroyed. To replace a key: generate, promote, `rotate`.
    """,
    "epilog": f'With --json: one object, see docs/results.md, with "keys": [{{{_FIELDS},'
    ' "waived", "transitions"}]}: the keys that the'
    ' command changed or shows; check adds "problem" and "wrappers". Key material is never printed, nor'
    " passed as an argument.",
}

WRAPPER_HELP: Final = "Id of a [[wrapper]] in the ring file."

DatabaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db",
        metavar="DB",
        help="Database to search for rows under the key, in addition to those in the ring file. Can be"
        " repeated.",
    ),
]
NoDatabaseCheckOption = Annotated[
    bool, typer.Option("--no-database-check", help="Search only the databases given by --db or --db-env.")
]
NewKeyArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="Id of the new key. Default: year, letter and a random part, e.g. k26b-4f7c."
    ),
]


def init(
    run: Run,
    key_id: NewKeyArgument = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="The ring file to create. Default: $SEALPOINT_KEYS."),
    ] = None,
) -> None:
    """Create a ring file with one new, active key.

    --keys or $SEALPOINT_KEYS names the ring file; there is no default path. To set an expiry date, add
    `expires = 2027-06-01T00:00:00Z` to the entry of the key.
    """
    named = keys or os.environ.get("SEALPOINT_KEYS")
    if not named:
        raise ConfigError(
            "no path for the new ring file",
            hint=f"--keys FILE, or export SEALPOINT_KEYS=FILE; without either, commands read {SYSTEM_PATH}",
        )
    file = Path(named)
    made = edit.create_ring(file, key_id)
    show_keys(run, [made])
    say(f"{file} is the ring file, {file.parent / KEY_FOLDER} contains the key file.")
    say("Keep a copy of the key apart from the backups of the database: a lost key is lost data.")


def generate(
    run: Run,
    key_id: NewKeyArgument = None,
    keys: KeysOption = None,
    expires: Annotated[
        datetime | None, typer.Option("--expires", help="Expiry: when the key should stop sealing, in UTC.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="TEXT", help="Who is responsible for the key.")
    ] = None,
    wrapper: Annotated[
        str | None,
        typer.Option(
            "--wrap-with", metavar="WRAPPER", help="Wrap the new key; no key file is written. " + WRAPPER_HELP
        ),
    ] = None,
    index: Annotated[
        bool,
        typer.Option(
            "--index", help="Add the index key instead, for tokens and pseudonyms; it is never rotated."
        ),
    ] = False,
) -> None:
    """Add a staged key: it opens values, but does not seal yet."""
    file = run.ring_file
    if index:
        if key_id or expires or owner:
            raise typer.BadParameter("an index key takes no ID, --expires or --owner", param_hint="--index")
        made = edit.add_index(file, wrapper)
        show_keys(run, [])
        place = key_file(file, made) if wrapper is None else f"{made} in {file}"
        say(f"{place} is the index key: copy it to every host, and keep a copy.")
        return
    made = edit.stage_key(file, key_id, wrapper, expires=expires, owner=owner)
    show_keys(run, [made])
    first = "the ring" if wrapper else f"{key_file(file, made)} and then the ring"
    then = command_line(f"keys promote {made}", keys)
    say(f"Copy {first} to every host. When `keys check` passes on all hosts: {then}")


def list_keys(run: Run) -> None:
    """Show all keys, destroyed ones too. No key material is needed."""
    run.result.add(Reason.NOT_ASKED)
    show_keys(run, None)


def check(run: Run) -> None:
    """Compare all keys with their check values; test all wrappers.

    Prints the problem of each key and wrapper. A wrapper is tested by wrapping and unwrapping random
    bytes, unless it has just unwrapped a key. Exits with 5 if a key that may open values is not available, or
    if a wrapper fails or reports that it will soon fail. Disabled keys are not required.
    """
    file = run.ring_file
    found, of_index = edit.check_ring(file)
    entries = [entry for entry in read_entries(run, file) if entry.id in found]
    problems = {key_id: message(error) if error else None for key_id, error in found.items()}
    needed = [found[entry.id] for entry in entries if entry.state.opens]
    errors = [error for error in (*needed, of_index) if error is not None]
    _warn_of_files(run)
    unwrapped = {str(entry.wrapper) for entry in entries if found[entry.id] is None}
    wrappers = wrapping.check_wrappers(file, unwrapped)
    run.finds(
        {
            Reason.KEYS_MISSING: errors,
            Reason.NO_KEYS: not needed,
            Reason.WRAPPERS_FAILING: any(each["is_failing"] for each in wrappers),
        }
    )
    run.end(
        {
            "keys": [{**key_object(entry), "problem": problems[entry.id]} for entry in entries],
            "wrappers": wrappers,
        },
        _show_check,
    )
    for error in errors:
        complain(message(error), error.hint)
    if errors and not any(needed):
        run.code = exit_code(errors[0])


def _show_check(document: Document) -> None:
    show_table(
        ("key", "state", "source", "material"),
        [(key["id"], key["state"], key["source"], key["problem"] or "ok") for key in document["keys"]],
    )
    wrappers = [
        (each["id"], each["kind"], each["location"], each["version"], each["problem"] or "ok")
        for each in document["wrappers"]
    ]
    if wrappers:
        show_table(("wrapper", "kind", "location", "version", "round trip"), wrappers)


def show(run: Run, key_id: KeyArgument) -> None:
    """Show all fields of a key, and its transitions."""
    run.result.add(Reason.NOT_ASKED)
    run.end({"keys": [key_object(require_entry(read_entries(run, run.ring_file), key_id))]}, _show_fields)


def _show_fields(document: Document) -> None:
    shown = {
        name: ", ".join(value) if isinstance(value, list) else value
        for name, value in document["keys"][0].items()
    }
    show_table(("field", "value"), [(name, value) for name, value in shown.items() if value])


def promote(
    run: Run,
    key_id: KeyArgument,
    keys: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    no_database_check: NoDatabaseCheckOption = False,
) -> None:
    """Make a key active. The previously active key becomes decrypt-only.

    Refused if a database, given by --db or listed in the ring file, has rows under a key other than the new
    and the previously active one.
    """
    run.asks(no_database_check=no_database_check)
    file, named = run.ring_file, all_databases(databases, variables)
    with examined(file, named, with_listed=not no_database_check) as found:
        parts = [run.result.looks_at(store) for store in found.stores]
        before = transitions.promote_key(file, key_id, found.stores, listed=found.entries)
        _warn_of_unrelated(run, file, found.stores)
    show_keys(run, ([key_id] if before in (None, key_id) else [key_id, str(before)]), {"databases": parts})
    if before == key_id:
        say(f"{key_id} was active already.")
    else:
        then = command_line("rotate DB --apply", keys)
        say(f"Existing rows remain under their old key until you run: {then}")
    try:  # a promoted key has just been loaded; the other keys have not
        ring = KeyRing.of_file(RingFile(file))
        ring.with_keys(key for key in ring.keys if before == key_id or key.id != key_id).load_material()
    except KeyRingError as error:
        warn(f"the ring cannot be loaded: {message(error)}", error.hint)


def disable(
    run: Run,
    key_id: KeyArgument,
    keys: KeysOption = None,
    databases: DatabaseOption = None,
    variables: VariablesOption = None,
    no_database_check: NoDatabaseCheckOption = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Skip the confirmation prompt. Rows under the key in a --db database still forbid it.",
        ),
    ] = False,
) -> None:
    """Disable a decrypt-only key: values under it are refused.

    `keys enable` reverses this. Refused while a --db database has rows under the key. Asks for confirmation
    if a database that only the ring file lists has such rows, or if no database is searched.
    """
    run.asks(no_database_check=no_database_check)
    file, named = run.ring_file, all_databases(databases, variables)
    entry = require_entry(read_ring_entries(file), key_id)
    is_done = entry.state is KeyState.DISABLED
    if not is_done:
        entry.require_transition("disable")
    with examined(file, named, with_listed=not no_database_check) as found:
        listed = [] if is_done else found.listed
        counts = [(store, transitions.rows_under(store.count(), entry)) for store in listed]
        # Without a terminal or --yes, rows under the key prevent the transition.
        accepted = [(store, rows) for store, rows in counts if rows and (yes or sys.stdin.isatty())]
        under = [f"{store.name} has {rows} rows under {key_id!r}" for store, rows in accepted]
        hint = UNASKED
        if not found.stores:
            under = ["no database is searched for values under the key"]
            hint = "name databases: --db DB or --db-env NAME; --yes disables the key without a search"
        if under and not (yes or is_done):
            run.confirm(f"{', '.join(under)}: values under the key will not open", key_id, hint=hint)
        parts = [run.result.looks_at(store) for store in found.stores]
        unused = [*found.named, *(store for store, rows in counts if (store, rows) not in accepted)]
        transitions.disable_key(file, key_id, unused, listed=found.entries)
        _warn_of_unrelated(run, file, found.stores)
    for store, rows in accepted:
        warn(f"{store.name} has {rows} rows under {key_id!r}, which no longer open")
    run.finds({Reason.NO_DATABASE: not found.stores, Reason.KEY_IN_USE: accepted})
    show_keys(run, [key_id], {"databases": parts})
    say(f"If values under the key are still needed: {command_line(f'keys enable {key_id}', keys)}")


def enable(run: Run, key_id: KeyArgument) -> None:
    """Let a disabled key open values again."""
    edit.change_state(run.ring_file, key_id, KeyState.DECRYPT_ONLY)
    show_keys(run, [key_id])


def compromise(run: Run, key_id: KeyArgument) -> None:
    """Mark a key as compromised: it opens values, but seals none.

    Every command that reads the ring warns of the key. An active key is refused: promote another key first.
    """
    edit.change_state(run.ring_file, key_id, KeyState.COMPROMISED)
    show_keys(run, [key_id])
    say(f"Reseal the rows under the key: {command_line('rotate DB --apply', run.keys)}")
    say(f"Then disable the key at once: {command_line(f'keys disable {key_id} --db DB', run.keys)}")
    say("Earlier copies and backups of the database can still be read with the key.")


def destroy(
    run: Run,
    key_id: KeyArgument,
    keys: KeysOption = None,
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
            help="Keep the key file, e.g. if it has links; only mark the key destroyed. The material remains"
            " until you remove the file.",
        ),
    ] = False,
    allow_unproven: AllowUnprovenOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Destroy a key: remove its key file. This cannot be undone, and the id is never reused.

    Refused unless the key is staged, disabled or compromised; if a database, given by --db or listed in the
    ring file, has rows under the key; if a database has no rows under any key of the ring, as it is probably
    the wrong database; and if the key file does not contain the key, or has links. The key file is removed,
    not overwritten: snapshots, backups and flash memory may keep copies.
    """
    run.asks(
        no_database_check=no_database_check, allow_unrelated=allow_unrelated, leave_material=leave_material
    )
    file = find_ring_file(keys)
    named = all_databases(databases, variables)
    ring = RingFile(file)
    entry = require_entry(ring.entries, key_id)
    is_done = entry.state is KeyState.DESTROYED  # an interrupted run is completed without a search
    if not is_done:
        entry.require_transition("destroy")
        if not (named or ring.databases or no_database_check):
            hint = (
                "name each database that ever used the key by --db or [[database]] in the ring file, or add"
                " --no-database-check"
            )
            text = "no database was named to search for rows under the key"
            raise ConfigError(text, hint=hint)
        if not yes:
            run.confirm(f"Values under {key_id!r}, also those in backups, can never be opened again", key_id)
    with examined(file, named, with_listed=not (no_database_check or is_done)) as found:
        parts = [run.result.looks_at(store) for store in found.stores]
        removed = transitions.destroy_key(
            file,
            key_id,
            found.stores,
            listed=found.entries,
            allow_unrelated=allow_unrelated,
            leave_material=leave_material,
        )
    entry = require_entry(read_ring_entries(file), key_id)
    run.finds(
        {
            Reason.DATABASE_CHECK_WAIVED: DATABASE_CHECK in entry.waived,
            Reason.UNRELATED_ALLOWED: RELATION_CHECK in entry.waived,
            Reason.MATERIAL_NOT_REMOVED: entry.material not in (None, MATERIAL_REMOVED),
        }
    )
    show_keys(run, [key_id], {"databases": parts}, allow_unproven=allow_unproven)
    _say_what_is_left(entry, removed)


def _say_what_is_left(entry: RingEntry, removed: Path | None) -> None:
    if removed:
        say(f"{removed} is removed. Remove its copies on other hosts and in backups yourself.")
    if entry.wrapper is not None:
        say("The wrapped key is removed from the ring. Copies and backups of the ring file still contain it:")
        say(f"remove them yourself, or the key with which wrapper {entry.wrapper!r} can unwrap it.")
    elif entry.material == MATERIAL_GONE:
        say("The key file was already gone. Remove its copies on other hosts and in backups yourself.")
    elif entry.material == MATERIAL_LEFT and entry.source == FileSource.kind:
        say(f"The key is not removed: the key file {entry.location} and all links to the file still exist.")
        say("Once the file has no links, the same command without --leave-material removes the file.")
    elif entry.material == MATERIAL_LEFT:
        say(f"The key material is still in source {entry.source!r}: remove it there, too.")


def wrap(
    run: Run,
    key_id: KeyArgument,
    wrapper: Annotated[str, typer.Option("--with", metavar="WRAPPER", help=WRAPPER_HELP)],
) -> None:
    """Wrap the key of a key file, and remove the file. Rows do not change.

    The wrapped key is unwrapped and compared before it is written to the ring; only then is the file removed.
    The index key can be wrapped by its id, too.
    """
    source = {entry.id: entry.source for entry in read_ring_entries(run.ring_file)}.get(key_id)
    removed = wrapping.wrap_key(run.ring_file, key_id, wrapper)
    show_keys(run, [key_id])
    if removed:
        say(f"{removed} is removed. Remove its copies on other hosts and in backups yourself.")
    elif source not in (None, FileSource.kind, WrappedSource.kind):
        say(f"The key material is still in source {source!r}: remove it there, too.")
    say("Give every host the ring and the right to unwrap. Keep a copy of the ring: without it data is lost.")


def rewrap(
    run: Run,
    key_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Ids of keys. Default: all wrapped keys.")
    ] = None,
    wrapper: Annotated[
        str | None,
        typer.Option("--with", metavar="WRAPPER", help=WRAPPER_HELP + " Default: the wrapper of each key."),
    ] = None,
) -> None:
    """Unwrap keys and wrap them again. Rows do not change.

    For use after the KMS has rotated its own key, or to change to another wrapper. Running processes keep the
    keys that they have loaded, and do not call the KMS again.
    """
    changed = wrapping.rewrap_keys(run.ring_file, key_ids, wrapper)
    _warn_of_files(run)
    show_keys(run, changed, allow_unproven=False)


def _warn_of_files(run: Run) -> None:
    left_files = wrapping.find_left_files(run.ring_file)
    run.finds({Reason.MATERIAL_NOT_REMOVED: left_files})
    for key_id, left in left_files.items():
        warn(
            f"key {key_id!r} is wrapped, but its key file {left} still exists",
            f"run `sealpoint keys wrap {key_id}` again with the wrapper of the key",
        )


_IF_ANY: Final = ("wrapper", "version", "compromised", "expires", *LINES)  # shown only if a key has a value


def show_keys(
    run: Run, ids: list[str] | None, body: Document | None = None, *, allow_unproven: bool = True
) -> None:
    """Print what the ring file says of the keys with these ids, or of all keys except the index key."""
    shown = [entry for entry in read_entries(run, run.ring_file) if ids is None or entry.id in ids]
    show = _show_table if shown or ids is None else lambda _: None
    run.end(
        {**(body or {}), "keys": [key_object(entry) for entry in shown]},
        show,
        allow_unproven=allow_unproven,
        verdict=False,
    )


def _show_table(document: Document) -> None:
    keys = document["keys"]
    columns = ["id", "state", "suite", "created", "destroyed", "source"]
    columns += [name for name in _IF_ANY if any(key[name] for key in keys)]
    show_table(
        ["key", *columns[1:]],
        [[key[name][:10] if key[name] and name in DATES else key[name] for name in columns] for key in keys],
    )
    if not document["ok"]:  # if ``ok`` is true, print no verdict
        show_verdict(document)


def key_object(entry: RingEntry) -> dict[str, Any]:
    """Return all fields of a key entry as JSON members; times are in ISO 8601, UTC."""
    shown = {
        name: as_utc(value).isoformat() if isinstance(value, datetime) else value
        for name, value in dataclasses.asdict(entry).items()
    }
    return {
        **shown,
        "state": entry.state.value,
        "waived": list(entry.waived),
        "transitions": list(entry.transitions),
    }


def _warn_of_unrelated(run: Run, file: Path, stores: Sequence[RowStore]) -> None:
    """Warn of each database without a value under any key of the ring: it may be the wrong database."""
    entries = read_ring_entries(file)
    for store in stores:
        if not transitions.is_related(store, entries):
            run.result.add(Reason.UNRELATED_ALLOWED)
            warn(f"{store.name} has no value under any key of the ring: is it the right database?")


def command_line(words: str, path: Path | None) -> str:
    """Return a command to copy and run, with the option ``--keys`` of this run."""
    return f"sealpoint {words}" + ("" if path is None else f" --keys {shlex.quote(str(path))}")
