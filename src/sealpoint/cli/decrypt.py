"""`sealpoint decrypt`: a copy of a database with nothing sealed in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowPlaintextOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    VariableOption,
    require_text,
)
from sealpoint.cli.output import print_json, progress_bar, put
from sealpoint.cli.signals import stopping
from sealpoint.cli.stores import naming_other_files, open_postgres, open_ring, open_store, warn_of_leftovers
from sealpoint.cli.verdict import show_verdict
from sealpoint.crypto import RingCipher
from sealpoint.databases.rows import Events, Progress
from sealpoint.errors import excerpt
from sealpoint.keys.databasetable import is_url
from sealpoint.maintenance.decrypt import decrypt as decrypt_file
from sealpoint.maintenance.pace import Pace
from sealpoint.maintenance.result import Reason, Result


def decrypt(
    database: DatabaseArgument = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", show_default=False, help="SQLite: the new file; made private."),
    ] = None,
    out_schema: Annotated[
        str | None,
        typer.Option(
            "--out-schema",
            metavar="NAME",
            show_default=False,
            help="Postgres: the new schema, in the same database; made private.",
        ),
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    db_env: VariableOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Write a copy of a database with nothing sealed in it.

    LangGraph's plain saver reads it.
    If a value does not open, no copy is made, and the exit code is 4, or 5 if only keys are missing.
    """
    database = one_database(database, db_env, keys)
    run = _Run(Result("decrypt", {"allow_plaintext": allow_plaintext}), shown=not as_json)
    if is_url(database):
        place = _require_schema(out, out_schema)
        part = _copy_schema(database, place, run, keys, allow_plaintext=allow_plaintext)
    else:
        file = _require_file(out, out_schema)
        place = str(file)
        part = _copy_file(database, file, run, keys, allow_plaintext=allow_plaintext)
    document = run.document(part, place)
    if as_json:
        print_json(document)
    else:
        run.failures.show_causes()
        put(_summary(document))
        show_verdict(document)
    return result_code(run.result)


class _Run:
    """What a run finds, for its result."""

    def __init__(self, result: Result, *, shown: bool) -> None:
        self.result = result
        self.failures = render.ShownFailures(shown=shown)
        self._opened = self._seen = 0
        self._stopped = False

    def carry_out(self, start: Callable[[], Events]) -> None:
        with stopping() as stop, progress_bar("decrypt") as move:
            pace = Pace(stop)
            with closing(pace.limit(start())) as events:  # also if the terminal to draw on is gone
                for event in events:
                    if isinstance(event, Progress):
                        self._opened, self._seen = event.changed, event.rows
                        move(event.rows, event.total)
                    else:
                        self.failures.add(event)
            self._stopped = pace.stopped

    def document(self, part: dict[str, Any], place: str) -> render.Document:
        written = not (self.failures.count or self._stopped)
        self.result.add(*render.failure_reasons(self.failures), *self._reasons(written=written))
        return self.result.document(
            {
                **part,
                "out": place if written else None,
                "rows": self._opened,
                "failed": self.failures.count,
                "failures": self.failures.objects(),
            }
        )

    def _reasons(self, *, written: bool) -> Iterator[Reason]:
        if not written:
            yield Reason.ENDED_EARLY
        elif not self._seen:
            yield Reason.NO_ROWS
        elif self._seen > self._opened:
            yield Reason.PLAINTEXT_ALLOWED


def _copy_file(
    database: str, out: Path, run: _Run, keys: Path | None, *, allow_plaintext: bool
) -> dict[str, Any]:
    cipher = RingCipher(open_ring(keys, run.result), follow=False)
    with naming_other_files(database):
        run.carry_out(lambda: decrypt_file(database, out, cipher, allow_plaintext=allow_plaintext))
    with closing(open_store(database)) as store:  # not before: a refused run leaves no log beside the file
        part = run.result.looks_at(store)
    warn_of_leftovers(Path(database), out)
    return part


def _copy_schema(
    database: str, out: str, run: _Run, keys: Path | None, *, allow_plaintext: bool
) -> dict[str, Any]:
    from sealpoint.maintenance.schemacopy import decrypt_schema

    cipher = RingCipher(open_ring(keys, run.result), follow=False)
    with closing(open_postgres(database)) as store:
        part = run.result.looks_at(store)  # not later: the copy's tables are not part of what it looks at
        run.carry_out(lambda: decrypt_schema(store, out, cipher, allow_plaintext=allow_plaintext))
    return part


def _require_file(out: Path | None, schema: str | None) -> Path:
    if schema is not None:
        raise typer.BadParameter("a copy of a SQLite file is a file: --out FILE", param_hint="--out-schema")
    if out is None:
        raise typer.BadParameter("name the new file: --out FILE", param_hint="--out")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"no folder at {out.parent}", param_hint="--out")
    return out


def _require_schema(out: Path | None, schema: str | None) -> str:
    if out is not None:
        what = "a copy of a Postgres database is a schema in it: --out-schema NAME"
        raise typer.BadParameter(what, param_hint="--out")
    if schema is None:
        raise typer.BadParameter("name the new schema: --out-schema NAME", param_hint="--out-schema")
    require_text(schema, "--out-schema")
    return schema


def _summary(document: render.Document) -> str:
    database, out, rows = document["database"], document["out"], document["rows"]
    if out is None:
        return f"no copy was made; {database['name']} is as it was"
    if database["kind"] == "postgres":
        return f"{rows} values were decrypted into schema {excerpt(out)}; its owner can read them"
    return f"{rows} values were decrypted; every account that can read {out} can read them"
