"""The ring file: TOML with ids, states, dates, check values and sources of the material.

See ``keys.example`` for a complete one. Every unknown field of a key is an error. ``[threads]`` names the
thread store for commands, ``[ledger]`` the ledger that they record in, ``[[database]]`` the databases that
they examine, ``[[wrapper]]`` the services that wrap keys.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.errors import (
    FilePermissionsError,
    KeyDestroyedError,
    KeyIdError,
    KeyMaterialError,
    RingFileError,
    RingFileMissingError,
    SourceError,
    WrappedKeyError,
    excerpt,
)
from sealpoint.keys.entry import (
    KeySource,
    RingEntry,
    WrappedSource,
    Wrappers,
    parse_key_source,
    read_database_tables,
    read_entry,
    read_ledger_table,
    read_store_table,
    read_wrappers,
    require_entry,
    require_types,
)
from sealpoint.keys.files import Origin, read_private
from sealpoint.keys.material import LazyMaterial, check_value, parse_material
from sealpoint.keys.sources import InlineSource, get_tables, require_fields
from sealpoint.seal.keys import (
    LEGACY,
    Key,
    KeyState,
    Material,
    NeverPickled,
    active_id,
    require_consistent,
    require_key_id,
    require_length,
)

TEST_MATERIAL_PREFIX: Final = b"sealpoint PUBLIC TEST key "
ALLOW_TEST_KEYS: Final = "SEALPOINT_ALLOW_TEST_KEYS"
_DISABLE: Final = "; a key that is no longer needed can be disabled: its material is then not read"


@dataclass(frozen=True, slots=True)
class SourceLoader:
    """Reads the material of one entry, and compares it with the entry's check value."""

    source: KeySource
    file: Path
    where: str  # names the entry in messages; equal for the same entry of the same file
    suite: str | None
    check: str | None
    has_state: bool = True  # whether the entry can be disabled; the index key cannot

    def __call__(self) -> bytes:
        """Read the material from its source, check it, and return it."""
        try:
            raw = self.source.read(self.file.parent)
        except (FilePermissionsError, SourceError, WrappedKeyError) as error:
            advice = _DISABLE if self.has_state and type(error) is SourceError else ""
            raise type(error)(f"{self.where}: {error}", hint=f"{error.hint}{advice}") from None
        parsed = raw if self.suite == LEGACY else parse_material(raw, self.where)
        material = require_length(parsed, self.suite, self.where)
        if material.startswith(TEST_MATERIAL_PREFIX):
            if os.environ.get(ALLOW_TEST_KEYS) != "1":
                raise RingFileError(
                    f"{self.where} is a public test key of keys.example",
                    hint="generate keys of your own; only tests and demos set SEALPOINT_ALLOW_TEST_KEYS=1",
                )
        elif isinstance(self.source, InlineSource):
            # A ring with inline material must be as private as a key file.
            read_private(self.file, allow_links=True)
        if self.check not in (None, check_value(material)):
            raise KeyMaterialError(
                f"{self.where}: the material does not match 'check'",
                hint="restore the material of this key; if the ring file is wrong, correct 'check'",
            )
        return material

    def accepts(self, held: Material) -> bool:
        """Whether this loader would read the same material as ``held``, which an earlier ring has loaded.

        If a key was moved to another source, or wrapped again for the same ring, check values are compared.
        """
        if held.loader == self:
            return True
        if not isinstance(held.loader, SourceLoader) or not held.is_loaded:
            return False
        if held.loader.source == self.source:
            return self.check in (None, check_value(held.get()))
        mine, theirs = self.source, held.loader.source
        is_bound_alike = self.where == held.loader.where
        if isinstance(mine, WrappedSource) and isinstance(theirs, WrappedSource):
            is_bound_alike &= mine.context == theirs.context
        return is_bound_alike and self.check == check_value(held.get())


def get_material(loader: SourceLoader, held: Sequence[Material]) -> Material:
    """Return material for a loader; if the source is slow, reuse material in ``held`` that is the same."""
    is_slow = loader.source.is_slow
    same = (material for material in held if is_slow and loader.accepts(material))
    return next(same, None) or LazyMaterial(loader, is_slow=is_slow)


VERSION: Final = 1
MAX_RING_BYTES: Final = 64 * 1024
MAX_LINE_DOTS: Final = 64  # the parser's time is quadratic in the parts of a dotted key
SHARED: Final = 0o022  # all accounts may read a ring file, only its owner may write it
INDEX: Final = "index"  # default id of an index key, also used by commands that add an index key
SYSTEM_PATH: Final = Path("/etc/sealpoint/keys.toml")

_RING_FIELDS: Final = frozenset(
    {"version", "name", "active", "key", "index", "wrapper", "threads", "ledger", "database"}
)


def find_ring_file(path: str | PathLike[str] | None = None) -> Path:
    """Return the path of the ring file.

    Args:
        path: Path of the ring file; by default as for `KeyRing.load`.

    Raises:
        RingFileMissingError: If there is no file, or this account may not enter its folder.

    Example:
        >>> from sealpoint.keys.ringfile import find_ring_file
        >>> find_ring_file("keys.toml").name
        'keys.toml'
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
        hint = "run this as the account that owns the ring (sudo -u OWNER), or name another file: --keys FILE"
        raise RingFileMissingError(f"this account may not enter the folder of {found}", hint=hint) from None
    except OSError:
        unnamed = "" if path is not None or named else ", and $SEALPOINT_KEYS is not set"
        relative = "" if found.is_absolute() else f" ({found} in the current folder)"
        raise RingFileMissingError(f"no ring file at {found.absolute()}{relative}{unnamed}") from None
    return found


def read_ring_entries(path: str | PathLike[str] | None = None) -> tuple[RingEntry, ...]:
    """Read the entries of a ring file, without reading any material.

    Args:
        path: As for `KeyRing.load`.

    Raises:
        KeyRingError: As `KeyRing.load`, except errors of key material, which is not loaded.

    Example:
        >>> from sealpoint.keys.ringfile import read_ring_entries
        >>> [(entry.id, entry.state.value) for entry in read_ring_entries("keys.toml")]
        [('k1', 'active')]
    """
    return RingFile(path).entries


class RingFile(NeverPickled):
    """A ring file that was found by `find_ring_file`, read and parsed. No key material is loaded."""

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        file = find_ring_file(path)
        # Taken before the file is read: the next check notices a later change.
        self.origin = Origin.of(file)
        # From the root: material may be read after a daemon has left the folder, and the same entry of the
        # same file is recognised when the file is read again.
        file = self.origin.path
        self.data = read_private(file, forbidden=SHARED, allow_links=True)
        self.table = table = _read_table(self.data, file)  # never changed: `parse_toml` caches it
        self.wrappers = read_wrappers(table, file)
        entries = [read_entry(key, file, self.wrappers) for key in get_tables(table, "key", file)]
        self.entries = tuple(entry for entry, _ in entries)
        require_consistent(self.entries, str(file))
        self.active_id, named = active_id(self.entries), table.get("active")
        if named != self.active_id:
            claim = "names no key" if named is None else f"names {excerpt(named)}"
            raise RingFileError(
                f"{file}: 'active' {claim}, but the key with state active is {self.active_id or 'none'}",
                hint="exactly one key has state = \"active\", and 'active' names it",
            )
        self.databases = read_database_tables(get_tables(table, "database", file), file)
        self.ledger = read_ledger_table(table, file)
        self.thread_store = read_store_table(table, file)
        self._loaders = {
            entry.id: SourceLoader(source, file, f"{file}: key {entry.id!r}", entry.suite, entry.check)
            for entry, source in entries
            if source is not None
        }
        self.index_id, self.index = _read_index(get_tables(table, "index", file), file, self.wrappers)
        ids = {entry.id for entry in self.entries}
        if self.index_id in ids:
            raise KeyIdError(f"{file}: a key and the [[index]] are both called {self.index_id!r}")
        for wrapper_id in ids & self.wrappers.by_id.keys():
            raise KeyIdError(f"{file}: a key and a wrapper are both called {wrapper_id!r}")

    def make_index(self, held: Sequence[Material] = ()) -> Material | None:
        """Return the material of the index key, if there is one, without loading it."""
        return None if self.index is None else get_material(self.index, held)

    def load_key(self, key_id: str) -> Key:
        """Load the material of a key in any state, and return the key."""
        entry = require_entry(self.entries, key_id)
        key = self.make_key(entry, is_needed=True)
        if key.lazy_material is not None:
            key.lazy_material.load()
        return key

    def require_loader(self, key_id: str) -> SourceLoader:
        """Return the loader of the material of a key or of the index key."""
        is_index = key_id == (self.index_id or INDEX) and key_id not in {entry.id for entry in self.entries}
        if self.index is not None and is_index:
            return self.index
        if require_entry(self.entries, key_id).state is KeyState.DESTROYED:
            raise KeyDestroyedError(f"key {key_id!r} was destroyed")
        return self._loaders[key_id]

    def make_key(self, entry: RingEntry, held: Sequence[Material] = (), *, is_needed: bool = False) -> Key:
        """Return a key without loading its material; keys of slow sources reuse the material in ``held``."""
        # Inline material of a disabled key is read too, so that the ring file is checked to be private.
        loader = self._loaders.get(entry.id)
        is_read = is_needed or entry.state.opens or entry.source == InlineSource.kind
        material = get_material(loader, held) if loader is not None and is_read else b""
        dates = (entry.created, entry.destroyed)
        return Key(entry.id, material, entry.state, *dates, suite=entry.suite, compromised=entry.compromised)


@lru_cache(maxsize=1)  # a command reads its ring several times: it is parsed again if it has changed
def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse the bytes of a ring file. Callers must not change the result: it is cached."""
    return tomllib.loads(data.decode())


def _read_table(data: bytes, file: Path) -> dict[str, Any]:
    """Parse the bytes of a ring file; check only size, syntax, version and the names of its fields."""
    if len(data) > MAX_RING_BYTES:
        raise RingFileError(f"{file} has {len(data)} bytes; a ring file has at most {MAX_RING_BYTES}")
    lines = (line for line in data.split(b"\n") if not line.startswith(b"#"))
    if any(line.count(b".") > MAX_LINE_DOTS for line in lines):
        raise RingFileError(f"{file}: a line has over {MAX_LINE_DOTS} dots, and is not parsed")
    try:
        table = parse_toml(data)
        problem = None
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        place = str(error).rpartition("(")[2].rstrip(")")  # without the text of the file
        problem = f"is not TOML ({place})"
    # Python refuses to convert integers of over 4300 digits, whose time grows with the square.
    except ValueError:
        problem = "has a number with too many digits"
    except RecursionError:
        problem = "is nested too deeply"
    # Raised here, so that its context is not the error above: that may contain the text with inline keys.
    if problem is not None:
        raise RingFileError(f"{file} {problem}")
    require_fields(table, _RING_FIELDS, {"version"}, str(file))
    # TOML's true is a bool, which is an int and equal to 1.
    if type(table["version"]) is not int or table["version"] != VERSION:
        hint = f"this release reads version = {VERSION}"
        raise RingFileError(f"{file} does not have version = {VERSION}", hint=hint)
    return table


def _read_index(
    tables: Sequence[Mapping[str, Any]], file: Path, wrappers: Wrappers
) -> tuple[str | None, SourceLoader | None]:
    """Return the id of the index key, or ``None`` if its entry has no id, and the loader of its material."""
    if len(tables) > 1:
        raise RingFileError(f"{file} has {len(tables)} [[index]] entries; at most one is allowed")
    for table in tables:
        where = f"{file}: [[index]]"
        require_fields(table, {"id", "created", "check", "source"}, {"source"}, where)
        require_types(table, where)
        key_id = require_key_id(table.get("id", INDEX))
        source = parse_key_source(table["source"], wrappers, key_id, where)
        loader = SourceLoader(source, file, where, None, table.get("check"), has_state=False)
        return table.get("id"), loader
    return None, None
