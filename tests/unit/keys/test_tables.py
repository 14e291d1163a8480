"""What stands in a ring file beside the keys: databases, the ledger, the thread store."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.keys.change import entry_text
from sealpoint.admin.keys.edit import promote_key
from sealpoint.admin.keys.wrapping import wrap_key
from sealpoint.crypto import KeyRing
from sealpoint.errors import RingFileError
from sealpoint.keys.entry import read_database_tables
from sealpoint.keys.ringfile import RingFile
from sealpoint.urls import has_password
from tests.support.keys.wrappers import Service, wrapper_text

SECRET = "hunter2-hunter2"
LEDGER = '[ledger]  # kept\ndir = "ledger"\norigin = "example.org/agents"\n'
THREADS = '[threads]  # kept\nstore = "threads.db"\n'


def write(ring: Path, *entries: str) -> None:
    ring.write_text("\n".join([ring.read_text(), *(f"[[database]]\n{entry}\n" for entry in entries)]))


def add(ring: Path, text: str) -> None:
    ring.write_text(f"{ring.read_text()}\n{text}")


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
owners = st.text(st.characters(codec="utf-8", categories=("L", "M", "N", "P", "S")) | st.just(" "))


@given(created=times, expires=st.none() | times, owner=st.none() | owners)
def test_entry_that_is_written_reads_back(
    created: datetime, expires: datetime | None, owner: str | None
) -> None:
    """Parse after format is the identity."""
    dates = {"created": created, "expires": expires}
    fields = {"id": "k1", "state": "staged", **dates, "owner": owner}
    text = entry_text("key", fields, 'source = { file = "keys.d/k1.key" }')
    known = {name: value for name, value in fields.items() if value is not None}
    assert tomllib.loads(text)["key"] == [{**known, "source": {"file": "keys.d/k1.key"}}]


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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(
            (f"[[database]]\n{entry}\n", problem)
            for entry, problem in (
                ("", "must have exactly one of path, service, url"),
                ('path = "x.db"\nservice = "x"', "must have exactly one of path, service, url"),
                ('path = "x.db"\nname = "x"', "unknown field 'name'"),
                ('path = "a\\nb"', "'path' is not one line of text"),
                ('path = ["x.db"]', "'path' is not one line of text"),
                ('path = "postgresql://host/db"', "'path' is a URL"),
                ('url = "x.db"', "'url' does not begin with postgresql://"),
                ('url = "service=x"', "'url' does not begin with postgresql://"),
                ('path = "x.db"\n[[database]]\npath = "./x.db"', "twice"),
                ('service = "x"\n[[database]]\nurl = "postgresql:///?service=x"', "twice"),
                *(
                    (f'url = "{url}"', "'url' contains a password")
                    for url in (
                        f"postgresql://me:{SECRET}@host/db",
                        f"postgresql://host/db?pass%77ord={SECRET}",
                        f"postgresql://host/db?sslmode=require&sslpassword={SECRET}",
                        f"mysql://me:{SECRET}@host/db",
                    )
                ),
            )
        ),
        ("[database]\npath = 'x.db'\n", r"must be an array of tables, \[\[database\]\]"),
        ("[[ledger]]\n", "must be a table"),
        ('[ledger]\ndir = "x"\n', "lacks the field 'origin'"),
        (LEDGER + "key = 1\n", "unknown field 'key'"),
        (LEDGER.replace('"ledger"', '""'), "'dir' is not one line of text"),
        (LEDGER + 'signer = "s.key"\n', "source must name exactly one of"),
        (LEDGER + 'signer = { env = "SIGNER" }\n', "signer 'env' is not one of"),
        (LEDGER + 'signer = { inline = "AAAA" }\n', "signer 'inline' is not one of"),
    ],
)
def test_tables_of_other_forms_are_refused(ring: Path, text: str, problem: str) -> None:
    """Any account may read a ring file, and agents start others: no password and no key is there or shown."""
    add(ring, text)
    with pytest.raises(RingFileError, match=problem) as caught:
        KeyRing.load(ring)
    assert SECRET not in "".join([str(caught.value), *caught.value.__notes__])
    assert "password" not in problem or "$PGPASSFILE" in caught.value.hint


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
    assert RingFile(ring).thread_store is None
    add(ring, THREADS.replace("threads.db", store))
    monkeypatch.chdir("/")
    assert RingFile(ring).thread_store == (str(ring.parent / store) if is_relative else store)
