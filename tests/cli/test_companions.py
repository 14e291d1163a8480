"""What another account puts beside a database, a thread store or an output before a command or saver runs.

Each ends, says what it has met, and changes nothing but its target.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync

from sealpoint.admin.keys.lock import SUFFIX
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import DatabaseCorruptError, EndlessTreeError, SealpointError, ThreadStoreError
from sealpoint.guards import limits
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.threads import SqliteThreadStore
from tests.cli.conftest import Run
from tests.support.databases.bound import INDEX, cipher_of, play, sealed_file
from tests.support.databases.checkpoints import at
from tests.support.keys.rings import states_text

MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
PAGE_BYTES: Final = 4096
SPARSE_BYTES: Final = 200 << 30


def journal_of(super_journal: Path | str) -> bytes:
    """A rollback journal without pages, which names a super-journal."""
    name = os.fsencode(super_journal)
    header = MAGIC + b"".join(number.to_bytes(4) for number in (0, 0, 1, 512, PAGE_BYTES))
    lock_page = ((1 << 30) // PAGE_BYTES + 1).to_bytes(4)
    return header.ljust(512, b"\0") + lock_page + name + len(name).to_bytes(4) + sum(name).to_bytes(4) + MAGIC


def name_super(place: Path, victim: Path) -> None:
    place.write_bytes(journal_of(victim))


def own_form(place: Path, fill: Callable[[Path], object]) -> None:
    """A super-journal with a name of SQLite's form."""
    file = place.with_name("other.db-mj1A2B3C9D4")
    fill(file)
    place.write_bytes(journal_of(file))


def sparse(place: Path) -> None:
    place.touch()
    os.truncate(place, SPARSE_BYTES)


def of_another(place: Path) -> None:
    place.write_bytes(b"")
    os.chown(place, 65534, 65534)


def listen(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened, suppress(OSError):  # of a path that is too long
        opened.bind(os.fspath(place))


REFUSED: Final[dict[str, Callable[[Path, Path], object]]] = {
    "link": lambda place, victim: place.symlink_to(victim),
    "dangling link": lambda place, victim: place.symlink_to(victim.with_name("nothing")),
    "hard link": lambda place, victim: place.hardlink_to(victim),
    "FIFO": lambda place, _: os.mkfifo(place),
    "folder": lambda place, _: place.mkdir(),
}
JOURNALS: Final[dict[str, Callable[[Path, Path], object]]] = {
    "super-journal": name_super,
    "super-journal that ends at a NUL": lambda place, victim: place.write_bytes(
        journal_of(f"{victim}\0-mj1A2B3C9D4")
    ),
    "relative super-journal": lambda place, victim: place.write_bytes(journal_of(victim.name)),
    "super-journal that is a FIFO": lambda place, _: own_form(place, os.mkfifo),
    "super-journal that is a link": lambda place, victim: own_form(
        place, lambda file: file.symlink_to(victim)
    ),
    "super-journal of other files": lambda place, victim: own_form(
        place, lambda file: file.write_bytes(os.fsencode(victim) + b"\0")
    ),
    "super-journal of a FIFO": lambda place, victim: own_form(
        place, lambda file: file.write_bytes(os.fsencode(pipe_of(victim)) + b"\0")
    ),
    "endless super-journal": lambda place, _: own_form(place, sparse),
}
ACCEPTED: Final[dict[str, Callable[[Path, Path], object]]] = {
    "nothing": lambda *_: None,
    "empty": lambda place, _: place.touch(),  # a journal whose transaction wrote nothing yet
    "text": lambda place, _: place.write_text("of no database\n" * 100),
    "sparse": lambda place, _: sparse(place),
}
if os.geteuid() == 0:  # others may not make these
    REFUSED["device"] = lambda place, _: os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    ACCEPTED["of another owner"] = lambda place, _: of_another(place)


def pipe_of(victim: Path) -> Path:
    pipe = victim.with_name("pipe-journal")
    os.mkfifo(pipe)
    return pipe


PLANTS: Final = {
    **{(ending, name): plant for ending in ("-journal", "-wal", "-shm") for name, plant in REFUSED.items()},
    **{("-journal", name): plant for name, plant in JOURNALS.items()},
}
HARMLESS: Final = {
    (ending, name): plant for ending in ("-journal", "-wal", "-shm") for name, plant in ACCEPTED.items()
}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ring, a database in rollback mode and its thread store."""
    folder = tmp_path / "scene"
    folder.mkdir()
    monkeypatch.chdir(folder)
    index = folder / "index.key"
    index.write_text(INDEX.hex())
    index.chmod(0o600)
    ring = folder / "keys.toml"
    text = states_text(k2="active", k1="decrypt-only")
    ring.write_text(f"{text}\n[[index]]\nid = 'index'\nsource = {{ file = 'index.key' }}\n")
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    with (
        closing(SqliteThreadStore("threads.db", create=True)) as store,
        sealed_file(folder / "app.db", threads=store) as saver,
    ):
        play(saver, "t", runs=1)
    for name in ("app.db", "threads.db"):
        with closing(sqlite3.connect(name)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
    return folder


def listing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """What lies in a folder: for each name its kind, its number, and the contents of a small file."""
    found = {}
    for file in folder.iterdir():
        status = file.lstat()
        is_small = stat.S_ISREG(status.st_mode) and status.st_size < 1 << 20
        found[file.name] = (
            stat.S_IFMT(status.st_mode),
            status.st_ino,
            file.read_bytes() if is_small else b"",
        )
    return found


COMMANDS: Final = [
    "status",
    "verify --no-threads",
    "audit",
    "inspect",
    "types",
    "rotate --apply",
    "rebind --apply",
    "scrub --apply",
    "decrypt --out out.db",
    "report --out report.html",
    "heads adopt --threads threads.db --reason x",
]
STORE_COMMANDS: Final = [
    "verify --threads threads.db",
    "heads seal threads.db",
    "heads adopt --threads threads.db --reason x",
    "heads trim threads.db --before 2020-01-01 --yes",
]


def words_of(command: str, database: str = "app.db") -> list[str]:
    """The words of a command, with its database after its name."""
    words = command.split()
    names = 2 if words[0] == "heads" else 1
    return [*words[:names], *([] if {"seal", "trim"} & {*words} else [database]), *words[names:]]


def with_ours() -> None:
    with SqliteSaver.from_conn_string("app.db", serde=EncryptedSerializer(cipher_of())) as saver:
        saver.get_tuple(at("t"))


def with_open_connection() -> None:
    with closing(sqlite3.connect("app.db")) as connection:
        SqliteSaver(connection).setup()


def with_async() -> None:
    async def read() -> None:
        async with AsyncSqliteSaver.from_conn_string("app.db") as saver:
            await saver.setup()

    asyncio.run(read())


def with_sealed() -> None:
    with closing(sqlite3.connect("app.db", check_same_thread=False)) as connection:
        SealedSaver(Theirs(connection), serde=EncryptedSerializer(cipher_of())).get_tuple(at("t"))


def with_async_sealed() -> None:
    async def read() -> None:
        async with aiosqlite.connect("app.db") as connection:
            saver = SealedSaver(TheirAsync(connection), serde=EncryptedSerializer(cipher_of()))
            await saver.aget_tuple(at("t"))

    asyncio.run(read())


def with_any_schema() -> None:
    with closing(sqlite3.connect("app.db", check_same_thread=False)) as connection:
        serde = EncryptedSerializer(cipher_of())
        SealedSaver(Theirs(connection), serde=serde, allow_schema=True).get_tuple(at("t"))


SAVERS: Final = [
    with_ours,
    with_open_connection,
    with_async,
    with_sealed,
    with_async_sealed,
    with_any_schema,
]


@pytest.mark.claim("f2")
@pytest.mark.broad
@pytest.mark.parametrize(
    ("command", "file"),
    [
        *((command, "app.db") for command in COMMANDS),
        *((command, "threads.db") for command in STORE_COMMANDS),
    ],
)
@pytest.mark.parametrize("plant", PLANTS, ids=" ".join)
def test_a_command_refuses_what_lies_beside_a_database(
    run: Run, scene: Path, victim: Path, command: str, file: str, plant: tuple[str, str]
) -> None:
    PLANTS[plant](scene / f"{file}{plant[0]}", victim)
    before = listing(scene)
    ended = run(*words_of(command))
    assert ended.code not in {Exit.DONE, Exit.BUG}, ended
    assert f"{file}{plant[0]}" in ended.err or "other.db-mj" in ended.err
    assert "hint: " in ended.err
    assert listing(scene) == before
    assert victim.read_text() == "as it was"
    assert not victim.with_name("nothing").exists()


@pytest.mark.parametrize("plant", PLANTS, ids=" ".join)
def test_a_thread_store_refuses_what_lies_beside_it(
    scene: Path, victim: Path, plant: tuple[str, str]
) -> None:
    PLANTS[plant](scene / f"threads.db{plant[0]}", victim)
    with pytest.raises(ThreadStoreError, match=r"threads\.db"):
        SqliteThreadStore("threads.db")
    assert victim.read_text() == "as it was"


@pytest.mark.claim("f2")
@pytest.mark.broad
@pytest.mark.parametrize("use", SAVERS)
@pytest.mark.parametrize("plant", PLANTS, ids=" ".join)
def test_a_saver_refuses_what_lies_beside_its_database(
    scene: Path, victim: Path, use: Callable[[], None], plant: tuple[str, str]
) -> None:
    PLANTS[plant](scene / f"app.db{plant[0]}", victim)
    before = listing(scene)
    with pytest.raises(DatabaseCorruptError) as caught:
        use()
    assert f"app.db{plant[0]}" in str(caught.value) or "other.db-mj" in str(caught.value)
    assert listing(scene) == before
    assert victim.read_text() == "as it was"


def test_a_saver_refuses_what_lies_beside_an_attached_database(scene: Path, victim: Path) -> None:
    with closing(sqlite3.connect("main.db")) as connection:
        connection.execute("ATTACH 'app.db' AS attached")
        name_super(scene / "app.db-journal", victim)
        with pytest.raises(DatabaseCorruptError, match="super-journal"):
            SqliteSaver(connection).setup()


@pytest.mark.parametrize("plant", HARMLESS, ids=" ".join)
def test_what_is_no_danger_beside_a_database_stops_nothing(
    run: Run, scene: Path, plant: tuple[str, str]
) -> None:
    """A journal with no page in it, a log of another file, or an empty index: SQLite passes over them."""
    for name in ("app.db", "threads.db"):
        HARMLESS[plant](scene / f"{name}{plant[0]}", scene)
    before = listing(scene)
    for command in [*COMMANDS, *STORE_COMMANDS]:
        assert run(*words_of(command)).code != Exit.BUG
    for use in SAVERS:
        with suppress(SealpointError):
            use()
    ended = run("verify", "app.db", "--threads", "threads.db")
    assert ended.code == Exit.DONE, ended
    after = listing(scene)
    assert {name: after[name] for name in ("keys.toml", "index.key")} == {
        name: before[name] for name in ("keys.toml", "index.key")
    }


@pytest.mark.parametrize("kind", [*REFUSED])
@pytest.mark.parametrize("name", ["app.db", "threads.db", "keys.toml", "out.db"])
def test_no_command_waits_for_a_lock_file(run: Run, scene: Path, victim: Path, name: str, kind: str) -> None:
    """A regular one with a second name serves as a lock; nothing is read from it or written to it."""
    place = scene / f"{name}{SUFFIX}"
    REFUSED[kind](place, victim)
    locked = {
        "app.db": "rotate app.db --apply",
        "threads.db": "heads adopt app.db --threads threads.db --reason x",
        "keys.toml": "keys generate k9",
        "out.db": "decrypt app.db --out out.db",
    }[name]
    for command in ("status app.db", "verify app.db --threads threads.db"):
        assert run(*command.split()).code == Exit.DONE
    ended = run(*locked.split())
    if kind != "hard link" and name != "threads.db":
        assert ended.code == Exit.USAGE, ended
        assert place.name in ended.err
        assert os.path.lexists(place)
    assert victim.read_text() == "as it was"
    assert not victim.with_name("nothing").exists()


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT thread_id FROM checkpoints").fetchall()


def test_a_log_without_its_index_is_read(run: Run, scene: Path) -> None:
    """What a copy of a database has that was taken while a saver worked."""
    with closing(sqlite3.connect("app.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("SELECT * FROM writes").fetchall()
        with sealed_file(scene / "app.db", unbound="allow") as saver:
            play(saver, "u", runs=1)
        copies = {ending: Path(f"app.db{ending}").read_bytes() for ending in ("", "-wal")}
    (scene / "copy").mkdir()
    for ending, data in copies.items():
        (scene / "copy" / f"app.db{ending}").write_bytes(data)
    ended = run("status", scene / "copy" / "app.db", "--json")
    assert ended.code == Exit.DONE
    assert "u" in {row[0] for row in rows_of(scene / "copy" / "app.db")}


def interior_page(child: int) -> bytes:
    """An interior page of a table, all of whose children are one page."""
    page, cells = bytearray(PAGE_BYTES), 300
    start = PAGE_BYTES - 5 * cells
    page[:12] = b"\x05\0\0" + cells.to_bytes(2) + start.to_bytes(2) + b"\0" + child.to_bytes(4)
    for number in range(cells):
        place = start + 5 * number
        page[12 + 2 * number : 14 + 2 * number] = place.to_bytes(2)
        page[place : place + 5] = child.to_bytes(4) + b"\x01"
    return bytes(page)


@pytest.mark.costly
def test_a_file_of_holes_takes_no_day(run: Run, scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages lead to 10^10 rows; a walk ends by what the file has, and not by the size that it claims."""
    monkeypatch.setattr(limits, "HOLES_BYTES", 1 << 20)  # otherwise a minute
    with closing(sqlite3.connect("app.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'checkpoints'"
        ).fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    with Path("app.db").open("r+b") as file:
        file.seek(PAGE_BYTES * (root - 1))
        leaf = file.read(PAGE_BYTES)
        file.seek(PAGE_BYTES * pages)
        file.write(leaf)
        for number in range(pages + 1, pages + 4):
            file.write(interior_page(number))
        file.seek(PAGE_BYTES * (root - 1))
        file.write(interior_page(pages + 4))
        file.truncate(SPARSE_BYTES)
        file.seek(28)
        file.write((SPARSE_BYTES // PAGE_BYTES).to_bytes(4))
    assert Path("app.db").stat().st_blocks * 512 < 1 << 20
    for command in ("status", "verify --no-threads", "rotate --apply"):
        assert run(*words_of(command)).code == Exit.UNOPENED
    with SqliteSaver.from_conn_string("app.db") as saver, pytest.raises(EndlessTreeError):
        list(saver.list(None, filter={"is": "nowhere"}))


def test_a_log_of_holes_takes_no_day(run: Run, scene: Path) -> None:
    """The file is cut, and its log has one transaction, and then no end: no page is searched for there."""
    for name in ("app.db", "threads.db"):
        with closing(sqlite3.connect(name)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA user_version = 7")
            kept = {ending: Path(f"{name}{ending}").read_bytes() for ending in ("", "-wal")}
        Path(name).write_bytes(kept[""][: -2 * PAGE_BYTES])
        Path(f"{name}-wal").write_bytes(kept["-wal"])
        os.truncate(f"{name}-wal", SPARSE_BYTES)
    for words in ("status app.db", "verify app.db --no-threads"):
        assert run(*words.split()).code == Exit.UNOPENED
    with pytest.raises(DatabaseCorruptError, match="shorter"):
        with_ours()
    with pytest.raises(ThreadStoreError, match="shorter"):
        SqliteThreadStore("threads.db")


def test_no_command_waits_for_a_pin(run: Run, scene: Path) -> None:
    os.mkfifo(scene / "pin")
    ended = run("verify", "app.db", "--threads", "threads.db", "--pin", "pin")
    assert ended.code == Exit.USAGE, ended
    assert "is not a pin" in ended.err
