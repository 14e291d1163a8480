"""Items in a decrypted copy: LangGraph's own store reads them under their names, or there is no copy."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.sqlite import SqliteStore

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.results.events import Failure
from sealpoint.seal.items import ItemName, pack_item, row_of
from sealpoint.seal.places import KEY, make_frame
from sealpoint.serde import EncryptedSerializer
from tests.support.databases.items import VALUE, items_of, with_index
from tests.support.databases.sealed import states, write

CIPHER = with_index("k2")
# LangGraph's store has a time adapted by sqlite3.
pytestmark = pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")

NAMES = [ItemName(("users", "ada"), "allergy"), ItemName(("users", "ada", "é"), "a\0b"), ItemName(("x",), "")]
VALUES: list[dict[str, Any]] = [
    VALUE,
    {"text": "é\0\\u0000 \U0001f600", "list": [1, -1.5, None, True, {"": []}], "large": 2**63},
    {},
]


def put(path: Path, name: ItemName, value: dict[str, Any], **named: Any) -> None:
    items = items_of(CIPHER, plain=("dose",), indexed=("user",), **named)
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        store.put(*items.stored_name(name), items.seal(name, value), ttl=60)


def run(path: Path, out: Path) -> list[Failure]:
    return [event for event in decrypt(path, out, CIPHER) if isinstance(event, Failure)]


def change(path: Path, statement: str, *parameters: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, parameters)


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.parametrize("has_pseudonyms", [False, True], ids=["names", "pseudonyms"])
@pytest.mark.parametrize("has_saver", [False, True], ids=["store", "store and saver"])
def test_the_copy_is_a_store_of_langgraph(tmp_path: Path, has_pseudonyms: bool, has_saver: bool) -> None:
    """With the times of the items, its schema as a new one, and names in the place of pseudonyms."""
    path, out, new = tmp_path / "x.db", tmp_path / "out.db", tmp_path / "new.db"
    for name, value in zip(NAMES, VALUES, strict=True):
        put(path, name, value, has_pseudonyms=has_pseudonyms)
    if has_saver:
        write(path, "k2", "thread")
    times = "created_at, updated_at, expires_at, ttl_minutes, typeof(value)"
    assert run(path, out) == []
    assert query(out, f"SELECT {times} FROM store") == query(path, f"SELECT {times} FROM store")
    with SqliteStore.from_conn_string(str(out)) as store:
        store.setup()
        for name, value in zip(NAMES, VALUES, strict=True):
            found = store.get(*name)
            assert found is not None
            assert (found.namespace, found.key, found.value) == (*name, value)
        assert store.search(("users",), filter={"user": "ada"})[0].value == VALUE
        store.put(("new",), "key", VALUE, ttl=1)
        assert store.sweep_ttl() == 0
        assert len(store.list_namespaces()) == 4
    with SqliteStore.from_conn_string(str(new)) as store:
        store.setup()
    for statement in (
        "SELECT name FROM sqlite_master WHERE tbl_name LIKE 'store%' ORDER BY name",
        "SELECT * FROM store_migrations",
        "SELECT lower(name), upper(type), \"notnull\", dflt_value, pk FROM pragma_table_info('store')",
        "SELECT * FROM pragma_index_list('store')",
    ):
        assert query(out, statement) == query(new, statement)
    with closing(SqliteRows(out)) as rows:  # which checks the schema
        assert {count.tag for count in rows.count() if count.table == "store.value"} == {"json"}
    assert states(out, None, "thread") == states(path, EncryptedSerializer(CIPHER), "thread")


def test_a_value_with_the_key_of_a_frame_is_a_failure(tmp_path: Path) -> None:
    """It would be taken for a sealed one."""
    path, out, name = tmp_path / "x.db", tmp_path / "out.db", NAMES[0]
    put(path, name, VALUE)
    tag, blob = EncryptedSerializer(CIPHER).seal({KEY: 1}, row=row_of(*name), head=pack_item(None))
    change(path, "UPDATE store SET value = ?", json.dumps({KEY: make_frame(tag, blob)}))
    (failed,) = run(path, out)
    assert KEY in str(failed.error)
    assert not out.exists()


EDITS = {
    "a field beside the frame": "UPDATE store SET value = json_set(value, '$.dose', 2)",
    "a field added": "UPDATE store SET value = json_set(value, '$.more', 2)",
    "another key": "UPDATE store SET key = 'other'",
    "another namespace": "UPDATE store SET prefix = 'users.bob'",
    "no JSON": "UPDATE store SET value = '{'",
    "a time of another type": "UPDATE store SET expires_at = x'00'",
    "a key of another type": "UPDATE store SET key = x'00'",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_item_is_a_failure(tmp_path: Path, edit: str) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], VALUE)
    change(path, "UPDATE store SET value = CAST(value AS TEXT)")
    change(path, edit)
    assert len(run(path, out)) == 1
    assert not out.exists()


def test_two_rows_of_one_name_are_a_failure(tmp_path: Path) -> None:
    """One under its name, and one under a pseudonym."""
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], VALUE)
    put(path, NAMES[0], VALUE, has_pseudonyms=True)
    (failed,) = run(path, out)
    assert "two rows" in str(failed.error)
    assert not out.exists()
