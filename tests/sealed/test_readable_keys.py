"""Readable keys of metadata: each was sealed too, or is a token of what was sealed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import RowError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.graphs.savers import RING, SEALED
from tests.sealed.reading import content
from tests.sealed.savers import BARE, SAVERS, Open
from tests.sealed.scene import at

NAMES: Final = [
    "LangGraph SqliteSaver",
    "LangGraph PostgresSaver",
    "LangGraph InMemorySaver",
    "SqliteSaver",
    "InMemorySaver",
]
NO_INDEX: Final = EncryptedSerializer(RingCipher(KeyRing(RING.keys)))
READS: Final[dict[str, Callable[[Any], Any]]] = {
    "get_tuple": lambda saver: saver.get_tuple(at("t", "", "1")),
    "latest": lambda saver: saver.get_tuple(at("t")),
    "list": lambda saver: [*saver.list(at("t"))],
    "list of all": lambda saver: [*saver.list(None)],
    "delta history": lambda saver: saver.get_delta_channel_history(
        config=at("t", "", "1"), channels=["channel"]
    ),
    "copy": lambda saver: saver.copy_thread("t", "copy"),
}


def edit(bare: Any, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the readable metadata of thread ``t``."""
    if not hasattr(bare, "conn"):
        rows = bare.storage["t"][""]
        for key, (document, (tag, blob), parent) in [*rows.items()]:
            metadata = json.loads(blob)
            change(metadata)
            rows[key] = (document, (tag, json.dumps(metadata).encode()), parent)
        return
    is_sqlite = "Postgres" not in type(bare).__name__
    cast, mark = ("CAST(? AS BLOB)", "?") if is_sqlite else ("%s::jsonb", "%s")
    selected = "SELECT checkpoint_id AS id, metadata FROM checkpoints WHERE thread_id = 't'"
    for row in bare.conn.execute(selected).fetchall():
        key, stored = (row["id"], row["metadata"]) if isinstance(row, dict) else row
        metadata = json.loads(stored) if is_sqlite else stored
        change(metadata)
        statement = (
            f"UPDATE checkpoints SET metadata = {cast} WHERE checkpoint_id = {mark} AND thread_id = 't'"
        )
        bare.conn.execute(statement, (json.dumps(metadata), key))
    if is_sqlite:
        bare.conn.commit()


def put(saver: Any, **metadata: Any) -> None:
    config = at("t")
    for id_ in "01":
        config = saver.put(config, {**empty_checkpoint(), "id": id_}, {"step": 1, **metadata}, {})


def tokens_of(bare: Any) -> list[str]:
    found = set[str]()
    edit(bare, lambda metadata: found.update(key for key in metadata if key.startswith("sp")))
    return [*found]


@pytest.mark.claim("s4")
@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_was_not_sealed_is_refused(open_: Open, name: str, how: str) -> None:
    bare = open_(name, BARE)
    saver: Any = SealedSaver(bare.saver, serde=SEALED)
    put(saver)
    READS[how](saver)
    edit(bare.saver, lambda metadata: metadata.update(approved=True))
    with pytest.raises(RowError, match="'approved' is not what was sealed"):
        READS[how](saver)


@pytest.mark.parametrize("change", [{"step": 2}, {"step": "1"}, {"source": "forged"}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_edited_key_is_refused(open_: Open, name: str, change: dict[str, Any]) -> None:
    bare = open_(name, BARE)
    saver: Any = SealedSaver(bare.saver, serde=SEALED)
    put(saver, source="loop")
    edit(bare.saver, lambda metadata: metadata.update(change))
    with pytest.raises(RowError, match="is not what was sealed"):
        saver.get_tuple(at("t"))


@pytest.mark.claim("s5")
@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_token_is_refused_with_the_index_key(open_: Open, name: str) -> None:
    """Also by a saver that indexes nothing, if its ring has the key; without it, it has no effect."""
    bare = open_(name, BARE)
    indexed: Any = SealedSaver(bare.saver, serde=SEALED, indexed_metadata=("user",))
    put(indexed, user="bob")
    (foreign,) = tokens_of(bare.saver)
    put(indexed, user="alice")
    (own,) = tokens_of(bare.saver)
    assert own != foreign
    without: Any = SealedSaver(bare.saver, serde=NO_INDEX)
    same: Any = SealedSaver(bare.saver, serde=SEALED)
    expected = content(indexed.get_tuple(at("t")))
    assert content(same.get_tuple(at("t"))) == content(without.get_tuple(at("t"))) == expected
    edit(bare.saver, lambda metadata: metadata.update({foreign: 1}))
    for saver in (indexed, same):
        with pytest.raises(RowError, match="is not what was sealed"):
            saver.get_tuple(at("t"))
    assert content(without.get_tuple(at("t"))) == expected


@pytest.mark.parametrize("value", [2, True, "1", None, {"a": 1}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_token_with_another_value_is_refused(open_: Open, name: str, value: Any) -> None:
    bare = open_(name, BARE)
    put(SealedSaver(bare.saver, serde=SEALED, indexed_metadata=("user",)), user="bob")
    (token,) = tokens_of(bare.saver)
    edit(bare.saver, lambda metadata: metadata.update({token: value}))
    with pytest.raises(RowError, match="is not what was sealed"):
        SealedSaver(bare.saver, serde=NO_INDEX).get_tuple(at("t"))


@pytest.mark.parametrize("name", SAVERS)
def test_savers_add_no_readable_key_of_their_own(open_: Open, name: str) -> None:
    """With keys that pass through, of each type, which savers copy into metadata."""
    bare = open_(name, BARE)
    scalars = {"tenant": "acme", "number": 7, "share": 0.5, "on": True, "__hidden": "x", "list": [1]}
    inner: Any = SealedSaver(
        bare.saver,
        serde=SEALED,
        pass_through=(*scalars,),
        plain_metadata=("tenant",),
        indexed_metadata=("user", "number"),
    )
    saver: Any = type(bare)(inner, bare.runner, awaited=bare.awaited)
    config: Any = {
        "configurable": {**at("t")["configurable"], **scalars},
        "metadata": {"user": "bob", "langgraph_step": 1},
    }
    stored = saver.put(config, {**empty_checkpoint(), "id": "1"}, {"step": 1, "source": "loop"}, {})
    saver.put_writes(stored, [("a", 1)], "task")
    found = saver.get_tuple(stored)
    assert found.metadata == {
        "step": 1,
        "source": "loop",
        "user": "bob",
        "tenant": "acme",
        "number": 7,
        "share": 0.5,
        "on": True,
    }
    assert len([*saver.list(at("t"))]) == 1
