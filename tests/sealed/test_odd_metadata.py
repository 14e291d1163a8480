"""Metadata that LangGraph's savers write and strict JSON lacks: sealed, read and migrated as if bare."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.crypto import RingCipher
from sealpoint.errors import MetadataError, SealpointError
from sealpoint.langgraph import SealedSaver, SqliteSaver
from tests.graphs.savers import RING, SEALED
from tests.sealed.savers import BARE, SAVERS, Open, Sync
from tests.sealed.scene import at
from tests.support.databases.rebinding import rebound
from tests.support.databases.sealed import failures

NAN: Final = float("nan")
INF: Final = float("inf")
CIPHER: Final = RingCipher(RING)


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


VALUES: Final[dict[str, Any]] = {
    "nan": NAN,
    "infinity": INF,
    "minus infinity": -INF,
    "nested": {"all": [NAN, {"a": INF, "b": [-INF, []]}], "none": []},
    "arrays": [0, ["n", "nan"], ["u", "d800"], ["o", ["a", 1]], []],
    "tuple": (1, (2.5, None)),
    "keys": {1: "a", 2.5: "b", False: "c", None: "d", NAN: "e"},
    "65 levels": nested(65),
    "200 levels": nested(200),
    "minus zero": [-0.0, 0],
    "numbers": [10**30, 1e300, 5e-324, 0.1],
}
NAMES: Final = [name for name, entry in SAVERS.items() if "pipeline" not in name and "pool" not in name]


def shown(value: Any) -> str:
    """Text for a value: NaN is NaN in it, 1.0 is not 1, and the order of keys does not count."""
    return json.dumps(json.loads(json.dumps(value)), sort_keys=True)


def put(saver: Any, thread: str, value: Any) -> Any:
    saver.put(at(thread), empty_checkpoint(), {"step": 1, "x": value}, {})
    return saver.get_tuple(at(thread)).metadata["x"]


@pytest.mark.broad
@pytest.mark.parametrize("form", ["sealed", "plain", "indexed"])
@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_bare_saver_keeps_is_kept(open_: Open, name: str, what: str, form: str) -> None:
    """A database that refuses NaN, as Postgres, refuses it in a key that stays readable, and in no other."""
    bare, value = open_(name, BARE), VALUES[what]
    options: Any = {} if form == "sealed" else {f"{form}_metadata": ("x",)}
    sealed = SealedSaver(bare.saver, serde=SEALED, **options)
    saver = Sync(sealed, bare.runner, awaited=bare.awaited)
    expected = {shown(json.loads(json.dumps(value)))}  # JSONB changes -0.0 and large numbers
    try:
        expected.add(shown(put(bare, "bare", value)))
    except Exception as error:  # noqa: BLE001 -- of any database
        if form == "plain" or "Memory" in name:
            with pytest.raises(type(error)):
                put(saver, "t", value)
            return
    assert shown(put(saver, "t", value)) in expected
    (found,) = saver.list(at("t"), filter={"step": 1})
    assert shown(found.metadata["x"]) in expected


@pytest.mark.parametrize(
    "value",
    [nested(256), nested(20_000), {1: 1, "1": 2}, {"a": {2: 1}, "b": b"x"}, 10**5000],
    ids=["256 levels", "20,000 levels", "same key", "bytes", "5,000 digits"],
)
@pytest.mark.parametrize("name", [name for name in NAMES if "Memory" not in name])
def test_what_cannot_be_kept_is_refused_when_it_is_written(open_: Open, name: str, value: Any) -> None:
    """The error names the key and says what to do; nothing is stored."""
    saver = open_(name, "sealed")
    with pytest.raises(MetadataError, match="metadata 'x'") as caught:
        put(saver, "t", value)
    assert caught.value.hint
    assert saver.get_tuple(at("t")) is None


@pytest.mark.parametrize("name", ["LangGraph SqliteSaver", "SqliteSaver", "LangGraph InMemorySaver"])
def test_a_search_for_infinity_finds_what_is_sealed(open_: Open, name: str) -> None:
    """It is readable in no row, so the database cannot search for it."""
    bare = open_(name, BARE)
    saver = SealedSaver(bare.saver, serde=SEALED, plain_metadata=("x",))
    for thread, value in (("a", INF), ("b", -INF), ("c", NAN), ("d", 1.0)):
        put(saver, thread, value)
    for wanted, threads in ((INF, ["a"]), (-INF, ["b"]), (1.0, ["d"])):
        found = saver.list(None, filter={"x": wanted})
        assert [each.config["configurable"]["thread_id"] for each in found] == threads


# --- rows that LangGraph has written ----------------------------------------------------------------

TEXTS: Final = {
    "nan": '{"x": NaN, "y": [Infinity, {"z": -Infinity}]}',
    "twice": '{"x": 1, "x": 2, "y": {"z": 1, "z": [1]}}',
    "65 levels": json.dumps({"x": nested(65)}),
    "254 levels": json.dumps({"x": nested(254)}),
    "escaped surrogate": '{"x": "a\\ud800", "\\udfff": [{"\\ud800": 1}]}',
    "minus zero": '{"x": [-0, -0.0]}',
    "large": '{"x": [1e400, -1e400, 1e-400, 123456789012345678901234567890]}',
    "spaces": ' { "x" : [ 1 , 2 ] } ',
    "indexed plain": '{"step": NaN, "source": ["loop"], "x": 1}',
}


def plain(path: Path, metadata: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        saver = Theirs(connection)
        saver.put(at("t"), empty_checkpoint(), {}, {})
        connection.execute("UPDATE checkpoints SET metadata = ?", (metadata,))


def refused(path: Path) -> int:
    """How many rows the verification refuses."""
    with closing(SqliteRows(path)) as store:
        return len(failures([*Verification(store, CIPHER, require_bound=True).events()]))


def read(path: Path, make: Any) -> str:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        (found,) = make(connection).list(None)
        assert repr(make(connection).get_tuple(at("t")).metadata) == repr(found.metadata)
        return repr(found.metadata)


@pytest.mark.parametrize("as_text", [False, True], ids=["bytes", "text"])
@pytest.mark.parametrize("what", TEXTS)
def test_a_row_of_langgraph_is_migrated_with_its_metadata(tmp_path: Path, what: str, as_text: bool) -> None:
    """And back. SqliteSaver reads it as LangGraph's does."""
    path = tmp_path / "state.db"
    plain(path, TEXTS[what] if as_text else TEXTS[what].encode())
    expected = read(path, Theirs)
    assert read(path, SqliteSaver) == expected
    rebound(path, CIPHER, allow_plaintext=True)
    assert refused(path) == 0
    assert read(path, lambda connection: SealedSaver(Theirs(connection), serde=SEALED)) == expected
    assert read(path, lambda connection: SealedSaver(SqliteSaver(connection), serde=SEALED)) == expected
    rebound(path, CIPHER, unbind=True)
    if "surrogate" not in what:  # which are removed with a warning
        assert read(path, lambda connection: Theirs(connection, serde=SEALED)) == expected


@pytest.mark.parametrize(
    "metadata",
    ['{"step": 1, "step": 1}', '{"step": -0}', '{"step": NaN}', json.dumps({"step": 1, "x": nested(66)})],
    ids=lambda text: text[:20],
)
def test_a_sealed_row_is_read_strictly(tmp_path: Path, metadata: str) -> None:
    """What is readable in it was not written by a saver."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = SealedSaver(SqliteSaver(connection), serde=SEALED)
        saver.put(at("t"), empty_checkpoint(), {"step": 1}, {})
        connection.execute("UPDATE checkpoints SET metadata = ?", (metadata,))
        connection.commit()
        with pytest.raises(SealpointError):
            saver.get_tuple(at("t"))
    assert refused(path) == 1
