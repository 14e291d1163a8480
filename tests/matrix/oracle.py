"""The oracle: what is so in a database and a ring, read with the parts of others alone.

Nothing here imports sealpoint. Databases are read with ``sqlite3`` and ``psycopg``, values are opened with
``cryptography`` from the definitions of the formats, and LangGraph's own with PyCryptodome.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import sqlite3
import tomllib
from base64 import b32decode, b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import ormsgpack
import psycopg
from Crypto.Cipher import AES as PYCRYPTODOME_AES
from cryptography.cobblestone import Cobblestone256Decryptor
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from fuzz.sqlitefile.format import FormatError
from fuzz.sqlitefile.gaps import slack_bytes

FRAME: Final = "__sealpoint__"
FIXED: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}
TOKEN: Final = re.compile("sp[0-9a-f]{32}")
OPENING: Final = frozenset({"staged", "active", "decrypt-only", "compromised"})
READABLE_TABLES: Final = frozenset({"cache", "store_vectors"})
SQLITE_TABLES: Final = frozenset({"checkpoints", "writes"})
POSTGRES_TABLES: Final = frozenset({"checkpoints", "checkpoint_blobs", "checkpoint_writes"})
_SECRETLESS_SUITES: Final = ("cobblestone256", "cobblestone256.row", "xaes256gcm", "xaes256gcm.row")


# --- rings --------------------------------------------------------------------------------------

# How each wrapper of the rings unwraps: they are coders, and not ciphers.
WRAPPERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "w": b64decode,
    "v": lambda blob: b32decode(blob.replace(b"\n", b"")),
}


@dataclass(frozen=True)
class RingKey:
    """A key of a ring file. ``material`` is ``None`` if it is not there, and ``by`` if no wrapper has it."""

    id: str
    state: str
    suite: str | None
    check: str | None
    material: bytes | None
    waived: tuple[str, ...]
    by: str | None

    @property
    def opens(self) -> bool:
        return self.state in OPENING and self.material is not None


@dataclass(frozen=True)
class Ring:
    """A ring file as TOML has it. ``lists`` says whether it lists databases."""

    keys: tuple[RingKey, ...] = ()
    lists: bool = False

    def get(self, key_id: str) -> RingKey:
        return next(key for key in self.keys if key.id == key_id)

    @property
    def active(self) -> str | None:
        return next((key.id for key in self.keys if key.state == "active"), None)

    @property
    def legacy(self) -> bytes | None:
        return next((key.material for key in self.keys if key.suite == "aes" and key.opens), None)

    def material(self, key_id: str) -> bytes | None:
        found = [key.material for key in self.keys if key.id == key_id and key.opens and key.suite is None]
        return found[0] if found else None

    @property
    def is_loadable(self) -> bool:
        """Whether each key that may open has its material, and that is the one of its check value."""
        needed = [key for key in self.keys if key.state in OPENING]
        return bool(needed) and all(
            key.material is not None and key.check in (None, check_value(key.material)) for key in needed
        )


def read_ring(file: Path) -> Ring:
    """Read a ring file and the key files beside it."""
    tree = tomllib.loads(file.read_text())
    keys = (_ring_key(key, file.parent, tree.get("name")) for key in tree.get("key", ()))
    return Ring(tuple(keys), "database" in tree)


def _ring_key(key: Mapping[str, Any], folder: Path, ring: str | None) -> RingKey:
    source, material = key.get("source", {}), None
    if source.get("wrapped"):
        pairs = json.loads(WRAPPERS[source["by"]](b64decode(source["wrapped"])))
        material = b64decode(pairs.pop("material"))
        assert pairs == {"sealpoint:key": key["id"], "sealpoint:ring": ring}
    elif "inline" in source:
        material = bytes.fromhex(source["inline"])
    elif "file" in source and (folder / source["file"]).exists():
        raw = (folder / source["file"]).read_bytes()
        material = raw if len(raw) == 32 else b64decode(raw, validate=False)
    suite, check, waived = key.get("suite"), key.get("check"), tuple(key.get("waived", ()))
    return RingKey(key["id"], key["state"], suite, check, material, waived, source.get("by"))


def _expand(key: bytes, info: str) -> bytes:
    """HKDF-Expand-SHA512 for 32 bytes."""
    return hmac.new(key, info.encode() + b"\x01", hashlib.sha512).digest()[:32]


def check_value(material: bytes) -> str:
    """The check value of a key."""
    return _expand(material, "sealpoint v1 check")[:4].hex()


# --- values -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A value as it stands in a row.

    ``row`` are the coordinates to which it may be bound, ``None`` if the row's key is not of text.
    ``document`` is the id that the value has if it is a checkpoint, ``number`` that of a write. ``fields``
    are readable beside an item of LangGraph's Store.
    """

    tag: Any
    blob: Any
    row: Mapping[str, str] | None
    document: Any = None
    has_document: bool = False
    in_metadata: bool = False
    number: int | None = None
    fields: Any = None

    @property
    def is_item(self) -> bool:
        return self.fields is not None

    @property
    def is_bound(self) -> bool:
        """Whether its tag says that it is bound to its row."""
        return self.is_sealed and ".row@" in str(self.tag)

    @property
    def is_sealed(self) -> bool:
        """Whether its tag says that it is sealed under a key of a ring."""
        return isinstance(self.tag, str) and "+" in self.tag and "@" in self.tag

    @property
    def is_sentinel(self) -> bool:
        """Whether it makes a bare saver fail, and is no value of the user."""
        return self.is_bound and self.row is not None and self.row.get("channel") == FRAME

    def is_under(self, key_id: str) -> bool:
        return self.is_sealed and str(self.tag).endswith(f"@{key_id}")


def open_value(value: Value, ring: Ring) -> tuple[str, bytes] | None:
    """Return the inner type and the bytes of a sealed value; ``None`` if it does not open."""
    if not isinstance(value.tag, str) or not isinstance(value.blob, bytes) or value.tag.count("+") != 1:
        return None
    inner, _, rest = value.tag.partition("+")
    if rest == "aes":
        return _open_legacy(inner, value.blob, ring.legacy)
    suite, _, key_id = rest.partition("@")
    material = ring.material(key_id)
    if material is None or suite not in _SECRETLESS_SUITES or not inner:
        return None
    row = value.row if suite.endswith(".row") else {}
    if row is None:
        return None
    key, bound = _expand(material, f"sealpoint v1 {suite.partition('.')[0]}"), _context(value.tag, row)
    try:
        if suite.startswith("xaes256gcm"):
            blob = value.blob
            return inner, AESGCM(_xaes_key(key, blob[:24])).decrypt(blob[12:24], blob[24:], bound)
        message = Cobblestone256Decryptor(key, bound)
        return inner, message.update(value.blob) + message.finalize()
    except (InvalidTag, ValueError):
        return None


def split(value: Value, data: bytes) -> tuple[Any, bytes]:
    """Return what is sealed in front of the bytes of a bound value, and those; ``None`` if there is nothing.

    Of a checkpoint that is its header, of a write its number and its path. A call that follows is left out.
    """
    if not value.is_bound or not (value.has_document or value.is_item or value.number is not None):
        return None, data
    start = 0 if value.has_document or value.is_item else 4
    length = int.from_bytes(data[start : start + 4], "big")
    end = start + 4 + (length & 0x7FFFFFFF)
    text = data[start + 4 : end].decode()
    if value.has_document or value.is_item:
        header = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
        return {
            name: _meant(part) if name in ("metadata", "inline") else part for name, part in header.items()
        }, data[end:]
    if length >> 31:
        end += 14 + 5 * int.from_bytes(data[end + 12 : end + 14], "big")
    return (int.from_bytes(data[:4], "big", signed=True), text), data[end:]


def _context(tag: str, row: Mapping[str, str]) -> bytes:
    texts = [tag, *(text for name in sorted(row) for text in (name, row[name]))]
    return b"sealpoint\x00\x01" + b"".join(
        len(text.encode()).to_bytes(4, "big") + text.encode() for text in texts
    )


def _xaes_key(key: bytes, nonce: bytes) -> bytes:
    parts = []
    for number in (1, 2):
        mac = CMAC(AES(key))
        mac.update(bytes([0, number]) + b"X\0" + nonce[:12])
        parts.append(mac.finalize())
    return b"".join(parts)


def _open_legacy(inner: str, blob: bytes, key: bytes | None) -> tuple[str, bytes] | None:
    for mode in (PYCRYPTODOME_AES.MODE_EAX, PYCRYPTODOME_AES.MODE_GCM):
        try:
            if key is not None:
                cipher: Any = PYCRYPTODOME_AES.new(key, mode, nonce=blob[:16])
                return inner, bytes(cipher.decrypt_and_verify(blob[32:], blob[16:32]))
        except ValueError:
            continue
    return None


def document_id(inner: str, data: bytes) -> Any:
    """Return the id that stands in the bytes of a checkpoint; ``None`` if they are none."""
    try:
        found = _unpack(data) if inner == "msgpack" else json.loads(data)
    except ValueError:
        return None
    return found.get("id") if isinstance(found, dict) else None


def _unpack(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=lambda *_: None, option=ormsgpack.OPT_NON_STR_KEYS)


# --- databases ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """A row of ``checkpoints``, without its value."""

    key: tuple[Any, ...]
    parent: Any
    metadata: Any

    @property
    def reads(self) -> bool:
        """Whether its columns hold what a saver writes there."""
        ids = all(type(part) is str for part in self.key) and self.key[-1] != ""
        return ids and (self.parent is None or type(self.parent) is str) and self.fields is not None

    @property
    def fields(self) -> dict[str, Any] | None:
        """Its metadata, if that is an object in strict JSON."""
        if self.metadata is None:
            return {}
        if isinstance(self.metadata, dict):  # of Postgres
            return self.metadata
        if not isinstance(self.metadata, str | bytes):
            return None
        try:
            found = json.loads(
                self.metadata, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique
            )
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _meant(part: Any) -> Any:
    """What stands for itself, or in an array for what strict JSON lacks."""
    if isinstance(part, dict):
        return {name: _meant(each) for name, each in part.items()}
    if not isinstance(part, list):
        return part
    mark, *rest = part
    if mark == 0:
        return [_meant(each) for each in rest]
    if mark == "n":
        return float(rest[0])
    if mark == "u":
        return bytes.fromhex(rest[0]).decode("utf-16-be", "surrogatepass")
    return {_meant(name): _meant(each) for name, each in rest}


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse("a key twice")


@dataclass(frozen=True)
class Facts:
    """What is so in one database.

    Attributes:
        values: All values, those in metadata too.
        records: The rows of ``checkpoints``.
        missing: Tables that each saver makes, and that are not there.
        tables: All tables.
        keys_read: Whether the keys of all rows hold what a saver writes there.
        inline: How many readable values stand in JSON beside the sealed ones.
        blobs: The keys of the values of channels on Postgres.
        versions: The readable versions of channels on Postgres, by the key of the checkpoint.
        raw: All bytes of the file and its log; empty for Postgres.
        free_bytes: Bytes of free pages, of the log and of the journal, and what is left in unused space.
        broken: Whether the database cannot be read to its end.
    """

    values: list[Value] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    missing: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    keys_read: bool = True
    inline: int = 0
    blobs: frozenset[tuple[str, ...]] = frozenset()
    versions: Mapping[tuple[Any, ...], Any] = field(default_factory=dict)
    raw: bytes = b""
    free_bytes: int = 0
    broken: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it has values, and all tables that each saver makes."""
        return bool(self.values) and not self.missing and not self.broken

    def all_under(self, key_id: str | None) -> bool:
        """Whether each value is under a key, by its tag."""
        return key_id is not None and all(value.is_under(key_id) for value in self.values)

    def any_under(self, key_id: str) -> bool:
        return any(value.is_under(key_id) for value in self.values)

    @property
    def all_sealed(self) -> bool:
        """Whether each value is under a key of a ring, by its tag."""
        return all(value.is_sealed for value in self.values)

    def all_open(self, ring: Ring, *, plain: bool = False) -> bool:
        """Whether each value opens, or with ``plain`` is not sealed."""
        return all(
            open_value(value, ring) is not None or (plain and is_plain(value)) for value in self.values
        )

    def documents_fit(self, ring: Ring, *, plain: bool = False) -> bool:
        """Whether each checkpoint that opens, or with ``plain`` is not sealed, has the id of its row."""
        for value in filter(lambda one: one.has_document, self.values):
            typed = (value.tag, value.blob) if plain and is_plain(value) else open_value(value, ring)
            if typed is None or document_id(typed[0], split(value, typed[1])[1]) != value.document:
                return False
        return True

    @property
    def is_mixed(self) -> bool:
        """Whether some values are bound to their rows, and others, or checkpoints on Postgres, are not."""
        return any(self._bound) and not all(self._bound)

    @property
    def all_bound(self) -> bool:
        """Whether all values, and checkpoints on Postgres, are bound to their rows."""
        return all(self._bound)

    @property
    def _bound(self) -> list[bool]:
        values = [value.is_bound for value in self.values]
        return values + [FRAME in (record.fields or {}) for record in self.records if self.versions]

    def bound_fit(self, ring: Ring) -> bool:
        """Whether what is sealed with each bound value that opens is what stands in its row and beside it."""
        records = {record.key: record for record in self.records}
        places = list[tuple[Any, ...]]()
        for value in self.values:
            typed = open_value(value, ring)
            front = None if typed is None else split(value, typed[1])[0]
            if typed is None or front is None or value.row is None:
                continue
            if value.is_item:
                item = _unpack(split(value, typed[1])[1])
                if front or any(name not in item or item[name] != one for name, one in value.fields.items()):
                    return False
                continue
            key = tuple(value.row[name] for name in _KEY)
            if value.has_document:
                if not self._header_fits(front, records[key], split(value, typed[1])[1]):
                    return False
                continue
            places.append((*key, value.row["task_id"], front[0]))
            if FIXED.get(value.row["channel"], max(front[0], 0)) != front[0]:
                return False
        return len(set(places)) == len(places)

    def restored(self, ring: Ring) -> list[Record]:
        """The rows of ``checkpoints`` as a bare saver has them."""
        headers = {
            tuple(value.row[name] for name in _KEY): split(value, typed[1])[0]
            for value in self.values
            if value.has_document and value.row and (typed := open_value(value, ring))
        }
        return [_restored(record, headers.get(record.key)) for record in self.records]

    def _header_fits(self, header: Any, record: Record, document: bytes) -> bool:
        fields = {key: value for key, value in (record.fields or {}).items() if key != FRAME}
        same = all(header["metadata"].get(key, value) == value for key, value in fields.items())
        if not same or record.parent not in (None, header["parent"]):
            return False
        if "channels" not in header:
            return True
        versions = _unpack(document)["channel_versions"] | {FRAME: "0"}
        needed = [FRAME, *(name for name in header["channels"] if name not in header["inline"])]
        readable = self.versions[record.key]
        return all(
            readable.get(name) == versions[name] and (*record.key[:2], name, versions[name]) in self.blobs
            for name in needed
        )

    @property
    def rows_read(self) -> bool:
        """Whether a saver reads each row, its value apart."""
        return self.keys_read and all(record.reads for record in self.records)

    @cached_property
    def parents_present(self) -> bool:
        keys = {record.key for record in self.records}
        return all(
            record.parent is None or (*record.key[:-1], record.parent) in keys for record in self.records
        )

    @property
    def readable_tables(self) -> set[str]:
        return {name for name in self.tables if name.lower() in READABLE_TABLES}

    @property
    def has_addresses(self) -> bool:
        """Whether the name of a thread, a namespace or an item has the sign of an e-mail address."""
        names = [part for record in self.records for part in record.key]
        names += [part for value in self.values if value.is_item for part in (value.row or {}).values()]
        return any("@" in str(part) for part in names)

    def has_metadata(self, known: Iterable[str]) -> bool:
        """Whether a row has metadata under other keys than these, or some that is not strict JSON."""
        allowed = {*known, *([FRAME] if self.versions else [])}  # no saver seals metadata in SQLite
        return any(
            record.fields is None
            or [key for key in record.fields if key not in allowed and not TOKEN.fullmatch(key)]
            for record in self.records
        )

    def holds(self, *texts: bytes) -> bool:
        """Whether one of these bytes stand anywhere in the file or its log."""
        return any(text in self.raw for text in texts)


def _restored(record: Record, header: Any) -> Record:
    if header is None:
        return record
    thread_id, *rest = record.key
    metadata = header["metadata"]
    if not isinstance(record.metadata, dict):
        metadata = json.dumps(metadata, ensure_ascii=False).encode()
    parent = record.parent and header["parent"]
    return Record((header.get("thread", thread_id), *rest), parent, metadata)


def is_plain(value: Value) -> bool:
    return isinstance(value.tag, str) and "+" not in value.tag and isinstance(value.blob, bytes)


def _frame_of(record: Record, row: Mapping[str, str] | None) -> Iterator[Value]:
    fields = record.fields
    if fields is None or FRAME not in fields:
        return
    frame = fields[FRAME]
    try:
        blob = b64decode(frame["value"], validate=True)
        yield Value(frame["type"], blob, row, record.key[-1], has_document=True, in_metadata=True)
    except (KeyError, TypeError, ValueError):
        yield Value(None, None, row, in_metadata=True)


def _row(columns: Mapping[str, Any], **kind: str) -> dict[str, str] | None:
    return {**kind, **columns} if all(type(part) is str for part in columns.values()) else None


_KEY: Final = ("thread_id", "checkpoint_ns", "checkpoint_id")
_WRITE: Final = (*_KEY, "task_id", "channel")


def read_sqlite(path: Path) -> Facts:
    """Read a SQLite file with nothing but ``sqlite3``."""
    raw = b"".join(file.read_bytes() for file in _files(path))
    free = sum(file.stat().st_size for file in _files(path)[1:])
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.text_factory = _text
            tables = frozenset(
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            )
            free += _pragma(connection, "freelist_count") * _pragma(connection, "page_size")
            free += _slack(path)
            records, values = _checkpoints(connection) if "checkpoints" in tables else ([], [])
            writes = _writes(connection) if "writes" in tables else []
            writes += _items(connection) if _is_store(connection) else []
    except sqlite3.Error:
        return Facts(raw=raw, broken=True)
    keys_read = all(value.row is not None for value in [*values, *writes])
    return Facts(
        [*values, *writes],
        records,
        SQLITE_TABLES - tables if SQLITE_TABLES & tables else frozenset(),
        tables,
        keys_read=keys_read,
        raw=raw,
        free_bytes=free,
    )


def _files(path: Path) -> list[Path]:
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")]
    return [file for file in files if file.exists()]


def _slack(path: Path) -> int:
    """Return what is left in unused space; 1 if that is not shown."""
    try:
        return slack_bytes(path)
    except FormatError:
        return 1


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _checkpoints(connection: sqlite3.Connection) -> tuple[list[Record], list[Value]]:
    records, values = [], []
    columns = f"{', '.join(_KEY)}, parent_checkpoint_id, metadata, type, checkpoint"
    for *key, parent, metadata, tag, blob in connection.execute(f"SELECT {columns} FROM checkpoints"):
        names = dict(zip(_KEY, key, strict=True))
        record = Record(tuple(key), parent, metadata)
        records.append(record)
        row = _row(names, table="checkpoints", column="checkpoint")
        values.append(Value(tag, blob, row, names["checkpoint_id"], has_document=True))
    return records, values


def _writes(connection: sqlite3.Connection) -> list[Value]:
    found = []
    for *key, number, tag, blob in connection.execute(
        f"SELECT {', '.join(_WRITE)}, idx, type, value FROM writes"
    ):
        row = _row(dict(zip(_WRITE, key, strict=True)), table="writes") if type(number) is int else None
        found.append(Value(tag, blob, row, number=number))
    return found


def _is_store(connection: sqlite3.Connection) -> bool:
    found = {row[1] for row in connection.execute("PRAGMA table_info(store)")}
    return {"prefix", "key", "value"} <= found


def _items(connection: sqlite3.Connection) -> list[Value]:
    found = []
    for prefix, key, stored in connection.execute("SELECT prefix, key, value FROM store"):
        row = _row({"prefix": prefix, "key": key}, table="store")
        try:
            fields = json.loads(stored, parse_constant=_refuse, object_pairs_hook=_unique)
            frame = fields.pop(FRAME, None)
            if frame is None:
                tag, blob = "json", stored if isinstance(stored, bytes) else stored.encode()
            else:
                tag, blob = frame["type"], b64decode(frame["value"], validate=True)
        except (ValueError, TypeError, KeyError, AttributeError):
            tag, blob, fields = None, None, {}
        found.append(Value(tag, blob, row, fields=fields))
    return found


def plain_item(inner: str, data: bytes) -> str:
    """An item, opened, as text that is the same for the same value."""
    return json.dumps(_unpack(data) if inner == "msgpack" else json.loads(data), sort_keys=True)


def read_postgres(url: str) -> Facts:
    """Read the tables of a schema of Postgres with nothing but ``psycopg``."""
    with psycopg.connect(url) as connection:
        tables = frozenset(
            str(name)
            for (name,) in connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            )
        )

        def rows(table: str, columns: str) -> list[tuple[Any, ...]]:
            query = f"SELECT {columns} FROM {table} ORDER BY 1, 2, 3, 4, 5, 6".encode()
            return connection.execute(query).fetchall() if table in tables else []

        checkpoints = rows("checkpoints", f"{', '.join(_KEY)}, parent_checkpoint_id, metadata, checkpoint")
        blobs = rows("checkpoint_blobs", "thread_id, checkpoint_ns, channel, version, type, blob")
        writes = rows("checkpoint_writes", f"{', '.join(_WRITE)}, idx, type, blob")
    records = [Record(tuple(key), parent, metadata) for *key, parent, metadata, _ in checkpoints]
    values = [Value(row[-2], row[-1], _blob_row(row[:4])) for row in blobs if row[-2:] != ("empty", None)]
    values += [
        Value(row[-2], row[-1], _row(dict(zip(_WRITE, row[:5], strict=True)), table="writes"), number=row[5])
        for row in writes
    ]
    for record in records:
        names = dict(zip(_KEY, record.key, strict=True))
        values += _frame_of(record, _row(names, table="checkpoints", column="metadata"))
    inline = sum(
        value is not None
        and not (FRAME in (metadata if isinstance(metadata, dict) else {}) and value in ("", True))
        for *_, metadata, checkpoint in checkpoints
        for value in (checkpoint.get("channel_values") or {}).values()
    )
    return Facts(
        values,
        records,
        POSTGRES_TABLES - tables,
        tables,
        inline=inline,
        blobs=frozenset(row[:4] for row in blobs if row[4] != "empty"),
        versions={tuple(row[:3]): row[-1].get("channel_versions") or {} for row in checkpoints},
    )


def _blob_row(key: tuple[Any, ...]) -> dict[str, str] | None:
    names = ("thread_id", "checkpoint_ns", "channel", "version")
    return _row(dict(zip(names, key, strict=True)), table="values")
