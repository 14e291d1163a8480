"""Maintenance of a Postgres database that `SealedSaver` wrote."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.maintenance.inspect import Readable, inspect, inventory
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.maintenance.status import status
from sealpoint.admin.maintenance.verify import Verification, trial
from sealpoint.admin.results.events import Failure
from sealpoint.serde import EncryptedSerializer
from tests.support.databases.bound import PLAIN, PRIVATE, SECRET, cipher_of, sealed_schema, write_schema
from tests.support.databases.checkpoints import make
from tests.support.databases.postgres import saver_at
from tests.support.databases.sealed import failures

K2 = cipher_of("k2")


@pytest.fixture(params=[PLAIN, PRIVATE], ids=["plain", "private"])
def bound(request: pytest.FixtureRequest, url: str) -> str:
    write_schema(url, **request.param)
    return url


def change(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def verified(url: str, cipher: Any = K2) -> tuple[list[Failure], Verification]:
    with closing(PostgresRows(url)) as store:
        run = Verification(store, cipher)
        return failures([*run.events()]), run


def test_all_of_it_verifies(bound: str) -> None:
    found, run = verified(bound)
    assert found == []
    with closing(PostgresRows(bound)) as store:
        shares = status(store)
    assert {share.table for share in shares} == {
        "checkpoint_blobs",
        "checkpoint_writes",
        "checkpoints.metadata",
    }
    assert all(share.flags == ("row",) for share in shares)
    assert run.bound == run.opened["k2"] == sum(share.rows for share in shares)
    assert (run.unbound.rows, run.orphans.rows) == (0, 0)


_INPUT = "checkpoint_id = (SELECT min(checkpoint_id) FROM checkpoints)"
_SECOND = (
    "checkpoint_id = (SELECT min(checkpoint_id) FROM checkpoints"
    " WHERE jsonb_exists(checkpoint -> 'channel_versions', 'lines'))"
)
_LAST = "checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = '')"
_VERSIONS = "'{channel_versions,lines}'"
EDITS: dict[str, tuple[str, str]] = {
    "step": ("UPDATE checkpoints SET metadata = metadata || '{\"step\": 7}'", "'step'"),
    "parent": ("UPDATE checkpoints SET parent_checkpoint_id = 'x'", "parent"),
    "sealed part": ("UPDATE checkpoints SET metadata = metadata - '__sealpoint__'", "lacks its sealed part"),
    "unbound part": (
        "UPDATE checkpoints SET metadata = jsonb_set(metadata, '{__sealpoint__,type}',"
        " to_jsonb(replace(metadata -> '__sealpoint__' ->> 'type', '.row', '')))",
        "authentication",
    ),
    "moved": (
        "UPDATE checkpoints SET metadata = jsonb_set(metadata, '{__sealpoint__}',"
        f" (SELECT metadata -> '__sealpoint__' FROM checkpoints WHERE {_INPUT}))",
        "authentication",
    ),
    "older value": (
        f"UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, {_VERSIONS}, (SELECT checkpoint ->"
        f" 'channel_versions' -> 'lines' FROM checkpoints WHERE {_SECOND})) WHERE {_LAST}",
        "version",
    ),
    "missing value": ("DELETE FROM checkpoint_blobs WHERE channel = 'lines'", "is missing"),
    "emptied value": (
        "UPDATE checkpoint_blobs SET type = 'empty', blob = NULL WHERE channel = 'lines'",
        "is missing",
    ),
    "sentinel": ("DELETE FROM checkpoint_blobs WHERE channel = '__sealpoint__'", "is missing"),
    "sentinel's version": (
        "UPDATE checkpoints SET checkpoint = checkpoint #- '{channel_versions,__sealpoint__}'",
        "version",
    ),
    "id": ("UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{id}', '\"x\"')", "id"),
    "versions": ("UPDATE checkpoints SET checkpoint = checkpoint - 'channel_versions'", "checkpoint"),
    "write's task": ("UPDATE checkpoint_writes SET task_id = 'x' || idx", "authentication"),
}


@pytest.mark.broad
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_row_is_named(bound: str, edit: str) -> None:
    statement, cause = EDITS[edit]
    change(bound, statement)
    found, _ = verified(bound)
    assert found
    assert all(failure.place for failure in found)
    assert cause in " ".join(str(failure.error).lower() for failure in found)


@pytest.mark.broad
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE checkpoints SET parent_checkpoint_id = NULL",
        "UPDATE checkpoints SET metadata = metadata - 'source'",
        "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_values,name}', '\"x\"')",
        "UPDATE checkpoint_writes SET task_path = 'x'",
    ],
)
def test_what_reading_does_not_use_is_accepted(bound: str, statement: str) -> None:
    change(bound, statement)
    assert verified(bound)[0] == []


def test_a_thread_that_is_deleted_meanwhile_lacks_no_value(bound: str) -> None:
    """LangGraph deletes its checkpoints first."""
    with closing(PostgresRows(bound)) as store:
        events = Verification(store, K2).events()
        for event in events:
            if getattr(event, "table", "") == "checkpoint_writes":
                change(bound, *(f"DELETE FROM {table}" for table in ("checkpoints", "checkpoint_blobs")))
        assert not failures([*events])


def test_a_write_that_is_stored_twice_is_named(bound: str) -> None:
    columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path"
    one = "SELECT ctid FROM checkpoint_writes LIMIT 1"
    copied = columns.replace("idx", "77")
    change(
        bound,
        f"INSERT INTO checkpoint_writes ({columns}) SELECT {copied} FROM checkpoint_writes"
        f" WHERE ctid = ({one})",
    )
    found, _ = verified(bound)
    assert "stored twice" in str(found[0].error)


def test_unbound_rows_among_bound_ones_are_counted(bound: str) -> None:
    with saver_at(PostgresSaver, bound, K2) as saver:
        config: Any = {"configurable": {"thread_id": "late", "checkpoint_ns": ""}}
        checkpoint: Any = make("1f000000-0000-6000-8000-000000000000", lines=["a"])
        saver.put(config, {**checkpoint, "channel_versions": {"lines": "1"}}, {"step": 0}, {"lines": "1"})
    found, run = verified(bound)
    assert found == []
    assert run.unbound.rows == 2  # a value, and the checkpoint
    assert {place["thread_id"] for place in run.unbound.places} == {"late"}


def test_rotation_keeps_what_is_sealed(bound: str) -> None:
    def states(key_id: str) -> list[Any]:
        with sealed_schema(bound, key_id, **PRIVATE) as saver:
            saver.serde = EncryptedSerializer(cipher_of("k3", "k2"))
            return [*saver.list(None)]

    before = states("k2")
    with closing(PostgresRows(bound, writable=True)) as store:
        assert not failures([*rotate(store, cipher_of("k3", "k2"))])
        assert outstanding(store, "k3") == []
    assert verified(bound, cipher_of("k3"))[0] == []
    assert states("k3") == before


def test_types_a_trial_and_inspect_take_values_apart(bound: str) -> None:
    with closing(PostgresRows(bound)) as store:
        found = inventory(store, K2)
        assert found.failures == 0
        assert ("langgraph.types", "Interrupt") in found.constructors
        assert failures([*trial(store, EncryptedSerializer(K2))]) == []
        (thread_id,) = {record.place["thread_id"] for record in store.records()}
        shown = [*inspect(store, K2, thread_id)]
    values = [found for found in shown if isinstance(found, Readable)]
    assert len(values) == len(shown)
    assert "__sealpoint__" not in {found.place.get("channel") for found in values}
    first = next(found for found in values if found.table == "checkpoints.metadata")
    assert first.value["id"] == first.place["checkpoint_id"]
    assert first.sealed_with["metadata"]["user_id"] == f"zoe {SECRET}"


def test_audit_finds_nothing_of_the_state(bound: str) -> None:
    with closing(PostgresRows(bound)) as store:
        found = audit(store)
    assert found.is_sealed
    assert found.is_silent, (found.metadata, found.inline)
    known = {field.key: field.known for field in found.metadata.fields}
    assert known["__sealpoint__"] == "sealed"


@pytest.mark.broad
@pytest.mark.parametrize("frame", ['{"type": "msgpack", "value": "AAAA"}', '"text"', '{"text": "x"}'])
def test_audit_shows_what_is_no_sealed_part(bound: str, frame: str) -> None:
    change(bound, f"UPDATE checkpoints SET metadata = metadata || '{{\"__sealpoint__\": {frame}}}'")
    with closing(PostgresRows(bound)) as store:
        found = audit(store)
    assert not found.is_silent
    assert {field.key: field.known for field in found.metadata.fields}["__sealpoint__"] is None
