"""Items in a decrypted copy: LangGraph's own store reads them under their names, or there is no copy."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.sqlite import SqliteStore

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.results.events import Failure
from sealpoint.base.place import KEY, make_frame
from sealpoint.crypto import RingCipher
from sealpoint.sealed.items import row_of
from sealpoint.sealed.rows import ItemName, pack_item
from sealpoint.serde import EncryptedSerializer
from tests.support.databases.items import VALUE, items_of, with_index
from tests.support.databases.schemas import OLDER_STORE, VECTORS
from tests.support.databases.sealed import make_cipher, states, write

CIPHER = with_index("k2")
# LangGraph's store has a time adapted by sqlite3.
pytestmark = pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")

NAMES = [ItemName(("users", "ada"), "allergy"), ItemName(("users", "ada", "é"), "a\0b"), ItemName(("x",), "")]
VALUES: list[dict[str, Any]] = [
    VALUE,
    {"text": "é\0\\u0000 \U0001f600", "list": [1, -1.5, None, True, {"": []}], "large": 2**63},
    {},
]


def put(path: Path, name: ItemName, value: dict[str, Any], *, is_sealed: bool = True, **named: Any) -> None:
    items = items_of(CIPHER, plain=("dose",), indexed=("user",), **named)
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        if is_sealed:
            store.put(*items.stored_name(name), items.seal(name, value), ttl=60)
        else:
            store.put(*name, value)


def run(path: Path, out: Path, cipher: RingCipher = CIPHER, **named: Any) -> list[Failure]:
    return [event for event in decrypt(path, out, cipher, **named) if isinstance(event, Failure)]


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


def test_a_file_without_a_store_has_none_in_the_copy(tmp_path: Path) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    write(path, "k2", "thread")
    assert run(path, out) == []
    assert query(out, "SELECT name FROM sqlite_master WHERE name LIKE '%store%'") == []


def test_an_older_store_gets_the_columns_of_expiry(tmp_path: Path) -> None:
    path, out, name = tmp_path / "x.db", tmp_path / "out.db", NAMES[0]
    change(path, OLDER_STORE)
    sealed = json.dumps(items_of(CIPHER).seal(name, VALUE))
    change(path, "INSERT INTO store (prefix, key, value) VALUES (?, ?, ?)", "users.ada", name.key, sealed)
    assert run(path, out) == []
    with SqliteStore.from_conn_string(str(out)) as store:
        store.setup()
        found = store.get(*name)
    assert found is not None
    assert found.value == VALUE


def test_a_plain_item_is_copied_if_that_is_allowed(tmp_path: Path) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], VALUE, is_sealed=False)
    (failed,) = run(path, out)
    assert "not sealed" in str(failed.error)
    assert not out.exists()
    assert run(path, out, allow_plaintext=True) == []
    with SqliteStore.from_conn_string(str(out)) as store:
        found = store.get(*NAMES[0])
    assert found is not None
    assert found.value == VALUE


@pytest.mark.parametrize(
    "value",
    [b"bytes", datetime(2026, 1, 1, tzinfo=UTC), {1: "a"}, {1}, float("nan"), float("inf")],
    ids=repr,
)
@pytest.mark.parametrize("is_deep", [False, True])
def test_what_json_has_no_form_for_is_a_failure_that_says_so(
    tmp_path: Path, value: Any, is_deep: bool
) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], VALUE)
    put(path, NAMES[1], {"a": [{"b": value}] if is_deep else value})
    (failed,) = run(path, out)
    assert "no form in JSON" in str(failed.error)
    assert "put it again" in failed.error.hint  # type: ignore[attr-defined]
    assert failed.place == {"prefix": "users.ada.é", "key": NAMES[1].key}
    assert not out.exists()


def test_a_tuple_becomes_a_list_as_in_a_store_that_is_not_wrapped(tmp_path: Path) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], {"a": (1, 2)})
    assert run(path, out) == []
    assert [json.loads(value) for (value,) in query(out, "SELECT value FROM store")] == [{"a": [1, 2]}]


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


def test_a_pseudonym_of_another_item_is_a_failure(tmp_path: Path) -> None:
    path, out, name = tmp_path / "x.db", tmp_path / "out.db", NAMES[0]
    put(path, name, VALUE, has_pseudonyms=True)
    stored = items_of(CIPHER, has_pseudonyms=True).stored_name(name)
    tag, blob = EncryptedSerializer(CIPHER).seal(VALUE, row=row_of(*stored), head=pack_item(NAMES[1]))
    change(path, "UPDATE store SET value = ?", json.dumps({KEY: make_frame(tag, blob)}))
    (failed,) = run(path, out)
    assert "another name" in str(failed.error)


def test_embeddings_are_left_out(tmp_path: Path) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], VALUE)
    change(path, VECTORS)
    change(path, "INSERT INTO store_vectors VALUES ('users.ada', 'allergy', 'text', x'00', 1, 1)")
    assert run(path, out) == []
    assert query(out, "SELECT name FROM sqlite_master WHERE name LIKE '%vectors'") == []


def test_a_missing_key_leaves_no_copy(tmp_path: Path) -> None:
    path, out = tmp_path / "x.db", tmp_path / "out.db"
    put(path, NAMES[0], VALUE)
    assert len(run(path, out, make_cipher("k1"))) == 1
    assert not out.exists()
