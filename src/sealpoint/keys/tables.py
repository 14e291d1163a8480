"""The tables ``[[wrapper]]`` of a ring file, and the ring's name, to which its wrapped keys are bound.

name = "agents"               # 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-'; never changes

[[wrapper]]
id = "aws-prod"               # of the same form as a key id
kind = "aws"                  # the other fields are those of the kind

The table ``[ledger]`` of a ring file: where the ledger is, and who signs for it.

    [ledger]
    dir = "ledger"                        # relative to the folder of the ring file
    origin = "example.org/agents"         # name of the ledger, without spaces and '+'; never changes
    signer = { file = "ledger.key" }      # or credential or command; not on hosts that only read

The signing key belongs to the account that runs maintenance, never to one that runs agents.

The entries ``[[database]]`` of a ring file: the databases that have rows under its keys.

    [[database]]
    path = "state.db"                         # relative to the folder of the ring file

    [[database]]
    url = "postgresql://db.example/agents"    # for libpq, without a password

    [[database]]
    service = "agents"                        # of ~/.pg_service.conf or $PGSERVICEFILE

Only commands open them. A process that seals and opens values checks the entries, and connects to none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from sealpoint.errors import KeyIdError, PasswordError, RingFileError, excerpt
from sealpoint.keys.sources import (
    CommandSource,
    CredentialSource,
    FileSource,
    Source,
    get_tables,
    parse_source,
    require_fields,
    require_text,
)
from sealpoint.keys.state import KEY_ID
from sealpoint.keys.wrap.wrapper import NamedWrapper, WrapContext, parse_wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

RING_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Wrappers:
    """The wrappers of a ring."""

    file: Path
    ring: str | None
    by_id: Mapping[str, NamedWrapper]

    def require(self, wrapper_id: str) -> NamedWrapper:
        """Return the wrapper called ``wrapper_id``."""
        if wrapper_id not in self.by_id:
            hint = "add a [[wrapper]] entry with this id to the ring file by hand, see docs/wrapped-keys.md"
            held = ", ".join(self.by_id) or "none"
            raise RingFileError(f"{self.file} has no wrapper {excerpt(wrapper_id)} (held: {held})", hint=hint)
        return self.by_id[wrapper_id]

    def context(self, key_id: str) -> WrapContext:
        """Return what a wrapped key of the ring is bound to."""
        if self.ring is None:
            hint = 'wrapped keys are bound to the ring\'s name: restore the line name = "..." from a copy'
            raise RingFileError(f"{self.file} has a wrapped key, and no 'name'", hint=hint)
        return WrapContext(self.ring, key_id)


def read_wrappers(table: Mapping[str, Any], file: Path) -> Wrappers:
    """Return the wrappers of a ring file. No service is asked."""
    name = table.get("name")
    if name is not None and (not isinstance(name, str) or not RING_NAME.fullmatch(name)):
        hint = "use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', starting with a letter or a digit"
        raise RingFileError(f"{file}: 'name' is not a name of a ring", hint=hint)
    by_id: dict[str, NamedWrapper] = {}
    for entry in get_tables(table, "wrapper", file):
        wrapper_id = require_text(entry, "id", f"{file}: a wrapper")
        where = f"{file}: wrapper {excerpt(wrapper_id)}"
        if not KEY_ID.fullmatch(wrapper_id):
            hint = "use 1 to 24 of a-z, 0-9, '.' and '-', starting with a letter or a digit"
            raise RingFileError(f"{where}: 'id' has another form than a key id", hint=hint)
        if wrapper_id in by_id:
            raise KeyIdError(f"{file}: two wrappers are called {wrapper_id!r}")
        kind = require_text(entry, "kind", where)
        fields = {field: value for field, value in entry.items() if field not in ("id", "kind")}
        by_id[wrapper_id] = NamedWrapper(wrapper_id, parse_wrapper(kind, fields, where, file.parent))
    return Wrappers(file, name, by_id)


_SIGNERS: Final = (FileSource.kind, CredentialSource.kind, CommandSource.kind)


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """The ledger that a ring file names."""

    folder: Path
    origin: str  # not yet checked to be a name of a ledger
    signer: Source | None  # ``None`` on hosts that only read
    base: Path  # the folder of the ring file


def read_ledger_table(table: Mapping[str, Any], file: Path) -> LedgerTable | None:
    """Return what a ring file says about its ledger; ``None`` if it names none."""
    ledger = table.get("ledger")
    if ledger is None:
        return None
    where = f"{file}: [ledger]"
    if not isinstance(ledger, dict):
        raise RingFileError(f"{file}: 'ledger' is written as [ledger]")
    require_fields(ledger, {"dir", "origin", "signer"}, {"dir", "origin"}, where)
    folder, origin = (require_text(ledger, field, where) for field in ("dir", "origin"))
    signer = parse_source(ledger["signer"]) if "signer" in ledger else None
    if signer is not None and signer.kind not in _SIGNERS:
        raise RingFileError(f"{where}: signer {excerpt(signer.kind)} is not one of {', '.join(_SIGNERS)}")
    return LedgerTable(file.parent / folder, origin, signer, file.parent)


_DATABASE_FIELDS: Final = frozenset({"path", "url", "service"})
_SCHEMES: Final = ("postgresql://", "postgres://")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_PARAMETERS: Final = re.compile(r"(?:^|[?&\s])([^=?&\s]+)\s*=")


def is_url(database: str) -> bool:
    """Whether a database is named by a URL of Postgres."""
    return database.startswith(_SCHEMES)


def has_password(database: str) -> bool:
    """Whether a password stands in one of the three places where libpq takes one from a URL."""
    front, found, rest = database.partition("://")
    user, at, _ = (rest if found else front).partition("/")[0].partition("@")
    # libpq decodes names of parameters: pass%77ord is a password.
    named = {unquote(name) for name in _PARAMETERS.findall(database)}
    return bool((found and at and ":" in user) or named & _SECRETS)


def read_database_tables(tables: Sequence[Mapping[str, Any]], file: Path) -> tuple[str, ...]:
    """Return the databases that a ring file lists, each as a path or a URL of Postgres.

    Whether two paths lead to one file is not checked: nothing is opened.
    """
    where, found = f"{file}: [[database]]", list[str]()
    for table in tables:
        require_fields(table, _DATABASE_FIELDS, set(), where)
        if len(table) != 1:
            raise RingFileError(f"{where} names exactly one of {', '.join(sorted(_DATABASE_FIELDS))}")
        (field,) = table
        database = require_text(table, field, where)
        if field == "path":
            if "://" in database:
                raise RingFileError(f"{where}: 'path' is a URL", hint='write it as url = "postgresql://..."')
            database = str(file.parent / database)
        elif field == "service":
            database = f"postgresql:///?service={quote(database, safe='')}"
        elif has_password(database):  # the message shows nothing of it
            raise RingFileError(f"{where}: a password stands in 'url'", hint=PasswordError.hint)
        elif not is_url(database):
            raise RingFileError(f"{where}: 'url' does not begin with postgresql://")
        if database in found:
            raise RingFileError(f"{where} lists {excerpt(database)} twice")
        found.append(database)
    return tuple(found)
