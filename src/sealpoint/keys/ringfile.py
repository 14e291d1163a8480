"""The ring file: TOML with ids, states, dates and check values, and where the material is.

See ``keys.example`` for a complete one. Every field that is not known is an error, and
so is everything that is wrong with the material, at load and not at first use.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import (
    ActiveKeyError,
    CheckValueError,
    DuplicateKeyError,
    FileLinkError,
    FilePermissionsError,
    KeyTransitionError,
    RingFileError,
    RingFileMissingError,
    SourceError,
    TestKeysError,
    UnknownKeyError,
    excerpt,
)
from sealpoint.keys.ids import LEGACY, require_key_id
from sealpoint.keys.ring import (
    Key,
    KeyRing,
    NeverPickled,
    Origin,
    check_value,
    require_one_legacy,
)
from sealpoint.keys.sources import parse_material, read_private, read_source, require_source
from sealpoint.keys.state import COMMANDS, KeyState, require_suite_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 1
MAX_RING_BYTES: Final = 64 * 1024
MAX_LINE_DOTS: Final = 64  # the parser's time grows with the square of the parts of a dotted key
SYSTEM_PATH: Final = Path("/etc/sealpoint/keys.toml")
TEST_MATERIAL_PREFIX: Final = b"sealpoint PUBLIC TEST key "
ALLOW_TEST_KEYS: Final = "SEALPOINT_ALLOW_TEST_KEYS"

_RING_FIELDS: Final = frozenset({"version", "active", "key", "index"})
_KEY_FIELDS: Final = frozenset({"id", "state", "created", "destroyed", "check", "suite", "source"})
_INDEX_FIELDS: Final = frozenset({"id", "created", "check", "source"})


def find_ring_file(path: str | PathLike[str] | None = None) -> Path:
    """Return the ring file: the argument, else the first that is named by the environment or /etc.

    Raises:
        RingFileMissingError: If none is named, or the named one is not there.
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
    if not os.path.lexists(found):
        unnamed = "" if path is not None or named else ", and $SEALPOINT_KEYS is not set"
        raise RingFileMissingError(f"no ring file at {found}{unnamed}")
    return found


@dataclass(frozen=True, slots=True)
class RingEntry:
    """What a ring file says about one key. No key material, and nothing that leads to it.

    Attributes:
        id: Public name of the key.
        state: What may be done with it.
        created: When it was made, if the file says so.
        destroyed: When it was destroyed, if the file says so.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY, else ``None``.
        check: Its check value, if the file has one; not compared with the material.
        source: Kind of its source, e.g. ``file``; ``None`` for a destroyed key.
    """

    id: str
    state: KeyState
    created: datetime | None
    destroyed: datetime | None
    suite: str | None
    check: str | None
    source: str | None

    @property
    def transitions(self) -> tuple[str, ...]:
        """The commands that a key's state allows. A key that is active becomes another by none of its own."""
        if self.state is KeyState.ACTIVE:
            return ()
        commands = (COMMANDS[state] for state in self.state.transitions)
        return tuple(name for name in commands if name != "promote" or self.suite != LEGACY)

    def require_transition(self, command: str) -> None:
        """Raise `KeyTransitionError` if the key's state does not allow a command."""
        if command in self.transitions:
            return
        allowed = ", ".join(self.transitions)
        hint = f"possible from there: {allowed}" if allowed else "a destroyed key cannot be changed"
        if self.state is KeyState.ACTIVE:
            hint = "promote another key first: this one then only opens"
        if command == "enable" and self.state.opens:
            hint = "it opens already: there is nothing to enable"
        is_legacy = command == "promote" and self.suite == LEGACY
        what = "is for LANGGRAPH_AES_KEY rows" if is_legacy else f"is {self.state.value}"
        raise KeyTransitionError(f"cannot {command} {self.id!r}: it {what}", hint=hint)


def require_entry(entries: Iterable[RingEntry], key_id: str) -> RingEntry:
    """Return the entry called ``key_id``.

    Raises:
        UnknownKeyError: If there is none.
    """
    held = {entry.id: entry for entry in entries}
    if key_id not in held:
        raise UnknownKeyError(key_id, tuple(held), hint="to add a key: sealpoint keys generate ID")
    return held[key_id]


def read_ring_entries(path: str | PathLike[str] | None = None) -> tuple[RingEntry, ...]:
    """Read what the ring file says about its keys, and ask no source for any material.

    Args:
        path: As for `KeyRing.load`.

    Raises:
        KeyRingError: For everything that `KeyRing.load` refuses, save what only the material shows.
    """
    return tuple(entry for entry, _ in read_tables(find_ring_file(path))[0])


def load_ring(path: str | PathLike[str] | None = None) -> KeyRing:
    """Read the ring file, and the material of every key that may be used. See `KeyRing.load`."""
    return RingFile(find_ring_file(path)).load()


class RingFile(NeverPickled):
    """A ring file that was read and parsed; no source was asked yet.

    Attributes:
        origin: The file, as it was before it was read: a change in between is noticed by the next look.
        entries: What it says about its keys.
    """

    def __init__(self, file: Path) -> None:
        """Read and parse a file.

        Raises:
            KeyRingError: For everything that `KeyRing.load` refuses, save what only the material shows.
        """
        self._file = file
        stamp = Origin.of(file)
        self._tables, self._indexes = read_tables(file)
        self.entries = tuple(entry for entry, _ in self._tables)
        asked = [(entry.id, table) for entry, table in self._tables if _is_needed(entry)]
        asked += [("", table) for table in self._indexes]
        commands = {
            key_id: tuple(table["source"]["command"])
            for key_id, table in asked
            if "command" in table["source"]
        }
        self.origin = Origin(stamp.path, stamp.stamp, commands)

    def load_key(self, key_id: str) -> Key:
        """Load one key, whatever its state.

        Raises:
            KeyRingError: If its material is not available, or is not the key's.
        """
        entry, table = next(pair for pair in self._tables if pair[0].id == key_id)
        return load_key(entry, table, self._file)

    def runs_commands(self, *held: KeyRing) -> bool:
        """Whether `load` with the same rings would run a command."""
        tables = dict([(entry.id, table) for entry, table in self._tables] + [("", t) for t in self._indexes])
        return any(self._get_held(key_id, tables[key_id], held) is None for key_id in self.origin.commands)

    def load(self, *held: KeyRing) -> KeyRing:
        """Ask the sources of all keys that may be used, and make the ring.

        Args:
            held: Earlier rings of this file. Material that a command gave for one of them is not
                asked for again, if the command is the same and the check value fits.

        Raises:
            KeyRingError: As `KeyRing.load`.
        """
        keys = [
            load_key(
                entry, table, self._file, ask=_is_needed(entry), held=self._get_held(entry.id, table, held)
            )
            for entry, table in self._tables
        ]
        where = f"{self._file}: [[index]]"
        indexes = [
            self._get_held("", table, held) or _read_material(table, self._file, where)
            for table in self._indexes
        ]
        return KeyRing(keys, index=next(iter(indexes), None), origin=self.origin)

    def _get_held(self, key_id: str, table: Mapping[str, Any], held: tuple[KeyRing, ...]) -> bytes | None:
        command = self.origin.commands.get(key_id)
        if command is None:
            return None
        for ring in held:
            material = ring.get_command_material(key_id, command)
            if material and table.get("check") in (None, check_value(material)):
                return material
        return None


def _is_needed(entry: RingEntry) -> bool:
    """Whether a key's material is read: of a ring that holds some itself, to see that it is private."""
    return entry.state.opens or entry.source == "inline"


def read_tables(file: Path) -> tuple[list[tuple[RingEntry, dict[str, Any]]], list[dict[str, Any]]]:
    """Read a ring file, and refuse what is wrong with it before any source is asked."""
    table = _parse(read_private(file, forbidden=0o022), file)
    _require_fields(table, _RING_FIELDS, {"version"}, str(file))
    if type(table["version"]) is not int or table["version"] != VERSION:
        raise RingFileError(
            f"{file} does not have version = {VERSION}", hint="this release reads version = 1"
        )
    tables, indexes = (_tables(table, name, file) for name in ("key", "index"))
    _require_ids(tables, table.get("active"), file)
    if len(indexes) > 1:
        raise RingFileError(f"{file} has {len(indexes)} [[index]] entries; one is enough")
    entries = [_read_entry(entry, f"{file}: key {entry['id']!r}") for entry in tables]
    require_one_legacy(entry.suite for entry in entries)
    for index in indexes:
        _require_index(index, f"{file}: [[index]]")
        if index.get("id") in {entry.id for entry in entries}:
            raise DuplicateKeyError(f"{file}: a key and the [[index]] are both called {index['id']!r}")
    return list(zip(entries, tables, strict=True)), indexes


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
        place = str(error).rpartition("(")[2].rstrip(")")  # and none of the text before it
        problem = f"is not TOML ({place})"
    except ValueError:
        problem = "has a number with too many digits"
    except RecursionError:
        problem = "is nested too deeply"
    # Raised out here so that the error above is not its context: it may hold the text, and that inline keys.
    raise RingFileError(f"{file} {problem}")


def _tables(table: Mapping[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    entries = table.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RingFileError(f"{file}: '{name}' is written as [[{name}]]")
    return entries


def _require_fields(table: Mapping[str, Any], known: frozenset[str], needed: set[str], where: str) -> None:
    for field in table:
        if field not in known:
            raise RingFileError(f"{where} has an unknown field {excerpt(field)}")
    for field in sorted(needed - table.keys()):
        raise RingFileError(f"{where} lacks the field '{field}'")


def _require_ids(entries: list[dict[str, Any]], active: object, file: Path) -> None:
    """Refuse what is wrong with ids and states before any source is asked."""
    seen: set[str] = set()
    actives = []
    for entry in entries:
        _require_fields(entry, _KEY_FIELDS, {"id", "state"}, f"{file}: a key")
        key_id = require_key_id(entry["id"])
        if key_id in seen:
            raise DuplicateKeyError(f"{file}: two keys are called {key_id!r}")
        seen.add(key_id)
        if entry["state"] == KeyState.ACTIVE.value:
            actives.append(key_id)
    if len(actives) > 1:
        raise ActiveKeyError(f"{file}: {len(actives)} keys are active: {', '.join(actives)}")
    if actives != ([] if active is None else [active]):
        named = "names no key" if active is None else f"names {excerpt(active)}"
        raise ActiveKeyError(f"{file}: 'active' {named}, and the key with that state is {actives or 'none'}")


def _read_entry(table: Mapping[str, Any], where: str) -> RingEntry:
    try:
        state = KeyState(table["state"])
    except ValueError:
        known = ", ".join(state.value for state in KeyState)
        raise RingFileError(f"{where}: state {excerpt(table['state'])} is none of {known}") from None
    _require_types(table, where)
    if table.get("suite") not in (None, LEGACY):
        raise RingFileError(
            f"{where}: suite {excerpt(table['suite'])} is not 'aes', the only one to be named"
        )
    require_suite_state(table["id"], table.get("suite"), state)
    source = None
    if state is KeyState.DESTROYED:
        _require_fields(table, _KEY_FIELDS - {"source"}, set(), where)
    else:
        _require_fields(table, _KEY_FIELDS - {"destroyed"}, {"source"}, where)
        source, _ = require_source(table["source"])
    dates = table.get("created"), table.get("destroyed")
    return RingEntry(table["id"], state, *dates, table.get("suite"), table.get("check"), source)


def load_key(
    entry: RingEntry, table: Mapping[str, Any], file: Path, *, ask: bool = True, held: bytes | None = None
) -> Key:
    """Ask a key's source for its material, and hold that against the entry's check value.

    Without ``ask`` the key has no material, which is enough to refuse its values. With ``held`` that is
    its material, and its source is not asked.
    """
    dates = {"created": entry.created, "destroyed": entry.destroyed}
    material = held or (_read_material(table, file, f"{file}: key {entry.id!r}") if ask else b"")
    return Key(entry.id, material, entry.state, suite=entry.suite, **dates)


def _require_index(table: Mapping[str, Any], where: str) -> None:
    _require_fields(table, _INDEX_FIELDS, {"source"}, where)
    require_key_id(table.get("id", "index"))
    _require_types(table, where)
    require_source(table["source"])


def _require_types(entry: Mapping[str, Any], where: str) -> None:
    for field in ("created", "destroyed"):
        if field in entry and not isinstance(entry[field], datetime):
            raise RingFileError(f"{where}: '{field}' is not a date with a time")
    if "check" in entry and not isinstance(entry["check"], str):
        raise RingFileError(f"{where}: 'check' is not a string")


def _read_material(entry: Mapping[str, Any], file: Path, where: str) -> bytes:
    try:
        raw = read_source(entry["source"], file.parent)
    except (FileLinkError, FilePermissionsError, SourceError) as error:
        raise type(error)(f"{where}: {error}", hint=error.hint) from None
    material = raw if entry.get("suite") == LEGACY else parse_material(raw, where)
    if material.startswith(TEST_MATERIAL_PREFIX):
        if os.environ.get(ALLOW_TEST_KEYS) != "1":
            raise TestKeysError(f"{where} is a public test key of keys.example")
    elif "inline" in entry["source"]:
        read_private(file)  # a ring with real material in it must be as private as a key file
    if "check" in entry and entry["check"] != check_value(material):
        raise CheckValueError(f"{where}: the material is not the one that 'check' was made from")
    return material
