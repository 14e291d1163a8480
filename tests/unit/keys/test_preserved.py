"""What stands in a ring file beside the keys: every change preserves it, and an unknown table is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.crypto import KeyRing
from sealpoint.errors import RingFileError
from sealpoint.keys.destroy import destroy_key
from sealpoint.keys.edit import (
    compromise_key,
    create_ring,
    disable_key,
    enable_key,
    promote_key,
    stage_key,
)
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from sealpoint.keys.ringtext import entry_text
from sealpoint.keys.wrapping import wrap_key
from tests.support.wrappers import fake_service, wrapper_text

TABLES = """
[[wrapper]]
id = "aws-prod"  # a comment
kind = "command"
wrap = ["base64"]
unwrap = ["base64", "-d"]

[[database]]
path = "state.db"

[[database]]
service = "agents"
"""


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    return file


CHANGES: list[Callable[[Path], object]] = [
    lambda ring: stage_key(ring, "k2"),
    lambda ring: stage_key(ring, "k3"),
    lambda ring: stage_key(ring, "k4"),
    lambda ring: promote_key(ring, "k2"),
    lambda ring: disable_key(ring, "k1"),
    lambda ring: enable_key(ring, "k1"),
    lambda ring: compromise_key(ring, "k1"),
    lambda ring: destroy_key(ring, "k1"),
    lambda ring: destroy_key(ring, "k3"),
]


@pytest.mark.parametrize("at_the_end", [True, False])
def test_every_change_preserves_them(ring: Path, at_the_end: bool) -> None:
    text = ring.read_text()
    ring.write_text(text + TABLES if at_the_end else text.replace("[[key]]", TABLES + "\n[[key]]", 1))
    before = tomllib.loads(ring.read_text())
    for change in CHANGES:
        change(ring)
        after = tomllib.loads(ring.read_text())
        assert all(after[name] == before[name] for name in ("wrapper", "database"))
        assert TABLES.strip() in ring.read_text()
    assert [entry.state.value for entry in read_ring_entries(ring)] == [
        "destroyed",
        "active",
        "destroyed",
        "staged",
    ]


HEAD = "# Agents of the shop.\n\nversion = 1 # of the format\n"
STATES = "\n# state  seals\n# active yes\n"


def test_new_fields_of_the_ring_are_where_its_version_is(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not behind the comment about the states, where no reader looks for them."""
    text = ring.read_text()
    entry = text[text.index("[[key]]") :].replace('"active"', '"staged"')
    ring.write_text(f"{HEAD}{STATES}\n{entry}")
    promote_key(ring, "k1")
    assert ring.read_text().startswith(f'{HEAD}active = "k1"\n{STATES}')
    with fake_service(monkeypatch):
        ring.write_text(f"{ring.read_text()}\n{wrapper_text()}")
        wrap_key(ring, "k1", "w")
    name = RingFile(ring).wrappers.ring
    assert ring.read_text().startswith(f'{HEAD}name = "{name}"\nactive = "k1"\n{STATES}')


def test_unknown_table_is_refused(ring: Path) -> None:
    ring.write_text(ring.read_text() + "\n[ledgers]\n")
    with pytest.raises(RingFileError, match="unknown field 'ledgers'"):
        KeyRing.load(ring)


times = st.integers(0, 250_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
owners = st.text(st.characters(codec="utf-8")).filter(str.isprintable)


@given(created=times, expires=st.none() | times, owner=st.none() | owners)
def test_entry_that_is_written_reads_back(
    created: datetime, expires: datetime | None, owner: str | None
) -> None:
    """Parse after format is the identity."""
    text = entry_text("k1", "staged", {"created": created, "expires": expires}, owner, "01234567")
    wanted = {
        "id": "k1",
        "state": "staged",
        "created": created,
        "expires": expires,
        "owner": owner,
        "check": "01234567",
        "source": {"file": "keys.d/k1.key"},
    }
    assert tomllib.loads(text)["key"] == [
        {name: value for name, value in wanted.items() if value is not None}
    ]
