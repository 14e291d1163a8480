"""What a ring file says of its keys, without any of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import KeyRingError, RingFileMissingError
from sealpoint.keys.entry import RingEntry
from sealpoint.keys.ringfile import read_ring_entries
from tests.support.rings import ring_text, write
from tests.unit.keys.test_entry import CASES

EXAMPLE = Path(__file__).parents[3] / "keys.example"

# A mistake that only the material shows.
IN_MATERIAL = "inline passphrase"


def test_all_fields_without_any_source(tmp_path: Path) -> None:
    """None of the sources is there, and the command would leave a trace."""
    trace = tmp_path / "trace"
    text = f"""
version = 1
active = "k1"
[[key]]
id = "k1"
state = "active"
created = 2026-11-01T09:00:00Z
check = "01234567"
source = {{ command = ["touch", "{trace}"] }}
[[key]]
id = "k0"
state = "destroyed"
destroyed = 2026-05-01T09:00:00Z
[[key]]
id = "langgraph"
state = "decrypt-only"
suite = "aes"
source = {{ env = "SEALPOINT_NOT_SET" }}
[[key]]
id = "k2"
state = "staged"
source = {{ file = "none" }}
[[index]]
source = {{ credential = "none" }}
"""
    born, died = datetime(2026, 11, 1, 9, tzinfo=UTC), datetime(2026, 5, 1, 9, tzinfo=UTC)
    assert read_ring_entries(write(tmp_path / "keys.toml", text)) == (
        RingEntry("k1", KeyState.ACTIVE, created=born, check="01234567", source="command", location="touch"),
        RingEntry("k0", KeyState.DESTROYED, destroyed=died),
        RingEntry(
            "langgraph", KeyState.DECRYPT_ONLY, suite="aes", source="env", location="SEALPOINT_NOT_SET"
        ),
        RingEntry("k2", KeyState.STAGED, source="file", location="none"),
    )
    assert not trace.exists()


def test_inline_material_is_not_in_an_entry() -> None:
    """The example's test keys need no leave here: they are not read."""
    entries = read_ring_entries(EXAMPLE)
    assert [entry.source for entry in entries] == ["inline", "inline", "file"]
    assert "c2Vhb" not in repr(entries)


def test_same_file_as_for_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALPOINT_KEYS", str(write(tmp_path / "keys.toml", ring_text())))
    assert [entry.id for entry in read_ring_entries()] == ["k1"]
    with pytest.raises(RingFileMissingError):
        read_ring_entries(tmp_path / "none.toml")


@pytest.mark.parametrize("name", [name for name in CASES if name != IN_MATERIAL])
def test_same_strictness_as_loading(tmp_path: Path, name: str) -> None:
    """Every mistake in a field is met with the very words of `KeyRing.load`; no key file is there."""
    file = write(tmp_path / "keys.toml", CASES[name][0])
    with pytest.raises(KeyRingError) as loading:
        KeyRing.load(file)
    with pytest.raises(KeyRingError) as reading:
        read_ring_entries(file)
    assert (type(reading.value), str(reading.value)) == (type(loading.value), str(loading.value))


LEGACY = ["[[key]]", "state = 'decrypt-only'", "suite = 'aes'", "source = { env = 'SEALPOINT_NOT_SET' }"]


@pytest.mark.parametrize(
    "lines",
    [
        [*LEGACY, "id = 'a'", *LEGACY, "id = 'b'"],
        ["[[index]]", "source = { inline = 5 }"],
        ["[[index]]", "source = { file = 'k', env = 'k' }"],
    ],
    ids=["two legacy keys", "source of the index", "two sources of the index"],
)
def test_mistakes_between_entries_and_in_the_index(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(KeyRingError):
        read_ring_entries(write(tmp_path / "keys.toml", ring_text(*lines)))


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_file_that_others_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(PermissionError):
        read_ring_entries(write(tmp_path / "keys.toml", ring_text(), mode))
