"""`sealpoint trial`: values decoded as an agent would decode them, and the threads named that would raise."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli import render
from sealpoint.admin.cli.databases import one_database, open_ring, opened
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Document, Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    DatabaseArgument,
    VariableOption,
    read_allowed,
)
from sealpoint.admin.cli.output import progress_bar, put, say, show_table
from sealpoint.admin.databases.rows import Failure, Failures, Progress
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.verify import trial as decode_all
from sealpoint.crypto import RingCipher
from sealpoint.errors import BlockedTypeError, excerpt
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer

MAX_THREADS: Final = 1_000


def trial(
    run: Run,
    database: DatabaseArgument = None,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import this module first, as the agent does; also from the current folder."
            " Give it once for each.",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="FILE|MODULE:NAME",
            help="Types of the agent's allowlist: a file as `types --emit` prints it, or one type."
            " Give it once for each.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="As LANGGRAPH_STRICT_MSGPACK does, build only allowed types.")
    ] = False,
    allow_plaintext: AllowPlaintextOption = False,
    variable: VariableOption = None,
) -> Exit:
    """Decode every value as an agent would; name threads that raise.

    Nothing is written. This command runs the code of the modules that it imports and of the types that
    values name. Run it where the agent runs, with the allowlist and the options that its serializer will
    have.
    """
    run.asks(allow_plaintext=allow_plaintext)
    named = one_database(run, database, variable)
    inner = JsonPlusSerializer(allowed_msgpack_modules=None if strict else True)
    allowed = read_allowed(allow or ())
    _import_all(modules or ())
    result, rows, failures, threads = run.result, 0, Failures(), _Threads()
    with opened([named]) as (store,), progress_bar("trial") as move:
        cipher = RingCipher(open_ring(run))
        serde = EncryptedSerializer(cipher, inner, plaintext="allow" if allow_plaintext else "refuse")
        serde = serde.with_msgpack_allowlist(allowed)
        part = result.looks_at(store)
        for event in decode_all(store, serde):
            if isinstance(event, Progress):
                rows = event.rows
                move(rows, event.total)
            elif failures.add(event):
                threads.add(event)
    result.add(*render.failure_reasons(failures))
    result.add(Reason.NO_ROWS, when=not rows)
    result.add(Reason.PLAINTEXT_ALLOWED, when=serde.plaintext_count > 0)
    counts = {"strict": strict, "rows": rows, "failed": failures.count}
    found = {"threads": threads.found, "other_failures": threads.others}
    code = run.end({**part, **counts, **found}, _show)
    if not run.as_json:
        render.show_causes(failures)
        if any(isinstance(failed.error, BlockedTypeError) for failed in failures.kept):
            say("hint: the allowlist of this command is --allow FILE or --allow MODULE:NAME")
    return code


class _Threads:
    """The threads whose values raise, with the first error of each."""

    def __init__(self) -> None:
        self.others = 0
        self._found: dict[Any, dict[str, Any]] = {}

    @property
    def found(self) -> list[dict[str, Any]]:
        return list(self._found.values())

    def add(self, failed: Failure) -> None:
        thread = repr(failed.place["thread_id"]) if type(failed.place["thread_id"]) is not str else None
        name = thread or failed.place["thread_id"]
        if name not in self._found and len(self._found) == MAX_THREADS:
            self.others += 1
            return
        first = {
            "thread": name,
            "values": 0,
            "error": type(failed.error).__name__,
            "message": str(failed.error),
        }
        self._found.setdefault(name, first)["values"] += 1


def _import_all(modules: list[str] | tuple[()]) -> None:
    """Import modules by their names, or refuse the command line."""
    if modules and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # behind all others, so that nothing here stands in for an installed module
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a module may raise anything, and end programs
            cause = f"{excerpt(name)} cannot be imported: {type(error).__name__}: {error}"
            raise typer.BadParameter(cause, param_hint="--import") from None


def _show(document: Document) -> None:
    rows = [
        (part["thread"], part["values"], f"{part['error']}: {part['message']}")
        for part in document["threads"]
    ]
    if rows:
        show_table(("thread", "values or rows that raise", "first error"), rows)
    if document["other_failures"]:
        put(f"{document['other_failures']} more values or rows raise in other threads")
    put(f"decoded {document['rows']} values; values and rows that raise: {document['failed']}")
