"""`sealpoint decrypt`: a copy of a database with nothing sealed in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sealpoint.admin.cli import render
from sealpoint.admin.cli.change import stopping
from sealpoint.admin.cli.databases import (
    naming_other_files,
    one_database,
    open_ring,
    open_store,
    warn_of_leftovers,
)
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Document, Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    DatabaseArgument,
    VariableOption,
    require_text,
)
from sealpoint.admin.cli.output import progress_bar, put
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Events, Progress
from sealpoint.admin.maintenance.decrypt import decrypt as decrypt_file
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.workers import Pace
from sealpoint.crypto import RingCipher
from sealpoint.errors import excerpt

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.rows import PostgresRows


def decrypt(
    run: Run,
    database: DatabaseArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="SQLite: the new file; made private.")
    ] = None,
    out_schema: Annotated[
        str | None,
        typer.Option(
            "--out-schema",
            metavar="NAME",
            help="Postgres: the new schema, in the same database; made private.",
        ),
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    db_env: VariableOption = None,
) -> Exit:
    """Write a copy of a database with nothing sealed in it.

    LangGraph's plain saver reads it.
    If a value does not open, no copy is made, and the exit code is 4, or 5 if only keys are missing.
    """
    run.asks(allow_plaintext=allow_plaintext)
    database = one_database(run, database, db_env)
    is_file = kind_of(database).is_file
    place = _require_file(out, out_schema) if is_file else _require_schema(out, out_schema)
    copy, cipher = _Copy(run), RingCipher(open_ring(run), follow=False)
    if is_file:
        part = copy.write_file(database, Path(place), cipher, allow_plaintext=allow_plaintext)
    else:
        part = copy.write_schema(database, place, cipher, allow_plaintext=allow_plaintext)
    return run.end({**part, **copy.members(place)}, copy.show)


class _Copy:
    """What a run finds while it writes a copy."""

    def __init__(self, run: Run) -> None:
        self._result = run.result
        self._failures = render.ShownFailures(shown=not run.as_json)
        self._opened = self._seen = 0
        self._stopped = False

    def write_file(
        self, database: str, out: Path, cipher: RingCipher, *, allow_plaintext: bool
    ) -> dict[str, Any]:
        with naming_other_files(database):
            self._carry_out(lambda: decrypt_file(database, out, cipher, allow_plaintext=allow_plaintext))
        with closing(
            open_store(database)
        ) as store:  # not before: a refused run leaves no log beside the file
            part = self._result.looks_at(store)
        warn_of_leftovers(Path(database), out)
        return part

    def write_schema(
        self, database: str, out: str, cipher: RingCipher, *, allow_plaintext: bool
    ) -> dict[str, Any]:
        from sealpoint.admin.maintenance.schemacopy import decrypt_schema

        with closing(cast("PostgresRows", open_store(database))) as store:
            part = self._result.looks_at(store)  # not later: the copy's tables are not part of it
            self._carry_out(lambda: decrypt_schema(store, out, cipher, allow_plaintext=allow_plaintext))
        return part

    def _carry_out(self, start: Callable[[], Events]) -> None:
        with stopping() as stop, progress_bar("decrypt") as move:
            pace = Pace(stop)
            with closing(pace.limit(start())) as events:  # also if the terminal to draw on is gone
                for event in events:
                    if isinstance(event, Progress):
                        self._opened, self._seen = event.changed, event.rows
                        move(event.rows, event.total)
                    else:
                        self._failures.add(event)
            self._stopped = pace.stopped

    def members(self, place: str) -> dict[str, Any]:
        is_written = not (self._failures.count or self._stopped)
        self._result.add(*render.failure_reasons(self._failures))
        self._result.add(Reason.ENDED_EARLY, when=not is_written)
        self._result.add(Reason.NO_ROWS, when=is_written and not self._seen)
        self._result.add(Reason.PLAINTEXT_ALLOWED, when=is_written and self._seen > self._opened)
        return {
            "out": place if is_written else None,
            "rows": self._opened,
            "failed": self._failures.count,
            "failures": self._failures.objects(),
        }

    def show(self, document: Document) -> None:
        self._failures.show_causes()
        put(_summary(document))


def _require_file(out: Path | None, schema: str | None) -> str:
    if schema is not None:
        raise typer.BadParameter("a copy of a SQLite file is a file: --out FILE", param_hint="--out-schema")
    if out is None:
        raise typer.BadParameter("name the new file: --out FILE", param_hint="--out")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"no folder at {out.parent}", param_hint="--out")
    return str(out)


def _require_schema(out: Path | None, schema: str | None) -> str:
    if out is not None:
        what = "a copy of a Postgres database is a schema in it: --out-schema NAME"
        raise typer.BadParameter(what, param_hint="--out")
    if schema is None:
        raise typer.BadParameter("name the new schema: --out-schema NAME", param_hint="--out-schema")
    require_text(schema, "--out-schema")
    return schema


def _summary(document: Document) -> str:
    database, out, rows = document["database"], document["out"], document["rows"]
    if out is None:
        return f"no copy was made; {database['name']} is as it was"
    if database["kind"] == "postgres":
        return f"{rows} values were decrypted into schema {excerpt(out)}; its owner can read them"
    return f"{rows} values were decrypted; every account that can read {out} can read them"
