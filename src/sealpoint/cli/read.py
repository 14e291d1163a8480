"""Commands that only read: `status`, `audit`, `types`, `inspect` and `verify`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealpoint.cli import findings
from sealpoint.cli.exits import Exit
from sealpoint.cli.screen import JsonOption, complain, progress_bar, say, show_json, show_table
from sealpoint.cli.stores import (
    DatabaseArgument,
    DatabasesArgument,
    KeysOption,
    open_ring,
    opened,
    require_text,
)
from sealpoint.crypto import RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.databases.failures import Failure, Failures
from sealpoint.databases.rows import Event, Progress
from sealpoint.errors import KeyFileMissingError, UnknownKeyError, excerpt
from sealpoint.keys.ringfile import RingEntry, read_ring_entries
from sealpoint.maintenance.audit import audit as look_at
from sealpoint.maintenance.inspect import inspect as read_thread
from sealpoint.maintenance.inspect import threads
from sealpoint.maintenance.inventory import Inventory
from sealpoint.maintenance.inventory import inventory as take_inventory
from sealpoint.maintenance.status import Share, with_states
from sealpoint.maintenance.status import status as take_shares
from sealpoint.maintenance.verify import verify as open_all
from sealpoint.serde.allowlist import Allowlist

if TYPE_CHECKING:
    from sealpoint.databases.rows import RowStore

AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="FILE|MODULE:NAME",
        show_default=False,
        help="Exit with 3 if a type is named that is not allowed: a file as --emit prints it, or one type;"
        " can be given several times. What a strict serializer builds by itself is always allowed.",
    ),
]


def status(
    databases: DatabasesArgument,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="ID", show_default=False, help="Exit with 3 if a value is not under this key."
        ),
    ] = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show what is sealed under which key, and what is not. Needs no key, and reads no value.

    It believes the tags: that values also open is what `verify` shows.
    """
    entries = _read_entries(keys)
    if only is not None and entries is not None and only not in {entry.id for entry in entries}:
        hint = f"name one of these, or with --keys the ring that holds {excerpt(only)}"
        unknown = UnknownKeyError(only, tuple(entry.id for entry in entries), hint=hint)
        complain(str(unknown), unknown.hint)
        return Exit.USAGE
    with opened(databases) as stores:
        found = [(store.name, take_shares(store, entries)) for store in stores]
    others = sum(share.rows for _, shares in found for share in shares if share.key_id != only)
    _say_unless_known(entries, [share for _, shares in found for share in shares])
    if as_json:
        parts = [{"database": name, "shares": [asdict(share) for share in shares]} for name, shares in found]
        show_json("status", {"databases": parts, "only": only} | ({} if only is None else {"ok": not others}))
    else:
        rows = ((name, *findings.share_row(share)) for name, shares in found for share in shares)
        show_table(("database", *findings.SHARES), rows)
    if only is None or not others:
        return Exit.DONE
    say(f"{others} values are not under {excerpt(only)}")
    return Exit.FOUND


def audit(
    database: DatabaseArgument,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 3 for what is readable beside the values.")
    ] = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show what anybody can read who holds the database. Needs no key, and shows shapes alone.

    Exits with 3 if there are values that are not sealed.
    """
    entries = _read_entries(keys)
    with opened([database]) as (store,):
        name, found = store.name, look_at(store)
    found = replace(found, shares=tuple(with_states(found.shares, entries)))
    _say_unless_known(entries, found.shares)
    if as_json:
        counts = {"rows": found.rows, "open_rows": found.open_rows, "is_silent": found.is_silent}
        show_json("audit", {"database": name, **counts, **asdict(found)})
    else:
        findings.show_audit(found)
    say(f"{found.rows - found.open_rows} of {found.rows} values are sealed")
    if not found.is_silent:
        say("more is readable beside the values, where a serializer cannot seal it")
    return Exit.DONE if found.is_sealed and (found.is_silent or not strict) else Exit.FOUND


def types(
    database: DatabaseArgument,
    emit: Annotated[
        bool, typer.Option("--emit", help="Print an allowlist of the types that need one, as Python.")
    ] = False,
    allow: AllowOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Count the types that the values name. Nothing is imported, and no value is shown.

    Without a ring, sealed values are not opened, and that is said.
    """
    if emit and as_json:
        raise typer.BadParameter("--emit prints Python, and --json prints JSON")
    allowlist = (
        None if allow is None else Allowlist.of([pair for text in allow for pair in _read_allowed(text)])
    )
    failures = findings.ShownFailures(shown=not as_json)
    with opened([database]) as (store,):
        name, cipher = store.name, _get_cipher(store, keys)
        with _watching("types", failures.add) as report:
            found = take_inventory(store, cipher, report=report)
    failures.show_causes()
    if as_json:
        show_json("types", findings.types_object(name, found, failures.objects(), allowlist))
    elif emit:
        findings.emit_types(found)
    else:
        findings.show_types(found, allowlist)
    return _judge(found, allowlist)


def inspect(
    database: DatabaseArgument,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread", metavar="ID", show_default=False, help="The thread; without it, ids are listed."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="Show so many values, or ids, at most.")
    ] = 100,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show the values of one thread as plain data. Nothing is imported, and what is long is cut.

    This is the one command that shows what was sealed. Without --thread it lists the ids of threads.
    """
    if thread is None:
        return _list_threads(database, limit, as_json=as_json)
    require_text(thread, "--thread")
    values, shown, failures = [], 0, Failures()
    with opened([database]) as (store,):
        name, found = store.name, read_thread(store, _get_cipher(store, keys), thread)
        for part in islice(found, limit):
            shown += 1
            if isinstance(part, Failure):
                failures.add(part)
            if as_json:
                values.append(findings.value_object(part))
            else:
                findings.show_value(part)
        more = next(found, None) is not None
    if as_json:
        show_json("inspect", {"database": name, "thread": thread, "values": values, "more": more})
    if not shown:
        say(f"no thread {excerpt(thread)}: without --thread the ids of all are listed")
        return Exit.USAGE
    if more:
        say(f"shown are the first {limit} values; there are more")
    return findings.exit_code(failures)


def _list_threads(database: str, limit: int, *, as_json: bool) -> Exit:
    with opened([database]) as (store,):
        name, ids = store.name, list(islice(threads(store), limit + 1))
    more = len(ids) > limit
    if as_json:
        show_json("inspect", {"database": name, "threads": ids[:limit], "more": more})
    else:
        show_table(("thread",), [[thread_id] for thread_id in ids[:limit]])
    if more:
        say(f"shown are the first {limit} threads; there are more")
    return Exit.DONE


def verify(
    database: DatabaseArgument,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Let values pass that are not sealed.")
    ] = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if keys are all that is missing. A value that is not sealed
    is one.
    """
    rows, total, failures, complete = 0, None, Failures(), False
    with opened([database]) as (store,), progress_bar("verify") as move:
        cipher = RingCipher(open_ring(keys))
        report = findings.JsonReport(store.name) if as_json else findings.LineReport()
        try:
            for event in open_all(store, cipher, allow_plaintext=allow_plaintext):
                if isinstance(event, Progress):
                    rows, total = event.rows, event.total
                    move(rows, total)
                else:
                    failures.add(event)
                    report.add(event)
            complete = True
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
            report.end(rows, failures, complete=complete)
            if not complete:
                _say_how_far(rows, total)
                say(f"{failures.count} of the values that were opened do not open")
    return findings.exit_code(failures)


def _read_entries(keys: Path | None) -> Sequence[RingEntry] | None:
    """Return what the ring says about its keys, or ``None`` if none is named and none is there."""
    try:
        return read_ring_entries(keys)
    except KeyFileMissingError:
        if keys is not None:
            raise
        return None


def _say_unless_known(entries: Sequence[RingEntry] | None, shares: Iterable[Share]) -> None:
    if entries is None and any(share.suite for share in shares):
        say("no ring file was found: the states of keys are not known")


def _get_cipher(store: RowStore, keys: Path | None) -> RingCipher | None:
    """Return what opens the store's values, or ``None`` if none is sealed, or no ring is there."""
    sealed = any(is_sealed(count.tag) for count in store.count())
    if keys is None and not sealed:
        return None
    try:
        return RingCipher(open_ring(keys))
    except KeyFileMissingError as error:
        if keys is not None:
            raise
        say(f"{error}: sealed values are not opened")
        return None


def _say_how_far(rows: int, total: int | None) -> None:
    """Say that a run has not come to its end, and how far it came."""
    say(f"stopped early: {rows} of {'?' if total is None else total} values were looked at")


def _read_allowed(text: str) -> list[tuple[str, str]]:
    """Return the pairs of one ``--allow``."""
    file = Path(text)
    if not file.is_file():
        module, colon, name = text.rpartition(":")
        if not (colon and module and name):
            raise typer.BadParameter(
                f"{excerpt(text)} is neither a file nor MODULE:NAME", param_hint="--allow"
            )
        return [(module, name)]
    try:
        pairs = ast.literal_eval(file.read_text(encoding="utf-8"))
        return [(str(module), str(name)) for module, name in pairs]
    except (SyntaxError, TypeError, ValueError):
        raise typer.BadParameter(f"{excerpt(text)} is not what --emit prints", param_hint="--allow") from None


def _judge(found: Inventory, allowlist: Allowlist | None) -> Exit:
    if found.not_opened:
        say(f"{found.not_opened} of {found.values} values are sealed and were not opened")
    if found.failures:
        say(f"{found.failures} of {found.values} values could not be read")
        return Exit.UNOPENED
    if allowlist is None:
        return Exit.DONE
    if found.not_opened:  # what they name is not known
        return Exit.KEYS
    foreign = [pair for pair in found.constructors if pair not in allowlist.types]
    if foreign or found.other_records:
        say(f"types that are not on the allowlist: {len(foreign) or found.other_records}")
        return Exit.FOUND
    return Exit.DONE


@contextmanager
def _watching(title: str, failed: Callable[[Failure], object]) -> Iterator[Callable[[Event], None]]:
    """Show progress, and hand on failures; of a run that ends early, say how far it came."""
    rows, total = 0, None
    with progress_bar(title) as move:

        def report(event: Event) -> None:
            nonlocal rows, total
            if isinstance(event, Progress):
                rows, total = event.rows, event.total
                move(rows, total)
            else:
                failed(event)

        try:
            yield report
        except BaseException:
            _say_how_far(rows, total)
            raise
