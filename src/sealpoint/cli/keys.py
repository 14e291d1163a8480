"""`sealpoint keys`: show the keys of a ring, and change their states."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.cli.exits import Exit, exit_code, message, result_code
from sealpoint.cli.keystates import compromise, destroy, disable, enable, promote
from sealpoint.cli.keyview import command_line, key_object, show_keys
from sealpoint.cli.options import JsonOption, KeyArgument, KeysOption
from sealpoint.cli.output import complain, print_json, require_command, say, show_table
from sealpoint.cli.stores import read_entries
from sealpoint.cli.verdict import show_verdict
from sealpoint.cli.wrapping import (
    WrapWithOption,
    check_all,
    rewrap,
    show_wrappers,
    wrap,
    wrapper_object,
)
from sealpoint.keys import edit
from sealpoint.keys.entry import require_entry
from sealpoint.keys.leftovers import KEY_FOLDER, key_file
from sealpoint.keys.ringfile import SYSTEM_PATH, find_ring_file, read_ring_entries
from sealpoint.keys.wrapping import add_wrapped_index, stage_wrapped_key
from sealpoint.maintenance.result import Reason, Result

EPILOG: Final = (
    'With --json: one object, see docs/results.md, with "keys": [{"id", "state", "suite", "check",'
    ' "source", "location", "wrapper", "version", "material", "owner", "created", "activated", "retired",'
    ' "disabled", "compromised", "destroyed", "expires", "waived", "transitions"}]}: the keys that the'
    ' command changed or shows; check adds "problem" and "wrappers". Key material is never printed, and'
    " never passed as an argument."
)

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, epilog=EPILOG)

NewKeyArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        show_default=False,
        help="Id of the new key. Default: year, letter and a random part, e.g. k26b-4f7c.",
    ),
]
NewRingOption = Annotated[
    Path | None,
    typer.Option(
        "--keys", metavar="FILE", show_default=False, help="The ring file to create; else $SEALPOINT_KEYS."
    ),
]


@app.callback()
def keys(context: typer.Context) -> None:
    """Show the keys of a ring, and change their states.

    staged -> active <-> decrypt-only <-> disabled -> destroyed. A key that is not active can be marked as
    compromised, and then be disabled or destroyed. To change a key: generate, promote, `sealpoint rotate`.
    """
    require_command(context)


@app.command()
def init(key_id: NewKeyArgument = None, path: NewRingOption = None, as_json: JsonOption = False) -> Exit:
    """Create a ring file with one new, active key.

    --keys or $SEALPOINT_KEYS gives its path; there is no default path. To set when the key expires, add
    `expires = 2027-06-01T00:00:00Z` to its entry.
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
    wrapper: WrapWithOption = None,
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
        made = edit.add_index(file) if wrapper is None else add_wrapped_index(file, wrapper)
        if as_json:
            show_keys(Result("keys generate"), file, [], as_json)
        place = key_file(file, made) if wrapper is None else f"{made} in {file}"
        say(f"{place} is the index key: give it to every host, and keep a copy.")
        return
    if wrapper is not None:
        made = stage_wrapped_key(file, wrapper, key_id, expires=expires, owner=owner)
        show_keys(Result("keys generate"), file, [made], as_json)
        then = command_line(f"keys promote {made}", path)
        say(f"Give every host the ring. When `keys check` passes on each: {then}")
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
    """Compare every key with its check value, and try every wrapper.

    Prints the problem of each key and wrapper. A wrapper is to wrap and unwrap random bytes; one that has
    just unwrapped a key need not wrap. Exits with 5 if a key that may open values is not available, or a
    wrapper fails or says that it soon will; disabled keys do not count.
    """
    result, file = Result("keys check"), find_ring_file(path)
    found = edit.check_ring(file)
    entries = [entry for entry in read_entries(file, result) if entry.id in found]
    problems = {key_id: message(error) if error else None for key_id, error in found.items()}
    needed = [found[entry.id] for entry in entries if entry.state.opens]
    errors = [error for error in (*needed, edit.check_index(file)) if error is not None]
    result.add(Reason.KEYS_MISSING, when=bool(errors))
    result.add(Reason.NO_KEYS, when=not needed)
    wrappers = check_all(file, {str(entry.wrapper) for entry in entries if found[entry.id] is None}, result)
    document = result.document(
        {
            "keys": [{**key_object(entry), "problem": problems[entry.id]} for entry in entries],
            "wrappers": [wrapper_object(one) for one in wrappers],
        }
    )
    if as_json:
        print_json(document)
    else:
        cells = [(key["id"], key["state"], key["source"], key["problem"] or "ok") for key in document["keys"]]
        show_table(("key", "state", "source", "material"), cells)
        show_wrappers(wrappers)
        show_verdict(document)
    for error in errors:
        complain(message(error), error.hint)
    return exit_code(errors[0]) if errors and not any(needed) else result_code(result)


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


for command in (promote, disable, enable, compromise, destroy, wrap, rewrap):
    app.command()(command)
