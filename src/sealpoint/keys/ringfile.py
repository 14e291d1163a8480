"""The ring file: TOML with ids, states, dates, check values and sources of the material.

See ``keys.example`` for a complete one. Every unknown field of a key is an error. ``[threads]`` names the
thread store for commands, ``[ledger]`` the ledger that they record in, ``[[database]]`` the databases that
they examine, ``[[wrapper]]`` what wraps keys.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import (
    ActiveKeyError,
    DuplicateKeyError,
    KeyDestroyedError,
    RingFileError,
    RingFileMissingError,
    SourceError,
    excerpt,
)
from sealpoint.keys.databasetable import read_database_tables
from sealpoint.keys.entry import RingEntry, read_entry, require_entry, require_types
from sealpoint.keys.fields import require_fields
from sealpoint.keys.files import Origin, read_private
from sealpoint.keys.ids import require_key_id
from sealpoint.keys.key import Key, require_consistent
from sealpoint.keys.ledgertable import read_ledger_table
from sealpoint.keys.loader import SourceLoader, get_material
from sealpoint.keys.material import Material, NeverPickled
from sealpoint.keys.sources import InlineSource, Source
from sealpoint.keys.state import KeyState
from sealpoint.keys.wrapped import parse_key_source
from sealpoint.keys.wrappertable import Wrappers, read_wrappers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

VERSION: Final = 1
MAX_RING_BYTES: Final = 64 * 1024
MAX_LINE_DOTS: Final = 64  # the parser's time is quadratic in the parts of a dotted key
SHARED: Final = 0o022  # all accounts may read a ring file, only its owner may write it
INDEX: Final = "index"
"""Id of an index key whose entry names none, and of one that a command adds."""
SYSTEM_PATH: Final = Path("/etc/sealpoint/keys.toml")

_RING_FIELDS: Final = frozenset(
    {"version", "name", "active", "key", "index", "wrapper", "threads", "ledger", "database"}
)
_THREADS_FIELDS: Final = frozenset({"store"})
_NOT_PATHS: Final = ("postgresql://", "postgres://", "service=")
_INDEX_FIELDS: Final = frozenset({"id", "created", "check", "source"})


def find_ring_file(path: str | PathLike[str] | None = None) -> Path:
    """Return the path of the ring file: the argument, or the first default location.

    Raises:
        RingFileMissingError: If there is no location, or no file at it.
    """
    named = os.environ.get("SEALPOINT_KEYS")
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if path is not None:
        found = Path(path)
    elif named:
        found = Path(named)
    elif credentials and os.path.lexists(Path(credentials) / "sealpoint.keys"):
        found = Path(credentials) / "sealpoint.keys"
    else:
        found = SYSTEM_PATH
    try:
        found.lstat()
    except PermissionError:
        hint = "run this as the account that owns the ring (sudo -u OWNER), or name another: --keys FILE"
        raise RingFileMissingError(f"this account may not enter the folder of {found}", hint=hint) from None
    except OSError:
        unnamed = "" if path is not None or named else ", and $SEALPOINT_KEYS is not set"
        raise RingFileMissingError(f"no ring file at {found}{unnamed}") from None
    return found


def read_ring_entries(path: str | PathLike[str] | None = None) -> tuple[RingEntry, ...]:
    """Read the entries of a ring file, without reading any material.

    Args:
        path: As for `KeyRing.load`.

    Raises:
        KeyRingError: For everything that `KeyRing.load` refuses, except errors in the material.
    """
    return RingFile(find_ring_file(path)).entries


def read_thread_store(path: str | PathLike[str] | None = None) -> str | None:
    """Return the path or the URL of the thread store that a ring file names; ``None`` if it names none.

    Args:
        path: As for `KeyRing.load`.

    Raises:
        KeyRingError: For everything that `KeyRing.load` refuses, except errors in the material.
    """
    return RingFile(find_ring_file(path)).thread_store


class RingFile(NeverPickled):
    """A ring file that was read and parsed, without any material.

    Attributes:
        origin: The file before it was read: the next check notices a change since then.
        data: The bytes of the file.
        entries: The entries of its keys.
        index_id: Id of the index key, if it has one.
        index_source: Source of the index key, if there is one.
        databases: The databases that it lists, each as a path or a URL of Postgres.
        wrappers: Its wrappers, and the name of the ring.
        ledger: The ledger that commands record in, if it names one.
        thread_store: Path or URL of the thread store, if it names one.
    """

    def __init__(self, file: Path) -> None:
        """Read and parse a file.

        Raises:
            KeyRingError: For everything that `KeyRing.load` refuses, except errors in the material.
        """
        self.origin = Origin.of(file)
        # From the root: material may be read after a daemon has left the folder, and the same entry of the
        # same file is recognised when the file is read again.
        file = self.origin.path
        self.data = _read(file)
        table = _read_table(self.data, file)
        self.wrappers = read_wrappers(table, file)
        entries = [read_entry(key, file, self.wrappers) for key in _get_tables(table, "key", file)]
        self.entries = tuple(entry for entry, _ in entries)
        require_consistent(self.entries, str(file))
        _require_active(self.entries, table.get("active"), file)
        self.databases = read_database_tables(_get_tables(table, "database", file), file)
        self.ledger = read_ledger_table(table, file)
        self.thread_store = _get_thread_store(table, file)
        self._loaders = {
            entry.id: SourceLoader(source, file, f"{file}: key {entry.id!r}", entry.suite, entry.check)
            for entry, source in entries
            if source is not None
        }
        self.index_id: str | None = None
        self.index_source: Source | None = None
        self._index: SourceLoader | None = None
        indexes = _get_tables(table, "index", file)
        if len(indexes) > 1:
            raise RingFileError(f"{file} has {len(indexes)} [[index]] entries; one is enough")
        for index in indexes:
            self.index_id = index.get("id")
            self.index_source = _require_index(index, f"{file}: [[index]]", self.wrappers)
            self._index = SourceLoader(
                self.index_source, file, f"{file}: [[index]]", None, index.get("check"), has_state=False
            )
        ids = {entry.id for entry in self.entries}
        if self.index_id in ids:
            raise DuplicateKeyError(f"{file}: a key and the [[index]] are both called {self.index_id!r}")
        for wrapper_id in ids & self.wrappers.by_id.keys():
            raise DuplicateKeyError(f"{file}: a key and a wrapper are both called {wrapper_id!r}")

    def make_keys(self, held: Sequence[Material] = ()) -> list[Key]:
        """Return the keys. No material is loaded.

        Args:
            held: Material of earlier rings of this file; that from slow sources is reused.
        """
        return [self._make_key(entry, held) for entry in self.entries]

    def make_index(self, held: Sequence[Material] = ()) -> Material | None:
        """Return the material of the index key, if there is one, without loading it."""
        return None if self._index is None else get_material(self._index, held)

    def load_key(self, key_id: str) -> Key:
        """Load one key, whatever its state.

        Raises:
            KeyRingError: If its material is not available, or is that of another key.
        """
        entry = require_entry(self.entries, key_id)
        key = self._make_key(entry, (), is_needed=True)
        if key.lazy_material is not None:
            key.lazy_material.load()
        return key

    def require_loader(self, key_id: str) -> SourceLoader:
        """Return what reads the material of a key or of the index key.

        Raises:
            UnknownKeyError: If the ring has neither.
            KeyDestroyedError: If the key was destroyed.
        """
        is_index = key_id == (self.index_id or INDEX) and key_id not in {entry.id for entry in self.entries}
        if self._index is not None and is_index:
            return self._index
        if require_entry(self.entries, key_id).state is KeyState.DESTROYED:
            raise KeyDestroyedError(f"key {key_id!r} was destroyed")
        return self._loaders[key_id]

    def _make_key(self, entry: RingEntry, held: Sequence[Material], *, is_needed: bool = False) -> Key:
        # Inline material of a disabled key is read too, so that the ring file is checked to be private.
        loader = self._loaders.get(entry.id)
        if loader is not None and (is_needed or entry.state.opens or entry.source == InlineSource.kind):
            material: bytes | Material = get_material(loader, held)
        else:
            material = b""
        return Key(
            entry.id,
            material,
            entry.state,
            entry.created,
            entry.destroyed,
            suite=entry.suite,
            compromised=entry.compromised,
        )


def _read(file: Path) -> bytes:
    try:
        return read_private(file, forbidden=SHARED, allow_links=True)
    except SourceError:
        find_ring_file(file)  # if it is missing, that is the error
        raise


def _read_table(data: bytes, file: Path) -> dict[str, Any]:
    """Return what a ring file contains, of which only the version was checked."""
    table = _parse(data, file)
    require_fields(table, _RING_FIELDS, {"version"}, str(file))
    # TOML's true is a bool, which is an int and equal to 1.
    if type(table["version"]) is not int or table["version"] != VERSION:
        hint = f"this release reads version = {VERSION}"
        raise RingFileError(f"{file} does not have version = {VERSION}", hint=hint)
    return table


def _parse(data: bytes, file: Path) -> dict[str, Any]:
    if len(data) > MAX_RING_BYTES:
        raise RingFileError(f"{file} has {len(data)} bytes, and a ring at most {MAX_RING_BYTES}")
    lines = (line for line in data.split(b"\n") if not line.startswith(b"#"))
    if any(line.count(b".") > MAX_LINE_DOTS for line in lines):
        raise RingFileError(f"{file} has a line with over {MAX_LINE_DOTS} dots")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        place = str(error).rpartition("(")[2].rstrip(")")  # without the text before it
        problem = f"is not TOML ({place})"
    # Python refuses to convert integers of over 4300 digits, whose time grows with the square.
    except ValueError:
        problem = "has a number with too many digits"
    except RecursionError:
        problem = "is nested too deeply"
    # Raised here, so that its context is not the error above: that may contain the text with inline keys.
    raise RingFileError(f"{file} {problem}")


def _get_tables(table: Mapping[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    entries = table.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RingFileError(f"{file}: '{name}' is written as [[{name}]]")
    return entries


def _get_thread_store(table: Mapping[str, Any], file: Path) -> str | None:
    """Return the store of ``[threads]``. Paths are relative to the folder of the ring file."""
    threads = table.get("threads")
    if threads is None:
        return None
    if not isinstance(threads, dict):
        raise RingFileError(f"{file}: 'threads' is written as [threads]")
    require_fields(threads, _THREADS_FIELDS, {"store"}, f"{file}: [threads]")
    store = threads["store"]
    if not isinstance(store, str) or not store or not store.isprintable():
        raise RingFileError(f"{file}: [threads]: 'store' is not a path or a postgresql:// URL")
    return store if store.startswith(_NOT_PATHS) else str(file.parent / store)


def _require_active(entries: Sequence[RingEntry], named: object, file: Path) -> None:
    """Refuse a ring whose ``active`` does not name the one key with that state."""
    active = next((entry.id for entry in entries if entry.state is KeyState.ACTIVE), None)
    if named != active:
        claim = "names no key" if named is None else f"names {excerpt(named)}"
        raise ActiveKeyError(f"{file}: 'active' {claim}, and the key with that state is {active or 'none'}")


def _require_index(table: Mapping[str, Any], where: str, wrappers: Wrappers) -> Source:
    require_fields(table, _INDEX_FIELDS, {"source"}, where)
    require_types(table, where)
    return parse_key_source(table["source"], wrappers, require_key_id(table.get("id", INDEX)), where)
