"""agmi's nine edits at rest: six are refused on reading; three are deletions, which no binding notices."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.graphs.savers import SEALED
from tests.support.server import server

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

    def setup(self) -> None:
        super().setup()
        self._saver = SealedSaver(self._saver, serde=SEALED)

    def reload(self) -> None:
        super().reload()
        self._saver = SealedSaver(self._saver, serde=SEALED)

    def mutate_payload(self, record: Any) -> Any:
        record.fields["checkpoint"] = flipped(record.fields["checkpoint"])
        return record

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        """A key that is only added has no effect, so the source is edited too."""
        super().write_meta(seq, {**meta, "source": "forged"})


class OnPostgres(LangGraphPostgresAdapter):  # type: ignore[misc]
    """LangGraph's PostgresSaver, wrapped: the content of a row is in its frame."""

    name = "SealedSaver on Postgres"
    _saver: Any

    def _open_saver(self) -> None:
        super()._open_saver()
        self._saver = SealedSaver(self._saver, serde=SEALED)

    def mutate_payload(self, record: Any) -> Any:
        metadata = json.loads(record.fields["metadata"])
        frame = metadata[FRAME]
        frame["value"] = b64encode(flipped(b64decode(frame["value"]))).decode()
        record.fields["metadata"] = json.dumps(metadata)
        return record

    def payload_of(self, record: Any) -> str:
        value: str = json.loads(record.fields["metadata"])[FRAME]["value"]
        return value

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        super().write_meta(seq, {**meta, "source": "forged"})


@pytest.fixture(params=["sqlite", "postgres"])
def adapters(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """The adapter of agmi, and the one for the wrapped saver."""
    if request.param == "sqlite":
        yield LangGraphSqliteAdapter(), OnSqlite()
    else:
        dsn = server(request.config)
        yield LangGraphPostgresAdapter(dsn), OnPostgres(dsn)


def test_six_edits_are_refused_and_three_deletions_are_not(adapters: tuple[Any, Any]) -> None:
    """Each refusal names a cause: none is an error of code that met something unforeseen."""
    bare, sealed = map(run, adapters)
    assert [row["verdict"] for row in bare] == ["ACCEPTED"] * EDITS
    verdicts = {row["edit"]: row["verdict"] for row in sealed}
    assert verdicts == {row["edit"]: "ACCEPTED" if row["edit"] in DELETIONS else "REJECTED" for row in bare}
    causes = {row["detail"].partition("(")[2].partition(":")[0] for row in sealed}
    assert causes == {"", "IntegrityError", "RowError"}
