"""Whole databases whose values have the secret of their thread in the key: rotated, verified, decrypted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Row
from sealpoint.databases.cells import open_cell
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import (
    IntegrityError,
    SecretMissingError,
    UnknownKeyError,
    WrongRingError,
)
from sealpoint.maintenance.bound import take_apart, widened
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.rotate import outstanding
from sealpoint.maintenance.verify import verify
from tests.support.rings import material_of
from tests.support.sealed import (
    VALUES,
    failures,
    head_of,
    make_cipher,
    moved,
    opened,
    place_of,
    put,
    run,
    states,
    tags_of,
    values_of,
    write,
)

K1 = make_cipher("k1")
K2 = make_cipher("k2", "k1")


def secret_of(row: Row) -> bytes:
    return sha256(row["thread_id"].encode()).digest()


def mix(path: Path, thread_id: str, *, is_bound: bool) -> None:
    """Seal a thread's values anew with its secret."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for cell in values_of(path, widened):
            if cell.where.key[0] == thread_id:
                row, (kind, data) = cell.where.row, open_cell(K1, cell).typed
                secret = secret_of(row)
                bound = K1.seal(kind, head_of(cell) + data, row=row, secret=secret)
                put(connection, cell, *(bound if is_bound else K1.seal(kind, data, secret=secret)))


@pytest.fixture(params=[True, False], ids=["bound", "unbound"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two threads with a secret each, and one without."""
    path = tmp_path / "app.db"
    for thread_id in "abc":
        write(path, "k1", thread_id)
    for thread_id in "ab":
        mix(path, thread_id, is_bound=request.param)
    return path


def test_rotation_keeps_the_secret_of_each_value(path: Path) -> None:
    flags = {tag.partition("@")[0] for tag in tags_of(path)}
    assert moved(run(path, K2, secret_of=secret_of)) == 3 * VALUES
    assert tags_of(path) == {f"{front}@k2" for front in flags}
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k2") == []
        assert failures([*verify(store, make_cipher("k2"), secret_of=secret_of)]) == []


def test_only_values_with_a_secret_ask_for_one(path: Path) -> None:
    asked = list[Row]()

    def recorded(row: Row) -> bytes:
        asked.append(row)
        return secret_of(row)

    with closing(SqliteRows(path)) as store:
        assert failures([*verify(store, K1, secret_of=recorded)]) == []
        wanted = [cell.where.row for cell in values_of(path) if cell.where.key[0] != "c"]
    assert asked == wanted


def test_without_secrets_their_values_are_failures_and_are_left(path: Path) -> None:
    before = values_of(path)
    events = run(path, K2)
    assert {type(failed.error) for failed in failures(events)} == {SecretMissingError}
    assert (moved(events), len(failures(events))) == (VALUES, 2 * VALUES)
    assert values_of(path)[: 2 * 3] == before[: 2 * 3]


def test_a_wrong_secret_or_none_is_a_failure_of_its_value_alone(path: Path) -> None:
    """What the function raises is, too: a thread may have been erased."""

    def erased(row: Row) -> bytes:
        if row["thread_id"] == "a":
            raise UnknownKeyError("a", ())
        return bytes(32)

    events = run(path, K2, secret_of=erased)
    causes: dict[str, set[type[Exception]]] = {}
    for failed in failures(events):
        causes.setdefault(failed.place["thread_id"], set()).add(type(failed.error))
    assert causes == {"a": {UnknownKeyError}, "b": {IntegrityError}}
    assert moved(events) == VALUES


def test_a_ring_is_tried_on_values_with_a_secret(path: Path) -> None:
    """Also where no other value is: else the wrong ring would seal what is not sealed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("checkpoints", "writes"):
            connection.execute(f"DELETE FROM {table} WHERE thread_id = 'c'")
    keys = [Key("k2", material_of("k2"), KeyState.ACTIVE), Key("k1", bytes(32), KeyState.DECRYPT_ONLY)]
    with pytest.raises(WrongRingError):
        run(path, RingCipher(KeyRing(keys)), secret_of=secret_of)


def test_a_copy_is_made_with_secrets(path: Path, tmp_path: Path) -> None:
    wanted = opened_with_secrets(path)
    out = tmp_path / "out.db"
    assert failures([*decrypt(path, out, K1, secret_of=secret_of)]) == []
    assert opened(out, K1) == wanted
    assert len(states(out, None, "a")) == 3
    out.unlink()
    failed = failures([*decrypt(path, out, K1)])
    assert {type(each.error) for each in failed} == {SecretMissingError}
    assert not out.exists()


def opened_with_secrets(path: Path) -> dict[tuple[object, ...], tuple[str, bytes]]:
    return {
        place_of(cell): take_apart(cell, open_cell(K1, cell, secret_of=secret_of)).opened.typed
        for cell in values_of(path)
    }
