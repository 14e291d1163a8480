"""Every session is closed by what opened it: after an error, beside calls, at the end of the process."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any

import psycopg
import pytest

from sealpoint.admin.databases.postgres.connection import Replicas
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.errors import ThreadStoreTimeoutError
from sealpoint.postgres import watched_connection
from sealpoint.threads import PostgresThreadStore
from sealpoint.threads.postgres import MAX_IDLE
from tests.postgres.test_schema import schema_of
from tests.unit.threads.events import put

Wait = Callable[[Any], None]


def open_threads(url: str, **options: Any) -> PostgresThreadStore:
    return PostgresThreadStore(url, schema=f"{schema_of(url)}_threads", **options)


OPENERS: dict[str, Callable[[str], Any]] = {
    "new thread store": lambda url: open_threads(url, create=True),
    "thread store": open_threads,
    "rows": lambda url: PostgresRows(url, writable=True),
    "whole rows": lambda url: PostgresWholeRows(url, writable=True),
    "rows and embeddings": lambda url: PostgresRows(url, writable=True, deletes=True),
    "replicas": Replicas,
}

ERRORS: dict[str, Callable[[], BaseException]] = {
    "lost": lambda: psycopg.OperationalError("lost"),
    "late": lambda: psycopg.errors.QueryCanceled("late"),  # after which the session is as before
    "silent": lambda: ThreadStoreTimeoutError("silent"),
    "interrupted": KeyboardInterrupt,
    "memory": MemoryError,
}


class Sessions:
    """The sessions that the package opens from now on, and what happens in each wait for the server."""

    def __init__(self) -> None:
        self.opened = list[Any]()  # so no finalizer closes one
        self.wait: Wait = lambda session: None

    def open(self) -> list[Any]:
        """Those that are open, when what nothing refers to is gone."""
        gc.collect()
        return [session for session in self.opened if not session.closed]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    found, kind = Sessions(), watched_connection()
    connect, wait = kind.connect.__func__, kind.wait

    def note(cls: Any, *arguments: Any, **options: Any) -> Any:
        session = connect(cls, *arguments, **options)
        found.opened.append(session)
        return session

    def waiting(self: Any, *arguments: Any, **options: Any) -> Any:
        found.wait(self)
        return wait(self, *arguments, **options)

    monkeypatch.setattr(kind, "connect", classmethod(note))
    monkeypatch.setattr(kind, "wait", waiting)
    yield found
    found.wait = lambda session: None
    for session in found.opened:
        session.close()


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("opener", OPENERS)
def test_an_error_at_any_step_of_opening_leaves_no_session(
    opener: str, error: str, url: str, sessions: Sessions
) -> None:
    if opener != "new thread store":
        open_threads(url, create=True).close()
    left, kept = [0], list[BaseException]()

    def fail(_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise ERRORS[error]()  # noqa: RSE102 -- it is called

    for step in count(1):
        left[0], sessions.wait = step, fail
        try:
            made = OPENERS[opener](url)
        except BaseException as caught:  # noqa: BLE001 -- an interrupt, too
            kept.append(caught)  # with the frames of its traceback: no finalizer closes a session
        else:
            sessions.wait = lambda session: None
            made.close()
        assert [session for session in sessions.opened if not session.closed] == [], f"step {step}: {kept}"
        if left[0] > 0:
            break  # it has fewer steps
    assert len(kept) > 1


@pytest.mark.parametrize("call", ["heads", "append", "first"])
def test_a_call_that_ends_after_the_store_was_closed_closes_its_session(
    call: str, url: str, sessions: Sessions
) -> None:
    """An agent's call that was cancelled goes on in its thread; ``first`` has to connect."""
    store = open_threads(url, create=True)
    if call == "first":
        store.close()
    begun, closed = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        begun.set()
        assert closed.wait(60)

    sessions.wait = hold
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: store.append([put("1")]) if call == "append" else [*store.heads()])
        assert begun.wait(60)
        store.close()
        closed.set()
        ended.result(60)
    assert sessions.open() == []
    assert [*store.heads()] == ([put("1")] if call == "append" else [])  # a later call opens another
    assert len(sessions.open()) == 1
    store.close()
    assert sessions.open() == []


def test_more_calls_at_a_time_than_sessions_are_kept(url: str, sessions: Sessions) -> None:
    together = threading.Barrier(2 * MAX_IDLE)
    with closing(open_threads(url, create=True)) as store:
        held = set[int]()

        def meet(session: Any) -> None:
            if session.info.transaction_status == 0 and threading.get_ident() not in held:
                held.add(threading.get_ident())
                together.wait(60)

        sessions.wait = meet
        with ThreadPoolExecutor(2 * MAX_IDLE) as pool:
            assert [*pool.map(lambda _: [*store.heads()], range(2 * MAX_IDLE))] == [[]] * 2 * MAX_IDLE
        sessions.wait = lambda session: None
        assert len(sessions.open()) <= MAX_IDLE
    assert sessions.open() == []


def test_a_store_that_is_dropped_closes_its_sessions(url: str, sessions: Sessions) -> None:
    store = open_threads(url, create=True)
    assert [*store.heads()] == []
    assert len(sessions.open()) == 1
    del store
    assert sessions.open() == []


SCRIPT = """
import os, sys
from sealpoint.threads import PostgresThreadStore
store = PostgresThreadStore(sys.argv[1], schema=sys.argv[2])
assert [*store.heads()] == []
if sys.argv[3] == "fork":
    (session,) = store._pool._idle
    if not (child := os.fork()):
        if sys.argv[4] == "uses":
            [*store.heads()]
        raise SystemExit
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [*store.heads()] == [] and store._pool._idle == [session]
"""


@pytest.mark.parametrize("what", ["end -", "fork rests", "fork uses"])
def test_the_end_of_a_process_closes_its_own_sessions(what: str, url: str) -> None:
    """And a child of a fork those that it has opened, not those of its parent."""
    open_threads(url, create=True).close()
    schema = f"{schema_of(url)}_threads"
    ended = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", SCRIPT, url, schema, *what.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
