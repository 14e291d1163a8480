"""Attacks by SQL on the items of LangGraph's Store, on SQLite and Postgres, with names and with pseudonyms.

Two items in each of three namespaces, with a plain field, an indexed field and a text. After each edit a
reading is refused, or gives what was stored. What was moved or deleted is missing, as is an item that an edit
of its readable fields hides from a filter; and an older value of the same item that is put back is accepted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import orjson
import psycopg
import pytest
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from sealpoint.errors import SealpointError
from sealpoint.langgraph import SealedStore
from tests.graphs.openers import CONNECTION
from tests.graphs.savers import SEALED
from tests.support.servers.postgres import schema, server

KEY: Final = "__sealpoint__"
NAMESPACES: Final = (("a",), ("a", "b"), ("c",))
COLUMNS: Final = "prefix, key, value, created_at, updated_at, expires_at, ttl_minutes"

Name = tuple[tuple[str, ...], str]
Stored = tuple[str, str]
X: Final[Name] = (("a",), "x")
Y: Final[Name] = (("a",), "y")
CHILD: Final[Name] = (("a", "b"), "x")
OTHER: Final[Name] = (("c",), "x")
NAMES: Final[list[Name]] = [(namespace, key) for namespace in NAMESPACES for key in "xy"]


def value_of(name: Name, more: str = "") -> dict[str, Any]:
    """What is stored at first; ``kind`` is plain, ``user`` is indexed. They have one value for each key."""
    return {"kind": f"kind {name[1]}", "user": f"user {name[1]}", "text": f"secret {'.'.join(name[0])}{more}"}


class Rows:
    """The table of a store, as an attacker sees it."""

    def __init__(self, connection: Any, mark: str) -> None:
        self.connection, self.mark = connection, mark

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Execute a statement, in which ``?`` stands for a value."""
        done = self.connection.execute(statement.replace("?", self.mark), values)
        return [*done.fetchall()] if done.description else []

    def names(self) -> set[Stored]:
        return {(row[0], row[1]) for row in self.run("SELECT prefix, key FROM store")}

    def read(self, name: Stored) -> dict[str, Any]:
        ((text,),) = self.run("SELECT CAST(value AS text) FROM store WHERE prefix = ? AND key = ?", *name)
        found: dict[str, Any] = json.loads(text)
        return found

    def write(self, name: Stored, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        self.run("UPDATE store SET value = ? WHERE prefix = ? AND key = ?", text, *name)

    def set(self, name: Stored, assignment: str) -> None:
        self.run(f"UPDATE store SET {assignment} WHERE prefix = ? AND key = ?", *name)


class Scene:
    """A store, its table, and the names of the items in it."""

    def __init__(self, store: Any, rows: Rows) -> None:
        self.store, self.rows, self.stored = store, rows, dict[Name, Stored]()
        for name in NAMES:
            before = rows.names()
            store.put(*name, value_of(name, ", as it was before"))
            (self.stored[name],) = rows.names() - before
        self.older = rows.read(self.stored[X])
        for name in NAMES:
            store.put(*name, value_of(name))
        self.saved = rows.run(f"SELECT {COLUMNS} FROM store")
        self.honest = {name: read(self) for name, read in READINGS.items()}

    def restore(self) -> None:
        self.rows.run("DELETE FROM store")
        marks = ", ".join("?" * len(COLUMNS.split(", ")))
        for row in self.saved:
            values = [json.dumps(each) if isinstance(each, dict) else each for each in row]
            self.rows.run(f"INSERT INTO store ({COLUMNS}) VALUES ({marks})", *values)

    def outcome(self, reading: str) -> str:
        """How a reading ends: refused, honest, with something missing, or wrong."""
        try:
            found = READINGS[reading](self)
        except SealpointError:
            return "refused"
        except orjson.JSONDecodeError:
            return "failed in the wrapped store"
        honest = self.honest[reading]
        if sorted(found) == sorted(honest):
            return "honest"
        if any(", as it was before" in each for each in found):
            found = [each for each in map(_without_age, found) if each in honest]
            return "old" if sorted(found) == sorted(honest) else "wrong"
        return "missing" if all(each in honest for each in found) else f"wrong: {found}"


def _without_age(item: str) -> str:
    return item.replace(", as it was before", "")


def seen(items: Any) -> list[str]:
    """Everything of the items but their times."""
    return [repr((tuple(each.namespace), each.key, each.value)) for each in items if each is not None]


READINGS: Final[dict[str, Callable[[Scene], list[str]]]] = {
    "get x": lambda scene: seen([scene.store.get(*X)]),
    "get all": lambda scene: seen([scene.store.get(*name) for name in NAMES]),
    "search": lambda scene: seen(scene.store.search(("a",), limit=100)),
    "search elsewhere": lambda scene: seen(scene.store.search(("c",), limit=100)),
    "search all": lambda scene: seen(scene.store.search((), limit=100)),
    "plain filter": lambda scene: seen(scene.store.search((), filter={"kind": "kind x"}, limit=100)),
    "indexed filter": lambda scene: seen(scene.store.search((), filter={"user": "user x"}, limit=100)),
    "other plain filter": lambda scene: seen(scene.store.search((), filter={"kind": "kind y"}, limit=100)),
    "other indexed filter": lambda scene: seen(scene.store.search((), filter={"user": "user y"}, limit=100)),
    "own filter": lambda scene: seen(scene.store.search((), filter={"text": "secret a"}, limit=100)),
}


def _frame(change: Callable[[dict[str, Any]], Any]) -> Callable[[Scene], None]:
    def edit(scene: Scene) -> None:
        name = scene.stored[X]
        found = scene.rows.read(name)
        scene.rows.write(name, {**found, KEY: change(found[KEY])})

    return edit


def _fields(change: Callable[[Scene, dict[str, Any]], dict[str, Any]]) -> Callable[[Scene], None]:
    def edit(scene: Scene) -> None:
        name = scene.stored[X]
        scene.rows.write(name, change(scene, scene.rows.read(name)))

    return edit


def _copied(source: Name, target: Name) -> Callable[[Scene], None]:
    return lambda scene: scene.rows.write(scene.stored[target], scene.rows.read(scene.stored[source]))


def _swap(scene: Scene) -> None:
    one, two = scene.stored[X], scene.stored[Y]
    values = scene.rows.read(one), scene.rows.read(two)
    scene.rows.write(two, values[0])
    scene.rows.write(one, values[1])


def _moved(target: Name) -> Callable[[Scene], None]:
    """Move x to the place of an item, which is removed before."""

    def edit(scene: Scene) -> None:
        scene.rows.run("DELETE FROM store WHERE prefix = ? AND key = ?", *scene.stored[target])
        prefix, key = scene.stored[target]
        scene.rows.set(scene.stored[X], f"prefix = '{prefix}', key = '{key}'")

    return edit


def _token(value: dict[str, Any]) -> str:
    (found,) = (name for name in value if name.startswith("sp"))
    return found


def _more_tokens(scene: Scene, value: dict[str, Any]) -> dict[str, Any]:
    return {**value, _token(scene.rows.read(scene.stored[Y])): 1}


def _swapped_token(scene: Scene, value: dict[str, Any]) -> dict[str, Any]:
    theirs = _token(scene.rows.read(scene.stored[Y]))
    return {theirs if name.startswith("sp") else name: each for name, each in value.items()}


def _twice(scene: Scene) -> None:
    """A text with two frames, of which a reader may take either; Postgres keeps the last."""
    text = json.dumps(scene.rows.read(scene.stored[X]))
    forged = json.dumps(scene.rows.read(scene.stored[Y])[KEY])
    scene.rows.write(scene.stored[X], text[:-1] + f', "{KEY}": {forged}}}')


def _plain_twice(scene: Scene) -> None:
    text = json.dumps(scene.rows.read(scene.stored[X]))
    scene.rows.write(scene.stored[X], '{"kind": "kind y", ' + text[1:])


def _flip(frame: dict[str, Any]) -> dict[str, Any]:
    text = frame["value"]
    return {**frame, "value": text[:20] + ("A" if text[20] != "A" else "B") + text[21:]}


def _without(beginning: str) -> Callable[[Scene], None]:
    return _fields(lambda _, value: {k: v for k, v in value.items() if not k.startswith(beginning)})


def _retagged(old: str, new: str) -> Callable[[Scene], None]:
    return _frame(lambda frame: {**frame, "type": frame["type"].replace(old, new)})


def _set(assignment: str) -> Callable[[Scene], None]:
    return lambda scene: scene.rows.set(scene.stored[X], assignment)


def _written(text: str) -> Callable[[Scene], None]:
    return lambda scene: scene.rows.write(scene.stored[X], text)


def _delete(scene: Scene) -> None:
    scene.rows.run("DELETE FROM store WHERE prefix = ? AND key = ?", *scene.stored[X])


FORGED: Final = value_of(X, ", forged")
LONG_AGO: Final = "'2020-01-01 00:00:00'"

# Of each attack, how each of the readings ends: refused, honest, missing or old; and what is done to x
ATTACKS: Final[dict[str, tuple[str, Callable[[Scene], None]]]] = {
    "value copied to another key": ("hrrhrrrmmr", _copied(X, Y)),
    "value copied to another namespace": ("hrhrrrrhhr", _copied(X, OTHER)),
    "values of two keys swapped": ("rrrhrrrrrr", _swap),
    "row renamed": ("mrrhrrrmmr", _moved(Y)),
    "row moved to a child namespace": ("mrrhrrrhhr", _moved(CHILD)),
    "row moved to another namespace": ("mrmrrrrhhr", _moved(OTHER)),
    "plain field edited": ("rrrhrmrrhr", _fields(lambda _, value: {**value, "kind": "kind y"})),
    "plain field removed": ("rrrhrmrhhr", _without("kind")),
    "field added beside": ("rrrhrrrhhr", _fields(lambda _, value: {**value, "text": "forged"})),
    "unknown field added beside": ("rrrhrrrhhr", _fields(lambda _, value: {**value, "admin": True})),
    "token copied from another item": ("rrrhrrrhrr", _fields(_more_tokens)),
    "token exchanged for that of another item": ("rrrhrrmhrr", _fields(_swapped_token)),
    "token removed": ("rrrhrrmhhr", _without("sp")),
    "token that is true": ("rrrhrrrhhr", _fields(lambda _, value: {**value, _token(value): True})),
    "frame replaced by plaintext": ("rrrhrrmhhr", _fields(lambda _, __: FORGED)),
    "frame beside plaintext": ("rrrhrrmhhr", _fields(lambda _, value: {**FORGED, KEY: value[KEY]})),
    "frame that is a text": ("rrrhrrrhhr", _frame(lambda _: "forged")),
    "frame with more": ("rrrhrrrhhr", _frame(lambda frame: {**frame, "more": 1})),
    "two frames in one text": ("rrrhrrrhhr", _twice),
    "plain field twice": ("rrrhrmrrhr", _plain_twice),
    "type relabelled": ("rrrhrrrhhr", _retagged("msgpack", "json")),
    "type of another key": ("rrrhrrrhhr", _retagged("@k1", "@k2")),
    ".row taken off the tag": ("rrrhrrrhhr", _retagged(".row", "")),
    "bytes changed": ("rrrhrrrhhr", _frame(_flip)),
    "value that is no object": ("rrrhrmmhhr", _written("[1]")),
    "value that is a text": ("rrrhrmmhhr", _written('"forged"')),
    "row deleted": ("mmmhmmmhhm", _delete),
    "expiry shortened": ("hhhhhhhhhh", _set(f"expires_at = {LONG_AGO}")),
    "updated_at edited": ("hhhhhhhhhh", _set(f"updated_at = {LONG_AGO}")),
    "older value put back": ("ooohooohhm", lambda scene: scene.rows.write(scene.stored[X], scene.older)),
}

# Of two fields the last one is kept, and a filter tells true from 1.
ON_POSTGRES: Final = {
    "plain field twice": "hhhhhhhhhh",
    "token that is true": "rrrhrrmhhr",
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["names", "pseudonyms"])
def scene(
    request: pytest.FixtureRequest, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    with ExitStack() as stack:
        if database == "sqlite":
            path: Path = tmp_path_factory.mktemp("items") / "x.db"
            connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
            store: Any = SqliteStore(connection)
            rows = Rows(stack.enter_context(closing(sqlite3.connect(path, isolation_level=None))), "?")
        else:
            place = stack.enter_context(schema(server(request.config)))
            store = PostgresStore(stack.enter_context(psycopg.connect(place, **CONNECTION)))
            rows = Rows(stack.enter_context(psycopg.connect(place, autocommit=True)), "%s")
        sealed: Any = SealedStore(
            store, serde=SEALED, plain_fields=["kind"], indexed_fields=["user"], pseudonyms=request.param
        )
        sealed.setup()
        yield Scene(sealed, rows)


@pytest.mark.broad
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_an_attack_by_sql_does(scene: Scene, database: str, attack: str) -> None:
    expected, edit = ATTACKS[attack]
    if database == "postgres":
        expected = ON_POSTGRES.get(attack, expected)
    scene.restore()
    assert {reading: scene.outcome(reading) for reading in READINGS} == dict.fromkeys(READINGS, "honest")
    edit(scene)
    found = {reading: scene.outcome(reading) for reading in READINGS}
    assert "".join(outcome[0] for outcome in found.values()) == expected, found


def test_an_item_whose_expiry_was_shortened_is_swept(scene: Scene) -> None:
    """A limit: the store deletes it, and nothing is noticed."""
    scene.restore()
    ATTACKS["expiry shortened"][1](scene)
    assert scene.store.sweep_ttl() == 1
    assert scene.outcome("get x") == "missing"
