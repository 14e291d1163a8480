"""What graphs left behind is rebound and unbound: read by the other saver, it is what it was."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import pytest

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Failure
from sealpoint.crypto import RingCipher
from sealpoint.errors import SealpointError
from sealpoint.langgraph import SealedSaver
from tests.graphs.conftest import Places
from tests.graphs.graphs import SCRIPTS
from tests.graphs.plays import play
from tests.graphs.savers import SEALED, opened
from tests.support.databases.rebinding import rebound
from tests.support.databases.sealed import failures

SAVERS: Final = ("LangGraph SqliteSaver", "LangGraph PostgresSaver", "SqliteSaver")
"""The last one stores what the first one does."""


def cipher() -> RingCipher:
    assert isinstance(SEALED.cipher, RingCipher)
    return SEALED.cipher


def everything(saver: Any) -> list[Any]:
    """All that a saver reads: by listing, and one by one."""
    listed = [*saver.list(None)]
    single = [saver.get_tuple(found.config) for found in listed]
    assert [found.checkpoint for found in single] == [found.checkpoint for found in listed]
    assert [found.pending_writes for found in single] == [found.pending_writes for found in listed]
    return listed


def bare(name: str, place: str, *, sealed: bool) -> list[Any]:
    with opened(name, place, sealed=sealed) as (saver, _):
        return everything(saver)


def wrapped(name: str, place: str, **named: Any) -> list[Any]:
    with opened(name, place, sealed=True) as (saver, _):
        return everything(SealedSaver(saver, serde=SEALED, **named))


def refused(place: str) -> list[Failure]:
    """What `sealpoint verify` refuses."""
    with closing(PostgresRows(place) if "=" in place else SqliteRows(place)) as store:
        return failures([*Verification(store, cipher()).events()])


@pytest.mark.broad
@pytest.mark.parametrize("saver", SAVERS[:2])
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "delta 210"])
def test_there_and_back(places: Places, script: str, saver: str) -> None:
    """Of a database that is sealed by the serializer alone."""
    place = places(saver)
    play(script, saver, place, True)
    before = bare(saver, place, sealed=True)
    rebound(place, cipher())
    assert refused(place) == []
    assert wrapped(saver, place) == before
    with pytest.raises(SealpointError):
        bare(saver, place, sealed=True)
    rebound(place, cipher(), unbind=True)
    assert bare(saver, place, sealed=True) == before


@pytest.mark.broad
@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("script", ["subgraphs", "kinds of values", "delta 30"])
def test_from_plain(places: Places, script: str, saver: str) -> None:
    """Of a database that is not sealed at all; back it comes sealed."""
    place = places(saver)
    play(script, saver, place, False)
    before = bare(saver, place, sealed=False)
    rebound(place, cipher(), allow_plaintext=True)
    assert refused(place) == []
    assert wrapped(saver, place) == before
    rebound(place, cipher(), unbind=True)
    assert bare(saver, place, sealed=True) == before
