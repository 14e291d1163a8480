"""Handlers of signals that raise at any moment of a call: the next call works, each time.

That is what a soft time limit of a task queue does, Ctrl-C in a notebook, and a SystemExit that is caught.
The moments come from a generator with a seed; where a signal falls within a call depends on the machine.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphs

from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import HaltedError, ThreadStoreDownError
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.threads import SqliteThreadStore
from tests.support.keys.rings import NEW, SECRET

# An exception in a callback of Python's own, of a weak reference, is only shown there.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SIGNALS: Final = 60  # of each way in the suite
LONG: Final = 2_500  # of each of eight ways: 20,000
MOST_SECONDS: Final = 0.0015  # a call takes about as long
STUCK_SECONDS: Final = 60
CONFIG: Final[Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
SERDE: Final = EncryptedSerializer(RingCipher(KeyRing([Key("k1", NEW, KeyState.ACTIVE)], index=SECRET)))


class Limit(BaseException):
    """What the handler raises."""


def _raise(*_: object) -> None:
    raise Limit


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _raise)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted(seconds: float, work: Callable[[], object]) -> bool:
    """Call a function, and return whether its signal came before it ended."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Limit:
        return True
    except (HaltedError, ThreadStoreDownError) as error:
        # sqlite3 drops an exception where it begins a callback: the error says so, and accuses nobody
        if "a signal handler raised an exception" not in str(error):
            raise
        return True
    return False


def checkpoint(number: int) -> Any:
    made = empty_checkpoint()
    made["channel_values"] = {"x": number}
    made["channel_versions"] = {"x": number}
    return made


def put(saver: Any, number: int) -> None:
    saver.put(CONFIG, checkpoint(number), {"source": "loop", "step": number, "parents": {}}, {"x": number})


WAYS: Final[dict[str, Callable[[sqlite3.Connection], Any]]] = {
    "SqliteSaver": lambda connection: SqliteSaver(connection, serde=SERDE),
    "SealedSaver": lambda connection: SealedSaver(SqliteSaver(connection), serde=SERDE),
    "SealedSaver on LangGraph's": lambda connection: SealedSaver(LangGraphs(connection), serde=SERDE),
}


def counts() -> list[Any]:
    return [SIGNALS, pytest.param(LONG, marks=pytest.mark.soak)]


def finished(work: Callable[[], object]) -> None:
    """Call a function on this thread, and fail if it hangs: a handler ends what waits for a lock."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the next call hangs"))
    signal.setitimer(signal.ITIMER_REAL, STUCK_SECONDS)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("most", counts())
@pytest.mark.parametrize(
    ("way", "has_store"),
    [("SqliteSaver", False), *product(["SealedSaver", "SealedSaver on LangGraph's"], [False, True])],
)
def test_the_call_after_a_signal_works(way: str, has_store: bool, most: int, tmp_path: Path) -> None:
    draw, hits, number = random.Random(most), 0, 0
    while hits < most:
        folder = tmp_path / str(number)
        folder.mkdir()
        store = SqliteThreadStore(folder / "threads.db", create=True, timeout=5) if has_store else None
        more: Any = {"threads": store} if store else {}
        with closing(sqlite3.connect(folder / "state.db", check_same_thread=False)) as connection:
            saver = WAYS[way](connection)
            if store:
                saver = SealedSaver(
                    saver.inner if isinstance(saver, SealedSaver) else saver, serde=SERDE, **more
                )
            for _ in range(40):  # then new files: what is opened and compiled once is interrupted, too
                number += 1
                wait = draw.random() * MOST_SECONDS

                def work(saver: Any = saver, number: int = number) -> None:
                    put(saver, number)
                    saver.get_tuple(CONFIG)

                hits += interrupted(wait, work)

                def after(saver: Any = saver, number: int = number) -> None:
                    put(saver, number)
                    found = saver.get_tuple(CONFIG)
                    assert found.checkpoint["channel_values"] == {"x": number}

                finished(after)
            assert not connection.in_transaction
            heads = None if store is None else {head.spot.checkpoint_id for head in store.heads()}
            rows = {found.checkpoint["id"] for found in saver.list(CONFIG)}
            if heads is not None:
                assert heads <= rows
            if store is not None:
                store.close()
        number += 1


class Uncommitted(sqlite3.Connection):
    """A connection on which a signal's handler raises once, where a saver commits."""

    raises = True

    def commit(self) -> None:
        if self.raises:
            self.raises = False
            raise Limit
        super().commit()


@pytest.mark.parametrize("is_second", [False, True])
def test_a_transaction_that_a_handler_ends_is_rolled_back(tmp_path: Path, *, is_second: bool) -> None:
    """Also of a saver that another SealedSaver, without a thread store, has wrapped."""
    with (
        closing(SqliteThreadStore(tmp_path / "threads.db", create=True)) as store,
        closing(sqlite3.connect(tmp_path / "state.db", factory=Uncommitted)) as connection,
    ):
        inner: Any = LangGraphs(connection)
        saver: Any = SealedSaver(
            SealedSaver(inner, serde=SERDE).inner if is_second else inner, serde=SERDE, threads=store
        )
        with pytest.raises(Limit):
            put(saver, 1)
        put(saver, 2)
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == {"x": 2}
        assert saver.conn is connection


class Interrupting(sqlite3.Connection):
    """A connection on which a signal's handler raises where a look at the tables ends its transaction."""

    raises = True

    def cursor(self, *_: Any) -> Any:
        connection = self

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *values: Any) -> Any:
                if statement == "ROLLBACK" and connection.raises:
                    connection.raises = False
                    raise Limit
                return super().execute(statement, *values)

        return super().cursor(Cursor)


@pytest.mark.parametrize("way", ["SqliteSaver", "SealedSaver on LangGraph's"])
def test_a_look_at_the_tables_that_a_handler_ends_leaves_no_transaction(way: str, tmp_path: Path) -> None:
    with (
        closing(SqliteThreadStore(tmp_path / "threads.db", create=True)) as store,
        closing(sqlite3.connect(tmp_path / "state.db", factory=Interrupting)) as connection,
    ):
        bare = WAYS[way](connection)
        saver: Any = SealedSaver(getattr(bare, "inner", bare), serde=SERDE, threads=store)
        with pytest.raises(Limit):
            put(saver, 1)
        put(saver, 2)
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == {"x": 2}
        assert not connection.in_transaction


class Asked(sqlite3.Connection):
    """A connection on which a signal's handler raises at one question whether a statement may be compiled."""

    question = 0  # the number of the one at which it does
    count = 0

    def set_authorizer(self, authorize: Any) -> None:
        def ask(*asked: Any) -> int:
            self.count += 1
            if self.count == self.question:
                raise Limit
            answer: int = authorize(*asked)
            return answer

        super().set_authorizer(authorize and ask)


@pytest.mark.parametrize("way", ["SqliteSaver", "SealedSaver"])
def test_each_question_at_which_a_handler_raises_is_told_as_such(way: str, tmp_path: Path) -> None:
    """Of the first call, which checks the tables; SQLite names a function otherwise than a column."""
    question, ended = 0, 0
    while question == ended:
        question += 1
        with closing(sqlite3.connect(tmp_path / f"{question}.db", factory=Asked)) as connection:
            connection.question = question
            saver = WAYS[way](connection)
            with suppress(HaltedError):
                put(saver, 1)
                saver.get_tuple(CONFIG)
            ended += connection.count >= question
            connection.question = 0
            put(saver, 2)
            assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == {"x": 2}
    assert ended > 100


def test_a_thread_store_that_a_handler_ends_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each question of its opening: nothing leads to a backup."""
    path = tmp_path / "threads.db"
    SqliteThreadStore(path, create=True).close()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Asked))
    question, ended = 0, 0
    while question == ended:
        question += 1
        monkeypatch.setattr(Asked, "question", question)
        try:
            SqliteThreadStore(path).close()
        except ThreadStoreDownError as error:
            ended += 1
            assert "a signal handler raised" in str(error)  # noqa: PT017 -- the last one ends nothing
            assert "backup" not in (error.hint or "")  # noqa: PT017
    assert ended > 10
    monkeypatch.setattr(Asked, "question", 0)
    SqliteThreadStore(path).close()


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore:.*was destroyed but it is pending"
)
@pytest.mark.parametrize("most", counts())
@pytest.mark.parametrize("has_store", [False, True])
def test_the_call_after_a_signal_works_on_a_loop(has_store: bool, most: int, tmp_path: Path) -> None:
    """The handler cancels the task, as asyncio does at Ctrl-C: one that raises breaks the loop itself."""
    draw, hits, number = random.Random(most), 0, 0
    store = SqliteThreadStore(tmp_path / "threads.db", create=True, timeout=5) if has_store else None
    connection = sqlite3.connect(tmp_path / "state.db", check_same_thread=False)
    more: Any = {"threads": store} if store else {}
    saver = SealedSaver(AsyncSqliteSaver(connection), serde=SERDE, **more)

    async def run(number: int, seconds: float) -> Any:
        task: Any = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGALRM, task.cancel)
        metadata: Any = {"source": "loop", "step": number, "parents": {}}
        signal.setitimer(signal.ITIMER_REAL, seconds)
        await saver.aput(CONFIG, checkpoint(number), metadata, {"x": number})
        found = await saver.aget_tuple(CONFIG)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return found

    while hits < most:
        number += 1
        try:
            asyncio.run(run(number, draw.random() * 2 * MOST_SECONDS))
        except asyncio.CancelledError:
            hits += 1

        def after(number: int = number) -> None:
            found = asyncio.run(run(number, 0))
            assert found.checkpoint["channel_values"] == {"x": number}

        finished(after)
    connection.close()
    if store:
        store.close()
