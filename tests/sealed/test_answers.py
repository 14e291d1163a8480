"""Answers to another question: rows that are genuine, and not what a statement asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.errors import MetadataError, RowError, SealpointError
from sealpoint.langgraph import SealedSaver
from tests.graphs.savers import SEALED
from tests.sealed.raw import Raw
from tests.sealed.reading import content, delta, place_of
from tests.sealed.savers import wrap
from tests.sealed.scene import ALICE, BOB, C1, C2, C3, ROOT, Place, at, checkpoint_id, put_one
from tests.sealed.scenes import DATABASES, Scene


@pytest.fixture
def on(scenes: Any) -> Iterator[Any]:
    """Fills a database by name, which is as before afterwards."""
    opened = []

    def on(database: str, form: str = "sealed") -> Scene:
        scene: Scene = scenes(database, form)
        undone = scene.raw.undone()
        undone.__enter__()
        opened.append(undone)
        return scene

    yield on
    for each in opened:
        each.__exit__(None, None, None)


def operator(db: Raw, name: str, types: str, body: str) -> None:
    """Make an operator that hides that of Postgres; ``ALTER ROLE ... SET search_path`` does it for all."""
    connection = db.connection
    (schema,) = connection.execute("SELECT current_schema").fetchone().values()
    connection.execute(
        f"CREATE FUNCTION forged(a {types}, b {types}) RETURNS boolean LANGUAGE plpgsql IMMUTABLE"
        f" AS $$ BEGIN RETURN {body}; END $$"
    )
    connection.execute(f"CREATE OPERATOR {name} (LEFTARG = {types}, RIGHTARG = {types}, FUNCTION = forged)")
    connection.execute(f"SET LOCAL search_path = {schema}, pg_catalog")


def unchecked(scene: Any) -> Any:
    """A saver that takes the schema as it comes: what it returns is checked all the same."""
    return SealedSaver(scene.saver().inner, serde=SEALED, allow_schema=True)


def listed(found: Iterator[Any]) -> set[Place]:
    return {place_of(each) for each in found}


SAME: Final = "OPERATOR(pg_catalog.=)"
INSTEAD: Final = f"CASE WHEN b {SAME} '{C2}' THEN a {SAME} '{C1}' ELSE a {SAME} b END"


def test_a_history_begins_at_the_checkpoint_that_is_named(on: Any) -> None:
    """An older one has an older history, and would be taken for it."""
    scene = on("postgres")
    operator(scene.raw, "=", "text", INSTEAD)
    saver = unchecked(scene)
    with pytest.raises(RowError, match="row of another checkpoint"):
        delta(saver, Place(ALICE, ROOT, C2))
    with pytest.raises(RowError, match="row of another checkpoint"):
        saver.get_tuple(at(ALICE, ROOT, C2))


def test_an_ancestor_is_the_one_that_was_sealed(on: Any) -> None:
    """The one before it would leave out its updates, as if they had never been."""
    scene = on("postgres")
    saver = unchecked(scene)
    inner: Any = saver.inner

    class Replaced:
        """Does not list C2, and has C1 under its id."""

        def list(self, config: Any, **arguments: Any) -> Any:
            return (each for each in inner.list(config, **arguments) if place_of(each).id != C2)

        def get_tuple(self, config: Any) -> Any:
            asked = config["configurable"]["checkpoint_id"]
            return inner.get_tuple(at(ALICE, ROOT, C1 if asked == C2 else asked))

    saver.inner = Replaced()
    with pytest.raises(RowError, match="row of another checkpoint"):
        delta(saver, Place(ALICE, ROOT, C3))


@pytest.mark.parametrize(("key", "value"), [("tenant", "tenant bob"), ("run_id", "run bob 1 ")])
def test_a_search_on_sqlite_refuses_a_key_that_is_there_twice(on: Any, key: str, value: str) -> None:
    """SQLite takes the first of two equal keys of an object, LangGraph's saver alone the last."""
    scene = on("sqlite", "plain metadata")
    expected = listed(scene.saver().list(None, filter={key: value}))
    assert {place.thread for place in expected} == {BOB}
    for row in scene.raw.rows("checkpoints", thread_id=ALICE):
        text = f"{{{json.dumps(key)}: {json.dumps(value)}, {json.dumps(row['metadata'])[1:]}"
        scene.raw.put("checkpoints", {**row, "metadata": text.encode()})
    saver = scene.saver()
    with pytest.raises(MetadataError, match="duplicate key"):
        listed(saver.list(None, filter={key: value}))
    with pytest.raises(MetadataError, match="duplicate key"):
        saver.get_tuple(at(ALICE))


def test_a_search_on_postgres_finds_what_was_sealed(on: Any) -> None:
    scene = on("postgres")
    expected = listed(scene.saver().list(None, filter={"step": 1}))
    operator(scene.raw, "@>", "jsonb", "true")
    saver = unchecked(scene)
    assert listed(saver.list(None, filter={"step": 1})) == expected
    assert [*saver.list(None, filter={"run_id": "nobody"})] == []


class Text:
    """What LangGraph's SqliteSaver searches for as its text."""

    def __str__(self) -> str:
        return "loop"


@pytest.mark.parametrize("chosen", [{"source": Text()}, {"counters_since_delta_snapshot": {"log": (3, 4)}}])
def test_a_search_for_what_is_no_json_finds_the_same(on: Any, chosen: Any) -> None:
    """The saver turns it into text or JSON, and so must the comparison after it."""
    scene = on("sqlite")
    saver: Any = scene.saver()
    counted: Any = {"source": "loop", "counters_since_delta_snapshot": {"log": [3, 4]}}
    saver.put(at(ALICE, ROOT, C3), {**saver.get(at(ALICE)), "id": checkpoint_id(4)}, counted, {})
    found = listed(saver.list(at(ALICE, ROOT), filter=chosen))
    assert found == listed(saver.inner.list(at(ALICE, ROOT), filter=chosen))
    assert found


@pytest.mark.parametrize("limit", [None, 5])
def test_a_row_that_is_there_twice_is_refused(on: Any, limit: int | None) -> None:
    scene = on("sqlite")
    for statement in (
        "CREATE TABLE twice AS SELECT * FROM checkpoints UNION ALL SELECT * FROM checkpoints",
        "DROP TABLE checkpoints",
        "ALTER TABLE twice RENAME TO checkpoints",
    ):
        scene.raw.connection.execute(statement)
    with pytest.raises(RowError, match="twice"):
        [*unchecked(scene).list(at(ALICE), limit=limit)]


def test_a_listing_ends(on: Any) -> None:
    """Each page begins below an id, unless the database says that every id is below it."""
    scene = on("postgres")
    saver = scene.saver()
    for step in range(4, 150):
        put_one(saver, Place(ALICE, ROOT, checkpoint_id(step)), step)
    operator(scene.raw, "<", "text", "true")
    with pytest.raises(RowError, match="twice"):
        [*islice(saver.list(at(ALICE, ROOT)), 500)]


NO_VALUES: Final = {
    "a number": "UPDATE {} SET value = 7",
    "null": "UPDATE {} SET value = NULL",
    "text": "UPDATE {} SET value = 'x'",
}


@pytest.mark.parametrize("statement", NO_VALUES.values(), ids=NO_VALUES)
@pytest.mark.parametrize("table", ["writes", "checkpoints"])
def test_a_value_that_is_no_bytes_is_refused_in_long_listings(on: Any, table: str, statement: str) -> None:
    """Their sizes are added before they are opened."""
    scene = on("sqlite")
    saver = scene.saver()
    for step in range(4, 20):
        put_one(saver, Place(ALICE, ROOT, checkpoint_id(step)), step)
    statement = statement.format(table)
    scene.raw.connection.execute(statement if table == "writes" else statement.replace("value", "checkpoint"))
    with pytest.raises(SealpointError):
        [*saver.list(at(ALICE))]


def test_a_write_that_is_no_bytes_is_refused_by_an_async_saver(on: Any) -> None:
    scene = on("sqlite")
    scene.raw.connection.execute("UPDATE writes SET value = NULL")
    (_, _, path) = scene.raw.connection.execute("PRAGMA database_list").fetchone()

    async def read() -> Any:
        async with aiosqlite.connect(path) as connection:
            return await wrap(AsyncSqliteSaver(connection), "sealed").aget_tuple(at(ALICE))

    with pytest.raises(SealpointError):
        asyncio.run(read())


def test_an_id_that_is_no_text_is_refused_in_long_listings(on: Any) -> None:
    """It has no order among the others."""
    scene = on("sqlite")
    saver = scene.saver()
    for step in range(4, 20):
        put_one(saver, Place(ALICE, ROOT, checkpoint_id(step)), step)
    scene.raw.connection.execute("UPDATE checkpoints SET checkpoint_id = CAST(checkpoint_id AS BLOB)")
    with pytest.raises(RowError):
        [*saver.list(at(ALICE))]


@pytest.mark.parametrize("tag", ["msgpack", "msgpack+cobblestone256@k1"])
def test_a_forged_row_gives_no_thread_its_id_back(on: Any, tag: str) -> None:
    """Also where rows of before are allowed: what does not open is none of them."""
    scene = on("sqlite", "pseudonyms")
    inner = scene.saver().inner
    row = scene.raw.rows("checkpoints")[0]
    scene.raw.put("checkpoints", {**row, "thread_id": "carol", "type": tag, "checkpoint": bytes(60)})
    saver = SealedSaver(inner, serde=SEALED, pseudonyms=True, unbound="allow")
    with pytest.raises(SealpointError):
        put_one(saver, Place("carol", ROOT, C1), 1)
    assert len(scene.raw.rows("checkpoints", thread_id="carol")) == 1


def test_a_pseudonym_is_no_name_of_its_thread(on: Any) -> None:
    """A saver without pseudonyms refuses to read a thread under it, in each way."""
    scene = on("sqlite", "pseudonyms")
    saver = SealedSaver(scene.saver().inner, serde=SEALED)
    place = Place(scene.raw.threads[ALICE], ROOT, C3)
    for read in (
        lambda: delta(saver, place),
        lambda: saver.get_tuple(place.config),
        lambda: [*saver.list(place.config)],
    ):
        with pytest.raises(RowError, match="row of another"):
            read()


@pytest.mark.parametrize("database", DATABASES)
def test_what_was_not_touched_is_listed_in_pages(on: Any, database: str) -> None:
    scene = on(database)
    saver = scene.saver()
    for step in range(4, 60):
        put_one(saver, Place(ALICE, ROOT, checkpoint_id(step)), step)
    found = [content(each) for each in saver.list(at(ALICE, ROOT))]
    assert len(found) == 59
