"""Readable metadata: what the saver makes of it is recognised, and what was added to it is refused."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.errors import RowError
from sealpoint.langgraph import SealedSaver
from tests.graphs.savers import SEALED
from tests.sealed.reading import content
from tests.sealed.savers import BARE, Open
from tests.sealed.scene import at

NAMES: Final = ["LangGraph SqliteSaver", "LangGraph PostgresSaver", "SqliteSaver"]
VALUES: Final[dict[str, Any]] = {
    "large float": 1e23,
    "larger float": -1e300,
    "float": 0.1,
    "float like an int": 2.0,
    "big int": 10**30,
    "nested": {"a": [1, 2.5, (3, None)], "é": {"b": 1e23}},
    "text": "é\u2028\U0001f600\\u0000",
    "lone surrogate": "a\ud800b",
    "nested surrogate": {"a": ["a\ud800b"]},
}


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_in_a_plain_key_is_read(open_: Open, name: str, what: str) -> None:
    """If the bare saver stores it at all."""
    bare = open_(name, BARE)
    saver: Any = SealedSaver(bare.saver, serde=SEALED, plain_metadata=("x",))
    try:
        bare.put(at("bare"), empty_checkpoint(), {"x": VALUES[what]}, {})
    except Exception as error:  # noqa: BLE001 -- of any database
        with pytest.raises(type(error)):
            saver.put(at("t"), empty_checkpoint(), {"x": VALUES[what]}, {})
        return
    saver.put(at("t"), empty_checkpoint(), {"x": VALUES[what]}, {})
    found = saver.get_tuple(at("t"))
    assert found is not None
    expected = json.dumps(VALUES[what]).replace("\\ud800", "")  # which savers drop
    assert json.dumps(found.metadata["x"]) == expected


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_plain_key_that_was_not_sealed_is_refused(open_: Open, name: str) -> None:
    """A search for it would else find a row that does not have it."""
    bare = open_(name, BARE)
    saver: Any = SealedSaver(bare.saver, serde=SEALED, plain_metadata=("tenant",))
    saver.put(at("t"), empty_checkpoint(), {"step": 1}, {})
    assert [*saver.list(None, filter={"tenant": "bob"})] == []
    statement = (
        "UPDATE checkpoints SET metadata = CAST(json_set(metadata, '$.tenant', 'bob') AS BLOB)"
        if "Sqlite" in name
        else """UPDATE checkpoints SET metadata = metadata || '{"tenant": "bob"}'"""
    )
    bare.saver.conn.execute(statement)
    for read in (lambda: saver.get_tuple(at("t")), lambda: [*saver.list(None, filter={"tenant": "bob"})]):
        with pytest.raises(RowError):
            read()


@pytest.mark.parametrize("name", NAMES)
def test_keys_become_plain_and_are_no_longer(open_: Open, name: str) -> None:
    """Rows of before and after such a change are read, and found by searches that the saver does not make."""
    bare = open_(name, BARE)
    with_key: Any = SealedSaver(bare.saver, serde=SEALED, plain_metadata=("tenant",))
    without: Any = SealedSaver(bare.saver, serde=SEALED)
    for number, saver in enumerate((without, with_key, without)):
        saver.put(at("t"), {**empty_checkpoint(), "id": f"{number}"}, {"tenant": "bob"}, {})
    read = [[content(each) for each in saver.list(at("t"))] for saver in (without, with_key)]
    assert len(read[0]) == 3
    assert read[0] == read[1]
    assert len([*without.list(None, filter={"tenant": "bob"})]) == 3
