"""``[ledger]`` of a ring file: where the ledger is, and who signs for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing
from sealpoint.errors import RingFileError
from sealpoint.keys.edit import create_ring, stage_key
from sealpoint.keys.ringfile import RingFile

TABLE = '[ledger]  # kept\ndir = "ledger"\norigin = "example.org/agents"\n'


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    return file


def write(ring: Path, text: str) -> None:
    ring.write_text(f"{ring.read_text()}\n{text}")


def test_without_the_table_there_is_no_ledger(ring: Path) -> None:
    assert RingFile(ring).ledger is None


@pytest.mark.parametrize("folder", ["ledger", "../ledger", "/srv/ledger"])
def test_folder_is_relative_to_the_ring_file(ring: Path, folder: str) -> None:
    write(ring, TABLE.replace('"ledger"', f'"{folder}"'))
    table = RingFile(ring).ledger
    assert table is not None
    assert table.folder == ring.parent / folder
    assert (table.origin, table.signer, table.base) == ("example.org/agents", None, ring.parent)


@pytest.mark.parametrize("signer", ['{ file = "s.key" }', '{ credential = "s" }', '{ command = ["sign"] }'])
def test_signer_is_a_source(ring: Path, signer: str) -> None:
    write(ring, f"{TABLE}signer = {signer}\n")
    table = RingFile(ring).ledger
    assert table is not None
    assert table.signer is not None
    assert table.signer.kind in signer


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[ledger]]\n", "is written as"),
        ('[ledger]\ndir = "x"\n', "lacks the field 'origin'"),
        (TABLE + "key = 1\n", "unknown field 'key'"),
        (TABLE.replace('"ledger"', "5"), "'dir' is not one line of text"),
        (TABLE.replace('"ledger"', '""'), "'dir' is not one line of text"),
        (TABLE + 'signer = "s.key"\n', "source names exactly one of"),
        (TABLE + 'signer = { env = "SIGNER" }\n', "signer 'env' is not one of"),
        (TABLE + 'signer = { inline = "AAAA" }\n', "signer 'inline' is not one of"),
    ],
)
def test_other_forms_are_refused(ring: Path, text: str, problem: str) -> None:
    """An agent's environment is read by what it starts, and a ring file by every agent: no key is there."""
    write(ring, text)
    with pytest.raises(RingFileError, match=problem):
        RingFile(ring)


def test_it_is_preserved_without_a_warning(ring: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(ring, TABLE)
    stage_key(ring, "k2")
    assert KeyRing.load(ring).ids == ("k1", "k2")
    assert not caplog.records
    assert TABLE in ring.read_text()
