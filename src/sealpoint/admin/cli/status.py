"""`sealpoint status` and `audit`: count values by key, and show what is readable without a key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from typing import Annotated, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowStoreOption,
    AllowUnprovenOption,
    DatabasesArgument,
    OneDatabase,
    VariablesOption,
    find_databases,
    find_entries,
    opened,
    say_if_unknown,
)
from sealpoint.admin.cli.output import (
    Document,
    complain_of_damage,
    count,
    put,
    show_table,
    values_line,
    watching,
)
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance import audit as audits
from sealpoint.admin.maintenance.status import MAX_TYPES, Share
from sealpoint.admin.maintenance.status import status as take_shares
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.tags import Kind
from sealpoint.errors import ConfigError, SealpointError, UnknownKeyError, excerpt

_SHARES: Final = ("table", "kind", "suite", "key", "state", "rows", "bytes", "types")


def _share_row(share: Document) -> tuple[object, ...]:
    suite = None if share["suite"] is None else ".".join((share["suite"], *share["flags"]))
    key = share["key_id"]
    if share["kind"] == "sealed" and key is None:
        key = f"{share['tags']} others"
    more = ("...",) if share["tags"] > MAX_TYPES else ()
    types = ", ".join(dict.fromkeys((*share["types"], *more)))
    shown = {**share, "suite": suite, "key": key, "bytes": share["size_bytes"], "types": types}
    return tuple(shown[name] for name in _SHARES)


def status(
    run: Run,
    databases: DatabasesArgument = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="ID", help="Exit with 3 if a value is not under this key.")
    ] = None,
    variables: VariablesOption = None,
) -> None:
    """Show what is sealed under which key, and what is not. Needs no key, and reads no value.

    Reads and trusts the type tags; `sealpoint verify` checks that values open.
    """
    names, ring_file = find_databases(run, databases, variables)
    entries = find_entries(run)
    if only is not None and entries is not None and only not in {entry.id for entry in entries}:
        raise ConfigError(
            str(UnknownKeyError(only, tuple(entry.id for entry in entries))),
            hint=f"name one of these, or use --keys with the ring file that contains {excerpt(only)}",
        )
    damage: dict[str, list[SealpointError]] = {}
    found: list[tuple[Document, list[Share]] | None] = []
    shown = [*(databases or ()), *(f"${name}" for name in variables or ())] or names
    with ExitStack() as stack, watching("status"):
        stores: list[RowStore] = []
        for name, words in zip(names, shown, strict=True):  # a variable's URL may contain a password
            failed = len(run.errors)
            with run.sparing(words) if len(names) > 1 else nullcontext():
                for store in stack.enter_context(opened([name], run=run, ring_file=ring_file, others=stores)):
                    stores.append(store)
                    part = run.result.looks_at(store)
                    found.append((part, take_shares(store, entries, damage.setdefault(store.name, []))))
            found += [None] * (len(run.errors) - failed)
    shares = [share for each in found if each for share in each[1]]
    say_if_unknown(entries, shares)
    others = sum(share.rows for share in shares if share.key_id != only)
    run.finds(
        {
            Reason.NOT_ASKED: only is None,
            Reason.NO_ROWS: not all(each is None or each[1] for each in found),
            Reason.OTHER_KEYS: only is not None and others,
            Reason.DAMAGED: any(damage.values()),
        }
    )
    run.end(
        {
            "only": only,
            "others": None if only is None else others,
            "databases": [
                each and {**each[0], "shares": [asdict(share) for share in each[1]]} for each in found
            ],
            "errors": run.errors,
        },
        show_status,
    )
    for name, errors in damage.items():
        complain_of_damage(name, errors)


def show_status(document: Document) -> None:
    """Print a table of values by key for each database of a JSON object."""
    for part in filter(None, document["databases"]):
        if len(document["databases"]) > 1:
            put(f"{part['database']['name']}:")
        show_table(_SHARES, map(_share_row, part["shares"]))
        if len(document["databases"]) > 1:
            put("")
    if document["others"]:
        verb = "is" if document["others"] == 1 else "are"
        put(f"{values_line(document['others'])} {verb} not under {excerpt(document['only'])}")


def audit(
    run: Run,
    at: OneDatabase,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 3 if text is readable outside of values.")
    ] = False,
    allow_metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-metadata",
            metavar="KEY",
            help="With --strict: accept this metadata key, or store.value.FIELD of items. Can be repeated.",
        ),
    ] = None,
    allow_store: AllowStoreOption = None,
    allow_unproven: AllowUnprovenOption = False,
) -> None:
    """Show what is readable without a key. No value is shown, only its shape, such as aaa-99.

    Exits with 3 if values are not sealed, or if LangGraph has tables that audit cannot read, such as
    embeddings. --allow-store accepts unsealed values of its Store and caches: the result is not proven.
    """
    allowed = tuple(allow_metadata or ())
    run.asks(strict=strict, allow_metadata=list(allowed), allow_store=allow_store)
    entries = find_entries(run)
    with at.opened(run) as store, watching("audit"):
        found = audits.audit(store, allowed, entries)
    say_if_unknown(entries, found.shares)
    run.result.add(*audits.audit_reasons(found, strict=strict, allow_store=allow_store is not None))
    run.end(audits.audit_object(found), _show_audit, allow_unproven=allow_unproven)


def _show_audit(document: Document) -> None:
    show_table(_SHARES, map(_share_row, document["shares"]))
    metadata = document["metadata"]
    fields = [
        (
            field["key"],
            field["rows"],
            ", ".join(field["types"]),
            _KNOWN[field["known"]] if field["known"] else "|".join(field["examples"]),
        )
        for field in metadata["fields"]
    ]
    _show_more(("metadata key", "rows", "types", "shapes"), fields)
    count(
        metadata["unreadable"],
        f"{{}} of {metadata['rows']} checkpoints have metadata that is not strict JSON",
    )
    count(metadata["other_rows"], "{} more metadata values are under metadata keys not listed here")
    _show_more(
        ("column with e-mail addresses", "texts", "shapes"),
        [(part["column"], part["texts"], "|".join(part["examples"])) for part in document["addresses"]],
    )
    _show_more(
        ("inline channel", "type", "rows"),
        [(part["channel"], part["kind"], part["rows"]) for part in document["inline"]],
    )
    count(document["other_inline"], "{} more inline values are in channels not listed here")
    accepted = document["options"]["allow_store"]
    content = "LangGraph's, readable" if accepted is None else "LangGraph's, readable, accepted"
    readable = dict.fromkeys(document["readable_tables"], content)
    vectors = document["vectors"] or {"rows": 0, "left": 0}
    _show_more(
        ("table that was not read", "content"),
        [(name, readable.get(name)) for name in document["scope"]["not_read"]],
    )
    count(vectors["rows"], "{} embeddings are readable, from which texts can be guessed")
    count(vectors["left"], "{} of these belong to deleted items: SqliteStore leaves embeddings behind")
    if Reason.STORE_ALLOWED in document["reasons"]:
        put(f"accepted by --allow-store: {accepted}")
    for what, size in (document["residue"] or {}).items():
        if size is None:
            put("the unused space within pages could not be examined")
        else:
            count(size, f"{{}} bytes of {_RESIDUE[what]} were not read")
    put("")
    put(f"{document['rows'] - document['open_rows']} of {document['rows']} values are sealed")
    legacy = sum(share["rows"] for share in document["shares"] if share["kind"] == Kind.LEGACY)
    count(legacy, "{} values are under LANGGRAPH_AES_KEY, not bound to their types or rows")
    if not document["is_silent"]:
        put("more text is readable outside of values, where a serializer cannot seal it")
    elif document["rows"]:
        put("outside of values, only ids, names and known metadata keys are readable")


_KNOWN: Final = {
    "langgraph": "LangGraph's",
    "framework": "a framework's",
    "sealed": "sealed",
    "token": "tokens",
    "allowed": "allowed",
}
_RESIDUE: Final = {
    "free_bytes": "free pages",
    "log_bytes": "the write-ahead log",
    "journal_bytes": "the rollback journal",
    "slack_bytes": "old content in unused space of pages",
}


def _show_more(columns: tuple[str, ...], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        put("")
        show_table(columns, rows)
