"""B-trees that lead astray: by keys of their inner pages, by pages that belong to two, by their ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fuzz.sqlitefile import honest
from fuzz.sqlitefile.edits import root_of, schema
from fuzz.sqlitefile.format import TABLE_INTERIOR, SqliteFile, write_varint
from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.rows import Batch, pages
from sealpoint.admin.databases.sqlite import rows
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.crypto import RingCipher
from sealpoint.errors import DatabaseCorruptError

SHAPE = honest.Shape(512, ("k2",), 24)
ITEMS_ALONE = honest.Shape(512, ("k2",), 0, items=24)
SMALL = Batch(rows=4)


def root_page(file: SqliteFile) -> int:
    """The root of the table with values, which is an inner page."""
    root = root_of(file, "store" if has_items(file) else "checkpoints")
    assert file.kind(root) == TABLE_INTERIOR
    return root


def has_items(file: SqliteFile) -> bool:
    return any(row[1] == "store" for _, row in schema(file))


def children_of(file: SqliteFile, number: int) -> list[int]:
    """The pages below an inner page."""
    return [*(cell.child for cell in file.cells(number)), file.right_child(number)]


def write_inner(file: SqliteFile, number: int, children: list[int], keys: list[int]) -> None:
    """Write an inner page."""
    cells = [
        child.to_bytes(4, "big") + write_varint(key) for child, key in zip(children[:-1], keys, strict=True)
    ]
    file.write_node(number, TABLE_INTERIOR, cells, children[-1])


def keys_of(file: SqliteFile, number: int) -> list[int]:
    """The keys of an inner page."""
    return [cell.row_id for cell in file.cells(number)]


def lower_keys(file: SqliteFile) -> None:
    """A walk from row to row meets all rows in order; a search for most of them goes to the next page."""
    root = root_page(file)
    write_inner(file, root, children_of(file, root), [key - 1 for key in keys_of(file, root)])


def doubled(file: SqliteFile) -> None:
    """Rows stand on two pages: in each search the second is found."""
    root = root_page(file)
    children, keys = children_of(file, root), keys_of(file, root)
    write_inner(file, root, [children[0], *children], [0, *keys])


def swapped(file: SqliteFile) -> None:
    """Two pages below the root change places."""
    root = root_page(file)
    first, second, *rest = children_of(file, root)
    write_inner(file, root, [second, first, *rest], keys_of(file, root))


TREES = [lower_keys, doubled, swapped]


@pytest.fixture(params=TREES, ids=lambda forge: forge.__name__)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    forge: Callable[[SqliteFile], None] = request.param
    file = SqliteFile(honest.make(SHAPE).data)
    forge(file)
    path = tmp_path / "checkpoints.db"
    path.write_bytes(file.to_bytes())
    return path


@pytest.fixture(params=TREES, ids=lambda forge: forge.__name__)
def path_of_items(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    forge: Callable[[SqliteFile], None] = request.param
    file = SqliteFile(honest.make(ITEMS_ALONE).data)
    forge(file)
    path = tmp_path / "store.db"
    path.write_bytes(file.to_bytes())
    return path


READS: dict[str, Callable[[SqliteRows], object]] = {
    "verify": lambda store: list(verify(store, RingCipher(honest.ring()), batch=SMALL)),
    "rotate": lambda store: list(rotate(store, RingCipher(honest.ring("k1")), batch=SMALL)),
    "a second batch": lambda store: list(pages(store, CHECKPOINTS, batch=SMALL)),
    "metadata": lambda store: list(store.records()),
    "count": lambda store: store.count(),
}


@pytest.mark.claim("f6")
@pytest.mark.parametrize("read", READS)
def test_no_row_is_passed_by(path: Path, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one left under its old key, or counted twice."""
    monkeypatch.setattr(rows, "BATCH", SMALL)
    with closing(SqliteRows(path, writable=True)) as store, pytest.raises(DatabaseCorruptError):
        READS[read](store)


@pytest.mark.parametrize("read", ["verify", "rotate", "count"])
def test_no_item_is_passed_by(path_of_items: Path, read: str) -> None:
    with closing(SqliteRows(path_of_items, writable=True)) as store, pytest.raises(DatabaseCorruptError):
        READS[read](store)
    with closing(SqliteRows(path_of_items)) as store, pytest.raises(DatabaseCorruptError):
        list(pages(store, ITEMS, batch=SMALL))
