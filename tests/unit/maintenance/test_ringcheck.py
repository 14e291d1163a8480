"""The ring of another environment: refused before anything is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from sealpoint.admin.databases.cells import Selection
from sealpoint.admin.databases.sqlite.checked import WRITES
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import MAX_DAMAGED, SAMPLE_ROWS, require_own_ring
from sealpoint.crypto import Key, KeyRing, KeyState, Opened, RingCipher
from sealpoint.errors import WrongRingError
from tests.support.databases.harm import flip
from tests.support.databases.sealed import failures, make_cipher, moved, put, run, values_of, write

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


def test_check_can_be_left_out(path: Path) -> None:
    assert moved(run(path, foreign("k1"), allow_plaintext=True, check_keys=False)) == 12


def test_own_ring_passes(path: Path) -> None:
    """One value that opens is enough: damaged and forged rows hinder no rotation of the others."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in [value for value in values_of(path) if value.tag.endswith("@k1")][:-1]:
            flip(connection, value)
    assert len(failures(run(path, make_cipher("k2", "k1")))) == 11
    assert moved(run(path, make_cipher("k2"), allow_plaintext=True)) == 12
    assert (
        len(failures(run(path, make_cipher("k2", "k1"), allow_plaintext=True))) == 11
    )  # none opens under k1


def test_missing_and_disabled_keys_are_told_by_the_run_itself(path: Path) -> None:
    assert len(failures(run(path, make_cipher("k2")))) == 12
    assert len(failures(run(path, make_cipher("k2", "k1=disabled"), allow_plaintext=True))) == 12


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


TAGS = ["msgpack", "", "x@k1", "m+aes", "m+x@k1", "m+x@k11", "m+x.row@k2", "a.row@b+x@k1", None, b"m+x@k1"]


def test_selection_takes_in_sql_what_it_takes_in_python(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    write(path, "plain", "a")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM writes WHERE rowid > 9")
        for row_id, tag in enumerate(TAGS, 1):
            connection.execute(
                "INSERT OR REPLACE INTO writes"
                " (rowid, thread_id, checkpoint_id, task_id, idx, channel, type, value)"
                " VALUES (?, 't', 'c', ?, 0, 'n', ?, X'78')",
                (row_id, str(row_id), tag),
            )
    with closing(SqliteRows(path)) as store:
        both = (True, False)
        for without, key, plaintext, legacy, bound in product(
            (None, "k2"), (None, "k1"), both, both, (None, *both)
        ):
            selection = Selection(without, plaintext=plaintext, legacy=legacy, with_key=key, bound=bound)
            found = [value.tag for value in store.read(WRITES, None, selection).cells]
            assert found == [tag for tag in TAGS if selection.takes(tag)], selection
