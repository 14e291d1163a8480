"""The databases of the matrix, each made by a function of its own, and the rings that commands are given."""

from __future__ import annotations

import functools
import json
import shutil
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import ormsgpack
import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.sqlite import SqliteStore
from psycopg.types.json import Jsonb

from sealpoint.seal.items import ItemName
from sealpoint.serde import EncryptedSerializer
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.bound import PRIVATE, write_file, write_schema
from tests.support.databases.checkpoints import at, make
from tests.support.databases.frames import BODY, document, put_metadata, sealed
from tests.support.databases.harm import store_raw
from tests.support.databases.items import items_of
from tests.support.databases.postgres import saver_at, set_up
from tests.support.databases.sealed import AES_KEY, bind, make_cipher, write
from tests.support.keys.rings import material_of
from tests.support.values.forge import record

SECRET: Final = b"Kumquat-4711"
"""Stands in the text of every value that these functions write, so a search finds what is in the clear."""

TYPE: Final = ("acme.models", "Order")
"""A type that no serializer builds unless it is allowed."""

THREAD: Final = "t"
_TEXT: Final = SECRET.decode()
_ID: Final = "1f000000-0000-6000-8000-00000000000"


# --- SQLite -------------------------------------------------------------------------------------


def _our_thread(path: Path, key_id: str, thread_id: str = THREAD) -> None:
    """A thread that sealpoint's own saver wrote, whose values are bound to their rows."""
    with SqliteSaver.from_conn_string(str(path), serde=EncryptedSerializer(make_cipher(key_id))) as saver:
        config = at(thread_id)
        for step in range(2):
            config = saver.put(config, make(f"{_ID}{step}", text=_TEXT), {"step": step}, {})
            saver.put_writes(config, [("a", _TEXT), ("b", [step])], "task")
    bind(path, make_cipher(key_id), thread_id)


def _their_thread(path: Path, kind: str, thread_id: str) -> None:
    """A thread that LangGraph's saver wrote."""
    write(path, kind, thread_id, secret=_TEXT)


def _change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.executescript(statement)


def _truncate(path: Path) -> None:
    """Empty the log, so that the file is as a backup has it."""
    _change(path, "PRAGMA wal_checkpoint(TRUNCATE)")


def good(path: Path) -> None:
    """All values under k2, bound to their rows."""
    path.write_bytes(_read_good())


@functools.cache
def _read_good() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "good.db")
        _our_thread(path, "k2")
        _their_thread(path, "k2", "u")
        bind(path, make_cipher("k2"), "u")
        return path.read_bytes()


def old(path: Path) -> None:
    """All values under k1, bound to their rows."""
    _our_thread(path, "k1")
    _their_thread(path, "k1", "u")
    bind(path, make_cipher("k1"), "u")


def serializer(path: Path) -> None:
    """All values under k2, none bound to its row."""
    _their_thread(path, "k2", THREAD)


def bound(path: Path) -> None:
    """What `SealedSaver` wrote: one thread with its id, one with a pseudonym."""
    write_file(path, THREAD)
    write_file(path, "u", **PRIVATE)


def bound_half(path: Path) -> None:
    """What `SealedSaver` wrote, beside a thread of the serializer alone."""
    write_file(path, THREAD)
    _their_thread(path, "k2", "u")


def bound_moved(path: Path) -> None:
    """A bound write in the row of another."""
    bound(path)
    _change(
        path, "UPDATE writes SET (type, value) = (SELECT type, value FROM writes LIMIT 1) WHERE rowid = 9"
    )


def bound_edited(path: Path) -> None:
    """Readable metadata beside a bound checkpoint was edited."""
    bound(path)
    _change(path, "UPDATE checkpoints SET metadata = replace(metadata, '\"step\": 0', '\"step\": 7')")


def bound_parent(path: Path) -> None:
    """The parent of a bound checkpoint is another one of its thread."""
    bound(path)
    first = "SELECT min(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = ''"
    _change(
        path,
        f"UPDATE checkpoints SET parent_checkpoint_id = ({first}) WHERE rowid ="
        f" (SELECT max(rowid) FROM checkpoints WHERE thread_id = '{THREAD}' AND checkpoint_ns = '')",
    )


def bound_twice(path: Path) -> None:
    """A bound write is stored twice."""
    bound(path)
    columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, {}, channel, type, value"
    copied = f"SELECT {columns.format(77)} FROM writes WHERE rowid = 1"
    _change(path, f"INSERT INTO writes ({columns.format('idx')}) {copied}")


def half(path: Path) -> None:
    """A rotation from k1 to k2 that was stopped."""
    _our_thread(path, "k1")
    _their_thread(path, "k2", "u")


def third(path: Path) -> None:
    """Some values under a key that no ring has."""
    good(path)
    _their_thread(path, "k9", "v")


def plain(path: Path) -> None:
    _their_thread(path, "plain", THREAD)


def mixed(path: Path) -> None:
    """Sealed, plain, and under LANGGRAPH_AES_KEY."""
    good(path)
    _their_thread(path, "plain", "v")
    _their_thread(path, "eax", "w")


def plain_write(path: Path) -> None:
    """One write among sealed values that is not sealed."""
    good(path)
    _change(
        path, f"UPDATE writes SET type = 'msgpack', value = CAST('\xa9{_TEXT[:9]}' AS BLOB) WHERE rowid = 1"
    )


def legacy(path: Path) -> None:
    """All values under LANGGRAPH_AES_KEY, in both of its modes."""
    _their_thread(path, "eax", THREAD)
    _their_thread(path, "gcm", "u")


def empty(path: Path) -> None:
    """Tables without rows."""
    good(path)
    _change(path, "DELETE FROM checkpoints; DELETE FROM writes; VACUUM")


def no_writes(path: Path) -> None:
    """The table of writes is missing."""
    good(path)
    _change(path, "DROP TABLE writes; VACUUM")


def no_rows_but_writes(path: Path) -> None:
    """Writes without a checkpoint."""
    good(path)
    _change(path, "DELETE FROM checkpoints; VACUUM")


def no_bytes(path: Path) -> None:
    path.touch()


def other_file(path: Path) -> None:
    path.write_text("not a database at all\n" * 100)


def other_tables(path: Path) -> None:
    """A database of another program."""
    _change(path, "CREATE TABLE orders (id INTEGER); INSERT INTO orders VALUES (1)")


def moved_ids(path: Path) -> None:
    """Values without a bond to their row, whose checkpoint has another id than its row."""
    _their_thread(path, "k2", THREAD)
    _change(path, "UPDATE checkpoints SET checkpoint_id = checkpoint_id || 'x', parent_checkpoint_id = NULL")


def swapped(path: Path) -> None:
    """Two values that are bound to their rows, each in the row of the other."""
    good(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        query = f"SELECT rowid, type, checkpoint FROM checkpoints WHERE thread_id = '{THREAD}'"
        (one, *first), (two, *second) = connection.execute(query).fetchall()
        put = "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = ?"
        connection.executemany(put, [(*first, two), (*second, one)])


def relabelled(path: Path) -> None:
    """A tag that names another inner type."""
    good(path)
    _change(path, "UPDATE writes SET type = replace(type, 'msgpack', 'json') WHERE rowid = 2")


def relabelled_key(path: Path) -> None:
    """Values of k1 that say they were under k2."""
    old(path)
    _change(
        path,
        *(f"UPDATE {table} SET type = replace(type, '@k1', '@k2')" for table in ("checkpoints", "writes")),
    )


def forged(path: Path) -> None:
    """Other bytes in place of a sealed value."""
    good(path)
    _change(path, "UPDATE writes SET value = randomblob(90) WHERE rowid = 1")


def lost(path: Path) -> None:
    """NULL in place of a sealed value."""
    good(path)
    _change(path, "UPDATE writes SET value = NULL WHERE rowid = 3")


def unknown_suite(path: Path) -> None:
    """A tag of a suite that does not exist, under the active key."""
    good(path)
    _change(path, "UPDATE writes SET type = 'msgpack+rot13@k2' WHERE rowid = 1")


def untagged(path: Path) -> None:
    """A value without a tag."""
    good(path)
    _change(path, "UPDATE writes SET type = NULL WHERE rowid = 1")


def bytes_id(path: Path) -> None:
    """A BLOB where a saver writes the name of a thread."""
    good(path)
    store_raw(path, "checkpoints", "thread_id", b"t", "rowid = 1")


def number_id(path: Path) -> None:
    """A REAL in place of the number of a write."""
    good(path)
    store_raw(path, "writes", "idx", 1.5, "rowid = 1")


def no_id(path: Path) -> None:
    """The id of a checkpoint is empty."""
    _their_thread(path, "k2", THREAD)
    _change(path, "UPDATE checkpoints SET checkpoint_id = '' WHERE rowid = 1")


def metadata_nan(path: Path) -> None:
    good(path)
    _change(path, "UPDATE checkpoints SET metadata = CAST('{\"step\": NaN}' AS BLOB) WHERE rowid = 1")


def metadata_list(path: Path) -> None:
    good(path)
    _change(path, "UPDATE checkpoints SET metadata = CAST('[]' AS BLOB) WHERE rowid = 1")


def metadata_number(path: Path) -> None:
    """A number in place of metadata."""
    good(path)
    _change(path, "UPDATE checkpoints SET metadata = 7 WHERE rowid = 1")


def metadata_team(path: Path) -> None:
    """A key of metadata that no framework writes."""
    good(path)
    _change(path, 'UPDATE checkpoints SET metadata = CAST(\'{"team": "x"}\' AS BLOB)')
    _truncate(path)


def sealed_metadata(path: Path) -> None:
    """Values under k2, and in one row metadata that seems to be sealed under k1: no saver seals it here."""
    good(path)
    cipher = make_cipher("k1")
    put_metadata(path, lambda *key: document(sealed(cipher, *key)), f"checkpoint_id = '{_ID}0'")


def forged_metadata(path: Path) -> None:
    """A frame in metadata that holds nothing."""
    good(path)
    _change(path, "UPDATE checkpoints SET metadata = CAST('{\"__sealpoint__\": 7}' AS BLOB) WHERE rowid = 1")


def no_parent(path: Path) -> None:
    """A checkpoint was deleted that another names as its parent."""
    good(path)
    _change(path, f"DELETE FROM checkpoints WHERE checkpoint_id = '{_ID}0'")


def parent_number(path: Path) -> None:
    """A BLOB in place of the id of a parent."""
    good(path)
    _change(path, "UPDATE checkpoints SET parent_checkpoint_id = x'00' WHERE rowid = 1")


def address(path: Path) -> None:
    """A thread that is named by an e-mail address."""
    good(path)
    _our_thread(path, "k2", "zoe@example.org")
    _truncate(path)


def vectors(path: Path) -> None:
    """Embeddings of LangGraph's Store beside the checkpoints."""
    good(path)
    _change(path, f"CREATE TABLE store_vectors (value TEXT); INSERT INTO store_vectors VALUES ('{_TEXT}')")
    _truncate(path)


def cache(path: Path) -> None:
    good(path)
    _change(path, f"CREATE TABLE Cache (value TEXT); INSERT INTO Cache VALUES ('{_TEXT}')")


def own_table(path: Path) -> None:
    """A table of the application beside the checkpoints."""
    good(path)
    _change(path, "CREATE TABLE orders (id INTEGER)")
    _truncate(path)


def free_pages(path: Path) -> None:
    """Plaintext that was deleted, in pages that nothing uses any more."""
    write(path, "plain", "v", secret=_TEXT * 2000)
    good(path)
    deletions = [f"DELETE FROM {table} WHERE thread_id = 'v';" for table in ("checkpoints", "writes")]
    _change(path, f"PRAGMA secure_delete = OFF; {' '.join(deletions)}")
    _truncate(path)


def old_space(path: Path) -> None:
    """Plaintext that was deleted, in unused space of a page with other rows."""
    compact(path)
    columns = "checkpoint_ns, checkpoint_id, task_id, idx, type, value"
    _change(
        path,
        "PRAGMA secure_delete = OFF;"
        f" INSERT INTO writes (thread_id, channel, {columns})"
        f" SELECT 'v', '{_TEXT}', {columns} FROM writes LIMIT 1;"
        " DELETE FROM writes WHERE thread_id = 'v'",
    )


def kept_journal(path: Path) -> None:
    """Pages of before a change, in a journal that is kept."""
    compact(path)
    _change(path, "PRAGMA journal_mode = PERSIST; UPDATE writes SET thread_id = thread_id")


def full_log(path: Path) -> None:
    """Plaintext that was overwritten, in the log of the file."""
    plain(path)
    with closing(sqlite3.connect(path)) as keeper:  # while a connection is open, the log is kept
        keeper.execute("PRAGMA journal_mode = WAL")
        keeper.execute("UPDATE checkpoints SET metadata = metadata || ' '")
        keeper.execute("UPDATE writes SET task_path = task_path || 'x'")
        keeper.execute("DELETE FROM checkpoints")
        keeper.execute("DELETE FROM writes")
        keeper.commit()
        good(path)
        kept = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal")}
    for suffix, data in kept.items():
        path.with_name(path.name + suffix).write_bytes(data)


def compact(path: Path) -> None:
    """As good, without a log: all that a strict audit asks for."""
    good(path)
    _change(path, "PRAGMA journal_mode = DELETE; VACUUM")


def types(path: Path) -> None:
    """Values that name a type, sealed."""
    good(path)
    tag, blob = make_cipher("k2").seal(*record(0, *TYPE, {"price": 1}))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET type = ?, value = ? WHERE rowid = 1", (tag, blob))


def no_document(path: Path) -> None:
    """A sealed list in place of a checkpoint."""
    _their_thread(path, "k2", THREAD)
    tag, blob = make_cipher("k2").seal("msgpack", ormsgpack.packb([1]))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = 1", (tag, blob))


def _root_of(path: Path, table: str) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,), (size,) = (
            connection.execute(query, (table,)).fetchone(),
            connection.execute("PRAGMA page_size").fetchone(),
        )
    return (page - 1) * size, size


def zeroed_page(path: Path) -> None:
    """The first page of a table is zeros."""
    compact(path)
    start, size = _root_of(path, "writes")
    data = bytearray(path.read_bytes())
    data[start : start + size] = bytes(size)
    path.write_bytes(data)


def cut(path: Path) -> None:
    """The second half of the file is missing."""
    compact(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flipped(path: Path) -> None:
    """A flipped bit near the end of each page of the file, where the content of rows stands."""
    compact(path)
    data = bytearray(path.read_bytes())
    for place in range(2 * 4096 - 60, len(data), 4096):
        data[place] ^= 0x10
    path.write_bytes(data)


def _put(path: Path, key_id: str | None, namespace: str = "users", key: str = "item-{}") -> None:
    """Let LangGraph's store write items: sealed under a key, or not at all."""
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        for number in range(3):
            name, value = ItemName((namespace,), key.format(number)), {"text": _TEXT, "number": number}
            if key_id is not None:
                value = items_of(make_cipher(key_id), plain=("number",)).seal(name, value)
            store.put(*name, value)
    _truncate(path)


def items(path: Path) -> None:
    """Items of LangGraph's Store beside the checkpoints, all under k2."""
    good(path)
    _put(path, "k2")


def items_alone(path: Path) -> None:
    """A file with a Store and no saver."""
    _put(path, "k2")


def items_old(path: Path) -> None:
    good(path)
    _put(path, "k1")


def items_plain(path: Path) -> None:
    """Items that are not sealed, beside some that are."""
    _put(path, "k2")
    _put(path, None, "others")


def items_address(path: Path) -> None:
    good(path)
    _put(path, "k2", key="zoe{}@example.org")


def item_moved(path: Path) -> None:
    """The value of an item in the row of another."""
    items(path)
    _change(
        path, "UPDATE store SET value = (SELECT value FROM store WHERE key = 'item-0') WHERE key = 'item-1'"
    )
    _truncate(path)


def item_edited(path: Path) -> None:
    """A readable field of an item has another value."""
    items(path)
    _change(path, "UPDATE store SET value = replace(value, '\"number\":1', '\"number\":7')")
    _truncate(path)


def item_no_json(path: Path) -> None:
    items_alone(path)
    _change(path, "UPDATE store SET value = '{' WHERE key = 'item-1'")
    _truncate(path)


def item_twice(path: Path) -> None:
    """A frame before the sealed one, which some readers take for it."""
    items_alone(path)
    _change(path, "UPDATE store SET value = '{\"__sealpoint__\":1,' || substr(CAST(value AS TEXT), 2)")
    _truncate(path)


SQLITE: Final[dict[str, Callable[[Path], None]]] = {
    make.__name__: make
    for make in (
        good, old, serializer, bound, bound_half, bound_moved, bound_edited, bound_parent, bound_twice,
        half, third, plain, mixed, plain_write, legacy, empty, no_writes, no_rows_but_writes,
        no_bytes, other_file, other_tables, moved_ids, swapped, relabelled, relabelled_key, forged,
        lost, unknown_suite, untagged, bytes_id, number_id, no_id, metadata_nan, metadata_list,
        metadata_number, metadata_team, sealed_metadata, forged_metadata, no_parent, parent_number,
        address, vectors, cache, own_table, free_pages, old_space, kept_journal, full_log, compact,
        types, no_document, zeroed_page, cut, flipped,
        items, items_alone, items_old, items_plain, items_address,
        item_moved, item_edited, item_no_json, item_twice,
    )
}  # fmt: skip


def copy_file(template: Path, path: Path) -> None:
    """Put a copy of a file and its log in the place of what stands there."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
        if (beside := template.with_name(template.name + suffix)).exists():
            shutil.copyfile(beside, path.with_name(path.name + suffix))


# --- Postgres -----------------------------------------------------------------------------------


def _pg_thread(url: str, key_id: str | None, thread_id: str = THREAD) -> None:
    with saver_at(PostgresSaver, url, None if key_id is None else make_cipher(key_id)) as saver:
        config: Any = at(thread_id)
        for step in range(2):
            checkpoint: Any = make(f"{_ID}{step}", text=[_TEXT, step])
            checkpoint["channel_versions"] = {"text": f"{step:04}"}
            config = saver.put(config, checkpoint, {"step": step}, checkpoint["channel_versions"])
            saver.put_writes(config, [("a", [_TEXT]), ("b", [step])], "task")


def _pg_change(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def pg_good(url: str) -> None:
    _pg_thread(url, "k2")


def pg_bound(url: str) -> None:
    """What `SealedSaver` wrote: one thread with its id, one with a pseudonym."""
    write_schema(url, THREAD)
    write_schema(url, "u", **PRIVATE)


def pg_bound_half(url: str) -> None:
    """What `SealedSaver` wrote, beside a thread of the serializer alone."""
    write_schema(url, THREAD)
    _pg_thread(url, "k2", "u")


def pg_bound_moved(url: str) -> None:
    """The sealed part of a checkpoint in the row of another."""
    pg_bound(url)
    other = "SELECT metadata -> '__sealpoint__' FROM checkpoints ORDER BY checkpoint_id LIMIT 1"
    place = "checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints)"
    new = f"jsonb_set(metadata, '{{__sealpoint__}}', ({other}))"
    _pg_change(url, f"UPDATE checkpoints SET metadata = {new} WHERE {place}")


def pg_bound_edited(url: str) -> None:
    """Readable metadata beside a bound checkpoint was edited."""
    pg_bound(url)
    _pg_change(url, "UPDATE checkpoints SET metadata = metadata || '{\"step\": 7}'")


def pg_bound_lost(url: str) -> None:
    """A value that a bound checkpoint needs was deleted."""
    pg_bound(url)
    last = "SELECT max(version) FROM checkpoint_blobs WHERE channel = 'lines'"
    _pg_change(url, f"DELETE FROM checkpoint_blobs WHERE channel = 'lines' AND version = ({last})")


def pg_bound_stripped(url: str) -> None:
    """The sealed part of a checkpoint was removed."""
    pg_bound(url)
    place = "checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints)"
    _pg_change(url, f"UPDATE checkpoints SET metadata = metadata - '__sealpoint__' WHERE {place}")


def pg_old(url: str) -> None:
    _pg_thread(url, "k1")


def pg_half(url: str) -> None:
    _pg_thread(url, "k1")
    _pg_thread(url, "k2", "u")


def pg_third(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_thread(url, "k9", "u")


def pg_plain(url: str) -> None:
    _pg_thread(url, None)


def pg_mixed(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_thread(url, None, "u")


def pg_empty(url: str) -> None:
    """Tables without rows."""


def pg_no_writes(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_change(url, "DROP TABLE checkpoint_writes")


def pg_relabelled(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_change(
        url, "UPDATE checkpoint_writes SET type = replace(type, 'msgpack', 'json') WHERE channel = 'a'"
    )


def pg_forged(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_change(url, "UPDATE checkpoint_blobs SET blob = sha512(blob)")


def pg_metadata(url: str) -> None:
    """A list in place of metadata."""
    _pg_thread(url, "k2")
    _pg_change(url, "UPDATE checkpoints SET metadata = '[]'")


def pg_sealed_metadata(url: str) -> None:
    """Values under k2, and in one row metadata that is sealed under k1."""
    _pg_thread(url, "k2")
    frame = document(sealed(make_cipher("k1"), THREAD, "", f"{_ID}0", body=BODY))
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE checkpoints SET metadata = %s WHERE checkpoint_id = %s",
            (Jsonb(json.loads(frame)), f"{_ID}0"),
        )


def pg_no_parent(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_change(url, f"DELETE FROM checkpoints WHERE checkpoint_id = '{_ID}0'")


def pg_vectors(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_change(
        url, "CREATE TABLE store_vectors (value TEXT)", f"INSERT INTO store_vectors VALUES ('{_TEXT}')"
    )


def pg_own_table(url: str) -> None:
    _pg_thread(url, "k2")
    _pg_change(url, "CREATE TABLE orders (id INTEGER)")


def pg_inline(url: str) -> None:
    """A text that stands in JSON beside the sealed values."""
    _pg_thread(url, "k2")
    _pg_change(
        url,
        "UPDATE checkpoints SET checkpoint ="
        f""" jsonb_set(checkpoint, '{{channel_values}}', '{{"n": "{_TEXT}"}}')""",
    )


POSTGRES: Final[dict[str, Callable[[str], None]]] = {
    make.__name__: make
    for make in (
        pg_good, pg_bound, pg_bound_half, pg_bound_moved, pg_bound_edited, pg_bound_lost,
        pg_bound_stripped, pg_old, pg_half, pg_third, pg_plain, pg_mixed, pg_empty, pg_no_writes,
        pg_relabelled,
        pg_forged, pg_metadata, pg_sealed_metadata, pg_no_parent, pg_vectors, pg_own_table, pg_inline,
    )
}  # fmt: skip


def fill_postgres(url: str, name: str) -> None:
    """Make the tables of a database of Postgres anew, and what is in them."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        for (table,) in found.fetchall():
            connection.execute(f"DROP TABLE {table}".encode())
    set_up(PostgresSaver, url)
    POSTGRES[name](url)


# --- rings --------------------------------------------------------------------------------------

_KEYS: Final[dict[str, dict[str, str]]] = {
    "own": {"k2": "active", "k1": "decrypt-only", "k0": "staged"},
    "listing": {"k2": "active", "k1": "decrypt-only", "k0": "staged"},
    "legacy": {"k2": "active", "k1": "decrypt-only", "aes": "decrypt-only"},
    "short": {"k2": "active"},
    "foreign": {"k2": "active", "k1": "decrypt-only"},
    "disabled": {"k2": "active", "k1": "disabled"},
    "wrapping": {"k2": "active", "k1": "decrypt-only", "k3": "decrypt-only", "k4": "staged"},
    "failing": {"k2": "active", "k1": "decrypt-only", "k3": "decrypt-only"},
}
_WRAPPED: Final = ("k3", "k4")
_WRAPPERS: Final = """name = 'agents'
[[wrapper]]
id = 'w'
kind = 'command'
wrap = ['base64']
unwrap = ['base64', '-d']
[[wrapper]]
id = 'v'
kind = 'command'
wrap = ['base32']
unwrap = ['base32', '-d']
"""
_FAILING: Final = """[[wrapper]]
id = 'none'
kind = 'command'
wrap = ['cat']
unwrap = ['false']
"""
RINGS: Final = (*_KEYS, None)
"""The rings by name; ``None`` is no ring."""


def write_ring(folder: Path, name: str, database: str = "") -> Path:
    """Write a ring, and beside it a file with the material of each key.

    The ring ``listing`` lists the database, by a path or a URL. ``wrapping`` and ``failing`` have wrappers
    and wrapped keys, ``failing`` also a wrapper that does not unwrap.
    """
    states = _KEYS[name]
    lines = ["version = 1", *(f"active = '{key}'" for key, state in states.items() if state == "active")]
    wraps = name in ("wrapping", "failing")
    lines += [_WRAPPERS] if wraps else []
    lines += [_FAILING] if name == "failing" else []
    for key, state in states.items():
        material = AES_KEY if key == "aes" else material_of(f"{key} of others" if name == "foreign" else key)
        source = f"file = '{key}.key'"
        if wraps and key in _WRAPPED:
            source = f"wrapped = '{_wrapped(key, material)}', by = 'w'"
        else:
            _write_private(folder / f"{key}.key", material)
        lines += ["[[key]]", f"id = '{key}'", f"state = '{state}'", f"source = {{ {source} }}"]
        lines += ["suite = 'aes'"] if key == "aes" else []
    if name == "listing":
        form = "url" if database.startswith("postgresql:") else "path"
        lines += ["[[database]]", f"{form} = '{database}'"]
    ring = folder / "keys.toml"
    _write_private(ring, "\n".join([*lines, ""]).encode())
    return ring


def _wrapped(key: str, material: bytes) -> str:
    """What the wrapper ``w`` makes of a key, in base64."""
    text = (
        f'{{"material":"{b64encode(material).decode()}","sealpoint:key":"{key}","sealpoint:ring":"agents"}}\n'
    )
    return b64encode(b64encode(text.encode())).decode()


def _write_private(file: Path, data: bytes) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(data)
    file.chmod(0o600)
