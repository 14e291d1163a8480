"""Databases with the content of `scene`, ready to be tampered with."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.graphs.openers import CONNECTION
from tests.graphs.savers import SEALED
from tests.sealed.raw import OnPostgres, OnPostgresBesideAStore, OnSqlite, Raw
from tests.sealed.reading import Truth
from tests.sealed.savers import ALONE, HEADS, wrap
from tests.sealed.scene import ALICE, BOB, PLACES, put_one
from tests.support.databases.threads import thread_store

DATABASES: Final = ("sqlite", "postgres")


@dataclass
class Scene:
    """A filled database.

    Attributes:
        saver: Makes a saver that has read nothing yet.
    """

    raw: Raw
    saver: Callable[[], Any]
    truth: Truth


@contextmanager
def sqlite_scene(path: Path, form: str) -> Iterator[Scene]:
    connection = sqlite3.connect(path, check_same_thread=False)
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    with ExitStack() as stack:
        for each in (connection, other):
            stack.callback(each.close)
            each.execute("PRAGMA synchronous = OFF")
        inner = SqliteSaver(connection, serde=SEALED if form == ALONE else None)
        inner.setup()
        threads = stack.enter_context(thread_store(str(path))) if form == HEADS else None
        yield filled(OnSqlite(other), lambda: wrap(inner, form, threads))


@contextmanager
def postgres_scene(dsn: str, form: str) -> Iterator[Scene]:
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(dsn, **CONNECTION))
        inner = PostgresSaver(connection, serde=SEALED if form == ALONE else None)
        inner.setup()
        threads = stack.enter_context(thread_store(dsn)) if form == HEADS else None
        raw = OnPostgres if threads is None else OnPostgresBesideAStore
        yield filled(raw(connection), lambda: wrap(inner, form, threads))


def filled(raw: Raw, saver: Callable[[], Any]) -> Scene:
    seen: set[str] = set()
    for thread in (ALICE, BOB):
        writer = saver()
        for place in PLACES:
            if place.thread == thread:
                put_one(writer, place, int(place.id[-4:]))
        (raw.threads[thread],) = {row["thread_id"] for row in raw.rows("checkpoints")} - seen
        seen.add(raw.threads[thread])
    return Scene(raw, saver, Truth.of(saver()))
