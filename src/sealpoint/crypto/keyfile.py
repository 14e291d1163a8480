"""The ring file: TOML with ids, states, dates and check values, and where the material is.

See ``keys.example`` for a complete one. Every field that is not known is an error, and
so is everything that is wrong with the material, at load and not at first use.
"""

from __future__ import annotations

import os
import tomllib
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealpoint.crypto.keys import Key, KeyRing, KeyState, check_value
from sealpoint.crypto.sources import parse_material, read_private, read_source
from sealpoint.crypto.tag import LEGACY, require_key_id
from sealpoint.errors import (
    ActiveKeyError,
    CheckValueError,
    DuplicateKeyError,
    KeyFileFieldError,
    KeyFileMissingError,
    KeyFileSyntaxError,
    KeyFileVersionError,
    TestKeysError,
    excerpt,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
SYSTEM_PATH: Final = Path("/etc/sealpoint/keys.toml")
TEST_MATERIAL_PREFIX: Final = b"sealpoint PUBLIC TEST key "
ALLOW_TEST_KEYS: Final = "SEALPOINT_ALLOW_TEST_KEYS"

_RING_FIELDS: Final = frozenset({"version", "active", "key", "index"})
_KEY_FIELDS: Final = frozenset({"id", "state", "created", "destroyed", "check", "suite", "source"})
_INDEX_FIELDS: Final = frozenset({"id", "created", "check", "source"})


def find_ring_file(path: str | PathLike[str] | None = None) -> Path:
    """Return the ring file: the argument, else the first that is named by the environment or /etc.

    Raises:
        KeyFileMissingError: If none is named, or the named one is not there.
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
        raise KeyFileMissingError(f"no ring file at {found}")
    return found


def load_ring(path: str | PathLike[str] | None = None) -> KeyRing:
    """Read the ring file and the material of every key in it. See `KeyRing.load`."""
    file = find_ring_file(path)
    table = _parse(read_private(file, forbidden=0o022), file)
    _require_fields(table, _RING_FIELDS, {"version"}, str(file))
    if type(table["version"]) is not int or table["version"] != VERSION:
        raise KeyFileVersionError(f"{file} does not have version = {VERSION}")
    entries, indexes = (_tables(table, name, file) for name in ("key", "index"))
    _require_ids(entries, table.get("active"), file)
    if len(indexes) > 1:
        raise KeyFileFieldError(f"{file} has {len(indexes)} [[index]] entries; one is enough")
    keys = [_read_key(entry, file) for entry in entries]
    index = next((_read_index(entry, file) for entry in indexes), None)
    return KeyRing(keys, index=index)


def _parse(data: bytes, file: Path) -> dict[str, Any]:
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
    raise KeyFileSyntaxError(f"{file} {problem}")


def _tables(table: Mapping[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    entries = table.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise KeyFileSyntaxError(f"{file}: '{name}' is written as [[{name}]]")
    return entries


def _require_fields(table: Mapping[str, Any], known: frozenset[str], needed: set[str], where: str) -> None:
    for field in table:
        if field not in known:
            raise KeyFileFieldError(f"{where} has an unknown field {excerpt(field)}")
    for field in sorted(needed - table.keys()):
        raise KeyFileFieldError(f"{where} lacks the field '{field}'")


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


def _read_key(entry: Mapping[str, Any], file: Path) -> Key:
    where = f"{file}: key {entry['id']!r}"
    try:
        state = KeyState(entry["state"])
    except ValueError:
        known = ", ".join(state.value for state in KeyState)
        raise KeyFileFieldError(f"{where}: state {excerpt(entry['state'])} is none of {known}") from None
    _require_types(entry, where)
    dates = {"created": entry.get("created"), "destroyed": entry.get("destroyed")}
    suite = entry.get("suite")
    if suite not in (None, LEGACY):
        raise KeyFileFieldError(f"{where}: suite {excerpt(suite)} is not 'aes', the only one to be named")
    if state is KeyState.DESTROYED:
        _require_fields(entry, _KEY_FIELDS - {"source"}, set(), where)
        return Key(entry["id"], b"", state, suite=suite, **dates)
    _require_fields(entry, _KEY_FIELDS - {"destroyed"}, {"source"}, where)
    return Key(entry["id"], _read_material(entry, file, where), state, suite=suite, **dates)


def _read_index(entry: Mapping[str, Any], file: Path) -> bytes:
    where = f"{file}: [[index]]"
    _require_fields(entry, _INDEX_FIELDS, {"source"}, where)
    require_key_id(entry.get("id", "index"))
    _require_types(entry, where)
    return _read_material(entry, file, where)


def _require_types(entry: Mapping[str, Any], where: str) -> None:
    for field in ("created", "destroyed"):
        if field in entry and not isinstance(entry[field], datetime):
            raise KeyFileSyntaxError(f"{where}: '{field}' is not a date with a time")
    if "check" in entry and not isinstance(entry["check"], str):
        raise KeyFileSyntaxError(f"{where}: 'check' is not a string")


def _read_material(entry: Mapping[str, Any], file: Path, where: str) -> bytes:
    raw = read_source(entry["source"], file.parent)
    material = raw if entry.get("suite") == LEGACY else parse_material(raw, where)
    if material.startswith(TEST_MATERIAL_PREFIX):
        if os.environ.get(ALLOW_TEST_KEYS) != "1":
            raise TestKeysError(f"{where} is a public test key of keys.example")
    elif "inline" in entry["source"]:
        read_private(file)  # a ring with real material in it must be as private as a key file
    if "check" in entry and entry["check"] != check_value(material):
        raise CheckValueError(f"{where}: the material is not the one that 'check' was made from")
    return material
