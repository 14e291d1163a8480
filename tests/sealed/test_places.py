"""Every error over one stored value names that value: its row, its item or its key in a cache.

Each stored value is damaged, one after the other, and all is read: each error then names the damaged one, and
at least one reading meets it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.store.base import GetOp, SearchOp
from psycopg.types.json import Jsonb

from sealpoint.errors import (
    IntegrityError,
    RolledBackError,
    SealpointError,
    UnknownKeyError,
    excerpt,
    located,
)
from sealpoint.langgraph import SealedCache, SealedSaver, SqliteSaver
from sealpoint.seal.items import ItemName
from tests.graphs.savers import SEALED
from tests.sealed import stores
from tests.sealed.savers import ALONE, HEADS, SAVERS, Sync, opened
from tests.sealed.scene import DELTA, Place, at, checkpoint_id, document, metadata
from tests.support.databases.threads import open_store
from tests.support.servers.postgres import schema, server

HOSTILE: Final = ("new\nline", "'quote\"d'", "\x1b[31mred", "\u202eright to left\u2066", "long " * 150)
CHILD: Final = "child:\u202e\n"
NAMES: Final = ("table", "thread_id", "checkpoint_ns", "checkpoint_id", "channel", "version", "task_id")
# Rows of Postgres that only readers without SealedSaver meet
UNREAD: Final = "__sealpoint__"


class Damage(NamedTuple):
    """A stored value, what its errors must say, and how it is damaged and restored."""

    names: dict[str, Any]  # as the database has them
    set: Callable[[bool], object]


def fill(saver: Any, threads: tuple[str, ...]) -> dict[str, dict[str, str]]:
    for thread in threads:
        for ns in ("", CHILD):
            for step in (1, 2):
                place = Place(thread, ns, checkpoint_id(step))
                made, new = document(place, step, "")
                parent = at(thread, ns, checkpoint_id(step - 1) if step > 1 else None)
                saver.put(parent, made, metadata(place, step, ""), new)
                saver.put_writes(
                    place.config, [("log", [b"x"]), ("n\n\u202e", {"a": b"y"})], "task \u202e\n", "p"
                )
                saver.put_writes(place.config, [("__interrupt__", ["z"])], "other", "p")
    return {}


def flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


def flipped_frame(text: Any) -> Any:
    """Metadata whose sealed part was changed."""
    found = json.loads(text) if isinstance(text, bytes | str) else copy.deepcopy(text)
    frame = found["__sealpoint__"]
    frame["value"] = b64encode(flipped(b64decode(frame["value"]))).decode()
    return found


COLUMNS: Final = {
    "sqlite": [
        ("checkpoints", "checkpoints", "checkpoint", ("thread_id", "checkpoint_ns", "checkpoint_id")),
        ("writes", "writes", "value", (*NAMES[1:4], "task_id", "channel", "idx")),
    ],
    "postgres": [
        ("checkpoints", "checkpoints", "metadata", ("thread_id", "checkpoint_ns", "checkpoint_id")),
        ("checkpoint_writes", "writes", "blob", (*NAMES[1:4], "task_id", "channel", "idx")),
        ("checkpoint_blobs", "values", "blob", ("thread_id", "checkpoint_ns", "channel", "version")),
    ],
}


def in_tables(execute: stores.Execute, kind: str) -> Iterator[Damage]:
    for table, said, column, key in COLUMNS[kind]:
        for value, *names in execute(f"SELECT {column}, {', '.join(key)} FROM {table}"):
            given = dict(zip(key, names, strict=True))
            if given.get("channel") == UNREAD:
                continue
            where = " AND ".join(f"{name} = ?" for name in key)
            before: Any
            after: Any
            if column == "metadata":
                before, after = Jsonb(value), Jsonb(flipped_frame(value))
            else:
                before, after = value, flipped(bytes(value))

            def put(
                on: bool,
                t: str = table,
                c: str = column,
                w: str = where,
                n: Any = names,
                b: Any = before,
                a: Any = after,
            ) -> None:
                execute(f"UPDATE {t} SET {c} = ? WHERE {w}", a if on else b, *n)

            given.pop("idx", None)
            yield Damage({"table": said, **given}, put)


def in_memory(saver: Any) -> Iterator[Damage]:
    """The values of LangGraph's saver in memory."""

    def at_key(mapping: Any, key: Any, after: Any) -> Callable[[bool], object]:
        before = mapping[key]
        return lambda on: mapping.__setitem__(key, after if on else before)

    for thread, spaces in saver.storage.items():
        for ns, rows in spaces.items():
            for id_, (stored, (tag, data), parent) in [*rows.items()]:
                after = (stored, (tag, json.dumps(flipped_frame(data)).encode()), parent)
                names = dict(zip(NAMES, ("checkpoints", thread, ns, id_), strict=False))
                yield Damage(names, at_key(rows, id_, after))
    for spot, rows in saver.writes.items():
        for key, (task, channel, (tag, blob), path) in [*rows.items()]:
            names = dict(zip(NAMES, ("writes", *spot), strict=False)) | {"task_id": task, "channel": channel}
            yield Damage(names, at_key(rows, key, (task, channel, (tag, flipped(blob)), path)))
    for (thread, ns, channel, version), (tag, blob) in [*saver.blobs.items()]:
        names = {
            "table": "values",
            "thread_id": thread,
            "checkpoint_ns": ns,
            "channel": channel,
            "version": version,
        }
        key = (thread, ns, channel, version)
        if blob:
            yield Damage(names, at_key(saver.blobs, key, (tag, flipped(blob))))


@contextmanager
def damages(name: str, place: str, saver: Any) -> Iterator[list[Damage]]:
    if name == "LangGraph InMemorySaver":
        yield [*in_memory(saver.saver.inner)]
    elif name == "InMemorySaver":
        yield [*in_tables(lambda sql, *values: saver.saver.conn.execute(sql, values).fetchall(), "sqlite")]
    else:
        with stores.beside(place) as execute:
            yield [*in_tables(execute, "postgres" if SAVERS[name].kind == "postgres" else "sqlite")]


def readings(saver: Any, threads: tuple[str, ...]) -> Iterator[tuple[str | None, Callable[[], object]]]:
    def listed(config: Any) -> object:
        return [*saver.list(config)]

    yield None, partial(listed, None)
    for thread in threads:
        yield thread, partial(listed, at(thread, None))
        for ns in ("", CHILD):
            for id_ in (None, checkpoint_id(1), checkpoint_id(2)):
                yield thread, partial(saver.get_tuple, at(thread, ns, id_))
            latest = at(thread, ns, checkpoint_id(2))
            yield thread, partial(saver.get_delta_channel_history, config=latest, channels=DELTA)


def require_named(error: SealpointError, names: dict[str, Any], own: dict[str, Any] | None = None) -> None:
    """The message names what the database has, escaped; the attributes have the names themselves."""
    text = str(error)
    assert (text.isascii(), text.isprintable()) == (True, True)
    assert {name: error.place.get(name) for name in names} == names
    assert {name: getattr(error, name) for name in names} == names | (own or {})
    for name, part in names.items():
        shown = excerpt(".".join(part) if isinstance(part, tuple) else part)
        assert not part or f"{name.removesuffix('_id')} {shown}" in text
    told = "".join((text, repr(error), *getattr(error, "__notes__", ())))
    for name, part in (own or {}).items():
        if part != names[name]:
            assert not any(
                excerpt(each)[1:-1] in told for each in (part if isinstance(part, tuple) else (part,))
            )
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(twin), vars(twin)) == (text, vars(error))


CASES: Final = [
    *((name, form) for name in SAVERS for form in ("sealed", "pseudonyms") if "pipeline" not in name),
    ("LangGraph SqliteSaver", HEADS),
    ("LangGraph PostgresSaver", HEADS),
    ("SqliteSaver", ALONE),
    ("AsyncSqliteSaver", ALONE),
    ("InMemorySaver", ALONE),
]


@pytest.mark.broad
@pytest.mark.parametrize(("name", "form"), CASES)
def test_an_error_of_a_saver_names_the_value(
    name: str, form: str, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    entry = SAVERS[name]
    base = schema(server(pytestconfig)) if entry.kind == "postgres" else nullcontext(str(tmp_path / "x.db"))
    with base as place, opened(name, place, form) as (saver, runner):
        sync = Sync(saver, runner, awaited=entry.awaited)
        fill(sync, HOSTILE)
        pseudonyms = form == "pseudonyms"
        columns = {t: t for t in HOSTILE}
        if pseudonyms:
            columns = {saver._parts.pseudonyms._tokens.pseudonym(t): t for t in HOSTILE}
        with damages(name, place, sync) as found:
            assert {each.names["table"] for each in found} >= {"checkpoints", "writes"}
            for names, put in found:
                thread = columns[names["thread_id"]]
                put(True)
                count = 0
                for asked, read in readings(sync, (thread,)):
                    try:
                        read()
                    except SealpointError as error:
                        count += 1
                        # Over all threads, only what is opened says whose pseudonym it is.
                        is_known = asked is not None or names["table"] != "checkpoints"
                        require_named(error, names, {"thread_id": thread} if is_known else None)
                put(False)
                assert count, names


@pytest.mark.parametrize("wrapped", [False, True])
def test_readable_metadata_that_is_not_json_names_its_row(tmp_path: Path, *, wrapped: bool) -> None:
    """What our own saver refuses before SealedSaver sees it, too."""
    with closing(sqlite3.connect(tmp_path / "x.db", check_same_thread=False)) as conn:
        saver: Any = SqliteSaver(conn, serde=SEALED)
        if wrapped:
            saver = SealedSaver(SqliteSaver(conn), serde=SEALED, pseudonyms=True)
        fill(saver, ("alice", "bob"))
        (column,) = conn.execute("SELECT thread_id FROM checkpoints ORDER BY rowid").fetchone()
        conn.execute("UPDATE checkpoints SET metadata = '{' WHERE rowid = 1")
        for read in (
            lambda: saver.get_tuple(at("alice", "", checkpoint_id(1))),
            lambda: [*saver.list(at("alice", ""))],
        ):
            with pytest.raises(SealpointError) as caught:
                read()
            names = {
                "table": "checkpoints",
                "thread_id": column,
                "checkpoint_ns": "",
                "checkpoint_id": checkpoint_id(1),
            }
            require_named(caught.value, names, {"thread_id": "alice"})


@pytest.mark.parametrize("policy", ["require", "warn"])
def test_what_a_thread_store_misses_is_named_by_the_pseudonym(
    policy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of ``heads="warn"`` has no name that the database does not have."""
    path = str(tmp_path / "x.db")
    with (
        closing(sqlite3.connect(path, check_same_thread=False)) as conn,
        closing(open_store(path)) as threads,
    ):
        saver = SealedSaver(Theirs(conn), serde=SEALED, pseudonyms=True, threads=threads, heads=policy)
        fill(saver, ("patient-7",))
        (column,) = conn.execute("SELECT DISTINCT thread_id FROM checkpoints").fetchone()
        conn.execute("DELETE FROM checkpoints WHERE checkpoint_id = ?", (checkpoint_id(2),))
        conn.commit()
        with caplog.at_level(logging.WARNING, "sealpoint"):
            if policy == "warn":
                saver.get_tuple(at("patient-7", CHILD))
                told = caplog.text
            else:
                with pytest.raises(RolledBackError) as caught:
                    saver.get_tuple(at("patient-7", CHILD))
                told = str(caught.value) + repr(caught.value)
                error = caught.value
                assert (error.thread_id, error.checkpoint_ns, error.checkpoint_id, error.table) == (
                    *("patient-7", CHILD, checkpoint_id(2)),
                    "checkpoints",
                )
        assert column in told
        assert excerpt(CHILD) in told
        assert "patient-7" not in told


# --- items and caches -----------------------------------------------------------------------------

ITEMS: Final = [(("users", label), key) for label in ("a\n", "\u202eb") for key in HOSTILE]


@contextmanager
def spoilt_items(entry: str, place: str, store: Any) -> Iterator[dict[Any, Callable[[bool], object]]]:
    """By the name of each item in the database, what damages it and puts it back."""
    if "InMemory" in entry:

        def at_item(item: Any) -> Callable[[bool], object]:
            before, after = item.value, flipped_frame(item.value)
            return lambda on: setattr(item, "value", after if on else before)

        yield {(ns, key): at_item(item) for ns, rows in store._data.items() for key, item in rows.items()}
        return
    with stores.beside(place) as execute:

        def at_row(prefix: str, key: str, value: Any) -> Callable[[bool], object]:
            is_text = isinstance(value, str | bytes)
            texts = [
                json.dumps(each) for each in (json.loads(value) if is_text else value, flipped_frame(value))
            ]
            sql = "UPDATE store SET value = ? WHERE prefix = ? AND key = ?"
            return lambda on: execute(
                sql, texts[on] if is_text else Jsonb(json.loads(texts[on])), prefix, key
            )

        found = execute("SELECT prefix, key, value FROM store")
        yield {(tuple(prefix.split(".")), key): at_row(prefix, key, value) for prefix, key, value in found}


@pytest.mark.parametrize("form", [*stores.FORMS])
@pytest.mark.parametrize("kind", [*stores.STORES])
def test_an_error_of_a_store_names_the_item(
    kind: str, form: str, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    is_server = stores.STORES[kind].kind == "postgres"
    base = schema(server(pytestconfig)) if is_server else nullcontext(str(tmp_path / "x.db"))
    with base as place, stores.opened(kind, place) as (bare,):
        store: Any = bare.sealed(**stores.FORMS[form])
        for ns, key in ITEMS:
            store.put(ns, key, {"lang": "en", "user": "u", "text": b"x"})
        named = {store.store._items.stored_name(ItemName(*each)): each for each in ITEMS}
        with spoilt_items(kind, place, bare.store) as spoilt:
            assert spoilt.keys() == {(name.namespace, name.key) for name in named}
            for name, (ns, key) in named.items():
                names, own = {"table": "store", **name._asdict()}, {"namespace": ns, "key": key}
                spoilt[name](True)
                readings: list[tuple[Callable[[], object], bool]] = [
                    (partial(store.get, ns, key), True),
                    (partial(store.batch, [GetOp(ns, key), GetOp(("users",), "none")]), True),
                    (partial(store.search, ("users",), limit=100), False),
                    (partial(store.search, (), filter={"lang": "en"}, limit=100), False),
                    (partial(store.batch, [SearchOp(("users",), limit=100)]), False),
                ]
                for read, is_asked in readings:
                    with pytest.raises(SealpointError) as caught:
                        read()
                    require_named(caught.value, names, own if is_asked else None)
                spoilt[name](False)


def test_an_item_whose_name_was_opened_is_named_by_attributes(tmp_path: Path) -> None:
    """A search with pseudonyms does not ask for the name, but what is sealed says it."""
    with stores.opened("SqliteStore", str(tmp_path / "x.db")) as (bare,):
        store: Any = bare.sealed(**stores.FORMS["all options"])
        store.put(("users", "ada"), "profile", {"lang": "en", "user": "u"})
        with stores.beside(str(tmp_path / "x.db")) as execute:
            execute("UPDATE store SET value = json_set(value, '$.lang', 'de')")
            ((prefix, key),) = execute("SELECT prefix, key FROM store")
        with pytest.raises(SealpointError) as caught:
            store.search(("users",))
        names = {"table": "store", "namespace": tuple(prefix.split(".")), "key": key}
        require_named(caught.value, names, {"namespace": ("users", "ada"), "key": "profile"})


def test_an_item_that_cannot_be_sealed_is_named(tmp_path: Path) -> None:
    with stores.opened("SqliteStore", str(tmp_path / "x.db")) as (bare,):
        store: Any = bare.sealed()
        with pytest.raises(SealpointError) as caught:
            store.put(("users", "ada"), "profile", {"x": object()})
        require_named(caught.value, {"table": "store", "namespace": ("users", "ada"), "key": "profile"})


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_error_of_a_cache_names_the_key(kind: str, tmp_path: Path, *, awaited: bool) -> None:
    inner: Any = InMemoryCache() if kind == "memory" else SqliteCache(path=str(tmp_path / "cache.db"))
    cache = SealedCache[Any](inner, serde=SEALED)
    keys = [(ns, key) for ns in (("nodes", "a\n"), ("\u202eb",)) for key in HOSTILE]
    cache.set(dict.fromkeys(keys, ("value", None)))
    for key in keys:
        if kind == "memory":
            tag, blob, expiry = inner._cache[key[0]][key[1]]
            inner._cache[key[0]][key[1]] = tag, flipped(blob), expiry
        else:
            place = (",".join(key[0]), key[1])
            ((blob,),) = inner._conn.execute(
                "SELECT val FROM cache WHERE ns = ? AND key = ?", place
            ).fetchall()
            inner._conn.execute("UPDATE cache SET val = ? WHERE ns = ? AND key = ?", (flipped(blob), *place))
        with pytest.raises(IntegrityError) as caught:
            asyncio.run(cache.aget([key])) if awaited else cache.get([key])
        require_named(caught.value, {"table": "cache", "namespace": key[0], "key": key[1]})


def test_what_an_error_names_already_stays() -> None:
    error = located(UnknownKeyError("k9", ("k1",)), "writes", ("t", "", "c"), task_id="1", channel="x")
    assert located(error, "checkpoints", ("other", "ns", "d"), version="2") is error
    assert str(error) == (
        "no key 'k9' in the ring (held: k1) (table 'writes', thread 't', checkpoint 'c', channel 'x',"
        " version '2', task '1')"
    )
    assert (error.table, error.thread_id, error.checkpoint_ns) == ("writes", "t", "")
    assert (SealpointError("x").place, str(SealpointError("x"))) == ({}, "x")
