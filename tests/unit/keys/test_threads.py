"""``[threads]`` of a ring file: the thread store that commands use."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing
from sealpoint.keys.edit import create_ring, stage_key
from sealpoint.keys.ringfile import read_thread_store


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    return file


def name(ring: Path, store: str) -> None:
    ring.write_text(f'{ring.read_text()}\n[threads]  # kept\nstore = "{store}"\n')


def test_without_the_table_no_store_is_named(ring: Path) -> None:
    assert read_thread_store(ring) is None


@pytest.mark.parametrize("store", ["threads.db", "deep/threads.db", "../threads.db"])
def test_paths_are_from_the_folder_of_the_ring(
    ring: Path, store: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name(ring, store)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert read_thread_store(ring) == str(ring.parent / store)


@pytest.mark.parametrize("store", ["/srv/threads.db", "postgresql:///?service=threads", "postgres://host/db"])
def test_other_names_are_returned_as_they_are(ring: Path, store: str) -> None:
    name(ring, store)
    assert read_thread_store(ring) == store


def test_it_is_preserved_without_a_warning(ring: Path, caplog: pytest.LogCaptureFixture) -> None:
    name(ring, "threads.db")
    stage_key(ring, "k2")
    assert KeyRing.load(ring).ids == ("k1", "k2")
    assert not caplog.records
    assert '[threads]  # kept\nstore = "threads.db"' in ring.read_text()
