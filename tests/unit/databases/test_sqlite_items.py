"""The items of LangGraph's Store in a SQLite file: what is counted, read, replaced and refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.sqlite import SqliteStore

from sealpoint.admin.databases.cells import EVERYTHING, ITEMS, Cell, Opener, Selection, require_readable
from sealpoint.admin.databases.rows import Batch, Page, Replacement, TagCount, pages
from sealpoint.admin.databases.sqlite.rows import SqliteRows, SqliteWholeRows
from sealpoint.admin.maintenance.rebind import RebindOptions, Visible, rebind
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Event, Failure
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import RowError, SchemaError, SealpointError
from sealpoint.guards import files
from sealpoint.seal.items import ItemName
from sealpoint.seal.places import KEY, make_frame
from tests.support.databases.items import VALUE, items_of
from tests.support.databases.schemas import LOG, OLDER_STORE, REFUSED_STORES
from tests.support.databases.schemas import STORE as MAKE_STORE
from tests.support.databases.sealed import make_ring, write

SEALED = "msgpack+cobblestone256.row@{}"
NEW = RingCipher(KeyRing(make_ring("k2", "k1").keys, index=b"i" * 32))
OLD = RingCipher(KeyRing(make_ring("k1").keys, index=b"i" * 32))


# LangGraph's store has a time adapted by sqlite3.
pytestmark = pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")


def put(path: Path, *keys: str, cipher: RingCipher | None = OLD) -> None:
    """Let LangGraph's store write items of `VALUE`, sealed unless there is no cipher."""
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        for key in keys:
            name, value = ItemName(("users", "ada"), key), VALUE
            if cipher is not None:
                value = items_of(cipher, plain=("dose",), indexed=("user",)).seal(name, VALUE)
            store.put(*name, value, ttl=5)


def get(path: Path, key: str, cipher: RingCipher = NEW) -> dict[str, Any]:
    """What an agent gets of an item."""
    with SqliteStore.from_conn_string(str(path)) as store:
        found = store.get(("users", "ada"), key)
    assert found is not None
    _, value = items_of(cipher, plain=("dose",), indexed=("user",)).open(
        ItemName(("users", "ada"), key), found.value
    )
    return value


def change(path: Path, statement: str, *parameters: Any) -> int:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, parameters).rowcount


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def raw(path: Path) -> list[tuple[Any, ...]]:
    """The rows of the table, with the storage class of each value."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        found = connection.execute("SELECT *, typeof(value), typeof(key) FROM store ORDER BY prefix, key")
        return found.fetchall()


def failures_of(events: Iterable[Event]) -> list[str]:
    """The keys of the items that were refused."""
    return [event.place["key"] for event in events if isinstance(event, Failure)]


def cells(path: Path, selection: Selection = EVERYTHING, rows: int = 2) -> list[Cell]:
    batch = Batch(rows)
    with closing(SqliteRows(path)) as store:
        return [cell for page in pages(store, ITEMS, selection, batch) for cell in page.cells]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a store and no saver: items under two keys, and one that is not sealed."""
    path = tmp_path / "store.db"
    put(path, "a", "b", "c")
    put(path, "d", cipher=NEW)
    put(path, "e", cipher=None)
    return path


# --- which files, and which tables ----------------------------------------------------------------


def test_a_file_with_a_store_and_no_saver_is_read(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        assert store.columns == (ITEMS,)
        assert store.missing_tables == ()
        assert {table.name: table.is_read for table in store.tables()} == {
            "store": True, "store_migrations": False
        }  # fmt: skip
        assert list(store.records()) == []
        assert [*store.key_texts()] == [("prefix", "users.ada"), *(("key", key) for key in "abcde")]
        assert [*store.key_texts("prefix")] == [("prefix", "users.ada")]


def test_items_are_the_last_column_of_a_file_with_both(path: Path) -> None:
    write(path, "k2", "thread")
    with closing(SqliteRows(path)) as store, closing(SqliteWholeRows(path)) as whole:
        assert [column.table for column in store.columns] == ["checkpoints", "writes", "store"]
        assert [column.table for column in whole.columns] == ["writes", "checkpoints", "store"]
        assert store.missing_tables == ()


@pytest.mark.parametrize(
    ("table", "missing"), [("writes", ("writes",)), ("checkpoints", ("checkpoints",)), ("store", ())]
)
def test_a_table_that_was_dropped_is_missing(path: Path, table: str, missing: tuple[str, ...]) -> None:
    write(path, "k2", "thread")
    change(path, f"DROP TABLE {table}")
    with closing(SqliteRows(path)) as store:
        assert store.missing_tables == missing


def test_a_file_with_neither_is_refused_by_the_names_of_all(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    change(path, LOG)
    with pytest.raises(SchemaError, match="none of the tables 'checkpoints', 'writes' and 'store'"):
        SqliteRows(path)


def test_migrations_alone_are_no_database_of_ours(path: Path) -> None:
    change(path, "DROP TABLE store")
    with pytest.raises(SchemaError, match="none of the tables"):
        SqliteRows(path)


@pytest.mark.parametrize("statements", REFUSED_STORES.values(), ids=REFUSED_STORES)
def test_maintenance_refuses_an_altered_table(tmp_path: Path, statements: list[str]) -> None:
    """Also beside the tables of a saver. What lacks the columns of a store is another program's."""
    path = tmp_path / "x.db"
    write(path, "k2", "thread")
    for statement in statements:
        change(path, statement)
    found = {name.lower() for (name,) in query(path, "SELECT name FROM pragma_table_xinfo('store')")}
    if {"prefix", "key", "value"} <= found:
        with pytest.raises(SchemaError):
            SqliteRows(path)
        return
    with closing(SqliteRows(path)) as store:
        assert ITEMS not in store.columns
        assert [table.name for table in store.tables() if table.is_read] == ["checkpoints", "writes"]


def test_an_older_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    change(path, OLDER_STORE)
    change(path, "INSERT INTO store (prefix, key, value) VALUES ('a', 'b', '{}')")
    assert [(cell.tag, cell.value) for cell in cells(path)] == [("json", b"{}")]


# --- reading --------------------------------------------------------------------------------------


def test_items_are_counted_by_tag_and_read(path: Path) -> None:
    found = cells(path)
    sizes = {cell.where.names["key"]: len(cell.value) for cell in found}
    with closing(SqliteRows(path)) as store:
        assert store.count() == [
            TagCount("store.value", "json", 1, sizes["e"]),
            TagCount("store.value", SEALED.format("k1"), 3, sizes["a"] * 3),
            TagCount("store.value", SEALED.format("k2"), 1, sizes["d"]),
        ]
    assert [cell.where.key for cell in found] == [("users.ada", key) for key in "abcde"]
    assert json.loads(found[-1].value) == VALUE
    opener = Opener(NEW)
    for cell in found[:-1]:
        assert cell.row == {"table": "store", "prefix": "users.ada", "key": cell.where.key[1]}
        assert opener.parts(cell).is_bound


def test_what_stands_beside_the_frame_is_read_where_it_is_compared(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        found = store.read(ITEMS.widened, None).cells
        assert "fields" not in store.read(ITEMS, None).cells[0].where.beside
    for cell in found[:-1]:
        fields = json.loads(cell.where.beside["fields"])
        assert fields.pop("dose") == 1.5
        ((token, one),) = fields.items()
        assert (token[:2], one) == ("sp", 1)
    assert json.loads(found[-1].where.beside["fields"]) == VALUE


SELECTIONS = {
    "all": EVERYTHING,
    "without the key": Selection(without_key="k1"),
    "with the key": Selection(with_key="k1"),
    "with the key, sealed": Selection(with_key="k1", plaintext=False, legacy=False),
    "sealed": Selection(plaintext=False),
    "bound": Selection(bound=True),
    "not bound": Selection(bound=False),
    "of a thread": Selection(thread_id="thread"),
}


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_selection_is_of_what_a_read_of_all_gives(path: Path, selection: Selection, rows: int) -> None:
    for value in HOSTILE.values():
        insert(path, value)
    wanted = [cell.where.key for cell in cells(path) if selection.takes(cell.tag)]
    if selection.thread_id is not None:
        wanted = []
    assert [cell.where.key for cell in cells(path, selection, rows)] == wanted


# --- what is no item ------------------------------------------------------------------------------

FRAME = make_frame(SEALED.format("k1"), b"sealed")
_FRAME = json.dumps(FRAME)
HOSTILE: dict[str, Any] = {
    "nothing": "",
    "no JSON": "{",
    "no JSON, as bytes": b"{",
    "no text": b"\xff\xfe",
    "a list": "[]",
    "a text": '"text"',
    "null": "null",
    "JSONB of SQLite": bytes([0x4C, 0x17, 0x61, 0x13, 0x31]),
    "JSON5": "{a: 1}",
    "a mark before it": b"\xef\xbb\xbf{}",
    "an integer": 7,
    "a float": 7.5,
    "a NUL": '{"a": "\0"}',
    "a NUL behind it": '{"a": 1}\0',
    "a key twice": '{"a": 1, "a": 2}',
    "a frame twice": f'{{"{KEY}": {_FRAME}, "{KEY}": 1}}',
    "a frame twice, behind an escape": f'{{"{KEY}": {_FRAME}, "\\u005f_sealpoint__": {{}}}}',
    "a type twice": f'{{"{KEY}": {{"type": "json", {_FRAME[1:]}}}',
    "NaN": '{"a": NaN}',
    "a number too large": '{"a": 1e999}',
    "a number too long": '{"a": ' + "1" * 5000 + "}",
    "minus zero": '{"a": -0}',
    "half a pair": '{"a": "\\ud800"}',
    "deep": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep without an end": '{"a":' * 100_000,
    "a frame of null": json.dumps({KEY: None}),
    "a frame of text": json.dumps({KEY: "text"}),
    "a frame without a value": json.dumps({KEY: {"type": FRAME["type"]}}),
    "a frame without a type": json.dumps({KEY: {"value": FRAME["value"]}}),
    "a frame with more": json.dumps({KEY: {**FRAME, "more": 1}}),
    "a frame that is not sealed": json.dumps({KEY: {**FRAME, "type": "json"}}),
    "a frame under LANGGRAPH_AES_KEY": json.dumps({KEY: {**FRAME, "type": "msgpack+aes"}}),
    "a type of a number": json.dumps({KEY: {**FRAME, "type": 1}}),
    "a type that is too long": json.dumps({KEY: {**FRAME, "type": "x" * 100 + "+cobblestone256.row@k1"}}),
    "no base64": json.dumps({KEY: {**FRAME, "value": "?"}}),
    "base64 with more bits": json.dumps({KEY: {**FRAME, "value": "AB=="}}),
}  # fmt: skip


def insert(path: Path, value: Any, key: Any = None) -> None:
    key = f"hostile {len(raw(path))}" if key is None else key
    change(path, "INSERT INTO store (prefix, key, value) VALUES ('users.ada', ?, ?)", key, value)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_item_is_one_refused_value(path: Path, value: Any) -> None:
    """It is counted, named by a verification, and left by a rotation; all others are rotated."""
    insert(path, value, "x")
    (found,) = [cell for cell in cells(path) if cell.where.names["key"] == "x"]
    assert found.tag is None
    with pytest.raises(SealpointError):
        require_readable(found)
    before = [row for row in raw(path) if row[1] in (b"x", b"e")]
    with closing(SqliteRows(path, writable=True)) as store:
        assert TagCount("store.value", None, 1, 0) in store.count()
        for allow in (False, True):
            assert failures_of(rotate(store, NEW, allow_plaintext=allow)) == (["x"] if allow else [])
        run = Verification(store, NEW, allow_plaintext=True)
        assert failures_of(run.events()) == ["x"]
        assert run.opened == {"k2": 4}
    assert [row for row in raw(path) if row[1] in (b"x", b"e")] == before


def test_text_that_is_not_unicode_is_one_refused_value(path: Path) -> None:
    change(
        path, "INSERT INTO store (prefix, key, value) VALUES ('users.ada', 'x', CAST(? AS TEXT))", b"{\xff}"
    )
    assert [cell.tag for cell in cells(path)] == [cell.tag for cell in cells(path)[:-1]] + [None]


@pytest.mark.parametrize("key", [b"a", 7, b"\xff"])
def test_a_key_of_another_type_is_refused(path: Path, key: Any) -> None:
    """The place of its value has no text. A number is text in this column."""
    change(path, "UPDATE store SET key = ? WHERE key = 'a'", key)
    with closing(SqliteRows(path, writable=True)) as store:
        assert len(failures_of(rotate(store, NEW))) == 1
    assert [row[1] for row in raw(path) if row[1] not in b"bcde"] == [key if key != 7 else b"7"]


def test_a_moved_item_and_an_unbound_frame_are_refused(path: Path) -> None:
    change(path, "UPDATE store SET value = (SELECT value FROM store WHERE key = 'b') WHERE key = 'a'")
    tag, blob = OLD.seal("msgpack", b"\x80")
    change(path, "UPDATE store SET value = ? WHERE key = 'b'", json.dumps({KEY: make_frame(tag, blob)}))
    with closing(SqliteRows(path)) as store:
        run = Verification(store, NEW, allow_plaintext=True)
        assert failures_of(run.events()) == ["a", "b"]


def test_an_item_over_the_size_limit_ends_the_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_VALUE_BYTES", 10_000)
    insert(path, json.dumps({"a": "x" * 20_000}))
    with closing(SqliteRows(path)) as store, pytest.raises(RowError, match="a row has over"):
        store.count()


# --- changing -------------------------------------------------------------------------------------


def test_a_rotation_keeps_all_but_the_frame(path: Path) -> None:
    """Also the storage class: LangGraph's store writes a BLOB, other programs text."""
    change(path, "UPDATE store SET value = CAST(value AS TEXT) WHERE key IN ('b', 'e')")
    before = raw(path)
    with closing(SqliteRows(path, writable=True)) as store:
        events = list(rotate(store, NEW, batch=Batch(1), check_keys=True))
        assert not failures_of(events)
        assert {count.tag: count.rows for count in store.count()} == {SEALED.format("k2"): 4, "json": 1}
    after = raw(path)
    for old, new in zip(before, after, strict=True):
        assert old[:2] + old[3:] == new[:2] + new[3:]
        was, now = (dict(json.loads(row[2])) for row in (old, new))
        if old[1] in b"de":
            assert old == new
        else:
            assert was.pop(KEY) != now.pop(KEY)
        assert was == now
    assert [get(path, key) for key in "abcd"] == [VALUE] * 4


def test_a_writer_that_was_faster_is_kept(path: Path) -> None:
    """By a new value in the same row, in a row of its own as LangGraph's store writes it, and by none."""

    def meddle(cell: Cell) -> tuple[str, bytes]:
        match cell.where.names["key"]:
            case "a":
                put(path, "a", cipher=NEW)
            case "b":
                change(path, "UPDATE store SET value = '{\"b\": 1}' WHERE key = 'b'")
            case "c":
                change(path, "DELETE FROM store WHERE key = 'c'")
        return Opener(NEW).reseal(cell)

    with closing(SqliteRows(path, writable=True)) as store:
        done = store.rewrite(ITEMS, None, meddle, Selection(without_key="k2", plaintext=False))
    assert (done.seen, done.changed, done.raced) == (3, 0, 3)
    assert {row[1]: row[2] for row in raw(path)}[b"b"] == b'{"b": 1}'
    assert get(path, "a", RingCipher(KeyRing(make_ring("k2").keys, index=b"i" * 32))) == VALUE


def test_a_row_id_that_another_item_has_got_is_not_its_own(path: Path) -> None:
    def meddle(cell: Cell) -> tuple[str, bytes]:
        change(path, "UPDATE store SET key = 'other' WHERE key = 'a'")
        return Opener(NEW).reseal(cell)

    with closing(SqliteRows(path, writable=True)) as store:
        done = store.rewrite(ITEMS, None, meddle, Selection(without_key="k2", plaintext=False), Batch(1))
    assert (done.seen, done.changed, done.raced) == (1, 0, 1)


def test_a_plain_item_is_never_replaced_by_a_frame_beside_its_fields(path: Path) -> None:
    before = raw(path)
    with closing(SqliteRows(path, writable=True)) as store, pytest.raises(RowError, match="whole row"):
        store.rewrite(ITEMS, None, lambda cell: (SEALED.format("k2"), b"sealed"), Selection(bound=False))
    assert raw(path) == before


# --- whole rows -----------------------------------------------------------------------------------


def test_a_whole_row_has_the_text_and_is_replaced_by_one(path: Path) -> None:
    change(path, "UPDATE store SET value = CAST(value AS TEXT) WHERE key = 'b'")
    before = {row[1]: row for row in raw(path)}
    with closing(SqliteWholeRows(path, writable=True)) as store:
        found: list[Any] = []

        def replace(cell: Cell) -> Replacement:
            found.append(cell.where.beside["value"])
            return Replacement(None, None, document=json.dumps({"é": cell.where.names["key"]}))

        assert store.rewrite(ITEMS, None, replace).changed == 5
    assert found == [row[2].decode() for row in before.values()]
    for key, row in {row[1]: row for row in raw(path)}.items():
        assert json.loads(row[2]) == {"é": key.decode()}
        assert row[:2] + row[3:] == before[key][:2] + before[key][3:]


def run_rebind(path: Path, options: RebindOptions) -> list[Any]:
    with closing(SqliteWholeRows(path, writable=True, thread_id=options.thread_id)) as store:
        return list(rebind(store, NEW, options))


def test_items_are_bound_completed_and_unbound(path: Path) -> None:
    """By LangGraph's own store before and afterwards."""
    fields = Visible(frozenset({"dose"}), frozenset({"user"}))
    run_rebind(path, RebindOptions(allow_plaintext=True, fields=fields))
    assert [get(path, key) for key in "abcde"] == [VALUE] * 5
    run_rebind(path, RebindOptions(unbind=True))
    with SqliteStore.from_conn_string(str(path)) as store:
        found = store.search(("users",))
        assert store.search((), filter={"user": "ada", "dose": {"$gt": 1}}) == found
    assert [item.value for item in found] == [VALUE] * 5
    assert {row[-2] for row in raw(path)} == {b"blob"}


def test_a_run_over_one_thread_takes_no_item(path: Path) -> None:
    write(path, "k2", "thread")
    before = raw(path)
    with closing(SqliteWholeRows(path, thread_id="thread")) as store:
        assert [column.table for column in store.columns] == ["writes", "checkpoints"]
        assert {count.table for count in store.count()} == {"writes", "checkpoints"}
    run_rebind(path, RebindOptions(allow_plaintext=True, thread_id="thread"))
    assert raw(path) == before
    with closing(SqliteRows(path)) as store:
        assert store.read(ITEMS, None, Selection(thread_id="thread")) == Page((), None)


def test_more_tags_than_an_agent_could_make_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealpoint.admin.databases.rows.MAX_TAGS", 20)
    for number in range(20):
        insert(path, json.dumps({KEY: {**FRAME, "type": f"x{number}+rot13.row@k1"}}))
    with closing(SqliteRows(path)) as store, pytest.raises(RowError, match=r"'store\.value' has over 20"):
        store.count()


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_file_of_another_encoding_is_read_and_rotated(tmp_path: Path, encoding: str) -> None:
    """LangGraph stores the bytes of UTF-8 in it; a text has the encoding of the file."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute(LOG)
    put(path, "a", "é")
    items = items_of(OLD, plain=("dose",), indexed=("user",))
    insert(path, json.dumps(items.seal(ItemName(("users", "ada"), "text"), VALUE)), "text")
    with closing(SqliteRows(path, writable=True)) as store:
        assert not failures_of(rotate(store, NEW, batch=Batch(1)))
        assert [(count.tag, count.rows) for count in store.count()] == [(SEALED.format("k2"), 3)]
        assert [*store.key_texts("key")] == [("key", "a"), ("key", "text"), ("key", "é")]
    assert [get(path, key) for key in ("a", "é", "text")] == [VALUE] * 3


# --- the order of rows ----------------------------------------------------------------------------


def test_row_ids_that_are_far_apart_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    change(path, MAKE_STORE)
    for row_id in (-(2**63), -1, 0, 2**63 - 1):
        change(
            path,
            "INSERT INTO store (rowid, prefix, key, value) VALUES (?, 'a', ?, '{}')",
            row_id,
            str(row_id),
        )
    assert len(cells(path, rows=1)) == 4


def test_one_state_is_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with closing(SqliteRows(path)) as store, store.one_state():
        before = store.count()
        put(path, "f")
        assert store.count() == before
        assert len(store.read(ITEMS, None).cells) == 5
    assert len(cells(path)) == 6
