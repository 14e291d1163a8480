"""What an intruder writes into a database during a run, or lays beside a ring: none of it passes for ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.databases.cells import Cell
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import FilePermissionsError, IntegrityError, OutputExistsError, UnknownKeyError
from sealpoint.keys import files, leftovers
from sealpoint.keys.edit import create_ring, disable_key, promote_key, stage_key
from sealpoint.maintenance.audit import audit
from sealpoint.maintenance.rotate import rotate
from tests.support.foreign import rows_of
from tests.support.sealed import VALUES, bind, failures, make_cipher, put, run, values_of


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A ring with an active key k1, in a folder of its own."""
    file = tmp_path / "keys" / "ring.toml"
    create_ring(file, "k1")
    return file


# --- rows -------------------------------------------------------------------------------------


def test_bound_values_that_change_places_both_fail_and_stay(path: Path) -> None:
    bind(path, make_cipher("k1"), "a")
    one, other = values_of(path)[:2]
    with closing(sqlite3.connect(path)) as connection, connection:
        put(connection, one, other.tag, other.value)
        put(connection, other, one.tag, one.value)
    found = failures(run(path, make_cipher("k2", "k1")))
    assert [type(failure.error) for failure in found] == [IntegrityError] * 2
    assert [value.value for value in values_of(path)[:2]] == [other.value, one.value]


def test_a_row_forged_between_reading_and_storing_is_not_sealed(path: Path) -> None:
    """It is not stored over, and does not come to be under a key of ours."""
    forged: list[Cell] = []

    def forge(value: Cell) -> None:
        if not forged:
            forged.append(value)
            with closing(sqlite3.connect(path)) as connection, connection:
                put(connection, value, "msgpack", b"\xa6forged")

    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        *_, last = rotate(store, make_cipher("k2", "k1"), before_change=forge)
    (found,) = (value for value in values_of(path) if value.tag == "msgpack")
    assert (found.where.key, found.value) == (forged[0].where.key, b"\xa6forged")
    assert (last.changed, last.raced) == (VALUES - 1, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "metadata",
    [
        b"[" * 100_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"a":' + b"9" * 100_000 + b"}",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":1e999}',
        b"\xff\xfe",
        7,
        None,
    ],
    ids=[
        "deep list",
        "deep object",
        "long number",
        "key twice",
        "nan",
        "infinite",
        "no text",
        "number",
        "none",
    ],
)
def test_an_audit_counts_metadata_that_it_cannot_read(path: Path, metadata: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET metadata = ? WHERE checkpoint_id = '000001'", (metadata,))
    with rows_of(path) as store:
        found = audit(store)
    assert found.metadata.rows == 3
    assert found.metadata.unreadable == (metadata is not None)


# --- beside a ring ----------------------------------------------------------------------------


def test_forged_key_ids_make_nobody_read_the_ring_again(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a look at the file; its sources, which may be commands, are asked only if it has changed."""
    cipher = RingCipher(KeyRing.load(ring))
    loads: list[object] = []
    monkeypatch.setattr(KeyRing, "load", loads.append)
    for number in range(500):
        with pytest.raises(UnknownKeyError):
            cipher.open(f"msgpack+cobblestone256@z{number}", b"x" * 100)
    assert loads == []


@pytest.mark.parametrize("name", ["new", "k2.destroyed"])
def test_links_beside_a_ring_are_not_written_through(ring: Path, victim: Path, name: str) -> None:
    files.beside(ring, name).symlink_to(victim)
    stage_key(ring, "k2")
    promote_key(ring, "k2")
    disable_key(ring, "k1")
    assert victim.read_text() == "as it was"
    assert not ring.is_symlink()


@pytest.mark.parametrize("target", ["victim", "nothing"])
def test_a_link_in_place_of_a_new_key_file_is_not_followed(ring: Path, victim: Path, target: str) -> None:
    leftovers.key_file(ring, "k2").symlink_to(victim.with_name(target))
    with pytest.raises(OutputExistsError):
        stage_key(ring, "k2")
    assert (victim.read_text(), victim.with_name("nothing").exists()) == ("as it was", False)


def test_material_that_others_laid_out_is_not_taken_up(ring: Path) -> None:
    """It looks like what a stopped move left, and is readable by all."""
    file = leftovers.key_file(ring, "k2")
    file.write_bytes(b"k" * 32)
    file.chmod(0o644)
    file.with_name(f".{ring.name}.k2.new").hardlink_to(file)
    with pytest.raises(FilePermissionsError):
        stage_key(ring, "k2")
    assert [key.id for key in KeyRing.load(ring).keys] == ["k1"]
