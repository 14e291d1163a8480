"""agmi's nine edits at rest: binding refuses six on reading, and a thread store the three deletions too."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.conninfo import make_conninfo

from tests.graphs.openers import on_aiosqlite, on_async_psycopg
from tests.graphs.savers import SEALED
from tests.sealed.savers import Loop
from tests.support.databases.threads import thread_store
from tests.support.servers.postgres import schema, server

pytest.importorskip("agmi")
from agmi.adapters.langgraph_postgres import LangGraphPostgresAdapter  # type: ignore[import-untyped]
from agmi.adapters.langgraph_sqlite import LangGraphSqliteAdapter  # type: ignore[import-untyped]
from agmi.check import run  # type: ignore[import-untyped]

from sealpoint.langgraph import SealedSaver

FRAME: Final = "__sealpoint__"
DELETIONS: Final = {"T2 tail truncation", "T3 middle deletion", "T9 snapshot rollback"}
EDITS: Final = 9


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


class OnSqlite(LangGraphSqliteAdapter):  # type: ignore[misc]
    """LangGraph's SqliteSaver, wrapped."""

    name = "SealedSaver on SQLite"
    _saver: Any

    def __init__(self, make_threads: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self._make_threads = make_threads

    def setup(self) -> None:
        self._threads = self._make_threads()
        super().setup()
        self._wrap()

    def reload(self) -> None:
        super().reload()
        self._wrap()

    def _wrap(self) -> None:
        self._saver = SealedSaver(self._saver, serde=SEALED, threads=self._threads)

    def mutate_payload(self, record: Any) -> Any:
        record.fields["checkpoint"] = flipped(record.fields["checkpoint"])
        return record


class OnPostgres(LangGraphPostgresAdapter):  # type: ignore[misc]
    """LangGraph's PostgresSaver, wrapped: the content of a row is in its frame."""

    name = "SealedSaver on Postgres"
    _saver: Any

    def __init__(self, dsn: str, make_threads: Callable[[], Any] = lambda: None) -> None:
        super().__init__(dsn)
        self._make_threads = make_threads

    def setup(self) -> None:
        self._threads = self._make_threads()
        super().setup()

    def _open_saver(self) -> None:
        super()._open_saver()
        self._saver = SealedSaver(self._saver, serde=SEALED, threads=self._threads, allow_shared_role=True)

    def mutate_payload(self, record: Any) -> Any:
        metadata = json.loads(record.fields["metadata"])
        frame = metadata[FRAME]
        frame["value"] = b64encode(flipped(b64decode(frame["value"]))).decode()
        record.fields["metadata"] = json.dumps(metadata)
        return record

    def payload_of(self, record: Any) -> str:
        value: str = json.loads(record.fields["metadata"])[FRAME]["value"]
        return value


class OnSqliteAsync(OnSqlite):
    """LangGraph's AsyncSqliteSaver, wrapped."""

    name = "SealedSaver on SQLite, async"

    def _wrap(self) -> None:
        self._saver.conn.close()
        self._saver = Loop(on_aiosqlite(AsyncSqliteSaver), str(self._db), self._threads)


class OnPostgresAsync(OnPostgres):
    """LangGraph's AsyncPostgresSaver, wrapped."""

    name = "SealedSaver on Postgres, async"

    def _open_saver(self) -> None:
        place = make_conninfo(self._uri, options=f"-c search_path={self._schema}")
        self._saver = self._conn_obj = Loop(on_async_psycopg(AsyncPostgresSaver), place, self._threads)


@pytest.fixture(params=["sqlite", "postgres"])
def adapters(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """The adapter of agmi, and the one for the wrapped saver."""
    if request.param == "sqlite":
        yield LangGraphSqliteAdapter(), OnSqlite()
    else:
        dsn = server(request.config)
        yield LangGraphPostgresAdapter(dsn), OnPostgres(dsn)


@pytest.mark.claim("s22")
def test_six_edits_are_refused_and_three_deletions_are_not(adapters: tuple[Any, Any]) -> None:
    """Each refusal names a cause: none is an error of code that met something unforeseen."""
    bare, sealed = map(run, adapters)
    assert [row["verdict"] for row in bare] == ["ACCEPTED"] * EDITS
    verdicts = {row["edit"]: row["verdict"] for row in sealed}
    assert verdicts == {row["edit"]: "ACCEPTED" if row["edit"] in DELETIONS else "REJECTED" for row in bare}
    assert {cause(row) for row in sealed} == {"", "IntegrityError", "RowError"}


ON_SQLITE: Final = {"SQLite": OnSqlite, "SQLite, async": OnSqliteAsync}
ON_POSTGRES: Final = {"Postgres": OnPostgres, "Postgres, async": OnPostgresAsync}


@pytest.fixture(params=[*ON_SQLITE, *ON_POSTGRES])
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Of a saver beside a thread store, which is new for each edit, and outside of what agmi puts back."""
    dsn = "" if request.param in ON_SQLITE else server(request.config)
    with ExitStack() as stack:

        def make_threads() -> Any:
            place = stack.enter_context(schema(dsn)) if dsn else str(tmp_path / f"{next(numbers)}.db")
            return stack.enter_context(thread_store(place))

        numbers = count()
        yield ON_POSTGRES[request.param](dsn, make_threads) if dsn else ON_SQLITE[request.param](make_threads)


@pytest.mark.claim("h20")
@pytest.mark.broad(every=2)
def test_with_a_thread_store_all_nine_are_refused(adapter: Any) -> None:
    """The three that binding accepts: the database lacks what the store remembers."""
    verdicts = {row["edit"]: row for row in run(adapter)}
    assert [row["verdict"] for row in verdicts.values()] == ["REJECTED"] * EDITS
    assert {cause(verdicts[edit]) for edit in DELETIONS} == {"RolledBackError"}
    assert {cause(row) for row in verdicts.values()} <= {"IntegrityError", "RowError", "RolledBackError"}


def cause(row: dict[str, str]) -> str:
    """Name of the error of a verdict."""
    return row["detail"].partition("(")[2].partition(":")[0]
