"""`sealpoint inspect`, `types` and `trial`: the contents of a database's values.

`inspect` shows the values of one thread as plain data, `types` counts the types that values name, and
`trial` decodes all values as an agent would, and lists the threads where that fails.
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

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    LimitsOption,
    OneDatabase,
    find_ring,
    id_option,
    open_ring,
    opened,
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
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance import inspect as contents
from sealpoint.admin.maintenance.names import owner_of
from sealpoint.admin.maintenance.rotate import try_keys
from sealpoint.admin.maintenance.state import State, read_state
from sealpoint.admin.results.events import Failure, Failures, failure_reasons
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.tags import Kind, is_marked_bound
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import BlockedTypeError, RingFileMissingError, UnknownKeyError, excerpt
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.tag import PICKLE, is_sealed
from sealpoint.serde.catalogue import Allowlist
from sealpoint.serde.limits import DEFAULT_LIMITS

AllowTypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="FILE|MODULE:NAME",
        help="Types to allow: a file that `types --emit` printed, or one type. Can be repeated.",
    ),
]


def inspect(
    run: Run,
    at: OneDatabase,
    thread: Annotated[str | None, id_option("--thread", "ID", "Id of the thread. Default: list ids.")] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Show the latest checkpoint of the thread, by channel.")
    ] = False,
    channel: Annotated[str | None, id_option("--channel", "NAME", "With --last: only this channel.")] = None,
    checkpoint: Annotated[
        str | None, id_option("--checkpoint", "ID", "Like --last, but show the checkpoint with this id.")
    ] = None,
    namespace: Annotated[
        str | None,
        id_option("--namespace", "NAME", "With --last: namespace of a subgraph; with --items: of the items."),
    ] = None,
    items: Annotated[
        bool,
        typer.Option("--items", help="Items of LangGraph's Store; without --namespace, list the namespaces."),
    ] = False,
    key: Annotated[str | None, id_option("--key", "NAME", "With --items: only this key's item.")] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, max=100_000, help="Maximum number of values, messages or ids shown."),
    ] = 100,
    limits: LimitsOption = DEFAULT_LIMITS,
) -> None:
    """Show the values of one thread, or items, as plain data. No type is imported; long values are cut.

    This is the only command that shows sealed contents. Without --thread it lists the ids of threads.
    Give the real namespace and key of an item, also if the database has pseudonyms; join labels by dots.
    Give ids and names as commands print them: a backslash begins an escape, so write it twice.
    """
    run.result.add(Reason.NOT_ASKED)
    is_state = last or checkpoint is not None
    if thread is None and is_state:
        raise typer.BadParameter(
            "name a thread; without --last, the command lists all ids", param_hint="--thread"
        )
    if not is_state and (channel is not None or (namespace and not items)):
        raise typer.BadParameter("add --last or --checkpoint", param_hint="--channel, --namespace")
    if items and (thread is not None or is_state):
        raise typer.BadParameter("items belong to no thread", param_hint="--items")
    if key is not None and not (items and namespace is not None):
        raise typer.BadParameter("add --items and --namespace", param_hint="--key")
    named = at.find(run)
    require_storable(named, thread, channel, checkpoint, namespace, key)
    with opened([named]) as (store,):
        run.looks_at(store)
        if thread is None and namespace is None:
            _list_names(run, store, "namespace" if items else "thread", limit)
            return
        cipher = find_cipher(run, store)
        if thread is None:
            found = contents.inspect_items(store, cipher, namespace or "", key)
            _show_values(run, store, cipher, "namespace", namespace or "", found, limit)
        elif is_state:
            with closing(kind_of(named).open_whole(named)) as rows:
                state = read_state(
                    rows, cipher, thread, (namespace or "", checkpoint), channel, limit, limits
                )
            _end_state(run, store, cipher, thread, namespace or "", state, channel, limit)
        else:
            found = contents.inspect(store, cipher, thread, limits=limits)
            _show_values(run, store, cipher, "thread", thread, found, limit)


def _try_others(store: RowStore, cipher: RingCipher | None, failures: Failures) -> None:
    """If a shown value did not open, open more values, to find out whether the ring has the wrong keys."""
    failures.cipher = cipher
    if cipher is not None and failures.unopened:
        try_keys(store, cipher, [key.id for key in cipher.ring.keys])  # the cipher counts values that open


def _show_values(
    run: Run,
    store: RowStore,
    cipher: RingCipher | None,
    what: str,
    name: str,
    found: Iterator[contents.Readable | Failure],
    limit: int,
) -> None:
    values, shown, failures = [], 0, Failures()
    for value in islice(found, limit):
        shown += 1
        if isinstance(value, Failure):
            failures.add(value)
        if run.as_json:
            values.append(_value_object(value))
        elif cipher is not None or not isinstance(getattr(value, "error", None), UnknownKeyError):
            _show_value(value)  # a missing ring was reported before
    more = next(found, None) is not None
    _try_others(store, cipher, failures)
    run.result.add(*failure_reasons(failures))
    run.finds({Reason.NO_ROWS: not shown})
    run.end({what: name, "values": values, "more": more}, lambda _: None)
    if not shown:
        say(f"no {what} {quoted(name)} was found; without --{what}, the command lists all")
        run.code = Exit.USAGE
    if more:
        say(f"showing the first {limit} values; there are more (--limit)")


def _show_value(found: contents.Readable | Failure) -> None:
    if isinstance(found, Failure):
        complain(failure_line(found))
        return
    put(f"{found.table} {place_line(found.place)} {found.tag}")
    for head, value in (("", found.value), ("sealed with it: ", found.sealed_with)):
        if not head or value is not None:
            _put_json(value, head=head)


def _put_json(value: Any, margin: str = "  ", head: str = "") -> None:
    for line in f"{head}{json.dumps(value, indent=2, ensure_ascii=False)}".splitlines():
        put(f"{margin}{line}")


def _value_object(found: contents.Readable | Failure) -> dict[str, Any]:
    if isinstance(found, Failure):
        return failure_object(found)
    shown = {**found._asdict(), "place": contents.plain(found.place)}
    return {name: part for name, part in shown.items() if name != "sealed_with" or part is not None}


def _end_state(
    run: Run,
    store: RowStore,
    cipher: RingCipher | None,
    thread: str,
    namespace: str,
    state: State,
    channel: str | None,
    limit: int,
) -> None:
    failures, cell = ShownFailures(shown=not run.as_json), state.checkpoint
    for failed in state.failures:
        failures.add(failed)
    _try_others(store, cipher, failures)
    run.finds({Reason.NO_ROWS: cell is None})
    names = [name for name in state.values if channel in (None, name)]
    channels = [_channel(name, state.values[name], limit) for name in names[:limit]]
    more = max(len(names), len(state.writes), len(state.not_shown)) > limit
    members = {
        "thread": thread,
        "namespace": namespace,
        "checkpoint": cell and cell.where.names,
        "tag": cell and contents.plain(cell.tag),
        "metadata": contents.plain(state.metadata),
        "channels": channels,
        "writes": [_value_object(each) for each in state.writes[:limit]],
        "not_shown": state.not_shown[:limit],
        **failures.end(run.result),
        "more": more or any(part["left_out"] for part in channels),
    }
    run.end(members, lambda document: _show_state(document, state.writes[:limit]))
    if members["more"]:
        say(f"showing {limit} channels, writes and members of each list; there are more (--limit)")
    if failures.count:
        return
    if cell is None:
        say(
            f"thread {quoted(thread)} has no such checkpoint in namespace {quoted(namespace)};"
            " without --last and --checkpoint, the command lists all"
        )
    elif channel is not None and not names:
        why = "is built from writes, so not shown" if channel in state.not_shown else "has no value"
        say(f"channel {quoted(channel)} {why} in this checkpoint")
    if not names and (cell is None or channel is not None):
        run.code = Exit.USAGE


def _channel(name: str, value: Any, limit: int) -> dict[str, Any]:
    """Return a channel as JSON members; if its value is a list, only the last elements of the list."""
    if not isinstance(value, list):
        return {"channel": name, "value": contents.plain(value), "left_out": 0}
    shown = [contents.plain(member) for member in value[-limit:]]
    return {"channel": name, "value": shown, "left_out": len(value) - len(shown)}


def _show_state(document: Document, writes: Sequence[contents.Readable]) -> None:
    if (place := document["checkpoint"]) is None:
        return
    put(" ".join(f"{name}={quoted(text)}" for name, text in place.items()))
    put(f"  {_protection(document['tag'])}")
    for part in document["channels"]:
        put(f"channel {quoted(part['channel'])}")
        count(part["left_out"], "  {} earlier members of the list are left out (--limit)")
        members = part["value"] if isinstance(part["value"], list) else []
        messages = [*map(_message_fields, members)]
        if members and all(messages):
            for fields in messages:
                _show_message(fields)
        else:
            _put_json(part["value"])
    for write in writes:
        put(f"pending write: {place_line(write.place)} {_protection(write.tag)}")
        _put_json(write.value)
    for name in document["not_shown"]:
        put(f"channel {quoted(name)}")
        put("  not shown: built from writes since its last snapshot; without --last, these writes are listed")


def _protection(tag: Any) -> str:
    """Return a type tag as text; if the value is unsealed or not bound to its row, the text says so."""
    if is_marked_bound(tag):
        return str(tag)
    return f"{tag}, not bound to its row" if is_sealed(tag) else ", ".join(filter(None, (tag, "not sealed")))


def _message_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a message; an empty dict for any other value."""
    if not (isinstance(value, dict) and str(value.get("$record")).startswith("langchain_core.messages.")):
        return {}
    fields = value["arguments"]
    if value["kind"] == "envelope":
        fields = fields.get("kwargs")
    return fields if isinstance(fields, dict) and "content" in fields else {}


def _show_message(fields: dict[str, Any]) -> None:
    """Print a message with a mark before each line, so that no text imitates another message."""
    about = [fields.get(name) for name in ("type", "name", "tool_call_id")]
    put(f"  {' '.join(json.dumps(each, ensure_ascii=False) for each in about if each)}")
    parts = fields["content"] if isinstance(fields["content"], list) else [fields["content"]]
    for part in parts:
        text = part.get("text", part) if isinstance(part, dict) else part
        if isinstance(text, str):
            for line in text.split("\n"):
                put(f"  | {line}")
        else:
            _put_json(text, "  | ")
    if calls := fields.get("tool_calls"):
        put(f"    calls {json.dumps(calls, ensure_ascii=False)}")


def _list_names(run: Run, store: RowStore, what: str, limit: int) -> None:
    ids = list(islice(contents.names(store, "thread_id" if what == "thread" else "prefix"), limit + 1))
    more = len(ids) > limit
    run.finds({Reason.NO_ROWS: not ids})
    run.end(
        {f"{what}s": ids[:limit], "more": more},
        lambda _: show_table((what,), [[escape_id(each)] for each in ids[:limit]]),
    )
    if more:
        say(f"showing the first {limit} {what}s; there are more (--limit)")


def find_cipher(run: Run, store: RowStore) -> RingCipher | None:
    """Return the cipher for a store's values; ``None`` if no value is sealed or no ring is found."""
    if run.keys is None and not any(is_sealed(count.tag) for count in store.count()):
        return None
    try:
        return RingCipher(open_ring(run))
    except RingFileMissingError as error:
        if run.keys is not None:
            raise
        say(f"{error}: values that need a key are not opened (--keys FILE)")
        return None


def types(
    run: Run,
    at: OneDatabase,
    emit: Annotated[
        bool, typer.Option("--emit", help="Print an allowlist as Python, of types not allowed by default.")
    ] = False,
    allow: AllowTypesOption = None,
    limits: LimitsOption = DEFAULT_LIMITS,
) -> None:
    """Count the Python types named in values. No type is imported, and no value is shown.

    Without a ring, sealed values are only counted, and the exit code is 5. With --allow, the exit code is 3
    if values name a type that is not allowed; types that a strict serializer has built in are always allowed.
    """
    if emit and run.as_json:
        raise typer.BadParameter("--emit prints Python, and --json prints JSON")
    allowlist = None if allow is None else Allowlist.of(read_allowed(allow))
    failures = ShownFailures(shown=not run.as_json)
    with at.opened(run) as store:
        cipher = failures.cipher = find_cipher(run, store)
        with watching("types", failures.add) as watch:
            try:
                found = contents.inventory(store, cipher, limits=limits, report=watch.take)
            except BaseException:
                watch.say_how_far()
                raise
    named = {part.pair for part in found.constructors.values() if not part.is_safe}
    others = allowlist is not None and (found.other_records or named - allowlist.types)
    run.finds(
        {
            Reason.NO_ROWS: not found.values,
            Reason.NOT_OPENED: found.not_opened,  # their types are unknown
            Reason.NOT_ASKED: allowlist is None,
            Reason.TYPES_NOT_ALLOWED: others,
        }
    )
    members = {**type_members(found, allowlist), **failures.end(run.result)}
    run.end(members, (lambda _: _emit_types(found)) if emit else _show_types, verdict=not emit)


def type_members(found: contents.Inventory, allowlist: Allowlist | None = None) -> dict[str, Any]:
    """Return the types that values name, and counts of values, as members of the JSON object."""
    types = [
        {
            "module": part.module,
            "name": part.name,
            "records": part.records,
            "thread": part.thread,
            "allowed": _verdict(part, allowlist),
        }
        for part in found.constructors.values()
    ]
    counts = {name: getattr(found, name) for name in ("other_records", "values", "not_opened")}
    return {"types": types, **counts, "not_shown": dict(found.not_shown)}


def read_allowed(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the types of allowlists; each text is the name of a file, or one type."""
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
                cause = f"{excerpt(text)} is neither an existing file nor MODULE:NAME"
                raise typer.BadParameter(cause, param_hint="--allow")
            yield module, name


def _verdict(found: contents.Constructor, allowlist: Allowlist | None) -> str | None:
    if found.is_safe:
        return "built in"
    if allowlist is None:
        return None
    return "yes" if found.pair in allowlist.types else "no"


_NOT_SHOWN: Final = {
    Kind.SEALED: "are sealed",
    Kind.LEGACY: "are under LANGGRAPH_AES_KEY",
    Kind.UNKNOWN: "have an unknown tag",
}


def _show_types(document: Document) -> None:
    types = sorted(document["types"], key=lambda part: -part["records"])
    show_table(
        ("type", "records", "first thread", "allowed"),
        [
            (
                f"{part['module'] or 'JavaScript'}.{part['name']}",
                part["records"],
                escape_id(part["thread"]),
                part["allowed"],
            )
            for part in types
        ],
    )
    looked_at = document["values"] - document["not_opened"] - document["failed"]
    if looked_at and not types:
        of_those = f" (of {looked_at} values that were read)" * (looked_at < document["values"])
        put(f"no value names a type{of_those}")
    values = f"{{}} of {document['values']} values"
    for kind, number in document["not_shown"].items():
        count(number, f"not shown: {values} {_NOT_SHOWN[kind]} and were not opened")
    count(document["failed"], f"not shown: {values} could not be read")
    count(sum(part["allowed"] == "no" for part in types), "{} types are not on the allowlist")
    count(document["other_records"], "{} records name further types, beyond the limit of this list")


def allowlist_text(parts: Iterable[contents.Constructor]) -> str:
    """Return an allowlist of types, as Python."""
    # Names come from untrusted values: printed as string literals, they cannot add code to the list.
    lines = (
        f"    {part.pair!a},  # {part.records}, first in thread {excerpt(part.thread)}\n" for part in parts
    )
    return f"[\n{''.join(lines)}]\n"


def _emit_types(found: contents.Inventory) -> None:
    needed = sorted((part.pair, part) for part in found.constructors.values() if not part.is_safe)
    print(allowlist_text(part for _, part in needed if part.is_nameable), end="")
    for kind, number in found.not_shown.items():
        values = f"{number} of {found.values} values {_NOT_SHOWN[kind]}"
        say(f"{values} and were not opened: their types are not in the list")
    if any(part.module == PICKLE for _, part in needed):
        say("pickled values are not read: their types are not in the list")
        needed = [each for each in needed if each[1].module != PICKLE]
    if found.other_records:
        say(f"{found.other_records} records name further types, beyond the limit of this list")
    if unnameable := sum(not part.is_nameable for _, part in needed):
        say(f"{unnameable} names were left out because they are not valid type names")
    if any(part.is_nameable for _, part in needed):
        say("the values name these types: allow only types that are your own")


MAX_THREADS: Final = 1_000


def trial(
    run: Run,
    at: OneDatabase,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import this module first, as the agent does; also from the current folder."
            " Can be repeated.",
        ),
    ] = None,
    allow: AllowTypesOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Build only allowed types, as LANGGRAPH_STRICT_MSGPACK does.")
    ] = False,
    allow_plaintext: AllowPlaintextOption = False,
    limits: LimitsOption = DEFAULT_LIMITS,
) -> None:
    """Decode every value as an agent would; list threads that fail.

    Nothing is written. This command runs code of the imported modules and of the types that values name.
    Run it where the agent runs, with the allowlist and options of the agent's serializer. An unsealed
    database needs no ring: add --allow-plaintext.
    """
    from sealpoint.admin.maintenance.verify import trial as decode_all
    from sealpoint.serde.encrypted import EncryptedSerializer
    from sealpoint.serde.jsonplus import JsonPlusSerializer

    run.asks(allow_plaintext=allow_plaintext)
    named = at.find(run)
    inner = JsonPlusSerializer(allowed_msgpack_modules=None if strict else True, limits=limits)
    allowed = [*read_allowed(allow or ())]
    _import_all(modules or ())
    failures = _Threads()
    with opened([named]) as (store,), watching("trial", failures.add) as watch:
        has_ring = find_ring(run) is not None or any(is_sealed(each.tag) for each in store.count())
        ring = open_ring(run) if has_ring else KeyRing([])
        failures.cipher = cipher = RingCipher(ring)
        serde = EncryptedSerializer(cipher, inner, plaintext="allow" if allow_plaintext else "refuse")
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
            say("hint: no value is sealed, and there is no ring: --allow-plaintext decodes unsealed values")
        if any(isinstance(failed.error, BlockedTypeError) for failed in failures.kept):
            say("hint: allow types by --allow FILE or --allow MODULE:NAME")


class _Threads(Failures):
    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, dict[str, Any]] = {}
        self.others = 0

    def add(self, failed: Failure) -> bool:
        thread = owner_of(failed.place)
        name = thread if type(thread) is str else repr(thread)
        if name not in self.threads and len(self.threads) == MAX_THREADS:
            self.others += 1
        else:
            error = {"error": type(failed.error).__name__, "message": str(failed.error)}
            self.threads.setdefault(name, {"thread": name, "values": 0, **error})["values"] += 1
        return super().add(failed)


def _import_all(modules: list[str] | tuple[()]) -> None:
    if modules and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that no file in this folder replaces an installed module
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
        show_table(("thread", "values or rows that fail", "first error"), rows)
    if document["other_failures"]:
        put(f"{document['other_failures']} more values or rows fail in other threads")
    done = "tried" if document["failed"] else "decoded"
    put(f"{done} {document['rows']} values; values and rows that fail: {document['failed']}")
