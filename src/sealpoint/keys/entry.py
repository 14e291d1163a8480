"""Parses the tables of a ring file: keys, wrapped keys, wrappers, ledger, thread store and databases.

    name = "agents"               # 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-'; wrapped keys are bound to it

    [[wrapper]]
    id = "aws-prod"               # same form as a key id
    kind = "aws"                  # the kind decides which other fields there are

    [ledger]
    dir = "ledger"                # relative to the folder of the ring file
    origin = "example.org/agents" # name of the ledger, without spaces and '+'; never changes
    signer = { file = "l.key" }   # or credential or command; not on hosts that only read

    [[database]]                  # one of three forms
    path = "state.db"             # relative to the folder of the ring file
    url = "postgresql://db/agents"  # for libpq, without a password
    service = "agents"            # of ~/.pg_service.conf or $PGSERVICEFILE

The signing key of a ledger belongs to the account that runs maintenance, never to one that runs agents. Only
commands open databases: a process that seals and opens values only checks the form of these tables.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

from sealpoint.errors import (
    KeyIdError,
    KeyTransitionError,
    RingFileError,
    UnknownKeyError,
    excerpt,
)
from sealpoint.keys.sources import (
    CommandSource,
    CredentialSource,
    FileSource,
    InlineSource,
    Source,
    get_tables,
    get_text,
    parse_source,
    require_fields,
    require_text,
)
from sealpoint.keys.wrap.wrapper import MAX_BLOB_BYTES, NamedWrapper, WrapContext, parse_wrapper
from sealpoint.seal.keys import KEY_ID, LEGACY, KeyState, require_key_id, require_suite_state
from sealpoint.urls import has_password, is_url, plain_url
from sealpoint.utc import as_utc

MATERIAL_LEFT: Final = "left"
MATERIAL_REMOVED: Final = "removed"
MATERIAL_GONE: Final = "gone-before"

# Checks before a key is destroyed; the ring file records those that were waived. The first: no database has
# rows under the key. The second: each database has rows under some key of the ring.
DATABASE_CHECK: Final = "database-check"
RELATION_CHECK: Final = "relation-check"

_OUTCOMES: Final = (MATERIAL_REMOVED, MATERIAL_LEFT, MATERIAL_GONE)
_CHECKS: Final = (DATABASE_CHECK, RELATION_CHECK)

# The command of ``sealpoint keys`` that leads to a state.
COMMANDS: Final = {
    KeyState.ACTIVE: "promote",
    KeyState.DECRYPT_ONLY: "enable",
    KeyState.DISABLED: "disable",
    KeyState.COMPROMISED: "compromise",
    KeyState.DESTROYED: "destroy",
}


@dataclass(frozen=True, slots=True)
class RingEntry:
    """The entry of one key in a ring file, without key material.

    Attributes:
        id: Public name of the key.
        state: State of the key: which uses of it are allowed.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY, else ``None``.
        check: Check value of the material, if recorded; it is not compared here.
        source: Kind of the source, e.g. ``file``; ``None`` for a destroyed key whose source is not recorded.
        location: Where the material is, according to the source; ``None`` for inline material.
        wrapper: Id of the wrapper of a wrapped key.
        version: Version of the wrapping key under which this key is wrapped, if the service named a version.
        material: For a destroyed key, what became of its material: ``removed``, ``left`` or ``gone-before``.
        waived: Checks that were waived when the key was destroyed, see `DATABASE_CHECK`.
        owner: Who is responsible for the key.
        created: When the key was created; this and the other times are ``None`` if not recorded in the file.
        activated: When the key first became active.
        retired: When another key became active in its place.
        disabled: When the key was disabled.
        compromised: When the key was marked as compromised.
        destroyed: When the key was destroyed.
        expires: When the key should no longer seal.
    """

    id: str
    state: KeyState
    suite: str | None = None
    check: str | None = None
    source: str | None = None
    location: str | None = None
    wrapper: str | None = None
    version: str | None = None
    material: str | None = None
    waived: tuple[str, ...] = ()
    owner: str | None = field(default=None, metadata={"is_line": True})
    created: datetime | None = None
    activated: datetime | None = None
    retired: datetime | None = None
    disabled: datetime | None = None
    compromised: datetime | None = None
    destroyed: datetime | None = None
    expires: datetime | None = None

    @property
    def transitions(self) -> tuple[str, ...]:
        """Names of the commands that the key's state allows, e.g. ``promote``; empty for an active key."""
        if self.state is KeyState.ACTIVE:
            return ()
        commands = (COMMANDS[state] for state in self.state.transitions)
        return tuple(name for name in commands if name != "promote" or self.suite != LEGACY)

    @property
    def is_compromised(self) -> bool:
        """Whether the key was ever marked as compromised."""
        return self.state is KeyState.COMPROMISED or self.compromised is not None

    def is_expired(self, now: datetime) -> bool:
        """Whether the key has expired at ``now``. A time without a zone is in UTC."""
        return self.expires is not None and as_utc(self.expires) <= now

    def require_transition(self, command: str) -> None:
        """Raise if the key's state does not allow a command, such as ``promote``.

        Raises:
            KeyTransitionError: If ``command`` is not one of `transitions`.
        """
        if command in self.transitions:
            return
        allowed = ", ".join(self.transitions)
        hint = f"commands in this state: {allowed}" if allowed else "a destroyed key cannot be changed"
        if self.state is KeyState.ACTIVE:
            hint = "promote another key first: this key then only opens values"
        if command == "enable" and self.state.opens:
            hint = "the key opens values already: there is nothing to enable"
        is_legacy = command == "promote" and self.suite == LEGACY
        what = "is for LANGGRAPH_AES_KEY rows" if is_legacy else f"is {self.state.value}"
        raise KeyTransitionError(f"cannot {command} {self.id!r}: it {what}", hint=hint)


# A field for a time or a line of text is declared in `RingEntry` alone; all other code uses these names.
DATES: Final = tuple(each.name for each in fields(RingEntry) if each.type == "datetime | None")
LINES: Final = tuple(each.name for each in fields(RingEntry) if "is_line" in each.metadata)
KEY_FIELDS: Final = frozenset(
    {"id", "state", "suite", "check", "source", "material", "waived", *LINES, *DATES}
)


def require_entry(entries: Iterable[RingEntry], key_id: str) -> RingEntry:
    """Return the entry of the key ``key_id``; raise if the ring has no such key."""
    held = {entry.id: entry for entry in entries}
    if key_id not in held:
        raise UnknownKeyError(key_id, tuple(held), hint="to add a key: sealpoint keys generate ID")
    return held[key_id]


def read_entry(
    table: Mapping[str, Any], file: Path, wrappers: Wrappers
) -> tuple[RingEntry, KeySource | None]:
    """Parse the table of a key; return its entry, and the source of its material or ``None``."""
    require_fields(table, KEY_FIELDS, {"id", "state"}, f"{file}: a key")
    where = f"{file}: key {require_key_id(table['id'])!r}"
    try:
        state = KeyState(table["state"])
    # An Enum also raises ValueError for a list or a table, although neither can be hashed.
    except ValueError:
        known = ", ".join(state.value for state in KeyState)
        raise RingFileError(f"{where}: state {excerpt(table['state'])} is not one of {known}") from None
    require_types(table, where)
    if table.get("suite") not in (None, LEGACY):
        raise RingFileError(f"{where}: suite {excerpt(table['suite'])} is not 'aes', the only valid value")
    require_suite_state(table["id"], table.get("suite"), state)
    if state is not KeyState.DESTROYED:
        require_fields(table, KEY_FIELDS - {"destroyed", "material", "waived"}, {"source"}, where)
    if "compromised" in table and state not in (KeyState.COMPROMISED, KeyState.DISABLED, KeyState.DESTROYED):
        hint = 'write state = "compromised": a key that was compromised does not seal again'
        raise RingFileError(f"{where} was compromised, but has state {state.value}", hint=hint)
    found = {name: table.get(name) for name in ("suite", "check", "material", *LINES, *DATES)}
    source, origin = _read_source(table, state, wrappers, where)
    waived = tuple(table.get("waived", ()))
    return RingEntry(table["id"], state, waived=waived, **origin, **found), source


def _read_source(
    table: Mapping[str, Any], state: KeyState, wrappers: Wrappers, where: str
) -> tuple[KeySource | None, dict[str, Any]]:
    if "source" not in table:
        return None, {}
    found, is_destroyed = table["source"], state is KeyState.DESTROYED
    if is_destroyed and isinstance(found, dict) and found.get(WrappedSource.kind) == "":
        require_fields(found, {WrappedSource.kind, "by"}, {"by"}, where)
        return None, {"source": WrappedSource.kind, "wrapper": require_text(found, "by", where)}
    source = parse_key_source(found, wrappers, table["id"], where)
    if is_destroyed and isinstance(source, InlineSource | WrappedSource):
        raise RingFileError(f"{where} is destroyed, but its material is still in the ring")
    origin = {"source": source.kind, "location": source.location}
    if isinstance(source, WrappedSource):
        origin |= {"wrapper": source.wrapper.id, "version": source.version}
    return source, origin


def require_types(entry: Mapping[str, Any], where: str) -> None:
    """Raise if an optional field of a table is present, and has the wrong type."""
    for name in DATES:
        if name not in entry:
            continue
        if not isinstance(entry[name], datetime):
            hint = "write it as 2027-06-01T00:00:00Z"
            raise RingFileError(f"{where}: '{name}' is not a date with a time", hint=hint)
        try:
            as_utc(entry[name])
        except OverflowError:
            raise RingFileError(f"{where}: '{name}' is out of range") from None
    if "check" in entry and not isinstance(entry["check"], str):
        raise RingFileError(f"{where}: 'check' is not a string")
    for name in LINES:
        # `entry_text` writes it as JSON. That is TOML only for printable text: DEL is forbidden in TOML.
        if name in entry and not (isinstance(entry[name], str) and entry[name].isprintable()):
            raise RingFileError(f"{where}: '{name}' is not one line of text")
    if "material" in entry and entry["material"] not in _OUTCOMES:
        raise RingFileError(f"{where}: 'material' is not one of {', '.join(_OUTCOMES)}")
    waived = entry.get("waived", [])
    if not isinstance(waived, list) or any(name not in _CHECKS for name in waived):
        raise RingFileError(f"{where}: 'waived' is not a list of {', '.join(_CHECKS)}")


@dataclass(frozen=True, slots=True)
class WrappedSource:
    """Source of a wrapped key: the encrypted key in the ring file, and the wrapper that decrypts it.

        source = { wrapped = "BASE64", by = "aws-prod", version = "3" }

    The entry of a destroyed key keeps ``wrapped = ""``, to record that the key was wrapped.
    """

    kind: ClassVar = "wrapped"
    is_slow: ClassVar = True
    blob: bytes = field(repr=False)
    wrapper: NamedWrapper
    context: WrapContext
    version: str | None = field(default=None, compare=False)
    # A file that holds the same material, until a command removes the file.
    left: str | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, table: Mapping[str, object], wrappers: Wrappers, key_id: str, where: str) -> WrappedSource:
        """Check and return the source that a table of a ring file describes. No service is called."""
        require_fields(table, {cls.kind, "by", "version", "left"}, {"by"}, where)
        text = require_text(table, cls.kind, where)
        try:
            blob = b64decode(text, validate=True)
        except ValueError:
            raise RingFileError(f"{where}: 'wrapped' is not base64") from None
        if not 0 < len(blob) <= MAX_BLOB_BYTES:
            raise RingFileError(f"{where}: 'wrapped' has {len(blob)} bytes, not 1 to {MAX_BLOB_BYTES}")
        version, left = get_text(table, "version", where), get_text(table, "left", where)
        wrapper = wrappers.require(require_text(table, "by", where))
        return cls(blob, wrapper, wrappers.context(key_id), version, left)

    @property
    def location(self) -> str:
        """The wrapping service and its key, for messages."""
        return self.wrapper.wrapper.location

    def read(self, _: Path, /) -> bytes:
        """Unwrap the key, and return its material."""
        return self.wrapper.unwrap(self.blob, self.context)


KeySource = Source | WrappedSource


def parse_key_source(source: object, wrappers: Wrappers, key_id: str, where: str) -> KeySource:
    """Parse the source of a key or of a wrapped key. No material is read, and no service is called."""
    if isinstance(source, dict) and WrappedSource.kind in source:
        return WrappedSource.parse(source, wrappers, key_id, where)
    return parse_source(source, (WrappedSource.kind,))


RING_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Wrappers:
    """The wrappers that a ring file lists, and the name of the ring."""

    file: Path
    ring: str | None
    by_id: Mapping[str, NamedWrapper]

    def require(self, wrapper_id: str) -> NamedWrapper:
        """Return the wrapper with the id ``wrapper_id``; raise if the ring file has no such wrapper."""
        if wrapper_id not in self.by_id:
            hint = "add a [[wrapper]] entry with this id to the ring file by hand, see docs/wrapped-keys.md"
            held = ", ".join(self.by_id) or "none"
            raise RingFileError(f"{self.file} has no wrapper {excerpt(wrapper_id)} (held: {held})", hint=hint)
        return self.by_id[wrapper_id]

    def context(self, key_id: str) -> WrapContext:
        """Return the context to which a wrapped key is bound: the name of the ring and the key id."""
        if self.ring is None:
            hint = 'wrapped keys are bound to the name of the ring: restore name = "..." from a copy'
            raise RingFileError(f"{self.file} has a wrapped key, but no 'name'", hint=hint)
        return WrapContext(self.ring, key_id)


def read_wrappers(table: Mapping[str, Any], file: Path) -> Wrappers:
    """Return the wrappers of a ring file. No service is called."""
    name = table.get("name")
    if name is not None and (not isinstance(name, str) or not RING_NAME.fullmatch(name)):
        hint = "use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', starting with a letter or a digit"
        raise RingFileError(f"{file}: 'name' is not a valid name of a ring", hint=hint)
    by_id: dict[str, NamedWrapper] = {}
    for entry in get_tables(table, "wrapper", file):
        wrapper_id = require_text(entry, "id", f"{file}: a wrapper")
        where = f"{file}: wrapper {excerpt(wrapper_id)}"
        if not KEY_ID.fullmatch(wrapper_id):
            hint = "use 1 to 24 of a-z, 0-9, '.' and '-', starting with a letter or a digit"
            raise RingFileError(f"{where}: 'id' does not have the form of a key id", hint=hint)
        if wrapper_id in by_id:
            raise KeyIdError(f"{file}: two wrappers are called {wrapper_id!r}")
        kind = require_text(entry, "kind", where)
        fields = {field: value for field, value in entry.items() if field not in ("id", "kind")}
        by_id[wrapper_id] = NamedWrapper(wrapper_id, parse_wrapper(kind, fields, where, file.parent))
    return Wrappers(file, name, by_id)


_SIGNERS: Final = (FileSource.kind, CredentialSource.kind, CommandSource.kind)


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """The table ``[ledger]`` of a ring file."""

    folder: Path
    origin: str  # name of the ledger, not checked yet
    signer: Source | None  # ``None`` on hosts that only read
    base: Path  # the folder of the ring file


def read_ledger_table(table: Mapping[str, Any], file: Path) -> LedgerTable | None:
    """Parse the table ``[ledger]`` of a ring file; return ``None`` if the file has no such table."""
    ledger = table.get("ledger")
    if ledger is None:
        return None
    where = f"{file}: [ledger]"
    if not isinstance(ledger, dict):
        raise RingFileError(f"{file}: 'ledger' must be a table, [ledger]")
    require_fields(ledger, {"dir", "origin", "signer"}, {"dir", "origin"}, where)
    folder, origin = (require_text(ledger, field, where) for field in ("dir", "origin"))
    signer = parse_source(ledger["signer"]) if "signer" in ledger else None
    if signer is not None and signer.kind not in _SIGNERS:
        raise RingFileError(f"{where}: signer {excerpt(signer.kind)} is not one of {', '.join(_SIGNERS)}")
    return LedgerTable(file.parent / folder, origin, signer, file.parent)


_DATABASE_FIELDS: Final = frozenset({"path", "url", "service"})
LIBPQ_HINT: Final = "remove the password; libpq reads it from ~/.pgpass, $PGPASSFILE or $PGSERVICEFILE"


def read_database_tables(tables: Sequence[Mapping[str, Any]], file: Path) -> tuple[str, ...]:
    """Return the databases that a ring file lists, each as a path or a URL of Postgres.

    No database is opened, so two paths of the same file count as two databases.
    """
    where, found = f"{file}: [[database]]", list[str]()
    for table in tables:
        require_fields(table, _DATABASE_FIELDS, set(), where)
        if len(table) != 1:
            raise RingFileError(f"{where} must have exactly one of {', '.join(sorted(_DATABASE_FIELDS))}")
        (field,) = table
        database = require_text(table, field, where)
        if field == "path":
            if "://" in database:
                raise RingFileError(f"{where}: 'path' is a URL", hint='write it as url = "postgresql://..."')
            database = str(file.parent / database)
        elif field == "service":
            database = f"postgresql:///?service={quote(database, safe='')}"
        elif has_password(database):  # the message must not show it
            raise RingFileError(f"{where}: 'url' contains a password", hint=LIBPQ_HINT)
        elif not is_url(database):
            raise RingFileError(f"{where}: 'url' does not begin with postgresql://")
        database = plain_url(database)
        if database in found:
            raise RingFileError(f"{where} lists {excerpt(database)} twice")
        found.append(database)
    return tuple(found)


def read_store_table(table: Mapping[str, Any], file: Path) -> str | None:
    """Return the thread store in ``[threads]``: a URL, or a path relative to the folder of the ring."""
    threads = table.get("threads")
    if threads is None:
        return None
    if not isinstance(threads, dict):
        raise RingFileError(f"{file}: 'threads' must be a table, [threads]")
    require_fields(threads, {"store"}, {"store"}, f"{file}: [threads]")
    store = threads["store"]
    if not isinstance(store, str) or not store or not store.isprintable():
        raise RingFileError(f"{file}: [threads]: 'store' is not a path or a postgresql:// URL")
    return store if is_url(store) or store.startswith("service=") else str(file.parent / store)
