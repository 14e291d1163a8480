"""`sealpoint keys wrap` and `rewrap`, and what `generate` and `check` do with wrappers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.keyview import show_keys
from sealpoint.cli.options import JsonOption, KeyArgument, KeysOption
from sealpoint.cli.output import say, show_table, warn
from sealpoint.keys import wrapping
from sealpoint.keys.ringfile import find_ring_file, read_ring_entries
from sealpoint.keys.sources import FileSource
from sealpoint.keys.wrapped import WrappedSource
from sealpoint.keys.wrapping import WrapperCheck
from sealpoint.maintenance.result import Reason, Result

WRAPPER_HELP: Final = "Id of a [[wrapper]] of the ring."

WrapWithOption = Annotated[
    str | None,
    typer.Option(
        "--wrap-with",
        metavar="WRAPPER",
        show_default=False,
        help="Wrap the new key; it is in no file. " + WRAPPER_HELP,
    ),
]


def wrap(
    key_id: KeyArgument,
    wrapper: Annotated[str, typer.Option("--with", metavar="WRAPPER", show_default=False, help=WRAPPER_HELP)],
    path: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Wrap a key that is in a file, and remove the file. No row is touched.

    The key is wrapped, unwrapped and compared before the ring names it, and the file is removed after that.
    The index key can be wrapped by its id, too.
    """
    file = find_ring_file(path)
    source = {entry.id: entry.source for entry in read_ring_entries(file)}.get(key_id)
    removed = wrapping.wrap_key(file, key_id, wrapper)
    _show(Result("keys wrap"), file, [key_id], as_json)
    if removed:
        say(f"{removed} is removed. Remove its copies on other hosts and in backups yourself.")
    elif source not in (None, FileSource.kind, WrappedSource.kind):
        say(f"Its material came from source {source!r} and is still there: remove it there, too.")
    say("Give every host the ring and the right to unwrap. Keep a copy of the ring: a lost one is lost data.")
    return Exit.DONE


def rewrap(
    key_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID...", show_default=False, help="Ids of keys. Default: all wrapped ones."),
    ] = None,
    wrapper: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="WRAPPER",
            show_default=False,
            help=WRAPPER_HELP + " Default: the wrapper of each key.",
        ),
    ] = None,
    path: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Unwrap keys and wrap them again. No row is touched.

    Use it after the service has rotated its key, or to change to another wrapper. Running processes keep the
    keys that they have; their services are not asked again.
    """
    file = find_ring_file(path)
    changed = wrapping.rewrap_keys(file, key_ids, wrapper)
    result = Result("keys rewrap")
    _warn_of_files(file, result)
    _show(result, file, changed, as_json)
    return result_code(result, unproven=Exit.FOUND)


def _show(result: Result, file: Path, ids: list[str], as_json: bool) -> None:
    """Show keys that were changed; the index key is not among the keys of a ring."""
    if as_json or any(entry.id in ids for entry in read_ring_entries(file)):
        show_keys(result, file, ids, as_json)


def check_all(file: Path, unwrapped: set[str], result: Result) -> list[WrapperCheck]:
    """Try each wrapper of a ring, and warn of key files that an interrupted command has left.

    Args:
        file: The ring file.
        unwrapped: Ids of wrappers that have just unwrapped a key.
        result: Gets the reasons that one fails, and that a file is left.
    """
    _warn_of_files(file, result)
    checks = wrapping.check_wrappers(file, unwrapped)
    result.add(Reason.WRAPPERS_FAILING, when=any(check.is_failing for check in checks))
    return checks


def _warn_of_files(file: Path, result: Result) -> None:
    """Warn of key files that an interrupted command has left."""
    left_files = wrapping.find_left_files(file)
    result.add(Reason.MATERIAL_NOT_REMOVED, when=bool(left_files))
    for key_id, left in left_files.items():
        hint = f"run `sealpoint keys wrap {key_id}` again, with its wrapper"
        warn(f"key {key_id!r} is wrapped, and its file {left} is not removed", hint)


def wrapper_object(check: WrapperCheck) -> dict[str, Any]:
    """Return what a wrapper did as JSON."""
    return dataclasses.asdict(check)


def show_wrappers(checks: list[WrapperCheck]) -> None:
    """Print what each wrapper did."""
    if checks:
        cells = [(one.id, one.kind, one.location, one.version, one.problem or "ok") for one in checks]
        show_table(("wrapper", "kind", "location", "version", "round trip"), cells)
