"""What a database file holds, read from its pages alone: neither sqlite3 nor sealpoint is asked.

`read` gives the rows of ``checkpoints``, ``writes`` and ``store`` where the bytes leave no choice: every
b-tree that the schema names is a tree, no page belongs to two of them, cells and overflow chains are where
and as long as they say, row ids rise. Everything else is `UndefinedError`: readers may differ, so no
answer about such a file can be compared with one here.

What acts on a table (triggers, checks, further indexes) does not change what it holds, and is passed
over. It takes away `Content.is_sound`: after a write to such a file, more may be missing.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from fuzz.sqlitefile import wal
from fuzz.sqlitefile.format import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    INTERIOR,
    MAGIC,
    SCHEMA_ROOT,
    TABLE_INTERIOR,
    TABLE_LEAF,
    Cell,
    FormatError,
    SqliteFile,
    Value,
    decode_record,
)

MAX_DEPTH: Final = 19
"""SQLite refuses deeper b-trees."""

_CHECKPOINTS: Final = """CREATE TABLE checkpoints (thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT,
    type TEXT, checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))"""
_WRITES: Final = """CREATE TABLE writes (thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
    {} idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB {},
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))"""
_STORE: Final = """CREATE TABLE store (prefix TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    expires_at TIMESTAMP, ttl_minutes REAL, PRIMARY KEY (prefix, key))"""
_TASK_PATH: Final = "task_path TEXT NOT NULL DEFAULT ''"
_COLUMNS: Final = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata",
    "writes": "thread_id checkpoint_ns checkpoint_id task_id task_path idx channel type value",
    "store": "prefix key value created_at updated_at expires_at ttl_minutes",
}
_OLDER_WRITES: Final = _COLUMNS["writes"].replace("task_path ", "")
KEYS: Final = {
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id"),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"),
    "store": ("prefix", "key"),
}
"""The primary keys."""
VALUES: Final = {"checkpoints": "checkpoint", "writes": "value"}
"""The columns with the values, whose tags stand in ``type``. Items of ``store`` have both in JSON."""


def _plain(sql: str) -> str:
    return re.sub(r"\s+|(?<=[(,])|(?=[),])", "", sql).lower()


_TABLES: Final = {
    _plain(_CHECKPOINTS): ("checkpoints", _COLUMNS["checkpoints"].split()),
    _plain(_WRITES.format(f"{_TASK_PATH},", "")): ("writes", _COLUMNS["writes"].split()),
    _plain(_WRITES.format("", "")): ("writes", _OLDER_WRITES.split()),
    # ALTER TABLE puts the column after the primary key
    _plain(_WRITES.format("", "")[:-1] + f", {_TASK_PATH})"): (
        "writes",
        [*_OLDER_WRITES.split(), "task_path"],
    ),
    _plain(_STORE): ("store", _COLUMNS["store"].split()),
}
_TAKES_A_NAME: Final = re.compile(
    r"create\s+(virtual\s+)?(table|view)\s+(if\s+not\s+exists\s+)?(main\s*\.\s*)?\W?(checkpoints|writes|store)\b",
    re.IGNORECASE,
)


class UndefinedError(Exception):
    """The bytes do not say what the tables hold.

    Attributes:
        cut: Whether the header counts more pages than there are.
    """

    def __init__(self, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.cut = cut


class Row(NamedTuple):
    """A row: its table, its row id, and its columns by name."""

    table: str
    row_id: int
    columns: dict[str, Value]

    @property
    def label(self) -> str:
        """What commands call the column of the value."""
        return "store.value" if self.table == "store" else self.table

    @property
    def tag(self) -> Value:
        """The type of the value."""
        return item_of(self.columns.get("value"))[0] if self.table == "store" else self.columns.get("type")

    @property
    def value(self) -> Value:
        """The value."""
        if self.table == "store":
            return item_of(self.columns.get("value"))[1]
        return self.columns.get(VALUES[self.table])

    @property
    def key(self) -> tuple[Value, ...]:
        """The primary key."""
        return tuple(self.columns.get(name) for name in KEYS[self.table])


def item_of(stored: Value) -> tuple[str | None, bytes | None]:
    """Return the type and the value of an item: those of its frame, or ``json`` and all of it."""
    try:
        data = stored.encode() if isinstance(stored, str) else stored
        if not isinstance(data, bytes):
            return None, None
        found = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        if "__sealpoint__" not in found:
            return ("json", data) if isinstance(found, dict) else (None, None)
        frame = found["__sealpoint__"]
        if frame.keys() != {"type", "value"} or not 0 < frame["type"].find("+") < len(frame["type"]) <= 64:
            return None, None
        return frame["type"], b64decode(frame["value"], validate=True)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None, None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise ValueError(name)


Bound = tuple[int | None, int | None]
"""Row ids of a page are above the first, and at most the second."""

Finding = tuple[str, Value, str]
"""Table, tag, and digest of the value."""


@dataclass(slots=True)
class Content:
    """What a file holds.

    Attributes:
        rows: Of all tables, in the order of their row ids.
        is_sound: Whether pages, free pages and the indexes of primary keys are what they should be,
            too, and nothing else hangs on the tables but, perhaps, triggers.
    """

    rows: list[Row] = field(default_factory=list)
    is_sound: bool = True

    def multiset(self) -> Counter[Finding]:
        """Count rows by table, tag and digest."""
        return Counter((row.label, row.tag, digest(row.value)) for row in self.rows)


def digest(value: Value) -> str:
    """Return the SHA-256 of a value: of its bytes, or of what else it is."""
    data = value if isinstance(value, bytes) else f"{type(value).__name__}: {value!r}".encode()
    return hashlib.sha256(data).hexdigest()


def read(data: bytes, log: bytes = b"") -> Content:
    """Return what a file holds, with its write-ahead log applied.

    Raises:
        UndefinedError: If the bytes do not say.
    """
    try:
        return _Reader(_with_log(data, log)).read()
    except FormatError as error:
        raise UndefinedError(str(error)) from None


def _with_log(data: bytes, log: bytes) -> SqliteFile:
    pages, count = wal.committed(log)
    if pages and len(data) % len(next(iter(pages.values()))):
        raise UndefinedError("the file does not end with a page of the log's size")
    size = int.from_bytes(data[16:18], "big")
    if pages and {len(page) for page in pages.values()} != {65536 if size == 1 else size}:
        raise UndefinedError("the log has another page size")
    file = SqliteFile(data)
    if not pages:
        if len(data) % file.page_bytes:
            raise UndefinedError("the file ends within a page")
        return file
    for number in range(len(file.pages) + 1, count + 1):
        if number not in pages:
            raise UndefinedError(f"page {number} is neither in the file nor in its log", cut=True)
        file.pages.append(bytearray())
    del file.pages[count:]
    for number, content in pages.items():
        file.pages[number - 1] = bytearray(content)
    return file


class _Reader:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._owners: dict[int, str] = {}
        self._sound = True

    def read(self) -> Content:
        self._require_header()
        tables: dict[str, tuple[int, list[str]]] = {}
        indexes: dict[str, int] = {}
        trees: list[int] = []
        for name, sql, root in self._schema():
            found = _TABLES.get(_plain(sql)) if sql is not None else None
            if found is not None:
                if found[0] in tables:
                    raise UndefinedError("a table stands in the schema twice")
                tables[found[0]] = root, found[1]
            elif sql is not None and _TAKES_A_NAME.match(sql):
                raise UndefinedError("a table has other columns")
            elif root:
                trees.append(root)
                indexes[name] = root
            if found is None and sql is not None and re.match(r"create\s+(unique\s+)?index", sql, re.I):
                self._sound = False
        rows = [row for table in sorted(tables) for row in self._rows(table, *tables[table])]
        for root in trees:
            self._sound = self._is_covered(root) and self._sound
        self._sound = self._sound and self._pages_are_in_order() and self._keys_agree(rows, tables, indexes)
        return Content(rows, self._sound)

    def _require_header(self) -> None:
        file = self._file
        if bytes(file.pages[0][:16]) != MAGIC or bytes(file.pages[0][21:24]) != b"\x40\x20\x20":
            raise UndefinedError("no header of a database")
        if int.from_bytes(file.pages[0][16:18], "big") != file.page_bytes & 0xFFFE | file.page_bytes >> 16:
            raise UndefinedError("page 1 of the log has another page size")
        if file.get_field("read version") not in (1, 2) or not 1 <= file.get_field("schema format") <= 4:
            raise UndefinedError("a version that no reader knows")
        if file.get_field("text encoding") != 1:
            raise UndefinedError("texts are not UTF-8")
        if file.usable_bytes < 480:
            raise UndefinedError("pages have too little room")
        counted = file.get_field("change counter") == file.get_field("version valid for") and file.get_field(
            "page count"
        )
        if counted and counted > len(file.pages):
            raise UndefinedError("the header counts more pages than there are", cut=True)
        if counted:
            del file.pages[counted:]
        self._sound = not (file.get_field("largest root") or file.get_field("incremental vacuum"))
        self._sound = self._sound and file.get_field("write version") in (1, 2)

    def _schema(self) -> Iterator[tuple[str, str | None, int]]:
        """Yield name, SQL and root page of each row of the schema; SQLite asks no other column."""
        for _, payload in self._table(SCHEMA_ROOT, "schema"):
            values = decode_record(payload)
            if len(values) != 5:
                raise UndefinedError("a row of the schema has not five columns")
            _, name, _, root, sql = values
            if not isinstance(root, int | None):
                raise UndefinedError("a root page that is no number")
            if isinstance(sql, bytes):
                sql = sql.decode("utf-8", "surrogateescape")
            if not isinstance(sql, str | None) or (sql is not None and not re.match("create", sql, re.I)):
                raise UndefinedError("a row of the schema holds no statement")
            if sql is not None and "\0" in sql:
                raise UndefinedError("a statement with a NUL")
            yield str(name), sql, root or 0

    # --- b-trees

    def _rows(self, table: str, root: int, columns: list[str]) -> Iterator[Row]:
        for row_id, payload in self._table(root, table):
            values = decode_record(payload)
            values += [None] * (len(columns) - len(values))
            yield Row(table, row_id, dict(zip(columns, values, strict=False)))

    def _table(self, root: int, owner: str) -> Iterator[tuple[int, bytes]]:
        """Yield row ids and payloads; row ids rise, and stay within what interior pages say of them."""
        last: int | None = None
        for bound, cell in self._leaf_cells(root, owner):
            if last is not None and cell.row_id <= last:
                raise UndefinedError("row ids do not rise")
            if not (bound[0] is None or cell.row_id > bound[0]) or not (
                bound[1] is None or cell.row_id <= bound[1]
            ):
                raise UndefinedError("a row id is not where its parent leads")
            last = cell.row_id
            yield cell.row_id, self._payload(cell, owner)

    def _leaf_cells(self, root: int, owner: str) -> Iterator[tuple[Bound, Cell]]:
        ahead: list[tuple[int, int, Bound]] = [(root, 0, (None, None))]
        while ahead:
            number, depth, bound = ahead.pop()
            kind, cells = self._node(number, depth, owner, (TABLE_INTERIOR, TABLE_LEAF))
            if kind == TABLE_LEAF:
                yield from ((bound, cell) for cell in cells)
                continue
            low = bound[0]
            children: list[tuple[int, int, Bound]] = []
            for cell in cells:
                children.append((cell.child, depth + 1, (low, cell.row_id)))
                low = cell.row_id
            children.append((self._file.right_child(number), depth + 1, (low, bound[1])))
            ahead += reversed(children)

    def _node(self, number: int, depth: int, owner: str, kinds: tuple[int, int]) -> tuple[int, list[Cell]]:
        """Return the cells of a page that belongs to one tree alone; they do not overlap."""
        self._claim(number, owner)
        kind = self._file.kind(number)
        if kind not in kinds or depth > MAX_DEPTH:
            raise UndefinedError("a page is of another kind of tree, or too deep")
        cells = list(self._file.cells(number))
        places = sorted((cell.start, cell.end) for cell in cells)
        if any(start < end for (_, end), (start, _) in pairwise(places)):
            raise UndefinedError("two cells overlap")
        if kind in INTERIOR and not cells and depth == 0:
            self._sound = False
        self._sound = self._sound and self._room_is_accounted_for(number, kind, places)
        return kind, cells

    def _room_is_accounted_for(self, number: int, kind: int, places: list[tuple[int, int]]) -> bool:
        """Whether cells, free blocks and fragments fill the content area and do not overlap."""
        page, at = self._file.page(number), self._file.header_at(number)
        start = int.from_bytes(page[at + 5 : at + 7], "big") or 65536
        if start > self._file.usable_bytes:
            return False
        places, block = list(places), int.from_bytes(page[at + 1 : at + 3], "big")
        while block:
            following, size = (int.from_bytes(page[block + by : block + by + 2], "big") for by in (0, 2))
            if size < 4 or block < start or (following and following < block + size):
                return False
            places.append((block, block + size))
            block = following
        fragments = page[at + 7]
        places.sort()
        overlap = any(begin < end for (_, end), (begin, _) in pairwise(places))
        used = sum(max(end - begin, 4) for begin, end in places)
        inside = all(start <= begin and end <= self._file.usable_bytes for begin, end in places)
        return inside and not overlap and used + fragments == self._file.usable_bytes - start

    def _payload(self, cell: Cell, owner: str) -> bytes:
        if cell.payload_size > self._file.page_bytes * len(self._file.pages):
            raise UndefinedError("a payload is larger than the file")
        for number in self._file.chain(cell):
            self._claim(number, f"overflow of {owner}")
        return self._file.payload(cell)

    def _claim(self, number: int, owner: str) -> None:
        if not 1 <= number <= len(self._file.pages):
            raise UndefinedError(f"{owner} leads to page {number}, which the file does not have")
        if number in self._owners:
            raise UndefinedError(f"page {number} belongs to {self._owners[number]} and to {owner}")
        self._owners[number] = owner

    def _is_covered(self, root: int) -> bool:
        """Whether the pages of another b-tree belong to it alone. It holds no value."""
        ahead = [(root, 0)]
        try:
            kinds = (INDEX_INTERIOR, INDEX_LEAF) if self._is_index(root) else (TABLE_INTERIOR, TABLE_LEAF)
            while ahead:
                number, depth = ahead.pop()
                kind, cells = self._node(number, depth, f"tree {root}", kinds)
                for cell in cells:
                    self._payload(cell, f"tree {root}")
                if kind in INTERIOR:
                    ahead += [(cell.child, depth + 1) for cell in cells]
                    ahead.append((self._file.right_child(number), depth + 1))
        except (FormatError, UndefinedError):
            return False
        return True

    def _is_index(self, root: int) -> bool:
        return self._file.kind(root) in (INDEX_INTERIOR, INDEX_LEAF)

    # --- what a write relies on

    def _pages_are_in_order(self) -> bool:
        """Whether the free list holds free pages alone, and each of the rest belongs to something."""
        file, number, free = self._file, self._file.get_field("first free page"), set[int]()
        while number:
            if not 2 <= number <= len(file.pages) or number in free or number in self._owners:
                return False
            free.add(number)
            page = file.page(number)
            count = int.from_bytes(page[4:8], "big")
            if count > file.usable_bytes // 4 - 2:
                return False
            leaves = {int.from_bytes(page[at : at + 4], "big") for at in range(8, 8 + 4 * count, 4)}
            if len(leaves) != count or leaves & (free | self._owners.keys()) or min(leaves, default=2) < 2:
                return False
            free |= leaves
            number = int.from_bytes(page[:4], "big")
        return len(free) == file.get_field("free pages") and max(free, default=0) <= len(file.pages)

    def _keys_agree(
        self, rows: list[Row], tables: dict[str, tuple[int, list[str]]], indexes: dict[str, int]
    ) -> bool:
        """Whether the index of each primary key has just the entries of its table, in order."""
        for table in tables:
            root = indexes.get(f"sqlite_autoindex_{table}_1")
            if root is None or not self._is_index(root):
                return False
            found = [decode_record(payload) for _, payload in self._file.entries(root)]
            wanted = [[*row.key, row.row_id] for row in rows if row.table == table]
            if any(not isinstance(part, str | int) for key in wanted for part in key):
                return False
            plain = [[_in_order(part) for part in key] for key in found]
            if plain != sorted([_in_order(part) for part in key] for key in wanted):
                return False
        return True


def _in_order(part: Value) -> tuple[int, bytes | int]:
    """Return what sorts as SQLite sorts: numbers before texts, texts by their bytes."""
    if isinstance(part, str):
        return 1, part.encode("utf-8", "surrogateescape")
    if isinstance(part, int):
        return 0, part
    return 2, repr(part).encode()
