"""What the oldest and the newest LangGraph wrote, ours reads and goes on with, under either of them."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.types import Command, Send
from packaging.version import Version

from sealpoint import JsonPlusSerializer, Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SqliteSaver
from tests.compat.golden.write import AES_KEY, FOLDER, KEY, MESSAGES, VALUES, WAITING, asking
from tests.support.databases.checkpoints import at

ROOT: Final = Path(__file__).parents[2]
FILES: Final = sorted(FOLDER.glob("*-[0-9]*.db"))
AES: Final = [path for path in FILES if path.name.startswith("langgraph-aes")]
PLAIN: Final = [path for path in FILES if path.name.startswith("plain")]
STRICT: Final = JsonPlusSerializer(allowed_msgpack_modules=None)
RING: Final = KeyRing(
    [
        Key(id="k1", material=KEY, state=KeyState.ACTIVE),
        Key(id="langgraph", material=AES_KEY, state=KeyState.DECRYPT_ONLY, suite="aes"),
    ]
)
PINS: Final = {
    name: Version(version)
    for name, version in re.findall(
        r"^([\w\[\].-]+)==([^;\n]+)",
        "\n".join((ROOT / "tests" / name).read_text("utf-8") for name in ("oldest.txt", "lowest.txt")),
        re.MULTILINE,
    )
}


def serializer(path: Path) -> EncryptedSerializer:
    """What a deployment uses while it moves: plain rows are allowed only where there are some."""
    return EncryptedSerializer(RingCipher(RING), STRICT, plaintext="allow" if path in PLAIN else "refuse")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy in memory, to be written to."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        connection.deserialize(path.read_bytes())
        yield connection


def test_the_values_are_read(path: Path, connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection, serde=serializer(path))
    third, second, first = saver.list(at("golden"))
    values = first.checkpoint["channel_values"]
    assert {name: type(value) for name, value in values.items()} == {
        name: type(value) for name, value in VALUES.items()
    }
    assert values == VALUES
    assert second.checkpoint["channel_values"] == {"messages": MESSAGES}
    assert third.checkpoint["channel_values"] == {"sends": [Send("node", {"n": 1})]}
    assert [channel for _, channel, _ in first.pending_writes or ()] == [
        "__interrupt__",
        "text",
        "text",
        "messages",
    ]


def test_the_waiting_graph_goes_on(path: Path, connection: sqlite3.Connection) -> None:
    """It is resumed under the installed LangGraph, and what is written from then on is sealed."""
    graph = asking(SqliteSaver(connection, serde=serializer(path)))
    (question,) = graph.get_state(WAITING).tasks[0].interrupts
    assert question.value == {"question": "go on?"}
    final = graph.invoke(Command(resume="done"), WAITING)
    assert final["messages"] == MESSAGES
    newest = "SELECT type FROM checkpoints WHERE thread_id = 'waiting' ORDER BY checkpoint_id DESC"
    assert connection.execute(newest).fetchone() == ("msgpack+cobblestone256@k1",)


def test_rows_under_langgraphs_key_are_encrypted() -> None:
    """They would not show that the ring reads them if anybody could."""
    for path in AES:
        assert b"pay 12 euros" not in path.read_bytes()
    for path in PLAIN:
        assert b"pay 12 euros" in path.read_bytes()


def test_oldest_and_newest_are_here_in_both_forms() -> None:
    """The oldest is the one that tests/oldest.txt installs."""
    versions = {re.sub(r".*-", "", path.stem) for path in FILES}
    assert len(versions) >= 2
    assert len(AES) == len(PLAIN) == len(versions)
    assert PINS["langgraph-checkpoint-sqlite"] in map(Version, versions)


def test_the_oldest_of_each_dependency_is_the_one_that_is_promised() -> None:
    """`make test-oldest` and `make test-lowest` install it; the extras and the core take nothing older."""
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    lowest = {
        name: Version(bound)
        for name, _, bound in (need.partition(";")[0].partition(">=") for need in needs)
        if bound
    }
    assert lowest.items() <= PINS.items()
