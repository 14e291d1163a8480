"""`sealpoint decrypt`: write a decrypted copy of a database."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sealpoint.admin.cli.frame import Run, stopping
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    LimitsOption,
    OneDatabase,
    naming_other_files,
    open_ring,
    open_store,
    require_text,
    warn_of_leftovers,
)
from sealpoint.admin.cli.output import Document, ShownFailures, put, watching
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import VECTORS
from sealpoint.admin.maintenance.decrypt import decrypt as decrypt_file
from sealpoint.admin.maintenance.workers import Pace
from sealpoint.admin.results.reasons import Reason
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import excerpt
from sealpoint.serde.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.rows import PostgresRows


def decrypt(
    run: Run,
    at: OneDatabase,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="SQLite: the new file; only you can read it.")
    ] = None,
    out_schema: Annotated[
        str | None,
        typer.Option(
            "--out-schema",
            metavar="NAME",
            help="Postgres: the new schema, in the same database; only its owner can read it.",
        ),
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    limits: LimitsOption = DEFAULT_LIMITS,
) -> None:
    """Write a decrypted copy of a database.

    LangGraph's plain saver and Store can read the copy; embeddings of items are not copied.
    If a value does not open, no copy is made, and the exit code is 4, or 5 if only keys are missing.
    """
    run.asks(allow_plaintext=allow_plaintext)
    database = at.find(run)
    is_file = kind_of(database).is_file
    place = _require_file(out, out_schema) if is_file else _require_schema(out, out_schema)
    cipher, failures = RingCipher(open_ring(run), follow=False), ShownFailures(shown=not run.as_json)
    failures.cipher = cipher
    with ExitStack() as stack:
        if is_file:
            stack.enter_context(naming_other_files(database))
            events = decrypt_file(
                database, Path(place), cipher, allow_plaintext=allow_plaintext, limits=limits
            )
        else:
            from sealpoint.admin.maintenance.schemacopy import decrypt_schema

            source = stack.enter_context(closing(cast("PostgresRows", open_store(database))))
            run.looks_at(source)  # before the copy's tables are created
            events = decrypt_schema(source, place, cipher, allow_plaintext=allow_plaintext, limits=limits)
        pace = Pace(stack.enter_context(stopping(run)))
        watch = stack.enter_context(watching("decrypt", failures.add))
        # Closed also if drawing on the terminal fails.
        watch.take_all(stack.enter_context(closing(pace.limit(events))))
    if is_file:
        with closing(open_store(database)) as store:  # opened late: a refused run leaves no log file
            run.looks_at(store)
        warn_of_leftovers(Path(database), Path(place))
    is_written = not (failures.count or pace.stopped)
    run.finds(
        {
            Reason.ENDED_EARLY: not is_written,
            Reason.NO_ROWS: is_written and not watch.rows,
            Reason.PLAINTEXT_ALLOWED: is_written and watch.rows > watch.changed,
        }
    )
    run.end({"out": place if is_written else None, "rows": watch.changed, **failures.end(run.result)}, _show)


def _require_file(out: Path | None, schema: str | None) -> str:
    if schema is not None:
        raise typer.BadParameter("a copy of a SQLite file is a file: --out FILE", param_hint="--out-schema")
    if out is None:
        raise typer.BadParameter("name the new file: --out FILE", param_hint="--out")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"the folder {out.parent} does not exist", param_hint="--out")
    return str(out)


def _require_schema(out: Path | None, schema: str | None) -> str:
    if out is not None:
        raise typer.BadParameter(
            "a copy of a Postgres database is a schema in it: --out-schema NAME", param_hint="--out"
        )
    if schema is None:
        raise typer.BadParameter("name the new schema: --out-schema NAME", param_hint="--out-schema")
    require_text(schema, "--out-schema")
    return schema


def _show(document: Document) -> None:
    database, out, rows = document["database"], document["out"], document["rows"]
    if out is None:
        put(f"no copy was made; {database['name']} is unchanged")
    elif database["kind"] == "postgres":
        put(f"{rows} values were decrypted into schema {excerpt(out)}; its owner can read them")
    else:
        put(f"{rows} values were decrypted; every account that can read {out} can read them")
    if out is not None and any(name.endswith(VECTORS) for name in document["scope"]["not_read"]):
        put("embeddings were not copied: search finds an item only after it is put again")
