"""``[[database]]`` of a ring file: which databases have rows under its keys."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.crypto import KeyRing
from sealpoint.errors import RingFileError
from sealpoint.keys.databasetable import has_password, read_database_tables
from sealpoint.keys.edit import create_ring, stage_key
from sealpoint.keys.ringfile import RingFile

SECRET = "hunter2-hunter2"


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    return file


def write(ring: Path, *entries: str) -> None:
    ring.write_text("\n".join([ring.read_text(), *(f"[[database]]\n{entry}\n" for entry in entries)]))


def test_without_entries_there_are_none(ring: Path) -> None:
    assert RingFile(ring).databases == ()


def test_each_form(ring: Path) -> None:
    """A path is relative to the folder of the ring file, and a service is a URL."""
    write(
        ring,
        'path = "state.db"',
        'path = "/srv/state.db"',
        'url = "postgresql://me@db.example/agents?options=-csearch_path%3Dagents"',
        'url = "postgres:///agents"',
        'service = "agents of a&b"',
    )
    assert RingFile(ring).databases == (
        str(ring.parent / "state.db"),
        "/srv/state.db",
        "postgresql://me@db.example/agents?options=-csearch_path%3Dagents",
        "postgres:///agents",
        "postgresql:///?service=agents%20of%20a%26b",
    )


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("", "names exactly one of path, service, url"),
        ('path = "x.db"\nservice = "x"', "names exactly one of path, service, url"),
        ('path = "x.db"\nname = "x"', "unknown field 'name'"),
        ("path = 5", "'path' is not one line of text"),
        ('path = ""', "'path' is not one line of text"),
        ('path = "a\\nb"', "'path' is not one line of text"),
        ('path = ["x.db"]', "'path' is not one line of text"),
        ('path = "postgresql://host/db"', "'path' is a URL"),
        ('url = "x.db"', "'url' does not begin with postgresql://"),
        ('url = "mysql://host/db"', "'url' does not begin with postgresql://"),
        ('url = "service=x"', "'url' does not begin with postgresql://"),
    ],
)
def test_other_forms_are_refused(ring: Path, entry: str, problem: str) -> None:
    write(ring, entry)
    with pytest.raises(RingFileError, match=problem):
        KeyRing.load(ring)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgres://me:{SECRET}@host/db",
        f"postgresql://host/db?password={SECRET}",
        f"postgresql://host/db?pass%77ord={SECRET}",
        f"postgresql://host/db?sslmode=require&sslpassword={SECRET}",
        f"mysql://me:{SECRET}@host/db",
    ],
)
def test_password_is_refused_and_not_shown(ring: Path, url: str) -> None:
    """Any account may read a ring file."""
    write(ring, f'url = "{url}"')
    with pytest.raises(RingFileError, match="a password stands in 'url'") as caught:
        KeyRing.load(ring)
    assert SECRET not in "".join([str(caught.value), *caught.value.__notes__])
    assert "$PGPASSFILE" in caught.value.hint


@pytest.mark.parametrize(
    "entries",
    [
        ['path = "x.db"', 'path = "./x.db"'],
        ['service = "x"', 'url = "postgresql:///?service=x"'],
        ['url = "postgresql://host/db"', 'path = "x.db"', 'url = "postgresql://host/db"'],
    ],
)
def test_one_database_twice_is_refused(ring: Path, entries: list[str]) -> None:
    write(ring, *entries)
    with pytest.raises(RingFileError, match="twice"):
        RingFile(ring)


@pytest.mark.parametrize("text", ["[database]\npath = 'x.db'\n", "database = 5\n", "database = ['x.db']\n"])
def test_it_is_an_array_of_tables(ring: Path, text: str) -> None:
    ring.write_text(text + ring.read_text() if "=" in text.splitlines()[0] else ring.read_text() + text)
    with pytest.raises(RingFileError, match=r"is written as \[\[database\]\]"):
        RingFile(ring)


def test_loading_a_ring_opens_no_database(
    ring: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the file nor the server need exist for a process that seals, and it is not warned."""

    def connect(*_: Any) -> None:
        raise AssertionError("a server was asked")

    monkeypatch.setattr(socket.socket, "connect", connect)
    write(ring, 'path = "missing.db"', 'url = "postgresql://127.0.0.1:1/agents"')
    assert KeyRing.load(ring).load_material().ids == ("k1",)
    assert not caplog.records


def test_changes_preserve_the_entries(ring: Path) -> None:
    write(ring, 'path = "state.db"  # of production', 'service = "agents"')
    stage_key(ring, "k2")
    assert '[[database]]\npath = "state.db"  # of production\n' in ring.read_text()
    assert len(RingFile(ring).databases) == 2


texts = st.text(max_size=20) | st.sampled_from(["x.db", "./x.db", "../x.db", "a", "//", "postgresql://h/d"])
values = texts | texts.map("postgresql://".__add__) | st.integers() | st.none()
tables = st.lists(
    st.dictionaries(st.sampled_from(["path", "url", "service", "name"]), values, max_size=2), max_size=4
)


@given(tables=tables)
def test_what_is_accepted_has_no_password_and_stands_once(tables: list[dict[str, Any]]) -> None:
    """Any entries are databases, one for each and none twice, or an error."""
    try:
        found = read_database_tables(tables, Path("/etc/sealpoint/keys.toml"))
    except RingFileError:
        return
    assert len(set(found)) == len(found) == len(tables)
    for database in found:
        assert database.startswith(("/", "postgresql://", "postgres://"))
        assert database.startswith("/") or not has_password(database)
