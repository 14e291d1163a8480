"""`sealpoint erase`: threads, and namespaces of LangGraph's Store, deleted and recorded."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.erasures import read_history
from sealpoint.admin.cli.frame import Run, stopping
from sealpoint.admin.cli.options import (
    ApplyOption,
    DatabaseArgument,
    ThreadsOption,
    VariableOption,
    each_option,
    find_threads,
    one_database,
    open_store,
    opened_threads,
    parse_id,
    read_entries,
    require_reason,
    require_storable,
)
from sealpoint.admin.cli.output import Document, put, quoted, say, show_table
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance.erase import Erasing, Owner, by_table
from sealpoint.admin.maintenance.result import Reason, describe_ring
from sealpoint.admin.maintenance.workers import Stop
from sealpoint.errors import ConfigError, StoppedError, excerpt
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from sealpoint.keys.state import KeyState

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_MAX_IDS: Final = 10_000
_MAX_DAYS: Final = 36_500
_HINT: Final = (
    "check the spelling: `sealpoint inspect DB` lists what is there;"
    " --allow-missing accepts what is not there, as after a run that ended early"
)
_AGAIN: Final = (
    "end the runs of agents on these threads, then run the same command again, with --allow-missing"
)


def _parse_each(ids: list[str] | None) -> list[str]:
    return [found for each in ids or () if (found := parse_id(each)) is not None]


def _parse_namespace(names: list[str] | None) -> list[str]:
    found = _parse_each(names)
    for name in found:
        if not all(name.split(".")):
            raise typer.BadParameter(f"{excerpt(name)} is not one: name its labels, joined by dots")
    return found


def _require_date(day: str | None) -> str | None:
    try:
        return None if day is None else date.fromisoformat(day).isoformat()
    except ValueError:
        raise typer.BadParameter("give a date, as 2026-01-31") from None


def _read_ids(file: Path) -> list[str]:
    """Read a file of ids, one a line, each as commands print it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # no wait for a FIFO
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise typer.BadParameter(f"{file} is not a regular file")
            data = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None
    lines = data.removesuffix(b"\n").split(b"\n")
    if len(data) > _MAX_FILE_BYTES or len(lines) > _MAX_IDS:
        raise typer.BadParameter(f"{file} has over {_MAX_IDS} lines or {_MAX_FILE_BYTES} bytes: divide it")
    return [_read_id(file, number, line) for number, line in enumerate(lines, 1)]


def _read_id(file: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode()
        if not text or not text.isprintable():
            raise typer.BadParameter("it is empty, or has a character that does not print")
        return str(parse_id(text))
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file}, line {number}: it is not UTF-8") from None
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{file}, line {number}: {error.message}") from None


def erase(
    run: Run,
    database: DatabaseArgument = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--thread",
            metavar="ID",
            callback=_parse_each,
            help="The id of a thread, as it is printed. Give it once for each.",
        ),
    ] = None,
    threads_file: Annotated[
        Path | None, typer.Option("--threads-file", metavar="FILE", help="A file of such ids, one a line.")
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--store-namespace",
            metavar="NAME",
            callback=_parse_namespace,
            help="A namespace of LangGraph's Store, its labels joined by dots, with all below it. Give it"
            " once for each.",
        ),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", callback=require_reason, help="Why, for the record."),
    ] = None,
    due: Annotated[
        int | None,
        typer.Option(
            "--due",
            metavar="DAYS",
            min=0,
            max=_MAX_DAYS,
            help="In how many days no copy of the database may open any more, for `sealpoint erasures`.",
        ),
    ] = None,
    only_under: Annotated[
        list[str] | None,
        each_option(
            "--only-under", "KEY", "Declare that every older copy is under this key, or others so named."
        ),
    ] = None,
    sealed_since: Annotated[
        str | None,
        typer.Option(
            "--sealed-since",
            metavar="DATE",
            callback=_require_date,
            help="Declare since when the database has been sealed; older copies are not there any more.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept names of which the database has nothing.")
    ] = False,
    apply: ApplyOption = False,
    threads: ThreadsOption = None,
    variable: VariableOption = None,
) -> None:
    """Delete threads, and namespaces of LangGraph's Store.

    Copies of the database keep it, and open until the keys of today are destroyed: the ledger records what
    was erased and under which keys, and `sealpoint erasures` shows what is still to be done. The ids stay in
    the thread store until `sealpoint heads trim`.

    Exits with 2 if there is nothing under a name, which may be misspelt; with 7 if rows are still written.
    """
    run.asks(allow_missing=allow_missing)
    names = [*dict.fromkeys([*(ids or ()), *(_read_ids(threads_file) if threads_file else ())])]
    if not (names or namespaces):
        raise typer.BadParameter("name what is to be erased", param_hint="--thread, --store-namespace")
    named, spaces = one_database(run, database, variable), [*dict.fromkeys(namespaces or ())]
    require_storable(named, *names, *spaces)
    read_entries(run, run.ring_file)
    file = RingFile(run.ring_file)
    declared = _declare(file, reason, due, only_under or [], sealed_since)
    remembered = find_threads(threads, run.keys)
    with ExitStack() as stack:
        heads = None if remembered is None else stack.enter_context(opened_threads(remembered))
        store = stack.enter_context(closing(open_store(named, writable=apply, deletes=True)))
        run.looks_at(store)
        stop = stack.enter_context(stopping(run))
        if apply:
            stack.enter_context(store.hold())
        erasing = Erasing(store, KeyRing.of_file(file), names, spaces, heads)
        erasing.plan()
        missing = _require_there(erasing, file, allow_missing=allow_missing)
        is_done = apply and _carry_out(run, erasing, file, declared, stop)
    counts = by_table(erasing.counts if apply else erasing.planned)
    run.finds({Reason.NOT_APPLIED: not apply, Reason.ENDED_EARLY: apply and not is_done})
    run.result.counts |= {f"{table}, {key}": rows for table in counts for key, rows in counts[table].items()}
    run.end(
        {
            "applied": apply,
            "threads": len(names),
            "namespaces": len(spaces),
            "missing": missing,
            "rows": counts,
            "erased": sum(erasing.counts.values()),
            "looks": erasing.looks,
            "due": declared["due"],
            "recorded": run.recorder and run.recorder.documents[0],
        },
        _show,
    )
    if apply and heads is not None and names:
        say("the ids stay in the thread store until `sealpoint heads trim`")
    if apply and not (is_done or run.is_stopping):
        say(f"rows were still found after {erasing.looks} looks: {_AGAIN}")


def _carry_out(run: Run, erasing: Erasing, file: RingFile, declared: Mapping[str, Any], stop: Stop) -> bool:
    """Record what is to be erased, with the keys of the ring, and erase it; return whether all is gone."""
    run.begin([] if file.ledger is None else [_document(erasing, file, declared)])
    if describe_ring(read_ring_entries(run.ring_file)) != describe_ring(file.entries):
        raise StoppedError("the ring was changed meanwhile", hint="run the same command again")
    return erasing.run(stop)


def _declare(
    file: RingFile, reason: str | None, due: int | None, only_under: list[str], sealed_since: str | None
) -> dict[str, Any]:
    """Return what the operator declares, as the document has it."""
    for key_id in only_under:
        if key_id not in {each.id for each in file.entries if each.state is not KeyState.DESTROYED}:
            raise typer.BadParameter(f"the ring has no key {excerpt(key_id)}", param_hint="--only-under")
    if due is not None and file.ledger is None:
        raise typer.BadParameter("the ring file names no ledger, which would have it", param_hint="--due")
    day = None if due is None else (datetime.now(UTC).date() + timedelta(days=due)).isoformat()
    return {"reason": reason, "due": day, "only_under": tuple(only_under), "sealed_since": sealed_since}


def _require_there(erasing: Erasing, file: RingFile, *, allow_missing: bool) -> list[str]:
    """Return the names of which nothing is there; they must be allowed, or have been erased before."""
    owners: list[Owner] = [*erasing.threads, *erasing.namespaces]
    missing = [owner.name for owner in owners if owner not in erasing.there]
    unknown = [] if allow_missing else missing
    if unknown and file.ledger is not None:  # a run that was killed may have left none of the rows
        from sealpoint.admin.evidence.recorder import hmac_of

        hmac, history = hmac_of(file), read_history(file.ledger.folder)
        every, place = history.erasures(None, file.entries), _place_of(erasing.store)
        before = {name for one in every if one.erasure.database == place for name in one.erasure.names}
        unknown = [name for name in missing if hmac(name) not in before or hmac(name) is None]
    if unknown:
        more = f", and of {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ConfigError(f"the database has nothing of {quoted(unknown[0])}{more}", hint=_HINT)
    return missing


def _place_of(store: RowStore) -> str:
    """Return what stays when a database is restored in place, and tells others of the same name."""
    identity = store.identity
    return str(identity["path"] if store.kind == "sqlite" else f"{store.name} {identity['schema']}")


def _document(erasing: Erasing, file: RingFile, declared: Mapping[str, Any]) -> bytes:
    from sealpoint.admin.evidence.erasure import ErasedNamespace, ErasedThread, Erasure, HeldKey
    from sealpoint.admin.evidence.recorder import hmac_of

    hmac, ring = hmac_of(file), KeyRing.of_file(file)
    if ring.index is not None:
        ring.index_key("ledger")  # raises if it is not available: the names would be missing
    event = None if erasing.heads is None else erasing.heads.end()

    def pseudonym(owner: Owner) -> str | None:
        return hmac(owner.stored[1]) if len(owner.stored) > 1 else None

    return bytes(
        Erasure(
            database=_place_of(erasing.store),
            index=hmac(""),
            threads=tuple(
                ErasedThread(hmac(owner.name), erasing.last.get(owner.name), event, pseudonym(owner))
                for owner in erasing.threads
            ),
            namespaces=tuple(
                ErasedNamespace(hmac(owner.name), erasing.until.get(owner.name), pseudonym(owner))
                for owner in erasing.namespaces
            ),
            keys=HeldKey.of(file.entries),
            counts=by_table(erasing.planned),
            **declared,
        )
    )


def _show(document: Document) -> None:
    rows = [(table, key, number) for table, keys in document["rows"].items() for key, number in keys.items()]
    if rows:
        show_table(("table", "key", "rows"), rows)
    for name in document["missing"]:
        put(f"nothing is there of {quoted(name)}")
    if not document["applied"]:
        put("this would be deleted; --apply deletes it")
        return
    put(f"deleted {document['erased']} rows; looked {document['looks']} times")
    if document["recorded"] is None:
        put("nothing records this: the ring file names no ledger")
    else:
        put(f"recorded in the ledger as {document['recorded']}")
