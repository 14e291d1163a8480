"""`sealpoint init`: create a ring, examine a database, and print the Python and commands that seal it.

The database is not changed, and no file is overwritten. Names of types in a database are untrusted: a type
is put on the allowlist only if a person at a terminal confirms that the type is theirs.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.inspect import allowlist_text, read_allowed, type_members
from sealpoint.admin.cli.options import (
    VariableOption,
    all_databases,
    open_ring,
    opened,
    read_entries,
    warn_of_json,
)
from sealpoint.admin.cli.output import Document, ShownFailures, filled, name_database, put, say, watching
from sealpoint.admin.cli.status import show_status
from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Table
from sealpoint.admin.keys import edit
from sealpoint.admin.maintenance import inspect as contents
from sealpoint.admin.maintenance.status import UNKNOWN_STATE
from sealpoint.admin.maintenance.status import status as take_shares
from sealpoint.admin.results.tags import Kind
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import RingFileMissingError, TablesMissingError, UnknownKeyError
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import find_ring_file

# For each kind of value that agents write: its serializer, the import, the option of `rebind`. Kinds after
# the first kind that is found are refused, as an attacker may have inserted such values: docs/migration.md.
_OLD: Final = {
    Kind.SEALED: ("serde", "", ""),
    Kind.LEGACY: ("Old.from_pycryptodome_aes()", "encrypted import EncryptedSerializer", " --allow-legacy"),
    Kind.PLAINTEXT: ("Old()", "jsonplus import JsonPlusSerializer", " --allow-plaintext"),
}
ALLOWLIST: Final = "allowed-types.txt"
MAX_QUESTIONS: Final = 30  # untrusted values may name any number of types


def _place_of_ring(named: Path | None) -> Path:
    with suppress(RingFileMissingError):
        return find_ring_file(named)
    return named or Path(os.environ.get("SEALPOINT_KEYS") or "keys.toml")


def init(
    run: Run,
    database: Annotated[
        str | None,
        typer.Argument(metavar="DB", help="A SQLite file or a postgresql:// URL. Default: a new database."),
    ] = None,
    key_id: Annotated[
        str | None, typer.Option("--key-id", metavar="ID", help="Id of the key in a new ring.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            callback=_place_of_ring,
            help="The ring file. Default: the ring file of other commands, or keys.toml.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip all questions, and write no allowlist.")] = False,
    variable: VariableOption = None,
) -> None:
    """Create a ring, examine a database, and show how to seal it.

    Prints Python code for the saver, and the remaining commands. The database is not changed, and no file is
    overwritten: an existing ring is used. On a terminal, asks for each type that values name whether the type
    is yours, and writes your types to allowed-types.txt.
    """
    named = all_databases(*([] if one is None else [one] for one in (database, variable)))
    if len(named) > 1:
        raise typer.BadParameter("name one database: DB, or --db-env NAME", param_hint="DB")
    file = keys or Path("keys.toml")
    ring = open_ring(run) if os.path.lexists(file) else None
    active = None if ring is None else ring.require_active().id
    if active is not None and key_id not in (None, active):
        cause = f"{file} exists, and its active key is {active}: `sealpoint keys generate` adds a key"
        raise typer.BadParameter(cause, param_hint="--key-id")
    name_database(f"--db-env {shlex.quote(variable)}" if variable else shlex.quote(database or "DB"))
    found = _Found(ShownFailures(shown=not run.as_json))
    for each in named:
        _look(run, found, each, ring)
    allowlist, folder = file.parent / ALLOWLIST, file.parent / edit.KEY_FOLDER
    allowed = _allowed(allowlist, found, asks=sys.stdin.isatty() and not (yes or run.as_json))
    if ring is None:
        for left in sorted(folder.glob("*.key")):
            say(f"{left} existed before, and no ring names it: a command that was killed may have left it.")
        active = edit.create_ring(file, key_id)
        read_entries(run, file)
        say(f"{file} is the new ring, {folder} holds its key {active}.")
        say("Keep a copy of the key apart from the backups of the database: a lost key is lost data.")
    else:
        say(f"Using the existing ring {file}: its active key is {active}.")
    listed = str(allowlist) if allowed else None
    members = {
        "ring_file": str(file),
        "is_new_ring": ring is None,
        "saver": found.saver,
        "databases": found.parts,
        **type_members(found.types),
        **found.failures.end(run.result),
        "allowlist": listed,
        "python": _python(file, found, allowed),
        "steps": [
            {"action": action, "command": command and filled(command)}
            for action, command in _steps(file, found, listed, allowed)
        ],
        "grants": _rights(found).splitlines(),
    }
    run.end(members, lambda document: _show(document, found.saver_class), verdict=not run.result.ok)


@dataclass(slots=True)
class _Found:
    """What was found in a database; ``parts`` is empty if the database is new."""

    failures: ShownFailures
    is_file: bool = True
    saver: str | None = None
    schema: str = "public"
    parts: list[Document] = field(default_factory=list)
    types: contents.Inventory = field(default_factory=contents.Inventory)
    kind: Kind | None = None  # of unbound rows; ``None`` if no row needs a migration
    lacks_key: bool = False  # whether the ring lacks LANGGRAPH_AES_KEY
    has_saver: bool = True
    has_store: bool = False
    tables: tuple[Table, ...] = ()
    plain_items: bool = False  # whether items of the Store are not sealed

    @property
    def saver_class(self) -> str:
        """Names of the classes that SealedSaver and SealedStore wrap, as text."""
        store = self.saver and self.saver.replace("Saver", "Store")
        names = [self.saver] * self.has_saver + [store] * self.has_store
        return " and your ".join(f"{name} or Async{name}" for name in names if name) or "saver"


def _rights(found: _Found) -> str:
    # A name with line breaks might contain a line of SQL.
    parts = [table for table in found.tables if table.root]
    if found.is_file or not "".join([found.schema, *(part.name for part in parts)]).isprintable():
        return ""
    from sealpoint.admin.databases.postgres.tables import grants

    return grants(found.schema, [table.name for table in found.tables], parts, rebinds=found.kind is not None)


def _look(run: Run, found: _Found, database: str, ring: KeyRing | None) -> None:
    found.is_file = kind_of(database).is_file
    found.saver = "SqliteSaver" if found.is_file else "PostgresSaver"
    if found.is_file and database and not os.path.lexists(database):
        say(f"{database} does not exist yet: the steps below are for a new database.")
        return
    with ExitStack() as stack:
        try:
            (store,) = stack.enter_context(opened([database]))
        except TablesMissingError:
            say("The database has no tables of LangGraph yet: the steps below are for a new database.")
            return
        shares = take_shares(store, () if ring is None else read_entries(run, find_ring_file(ring.path)))
        if ring is None and (sealed := [share for share in shares if share.kind is Kind.SEALED]):
            hint = "name the ring of this database with --keys FILE: a new key opens none of its values"
            raise UnknownKeyError(str(sealed[0].key_id), (), hint=hint)
        warn_of_json(shares)
        found.tables = tuple(table for table in store.tables() if table.may_be_theirs)
        found.has_store = ITEMS in store.columns
        found.has_saver = any(column != ITEMS for column in store.columns)
        found.plain_items = any(share.is_plain_item for share in shares)
        rows = [share for share in shares if share.table != ITEMS.label]
        kind = next((kind for kind in _OLD if any(share.kind is kind for share in rows)), None)
        mine = [share for share in rows if share.kind is kind]
        if left := sum(share.rows for share in rows if share.kind is not kind):
            say(f"{left} values are refused by this Python code; see docs/migration.md before you allow any.")
        found.kind = None if any("row" in share.flags for share in mine) else kind
        found.lacks_key = kind is Kind.LEGACY and mine[0].state == UNKNOWN_STATE
        found.schema = str(store.identity.get("schema", found.schema))
        found.parts = [{**run.result.looks_at(store), "shares": [asdict(share) for share in shares]}]
        cipher = None if ring is None or found.lacks_key else RingCipher(ring)
        with watching("init", found.failures.add) as watch:
            found.types = contents.inventory(store, cipher, report=watch.take)


def _allowed(file: Path, found: _Found, *, asks: bool) -> list[tuple[str, str]]:
    """Return the types that the user allows, by an existing allowlist or by answers to questions."""
    if os.path.lexists(file):
        say(f"Using the existing allowlist {file}.")
        return [*read_allowed([str(file)])]
    parts = sorted(found.types.constructors.values(), key=lambda part: part.pair)
    needed = [part for part in parts if part.is_nameable and not part.is_safe]
    if not asks or len(needed) > MAX_QUESTIONS:
        if needed:
            say(f"The values name {len(needed)} types that need an allowlist; none is allowed. To see them:")
            say("sealpoint types DB --emit")
        return []
    accepted = []
    for part in needed:
        say(f"The values name {part.pair!a}, {part.records} times. If this type is yours, type yes:")
        if sys.stdin.readline().strip() == "yes":
            accepted.append(part)
        else:
            say("Not allowed, as the answer is not yes: unsealed values of this type will be refused.")
    if accepted:
        with file.open("x", encoding="utf-8") as stream:  # not atomic: a truncated list would not parse
            stream.write(allowlist_text(accepted))
    return [part.pair for part in accepted]


def _python(file: Path, found: _Found, allowed: Sequence[tuple[str, str]]) -> list[str]:
    path = str(file.absolute())
    name = f'"{path}"' if re.fullmatch(r"[\w./ -]+", path) else repr(path)
    wrappers = ["SealedSaver"] * found.has_saver + ["SealedStore"] * found.has_store
    lines = [f"from sealpoint.langgraph import {', '.join(['EncryptedSerializer', *wrappers])}", ""]
    plain = ', plaintext="allow"' if found.kind is Kind.PLAINTEXT else ""
    lines.append(f"serde = EncryptedSerializer.from_key_file({name}{plain})")
    allowlist = f".with_msgpack_allowlist([{', '.join(map(ascii, allowed))}])" if allowed else ""
    if allowed:
        lines.append(f"serde = serde{allowlist}")
    store = ["store = SealedStore(store, serde=serde)"] * found.has_store
    if found.plain_items:  # need plaintext="allow", which the saver's serializer may lack
        serde = (
            "serde" if plain else f'EncryptedSerializer.from_key_file({name}, plaintext="allow"){allowlist}'
        )
        store = [
            f"reads_plain = {serde}",
            'store = SealedStore(store, serde=reads_plain, unbound="allow", allow_write_plain=True)',
        ]
    if found.kind is None:
        return [*lines, *["saver = SealedSaver(saver, serde=serde)"] * found.has_saver, *store]
    old, origin, _ = _OLD[found.kind]
    imports = [f"from langgraph.checkpoint.serde.{origin} as Old"] if origin else []
    step = 'saver = SealedSaver(saver, serde=serde, unbound="allow", allow_write_with=OLD)'
    return [*imports, *lines, f"OLD = {old}", step, *store]


def _steps(
    file: Path, found: _Found, allowlist: str | None, allowed: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str | None]]:
    """Yield the remaining steps in order, each with its command, if any."""
    if os.environ.get("SEALPOINT_KEYS") != str(file):
        yield "Let commands find the ring", f"export SEALPOINT_KEYS={shlex.quote(str(file.absolute()))}"
    if found.kind is None and not found.plain_items:
        yield "Run the agent, then check that its rows are sealed", "sealpoint verify DB --bound"
        return
    option = _OLD[found.kind][2] if found.kind else ""
    if found.plain_items and found.kind is not Kind.PLAINTEXT:
        option += " --allow-plaintext"
    later = ["allow_write_with"] * (found.kind is not None) + ["allow_write_plain"] * found.plain_items
    trial = "sealpoint trial DB" + (f" --allow {shlex.quote(allowlist)}" if allowlist else "")
    for module in sorted({module for module, _ in allowed} - {"__main__"}):
        trial += f" --import {shlex.quote(module)}"
    rebind = f"sealpoint rebind DB --apply{option}" + (" --scrub" if found.is_file else "")
    if found.lacks_key:
        yield "Add LANGGRAPH_AES_KEY to the ring, see docs/migration.md, and repeat", "sealpoint init DB"
    trial += " --allow-plaintext" if "--allow-plaintext" in option else ""
    yield "Copy the database, see docs/migration.md, and try every value", trial
    yield "Deploy this Python code process by process: it reads all rows, and writes them as today", None
    yield f"When all processes run this code, deploy it without {' and '.join(later)}", None
    yield "When all processes run this second version, seal and bind all rows", rebind
    yield "If this command ends with ok, deploy without unbound and plaintext", "sealpoint verify DB --bound"


def _show(document: Document, saver: str) -> None:
    if document["databases"]:
        show_status({**document, "others": None})
        put("")
    lines = [f"Around your {saver}:", "", *document["python"], ""]
    for number, step in enumerate(document["steps"], 1):
        more = [] if step["command"] is None else [f"   {step['command']}"]
        lines += [f"{number}. {step['action']}{':' if more else '.'}", *more]
    if rights := document["grants"]:
        lines += ["", "For the role that runs these commands, once the tables exist:", "", *rights]
    for line in lines:
        put(line)
