"""Items of LangGraph's Store as cells: each once, in order, and changed only where they are unchanged."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.admin.databases.cells import ITEMS, Cell, Column, Selection
from sealpoint.admin.databases.postgres.columns import BLOBS, METADATA, WRITES
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import Batch, Replacement, Table, Vectors
from sealpoint.admin.maintenance.rotate import outstanding
from sealpoint.errors import SchemaError, TablesMissingError
from sealpoint.seal.items import ItemName
from sealpoint.seal.places import KEY, make_frame
from sealpoint.threads.postgres import PostgresThreadStore
from tests.postgres.test_rows import SELECTIONS
from tests.postgres.test_schema import alter, schema_of
from tests.postgres.test_store_schema import INDEX
from tests.support.databases.items import VALUE, items_of
from tests.support.databases.postgres import (
    K1,
    items,
    make_store,
    put_items,
    read_all,
    reseal,
    rewrite_all,
    store_at,
)
from tests.support.databases.sealed import make_cipher

TAG: Final = "msgpack+cobblestone256.row@k1"
FRAME: Final = make_frame(TAG, b"sealed")
PLAIN: Final = ("{}", '{"a": 1, "b": [null, 1.50]}', f'{{"a": {{"{KEY}": 1}}}}')
# Neither a frame nor an object: their values are not read.
OTHERS: Final = (
    "null",
    "1",
    f'"{KEY}"',
    f'["{KEY}"]',
    f'[{{"{KEY}": {json.dumps(FRAME)}}}]',
    json.dumps({KEY: None}),
    json.dumps({KEY: [FRAME]}),
    json.dumps({KEY: {}}),
    json.dumps({KEY: {"value": FRAME["value"]}}),
    json.dumps({KEY: {**FRAME, "more": 1}}),
    json.dumps({KEY: make_frame("json", b"{}")}),
    json.dumps({KEY: make_frame("msgpack+aes", b"x")}),
    json.dumps({KEY: make_frame("msgpack", b"x")}),
)


def sealed(number: int, prefix: str = "a.b") -> tuple[str, str, str]:
    """An item under k1, with a plain field, as SealedStore stores it."""
    key = f"{number:04}"
    name = ItemName(tuple(prefix.split(".")), key)
    return prefix, key, json.dumps(items_of(K1, ("user",)).seal(name, {**VALUE, "number": number}))


@pytest.fixture
def store(store_url: str) -> Any:
    with closing(PostgresRows(store_url, writable=True)) as store:
        yield store


def test_a_database_with_a_store_alone_has_items_alone(store: PostgresRows) -> None:
    assert store.columns == (ITEMS,)
    assert store.missing_tables == ()
    assert not [*store.records(), *store.inline(), *store.key_texts(), *store.count()]
    assert [table for table in store.tables() if table.is_read] == [Table("store", True)]


def test_tables_that_were_there_are_missed(url: str) -> None:
    """Else a database would be in order while they have another name."""
    make_store(url)
    for gone, missing in {
        "ALTER TABLE store RENAME TO away": ("store",),
        "ALTER TABLE away RENAME value TO v; ALTER TABLE away RENAME TO store": ("store",),
        "ALTER TABLE store RENAME v TO value; DROP TABLE checkpoints, checkpoint_blobs, checkpoint_writes": (
            "checkpoint_blobs",
            "checkpoint_writes",
            "checkpoints",
        ),
        "DROP TABLE checkpoint_migrations": (),
    }.items():
        alter(url, gone)
        with closing(PostgresRows(url)) as store:
            assert store.missing_tables == missing


def test_items_are_the_last_column(url: str) -> None:
    make_store(url)
    with closing(PostgresRows(url)) as store:
        assert store.columns == (BLOBS, WRITES, METADATA, ITEMS)
    with closing(PostgresWholeRows(url)) as store:
        assert store.columns[-1] == ITEMS
    with closing(PostgresWholeRows(url, thread_id="t")) as store:
        assert ITEMS not in store.columns
    alter(url, "DROP TABLE checkpoint_blobs")
    with closing(PostgresRows(url)) as store:
        assert store.missing_tables == ("checkpoint_blobs",)


@pytest.mark.parametrize("batch", [Batch(), Batch(rows=1), Batch(rows=4), Batch(size_bytes=1)], ids=str)
def test_every_item_is_read_once_and_in_order(store: PostgresRows, store_url: str, batch: Batch) -> None:
    wanted = sorted(
        [sealed(number, prefix) for number in range(5) for prefix in ("a", "a.b", "é.b", "")]
        + [("plain", f"{number}", text) for number, text in enumerate(PLAIN)]
        + [("others", f"{number:02}", text) for number, text in enumerate(OTHERS)]
    )
    put_items(store_url, wanted)
    cells = [cell for page in read_all(store, ITEMS, batch=batch) for cell in page]
    assert sorted(cell.where.key for cell in cells) == [row[:2] for row in wanted]
    with psycopg.connect(store_url) as connection:
        order = connection.execute("SELECT prefix, key FROM store ORDER BY prefix, key").fetchall()
    assert [cell.where.key for cell in cells] == order
    texts = {row[:2]: row[2] for row in wanted}
    for cell in cells:
        text = texts[cell.where.key]
        match cell.where.key[0]:
            case "plain":
                assert cell.tag == "json"
                assert json.loads(cell.value) == json.loads(text)
            case "others":
                assert cell.tag is None, text
            case _:
                assert make_frame(cell.tag, cell.value) == json.loads(text)[KEY]
    assert [(count.table, count.tag, count.rows) for count in store.count()] == [
        ("store.value", "json", len(PLAIN)),
        ("store.value", TAG, 20),
        ("store.value", None, len(OTHERS)),
    ]


def test_selections_take_in_sql_what_they_take_in_python(store: PostgresRows, store_url: str) -> None:
    """And one of a thread takes no item."""
    tags = [TAG, TAG.replace("k1", "k11"), "msgpack+xaes256gcm@k2", "+@k1", "m.row@k1", "a+b", "é+x@k1"]
    put_items(store_url, [("a", tag, json.dumps({KEY: make_frame(tag, b"x")})) for tag in tags])
    put_items(store_url, [("a", "json", "{}"), ("a", "None", "[]")])
    stored = {tag: tag if "+" in tag else None for tag in tags} | {"json": "json", "None": None}
    for selection in SELECTIONS:
        wanted = {key for key, tag in stored.items() if selection.takes(tag) and selection.thread_id is None}
        pages = read_all(store, ITEMS, selection, Batch(rows=4))
        found = [cell.where.key[1] for page in pages for cell in page]
        assert sorted(found) == sorted(wanted), selection


def test_what_is_beside_an_item(store: PostgresRows, store_url: str) -> None:
    rows = [sealed(1), ("p", "1", PLAIN[1]), ("o", "1", "[1]"), ("o", "2", '"x"'), ("o", "3", OTHERS[9])]
    put_items(store_url, rows)
    cells = {cell.where.key: cell.where.beside for cell in read_all(store, ITEMS.widened)[0]}
    fields = {key: beside["fields"] and json.loads(beside["fields"]) for key, beside in cells.items()}
    assert fields == {
        ("a.b", "0001"): {"user": "ada"},
        ("p", "1"): json.loads(PLAIN[1]),
        ("o", "1"): None,
        ("o", "2"): None,
        ("o", "3"): {},
    }
    with closing(PostgresWholeRows(store_url)) as whole:
        found = {cell.where.key: json.loads(cell.where.beside["value"]) for cell in read_all(whole, ITEMS)[0]}
    assert found == {row[:2]: json.loads(row[2]) for row in rows}


@pytest.mark.parametrize("batch", [Batch(), Batch(rows=3), Batch(size_bytes=1)], ids=str)
def test_every_item_is_resealed_once_and_nothing_else_of_its_row_changes(
    store: PostgresRows, store_url: str, batch: Batch
) -> None:
    put_items(store_url, [*map(sealed, range(10)), ("plain", "1", PLAIN[1])])
    alter(store_url, "UPDATE store SET expires_at = 'infinity', ttl_minutes = 3, updated_at = '1999-01-01'")
    before = items(store_url)
    selection = Selection("k2", plaintext=False)
    assert rewrite_all(store, reseal, selection, batch) == [10, 0, 10]
    assert rewrite_all(store, reseal, selection, batch) == [0, 0, 0]
    after = items(store_url)
    assert after["plain", "1"] == before["plain", "1"]
    opening = items_of(make_cipher("k2"), ("user",))
    for key, (value, rest) in after.items():
        assert rest == before[key][1]
        if key[0] != "plain":
            assert opening.open(ItemName(("a", "b"), key[1]), value)[1] == {**VALUE, "number": int(key[1])}
    assert {count.table for count in outstanding(store, "k2")} == {"store.value"}  # the one that is plain


@pytest.mark.parametrize("edited", ["tag", "value"])
def test_an_item_that_is_not_what_was_read_is_not_overwritten(
    store: PostgresRows, store_url: str, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    """Rows are locked from the SELECT on, so it is the cell that differs here."""
    put_items(store_url, [sealed(1), sealed(2)])
    read, before = store._fetch, items(store_url)

    def stale(column: Column, statement: str, parameters: Any) -> list[Cell]:
        old = read(column, statement, parameters)
        if edited == "tag":
            return [cell._replace(tag=TAG.replace("k1", "k2")) for cell in old]
        return [cell._replace(where=cell.where._replace(locator="x")) for cell in old]

    monkeypatch.setattr(store, "_fetch", stale)
    done = store.rewrite(ITEMS, None, lambda cell: ("x+y.row@k1", b"new"))
    assert (done.seen, done.changed, done.raced) == (2, 0, 2)
    assert items(store_url) == before


def test_a_plain_item_is_replaced_as_a_whole_row_only(store: PostgresRows, store_url: str) -> None:
    put_items(store_url, [("p", "1", PLAIN[1])])
    before = items(store_url)
    done = store.rewrite(ITEMS, None, lambda cell: ("x+y.row@k1", b"new"))
    assert (done.seen, done.changed, done.raced) == (1, 0, 1)
    assert items(store_url) == before
    document = json.dumps({KEY: FRAME, "b": "\\u0000 é \x7f"})
    with closing(PostgresWholeRows(store_url, writable=True)) as whole:
        done = whole.rewrite(ITEMS, None, lambda cell: Replacement(None, None, document=document))
        assert (done.seen, done.changed, done.raced) == (1, 1, 0)
    assert items(store_url)["p", "1"] == (json.loads(document), before["p", "1"][1])


def test_a_whole_item_that_is_not_what_was_read_is_not_overwritten(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_items(store_url, [sealed(1), ("p", "1", "{}")])
    before = items(store_url)
    with closing(PostgresWholeRows(store_url, writable=True)) as whole:
        read = whole._fetch

        def stale(*arguments: Any) -> list[Cell]:
            beside = {"value": '{"a": 1}'}
            return [cell._replace(where=cell.where._replace(beside=beside)) for cell in read(*arguments)]

        monkeypatch.setattr(whole, "_fetch", stale)
        done = whole.rewrite(ITEMS, None, lambda cell: Replacement(None, None, document="{}"))
    assert (done.seen, done.changed, done.raced) == (2, 0, 2)
    assert items(store_url) == before


def test_rows_that_others_have_locked_are_skipped(store: PostgresRows, store_url: str) -> None:
    put_items(store_url, [*map(sealed, range(4))])
    with psycopg.connect(store_url) as writer:
        writer.execute("SELECT FROM store WHERE key = '0002' FOR UPDATE")
        assert rewrite_all(store, reseal, Selection("k2")) == [3, 0, 3]
    assert rewrite_all(store, reseal, Selection("k2")) == [1, 0, 1]


def test_names_of_items_are_readable(store: PostgresRows, store_url: str) -> None:
    put_items(store_url, [("a.b", "x", "{}"), ("a.b", "y", "{}"), ("c", "x", "{}")])
    assert [*store.key_texts()] == [("prefix", "a.b"), ("prefix", "c"), ("key", "x"), ("key", "y")]
    assert [*store.key_texts("key")] == [("key", "x"), ("key", "y")]


# --- which tables are meant -------------------------------------------------------------------------


def test_a_table_of_another_program_is_not_taken_for_items(url: str) -> None:
    """Neither by its name, nor as what hides the real one."""
    schema = schema_of(url)
    alter(
        url,
        "CREATE TABLE store (id int, key text); CREATE RULE r AS ON UPDATE TO store DO ALSO NOTIFY x",
    )
    with closing(PostgresRows(url)) as store:
        assert ITEMS not in store.columns
        (found,) = [table for table in store.tables() if table.name == "store"]
        assert found == Table("store", False, False)
    alter(
        url,
        f"CREATE SCHEMA {schema}_threads; CREATE VIEW {schema}_threads.store AS SELECT 1 AS prefix, 2 AS key",
    )
    path = make_conninfo(url, options=f"-c search_path={schema}_threads,{schema}")
    with closing(PostgresRows(path)) as store:
        assert store.columns == (BLOBS, WRITES, METADATA)


def test_the_table_of_a_thread_store_is_not_one_of_items(store_url: str) -> None:
    schema = f"{schema_of(store_url)}_threads"
    PostgresThreadStore(store_url, schema=schema, create=True).close()
    path = make_conninfo(store_url, options=f"-c search_path={schema},{schema_of(store_url)}")
    for url in (store_url, path):
        with closing(PostgresRows(url)) as store:
            assert store.columns == (ITEMS,)
            assert Table(f"{schema}.store", False, False) in store.tables()
    with pytest.raises(TablesMissingError, match="none of LangGraph's tables"):
        PostgresRows(make_conninfo(store_url, options=f"-c search_path={schema}"))


def test_a_saver_and_a_store_in_two_schemas_are_named_one_by_one(url: str, store_url: str) -> None:
    schemas = [schema_of(url), schema_of(store_url)]
    for path in (schemas, schemas[::-1]):
        with pytest.raises(SchemaError, match="several schemas") as caught:
            PostgresRows(make_conninfo(url, options=f"-c search_path={','.join(path)}"))
        assert "search_path" in caught.value.hint
    for own, columns in zip((url, store_url), ((BLOBS, WRITES, METADATA), (ITEMS,)), strict=True):
        with closing(PostgresRows(own)) as store:
            assert store.columns == columns


def test_the_first_schema_with_items_is_taken(url: str, store_url: str) -> None:
    make_store(url)
    path = make_conninfo(url, options=f"-c search_path={schema_of(url)},{schema_of(store_url)}")
    put_items(url, [("first", "1", "{}")])
    put_items(store_url, [("second", "1", "{}")])
    with closing(PostgresRows(path)) as store:
        assert [text for _, text in store.key_texts("prefix")] == ["first"]


def test_a_store_in_a_schema_that_comes_first_is_not_taken_for_the_real_one(url: str) -> None:
    """The path is everybody's: another role may have made the schema that is called like this one's role."""
    name = f"{schema_of(url)}_own"
    alter(url, f"CREATE DATABASE {name}")
    try:
        own = make_conninfo(url, dbname=name, options="")
        make_store(own)
        alter(own, "CREATE SCHEMA other; CREATE TABLE other.store (id int)")
        with closing(PostgresRows(own)):
            pass
        alter(own, "CREATE SCHEMA postgres; CREATE TABLE postgres.store (LIKE public.store)")
        with pytest.raises(SchemaError, match="'postgres' and 'public' both have LangGraph's tables"):
            PostgresRows(own)
    finally:
        alter(url, f"DROP DATABASE {name}")


def test_altered_items_are_refused_by_maintenance(url: str) -> None:
    make_store(url)
    alter(url, "ALTER TABLE store ADD more text")
    with pytest.raises(SchemaError, match="'store' does not have the columns"):
        PostgresRows(url)


# --- embeddings -------------------------------------------------------------------------------------


def test_embeddings_are_counted(vector_url: str) -> None:
    make_store(vector_url, index=INDEX)
    with closing(PostgresRows(vector_url)) as store:
        assert store.vectors() == Vectors(0, 0)
        with store_at(vector_url, K1, INDEX, vectors="open") as sealing:
            for number in range(3):
                sealing.put(("a",), f"{number}", {"text": f"{number}"})
        assert store.vectors() == Vectors(3, 0)
        alter(
            vector_url,
            "SET session_replication_role = replica; DELETE FROM store WHERE key = '1'",
        )
        assert store.vectors() == Vectors(3, 1)
        with store.one_state():
            assert store.vectors() == Vectors(3, 1)
        alter(vector_url, "ALTER TABLE store_vectors ADD more text")
        with pytest.raises(SchemaError, match="'store_vectors' does not have the columns"):
            store.vectors()


def test_without_an_index_there_are_no_embeddings(url: str, store: PostgresRows) -> None:
    assert store.vectors() is None
    with closing(PostgresRows(url)) as saver:
        assert saver.vectors() is None
