"""The ring of another environment: refused before anything is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import SAMPLE_ROWS, require_own_ring
from sealpoint.admin.results.events import MAX_DAMAGED
from sealpoint.crypto import Key, KeyRing, KeyState, Opened, RingCipher
from sealpoint.errors import WrongRingError
from tests.support.databases.sealed import make_cipher, moved, put, run, values_of, write

ELSEWHERE = b"another environment's key".ljust(32, b".")


def foreign(active: str, *others: str) -> RingCipher:
    """A cipher with other material under the same ids."""
    keys = [Key(active, ELSEWHERE, KeyState.ACTIVE)]
    keys += [Key(other, ELSEWHERE[::-1], KeyState.DECRYPT_ONLY) for other in others]
    return RingCipher(KeyRing(keys))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with values under k1, and others that LangGraph left unsealed."""
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    write(path, "plain", "b")
    return path


@pytest.mark.claim("u4")
@pytest.mark.parametrize(
    ("cipher", "options"),
    [
        (foreign("k1"), {"allow_plaintext": True}),
        (foreign("k1"), {"allow_legacy": True}),
        (foreign("k1"), {}),
        (foreign("k2", "k1"), {"allow_plaintext": True}),
        (foreign("k2", "k1"), {}),
        (foreign("k2"), {"allow_plaintext": True}),
        (foreign("k2"), {"allow_legacy": True}),
    ],
    ids=str,
)
def test_ring_of_another_environment_changes_nothing(
    path: Path, cipher: RingCipher, options: dict[str, bool]
) -> None:
    before = values_of(path)
    with pytest.raises(WrongRingError):
        run(path, cipher, **options)
    assert values_of(path) == before


@pytest.mark.parametrize(("forged", "refused"), [(MAX_DAMAGED, False), (MAX_DAMAGED + 1, True)])
def test_few_damaged_rows_under_the_active_key_stop_nothing(path: Path, forged: int, refused: bool) -> None:
    """Else one forged row would keep a leaked key in use. Many are a key that another host made as well."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in [value for value in values_of(path) if value.tag.endswith("@k1")][:forged]:
            put(connection, value, str(value.tag).replace("k1", "k2"), value.value)
    if refused:
        with pytest.raises(WrongRingError):
            run(path, make_cipher("k2", "k1"))
    else:
        assert moved(run(path, make_cipher("k2", "k1"))) == 12 - forged


def test_sample_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for thread in range(10):
        write(path, "k1", f"t{thread}")
    tried: list[str] = []
    genuine = RingCipher.open

    def open_counted(self: RingCipher, tag: str, *rest: bytes, **more: object) -> Opened:
        tried.append(tag)
        return genuine(self, tag, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(RingCipher, "open", open_counted)
    with closing(SqliteRows(path)) as store:
        with pytest.raises(WrongRingError):
            require_own_ring(store, foreign("k1").ring)
        assert len(tried) <= 2 * (SAMPLE_ROWS + 1)
        tried.clear()
        require_own_ring(store, make_cipher("k1").ring)
        assert len(tried) == 1
