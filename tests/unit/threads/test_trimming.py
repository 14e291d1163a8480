"""`trim` in short transactions: others write between them, and a run that was stopped is continued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import ThreadStoreDownError
from sealpoint.threads import ThreadStore, database
from tests.support.databases.threads import open_store
from tests.support.servers.postgres import schema, server
from tests.unit.threads.events import FAR, deleted, put

DELETED = 7


@pytest.fixture(params=["sqlite", "postgres"])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ThreadStore, ThreadStore]]:
    """One store, opened twice, with checkpoints that were deleted; it trims two of them at a time."""
    monkeypatch.setattr(database, "PAGE_ROWS", 2)
    with ExitStack() as stack:
        place = str(tmp_path / "db")
        if request.param == "postgres":
            place = stack.enter_context(schema(server(request.config)))
        one, two = (stack.enter_context(closing(open_store(place, timeout=1))) for _ in range(2))
        names = [f"{number}" for number in range(DELETED)]
        one.append([*map(put, names), *map(deleted, names), put("last")])
        yield one, two


def test_trimming_by_pages(stores: tuple[ThreadStore, ThreadStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run is stopped after three pages; what others read and write meanwhile is right."""
    store: Any = stores[0]
    other, trim, seen, stored = stores[1], store._trim_page, list[int](), [put("last")]

    def trim_and_look(*arguments: Any) -> Any:
        done = trim(*arguments)
        seen.append(other.trimmed())
        assert seen[-1] + len([*other.heads()]) == DELETED + len(stored)
        if len(seen) == 3:
            raise ThreadStoreDownError("stopped")
        return done

    monkeypatch.setattr(store, "_trim_page", trim_and_look)
    with pytest.raises(ThreadStoreDownError, match="stopped"):
        store.trim(FAR)
    before = other.trimmed()
    assert 0 < seen[0] < before < DELETED
    stored[:] = [put("0"), put("last"), put("more")]
    other.append([put("0"), put("more")])
    assert store.trim(FAR) == DELETED - before
    assert store.trimmed() == DELETED
    assert [*store.heads()] == stored
