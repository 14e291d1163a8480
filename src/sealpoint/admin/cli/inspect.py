"""`sealpoint inspect`, `types` and `trial`: what is in the values of a database.

`inspect` shows those of one thread as plain data, `types` counts the types that values name, and `trial`
decodes all as an agent would, and names the threads that would raise.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    DatabaseArgument,
    VariableOption,
    find_cipher,
    find_ring,
    one_database,
    open_ring,
    opened,
    opened_database,
    parse_id,
    require_storable,
)
from sealpoint.admin.cli.output import (
    Document,
    ShownFailures,
    complain,
    count,
    escape_id,
    failure_line,
    failure_object,
    place_line,
    put,
    quoted,
    say,
    show_causes,
    show_table,
    watching,
)
from sealpoint.admin.cli.state import end_state
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Failure, Failures, RowStore
from sealpoint.admin.maintenance import inspect as contents
from sealpoint.admin.maintenance.result import Reason, failure_reasons
from sealpoint.admin.maintenance.state import read_state
from sealpoint.admin.maintenance.verify import trial as decode_all
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import BlockedTypeError, UnknownKeyError, excerpt
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from sealpoint.serde.catalogue import Allowlist


def inspect(
    run: Run,
    database: DatabaseArgument = None,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread", metavar="ID", callback=parse_id, help="The thread; without it, ids are listed."
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Show the state of the thread: its latest checkpoint, by channel.")
    ] = False,
    channel: Annotated[
        str | None,
        typer.Option("--channel", metavar="NAME", callback=parse_id, help="With --last: only this channel."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="ID", callback=parse_id, help="As --last, of this checkpoint."),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            metavar="NAME",
            callback=parse_id,
            show_default=False,
            help="With --last: the namespace of a subgraph; else that of the graph itself.",
        ),
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Cut nothing that is long.")] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=1, max=100_000, help="How many values, messages, or ids, to show at most."
        ),
    ] = 100,
    variable: VariableOption = None,
) -> None:
    """Show the values of one thread as plain data. Nothing is imported, and what is long is cut.

    This is the one command that shows what was sealed. Without --thread it lists the ids of threads.
    Ids and names are given as they are printed: a backslash begins an escape, and is written twice.
    """
    run.result.add(Reason.NOT_ASKED)
    is_state = last or checkpoint is not None
    if thread is None and is_state:
        raise typer.BadParameter(
            "name a thread of those that are listed without --last", param_hint="--thread"
        )
    if not is_state and (channel is not None or namespace):
        raise typer.BadParameter("it needs --last or --checkpoint", param_hint="--channel, --namespace")
    named = one_database(run, database, variable)
    require_storable(named, thread, channel, checkpoint, namespace)
    with opened([named]) as (store,):
        run.looks_at(store)
        if thread is None:
            _list_threads(run, store, limit)
        elif is_state:
            with closing(kind_of(named).open_whole(named)) as rows:
                cipher = find_cipher(run, store)
                state = read_state(
                    rows,
                    cipher,
                    thread,
                    checkpoint_ns=namespace,
                    checkpoint_id=checkpoint,
                    channel=channel,
                    limit=limit,
                )
            end_state(run, thread, namespace, state, channel, limit=limit, full=full)
        else:
            _show_values(run, store, thread, limit, full=full)


def _show_values(run: Run, store: RowStore, thread: str, limit: int, *, full: bool) -> None:
    values, shown, failures = [], 0, Failures()
    cipher = find_cipher(run, store)
    found = contents.inspect(store, cipher, thread, full=full)
    for value in islice(found, limit):
        shown += 1
        if isinstance(value, Failure):
            failures.add(value)
        if run.as_json:
            values.append(_value_object(value))
        elif cipher is not None or not isinstance(getattr(value, "error", None), UnknownKeyError):
            _show_value(value)  # that there is no ring was said
    more = next(found, None) is not None
    run.result.add(*failure_reasons(failures))
    run.result.add(Reason.NO_ROWS, when=not shown)
    run.end({"thread": thread, "values": values, "more": more}, lambda _: None)
    if not shown:
        say(f"no thread {quoted(thread)}: without --thread the ids of all are listed")
        run.code = Exit.USAGE
    if more:
        say(f"shown are the first {limit} values; there are more")


def _show_value(found: contents.Readable | Failure) -> None:
    if isinstance(found, Failure):
        complain(failure_line(found))
        return
    put(f"{found.table} {place_line(found.place)} {found.tag}")
    for head, value in (("", found.value), ("sealed with it: ", found.sealed_with)):
        if not head or value is not None:
            for line in f"{head}{json.dumps(value, indent=2, ensure_ascii=False)}".splitlines():
                put(f"  {line}")


def _value_object(found: contents.Readable | Failure) -> dict[str, Any]:
    if isinstance(found, Failure):
        return failure_object(found)
    shown = {
        "table": found.table,
        "place": contents.plain(found.place),
        "tag": found.tag,
        "value": found.value,
    }
    return shown if found.sealed_with is None else {**shown, "sealed_with": found.sealed_with}


def _list_threads(run: Run, store: RowStore, limit: int) -> None:
    ids = list(islice(contents.threads(store), limit + 1))
    more = len(ids) > limit
    run.result.add(Reason.NO_ROWS, when=not ids)
    run.end(
        {"threads": ids[:limit], "more": more},
        lambda _: show_table(("thread",), [[escape_id(thread)] for thread in ids[:limit]]),
    )
    if more:
        say(f"shown are the first {limit} threads; there are more")


def types(
    run: Run,
    database: DatabaseArgument = None,
    emit: Annotated[
        bool, typer.Option("--emit", help="Print an allowlist of the types that need one, as Python.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="FILE|MODULE:NAME",
            help="Exit with 3 if a type is named that is not allowed: a file as --emit prints it, or one"
            " type; can be given several times. What a strict serializer builds by itself is always allowed.",
        ),
    ] = None,
    variable: VariableOption = None,
) -> None:
    """Count the types that the values name. Nothing is imported, and no value is shown.

    Without a ring, sealed values are not opened; they are counted, and the exit code is 5.
    """
    if emit and run.as_json:
        raise typer.BadParameter("--emit prints Python, and --json prints JSON")
    allowlist = None if allow is None else Allowlist.of(read_allowed(allow))
    failures = ShownFailures(shown=not run.as_json)
    with opened_database(run, database, variable) as store:
        cipher = find_cipher(run, store)
        with watching("types", failures.add) as watch:
            try:
                found = contents.inventory(store, cipher, report=watch.take)
            except BaseException:
                watch.say_how_far()
                raise
    run.result.add(*_reasons(found, allowlist))
    members = {
        "types": type_objects(found, allowlist),
        **{name: getattr(found, name) for name in ("other_records", "values", "not_opened")},
        **failures.end(run.result),
    }
    run.end(members, (lambda _: _emit_types(found)) if emit else _show_types, verdict=not emit)


def type_objects(found: contents.Inventory, allowlist: Allowlist | None = None) -> list[dict[str, Any]]:
    """Return the types that values name, as objects have them."""
    return [
        {
            "module": part.module,
            "name": part.name,
            "records": part.records,
            "thread": part.thread,
            "allowed": _verdict(part, allowlist),
        }
        for part in found.constructors.values()
    ]


def read_allowed(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the types of allowlists, each a file or one type."""
    for text in texts:
        file = Path(text)
        if file.is_file():
            try:
                yield from [
                    (str(module), str(name))
                    for module, name in ast.literal_eval(file.read_text(encoding="utf-8"))
                ]
            except (SyntaxError, TypeError, ValueError):
                cause = f"{excerpt(text)} is not an allowlist from `types --emit`"
                raise typer.BadParameter(cause, param_hint="--allow") from None
        else:
            module, colon, name = text.rpartition(":")
            if not (colon and module and name):
                cause = f"{excerpt(text)} is neither a file nor MODULE:NAME"
                raise typer.BadParameter(cause, param_hint="--allow")
            yield module, name


def _reasons(found: contents.Inventory, allowlist: Allowlist | None) -> Iterator[Reason]:
    if not found.values:
        yield Reason.NO_ROWS
    if found.not_opened:  # what they name is not known
        yield Reason.NOT_OPENED
    if allowlist is None:
        yield Reason.NOT_ASKED
    elif found.other_records or any(pair not in allowlist.types for pair in found.constructors):
        yield Reason.TYPES_NOT_ALLOWED


def _verdict(found: contents.Constructor, allowlist: Allowlist | None) -> str | None:
    if found.is_safe:
        return "built in"
    if allowlist is None:
        return None
    return "yes" if found.pair in allowlist.types else "no"


def _show_types(document: Document) -> None:
    types = sorted(document["types"], key=lambda part: -part["records"])
    show_table(
        ("type", "records", "first thread", "allowed"),
        [
            (f"{part['module']}.{part['name']}", part["records"], escape_id(part["thread"]), part["allowed"])
            for part in types
        ],
    )
    values = f"{{}} of {document['values']} values"
    count(document["not_opened"], f"{values} are sealed and were not opened")
    count(document["failed"], f"{values} could not be read")
    count(sum(part["allowed"] == "no" for part in types), "{} types are not on the allowlist")
    count(document["other_records"], "{} records name other types, which are not listed")


def allowlist_text(parts: Iterable[contents.Constructor]) -> str:
    """Return an allowlist of types, as Python."""
    # The names come from untrusted values: as literals they cannot add code to the list.
    lines = (
        f"    {part.pair!a},  # {part.records}, first in thread {excerpt(part.thread)}\n" for part in parts
    )
    return f"[\n{''.join(lines)}]\n"


def _emit_types(found: contents.Inventory) -> None:
    needed = sorted((part.pair, part) for part in found.constructors.values() if not part.is_safe)
    print(allowlist_text(part for _, part in needed if part.is_nameable), end="")
    if found.not_opened:
        number = f"{found.not_opened} of {found.values}"
        say(f"{number} values are sealed and were not opened: their types are not in the list")
    if found.other_records:
        say(f"{found.other_records} records name other types, which are not in the list")
    if unnameable := sum(not part.is_nameable for _, part in needed):
        say(f"{unnameable} of the names are no type's and were left out")
    if needed:
        say("the values name these types: allow those that are yours, and no other")


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
    have. A database that is not sealed needs no ring: try it with --allow-plaintext.
    """
    run.asks(allow_plaintext=allow_plaintext)
    named = one_database(run, database, variable)
    inner = JsonPlusSerializer(allowed_msgpack_modules=None if strict else True)
    allowed = [*read_allowed(allow or ())]
    _import_all(modules or ())
    failures = _Threads()
    with opened([named]) as (store,), watching("trial", failures.add) as watch:
        has_ring = find_ring(run) is not None or any(is_sealed(each.tag) for each in store.count())
        ring = open_ring(run) if has_ring else KeyRing([])
        serde = EncryptedSerializer(
            RingCipher(ring), inner, plaintext="allow" if allow_plaintext else "refuse"
        )
        serde = serde.with_msgpack_allowlist(allowed)
        run.looks_at(store)
        watch.take_all(decode_all(store, serde))
    run.result.add(*failure_reasons(failures))
    run.finds({Reason.NO_ROWS: not watch.rows, Reason.PLAINTEXT_ALLOWED: serde.plaintext_count})
    members = {
        "strict": strict,
        "rows": watch.rows,
        "failed": failures.count,
        "threads": [*failures.threads.values()],
        "other_failures": failures.others,
    }
    run.end(members, _show_trial)
    if not run.as_json:
        show_causes(failures)
        if not has_ring and not allow_plaintext:
            say("hint: nothing is sealed, and there is no ring: --allow-plaintext decodes what is there")
        if any(isinstance(failed.error, BlockedTypeError) for failed in failures.kept):
            say("hint: the allowlist of this command is --allow FILE or --allow MODULE:NAME")


class _Threads(Failures):
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
    if modules and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # behind all others, so that nothing here stands in for an installed module
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a module may raise anything, and end programs
            raise typer.BadParameter(
                f"{excerpt(name)} cannot be imported: {type(error).__name__}: {error}", param_hint="--import"
            ) from None


def _show_trial(document: Document) -> None:
    rows = [
        (escape_id(part["thread"]), part["values"], f"{part['error']}: {part['message']}")
        for part in document["threads"]
    ]
    if rows:
        show_table(("thread", "values or rows that raise", "first error"), rows)
    if document["other_failures"]:
        put(f"{document['other_failures']} more values or rows raise in other threads")
    put(f"decoded {document['rows']} values; values and rows that raise: {document['failed']}")
