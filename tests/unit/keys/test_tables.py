"""What stands in a ring file beside the keys: databases, the ledger, the thread store."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.keys.change import entry_text
from sealpoint.admin.keys.destroy import destroy_key
from sealpoint.admin.keys.edit import compromise_key, disable_key, enable_key, promote_key, stage_key
from sealpoint.admin.keys.wrapping import wrap_key
from sealpoint.crypto import KeyRing
from sealpoint.errors import RingFileError
from sealpoint.keys.ringfile import RingFile, read_ring_entries, read_thread_store
from sealpoint.keys.tables import has_password, read_database_tables
from tests.support.keys.wrappers import Service, wrapper_text

SECRET = "hunter2-hunter2"
LEDGER = '[ledger]  # kept\ndir = "ledger"\norigin = "example.org/agents"\n'
THREADS = '[threads]  # kept\nstore = "threads.db"\n'
TABLES = f"""
[[wrapper]]
id = "aws-prod"  # a comment
kind = "command"
wrap = ["base64"]
unwrap = ["base64", "-d"]

[[database]]
path = "state.db"

[[database]]
service = "agents"  # of production

{LEDGER}
{THREADS}
"""


def write(ring: Path, *entries: str) -> None:
    ring.write_text("\n".join([ring.read_text(), *(f"[[database]]\n{entry}\n" for entry in entries)]))


def add(ring: Path, text: str) -> None:
    ring.write_text(f"{ring.read_text()}\n{text}")


# --- every change preserves them ---------------------------------------------------------------


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
def test_every_change_preserves_them(ring: Path, at_the_end: bool, caplog: pytest.LogCaptureFixture) -> None:
    text = ring.read_text()
    ring.write_text(text + TABLES if at_the_end else text.replace("[[key]]", TABLES + "\n[[key]]", 1))
    before = tomllib.loads(ring.read_text())
    for change in CHANGES:
        change(ring)
        after = tomllib.loads(ring.read_text())
        assert all(after[name] == before[name] for name in ("wrapper", "database", "ledger", "threads"))
        assert TABLES.strip() in ring.read_text()
    found = [entry.state.value for entry in read_ring_entries(ring)]
    assert found == ["destroyed", "active", "destroyed", "staged"]
    assert KeyRing.load(ring).ids == ("k1", "k2", "k3", "k4")
    assert not caplog.records


HEAD = "# Agents of the shop.\n\nversion = 1 # of the format\n"
STATES = "\n# state  seals\n# active yes\n"


def test_new_fields_of_the_ring_are_where_its_version_is(ring: Path, service: Service) -> None:
    """And not behind the comment about the states, where no reader looks for them."""
    text = ring.read_text()
    entry = text[text.index("[[key]]") :].replace('"active"', '"staged"')
    ring.write_text(f"{HEAD}{STATES}\n{entry}")
    promote_key(ring, "k1")
    assert ring.read_text().startswith(f'{HEAD}active = "k1"\n{STATES}')
    add(ring, wrapper_text())
    wrap_key(ring, "k1", "w")
    name = RingFile(ring).wrappers.ring
    assert ring.read_text().startswith(f'{HEAD}name = "{name}"\nactive = "k1"\n{STATES}')


times = st.integers(0, 250_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
owners = st.text(st.characters(codec="utf-8")).filter(str.isprintable)


@given(created=times, expires=st.none() | times, owner=st.none() | owners)
def test_entry_that_is_written_reads_back(
    created: datetime, expires: datetime | None, owner: str | None
) -> None:
    """Parse after format is the identity."""
    dates = {"created": created, "expires": expires}
    known = {"id": "k1", "state": "staged", "check": "01234567"}
    text = entry_text("key", {**known, **dates, "owner": owner}, 'source = { file = "keys.d/k1.key" }')
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


# --- [[database]] ------------------------------------------------------------------------------


def test_each_form(ring: Path) -> None:
    """A path is relative to the folder of the ring file, and a service is a URL."""
    assert RingFile(ring).databases == ()
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
        ('path = "a\\nb"', "'path' is not one line of text"),
        ('path = ["x.db"]', "'path' is not one line of text"),
        ('path = "postgresql://host/db"', "'path' is a URL"),
        ('url = "x.db"', "'url' does not begin with postgresql://"),
        ('url = "service=x"', "'url' does not begin with postgresql://"),
    ],
)
def test_databases_of_other_forms_are_refused(ring: Path, entry: str, problem: str) -> None:
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


# --- [ledger] and [threads] --------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["ledger", "../ledger", "/srv/ledger"])
def test_folder_of_the_ledger_is_relative_to_the_ring_file(ring: Path, folder: str) -> None:
    assert RingFile(ring).ledger is None
    add(ring, LEDGER.replace('"ledger"', f'"{folder}"'))
    table = RingFile(ring).ledger
    assert table is not None
    assert table.folder == ring.parent / folder
    assert (table.origin, table.signer, table.base) == ("example.org/agents", None, ring.parent)


@pytest.mark.parametrize("signer", ['{ file = "s.key" }', '{ credential = "s" }', '{ command = ["sign"] }'])
def test_signer_is_a_source(ring: Path, signer: str) -> None:
    add(ring, f"{LEDGER}signer = {signer}\n")
    table = RingFile(ring).ledger
    assert table is not None
    assert table.signer is not None
    assert table.signer.kind in signer


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[ledger]\ndir = "x"\n', "lacks the field 'origin'"),
        (LEDGER + "key = 1\n", "unknown field 'key'"),
        (LEDGER.replace('"ledger"', '""'), "'dir' is not one line of text"),
        (LEDGER + 'signer = "s.key"\n', "source names exactly one of"),
        (LEDGER + 'signer = { env = "SIGNER" }\n', "signer 'env' is not one of"),
        (LEDGER + 'signer = { inline = "AAAA" }\n', "signer 'inline' is not one of"),
        ("[[ledger]]\n", "is written as"),
        ("[database]\npath = 'x.db'\n", r"is written as \[\[database\]\]"),
    ],
)
def test_tables_of_other_forms_are_refused(ring: Path, text: str, problem: str) -> None:
    """An agent's environment is read by what it starts, and a ring file by every agent: no key is there."""
    add(ring, text)
    with pytest.raises(RingFileError, match=problem):
        RingFile(ring)


@pytest.mark.parametrize(
    ("store", "is_relative"),
    [
        ("threads.db", True),
        ("../threads.db", True),
        ("/srv/threads.db", False),
        ("postgresql:///?service=threads", False),
        ("postgres://host/db", False),
    ],
)
def test_path_of_the_thread_store_is_from_the_folder_of_the_ring(
    ring: Path, store: str, is_relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_thread_store(ring) is None
    add(ring, THREADS.replace("threads.db", store))
    monkeypatch.chdir("/")
    assert read_thread_store(ring) == (str(ring.parent / store) if is_relative else store)
