"""`trim` in short transactions: others write between them, and a run that was stopped is continued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import ThreadStoreDownError
from sealpoint.threads import ThreadStore, postgres, sqlite
from tests.support.server import schema, server
from tests.support.threads import open_store
from tests.unit.threads.events import FAR, deleted, put

DELETED = 7


@pytest.fixture(params=["sqlite", "postgres"])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ThreadStore, ThreadStore]]:
    """One store, opened twice, with checkpoints that were deleted; it trims two of them at a time."""
    for module in (sqlite, postgres):
        monkeypatch.setattr(module, "PAGE_ROWS", 2)
    with ExitStack() as stack:
        place = str(tmp_path / "db")
        if request.param == "postgres":
            place = stack.enter_context(schema(server(request.config)))
        one, two = (stack.enter_context(closing(open_store(place, timeout=1))) for _ in range(2))
        names = [f"{number}" for number in range(DELETED)]
        one.append([*map(put, names), *map(deleted, names), put("last")])
        yield one, two


def between_pages(store: Any, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Do something after each page that is trimmed."""
    trim = store._trim

    def trim_and_act(*arguments: Any) -> Any:
        done = trim(*arguments)
        pages.append(done)
        act(len(pages))
        return done

    pages: list[Any] = []
    monkeypatch.setattr(store, "_trim", trim_and_act)


def test_others_read_and_write_meanwhile(
    stores: tuple[ThreadStore, ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    seen = []

    def act(_: int) -> None:
        seen.append((other.trimmed(), len([*other.heads()])))

    between_pages(store, monkeypatch, act)
    assert store.trim(FAR) == DELETED
    assert [trimmed + heads for trimmed, heads in seen] == [DELETED + 1] * len(seen)
    assert len({trimmed for trimmed, _ in seen}) > 1
    assert [*store.heads()] == [put("last")]


def test_a_run_that_was_stopped_is_continued(
    stores: tuple[ThreadStore, ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores

    def stop(page: int) -> None:
        if page == 3:
            raise ThreadStoreDownError("stopped")

    with monkeypatch.context() as patch:
        between_pages(store, patch, stop)
        with pytest.raises(ThreadStoreDownError, match="stopped"):
            store.trim(FAR)
    before = other.trimmed()
    assert 0 < before < DELETED
    other.append([put("0"), put("more")])
    assert store.trim(FAR) == DELETED - before
    assert store.trimmed() == DELETED
    assert [*store.heads()] == [put("0"), put("last"), put("more")]
