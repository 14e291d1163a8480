"""`sealpoint trial`: values decoded as an agent would decode them, and the threads named that would raise."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    DatabaseArgument,
    VariableOption,
    one_database,
    open_ring,
    opened,
    read_allowed,
)
from sealpoint.admin.cli.output import (
    Document,
    failure_reasons,
    put,
    say,
    show_causes,
    show_table,
    watching,
)
from sealpoint.admin.databases.rows import Failure, Failures
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
) -> None:
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
    failures = _Threads()
    with opened([named]) as (store,), watching("trial", failures.add) as watch:
        cipher = RingCipher(open_ring(run))
        serde = EncryptedSerializer(cipher, inner, plaintext="allow" if allow_plaintext else "refuse")
        serde = serde.with_msgpack_allowlist(allowed)
        run.looks_at(store)
        watch.take_all(decode_all(store, serde))
    run.result.add(*failure_reasons(failures))
    run.result.add(Reason.NO_ROWS, when=not watch.rows)
    run.result.add(Reason.PLAINTEXT_ALLOWED, when=serde.plaintext_count > 0)
    counts = {"strict": strict, "rows": watch.rows, "failed": failures.count}
    found = {"threads": [*failures.threads.values()], "other_failures": failures.others}
    run.end({**counts, **found}, _show)
    if not run.as_json:
        show_causes(failures)
        if any(isinstance(failed.error, BlockedTypeError) for failed in failures.kept):
            say("hint: the allowlist of this command is --allow FILE or --allow MODULE:NAME")


class _Threads(Failures):
    """Failures, and the threads whose values raise, with the first error of each."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, dict[str, Any]] = {}
        self.others = 0

    def add(self, failed: Failure) -> bool:
        thread = failed.place["thread_id"]
        name = thread if type(thread) is str else repr(thread)
        if name not in self.threads and len(self.threads) == MAX_THREADS:
            self.others += 1
        else:
            error = {"error": type(failed.error).__name__, "message": str(failed.error)}
            self.threads.setdefault(name, {"thread": name, "values": 0, **error})["values"] += 1
        return super().add(failed)


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
