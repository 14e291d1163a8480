"""One rule of a row: every saver and every command refuse the same edits of a checkpoint, alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint.admin.cli.app import run as sealpoint
from sealpoint.admin.databases.sqlite.rows import SqliteWholeRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.state import read_state
from sealpoint.admin.results.events import Failure
from sealpoint.crypto import RingCipher
from sealpoint.errors import SealpointError
from sealpoint.langgraph import SealedSaver
from tests.graphs.savers import RING, SAVERS, SEALED
from tests.sealed import edits
from tests.sealed.moves import Act, edited, found, of
from tests.sealed.raw import Raw, Row
from tests.sealed.scene import ALICE, C1, C2, C3, C9, PLACES, ROOT, Place
from tests.support.databases import rebinding
from tests.support.databases.sealed import failures
from tests.support.keys.rings import write

_TARGET: Final = of(ALICE, ROOT, C2)


def text(change: Callable[[str], str], where: Row = _TARGET) -> Act:
    """Change the text of the readable metadata."""

    def act(db: Raw) -> None:
        (row,) = found(db, "checkpoints", where)
        new = change(json.dumps(row["metadata"])).encode("utf-8", "surrogatepass")
        db.put("checkpoints", {**row, "metadata": new})

    return act


def added(member: str) -> Act:
    return text(lambda old: f"{{{member}, {old[1:]}")


def parent(to: Any) -> Act:
    return edited("checkpoints", _TARGET, parent_checkpoint_id=to)


STRICT: Final = {
    "step twice, the same": added('"step": 1'),
    "step twice, the forged one first": added('"step": 77'),
    "a key twice within": text(lambda old: old.replace('"parents": {}', '"parents": {"": 1, "": 1}')),
    "-0 for 0": text(lambda old: old.replace('"step": 0', '"step": -0'), of(ALICE, ROOT, C1)),
    "a number beyond the doubles": text(lambda old: old.replace('"step": 1', '"step": 1e400')),
    "a number that reads as zero": text(lambda old: old.replace('"step": 1', '"step": 1e-400')),
    "a number of over 4,300 digits": text(lambda old: old.replace('"step": 1', f'"step": {"1" * 5000}')),
    "NaN": text(lambda old: old.replace('"step": 1', '"step": NaN')),
    "a lone surrogate": text(lambda old: old.replace("tenant alice", "tenant \\ud800")),
    "a byte that is no UTF-8": text(lambda old: old.replace("tenant alice", "tenant \ud800")),
    "65 levels": text(lambda old: old.replace('"step": 1', f'"step": {"[" * 65}{"]" * 65}')),
    "100,000 levels": text(lambda old: old.replace('"step": 1', f'"step": {"[" * 100_000}')),
    "no JSON": text(lambda old: old[:-1]),
    "a list": text(lambda _: "[]"),
    "metadata NULL": edits.metadata(None),
    "white space": text(lambda old: f" {old}\n"),
    "escapes": text(lambda old: old.replace("tenant", "\\u0074enant")),
    "a byte order mark": text(lambda old: f"\ufeff{old}"),
}
PARENTS: Final = {
    "parent null": parent(None),
    "parent of another step": parent(C3),
    "parent not there": parent(C9),
    "parent itself": parent(C2),
    "parent empty": parent(""),
    "parent a number": parent(0),
    "parent as bytes": parent(C1.encode()),
    "parent the same": parent(C1),
}


Answers = dict[Place, str]
"""The class of the error for each checkpoint that is refused."""


def by_savers(name: str) -> Callable[[str, Path], Answers]:
    """Read each checkpoint through SealedSaver over a saver of the table."""

    async def read(path: str) -> Answers:
        entry, refused = SAVERS[name], Answers()
        async with entry.opener(path, None) as inner:
            saver = SealedSaver(inner, serde=SEALED)
            for place in PLACES:
                try:
                    if entry.awaited:
                        await saver.aget_tuple(place.config)
                        [each async for each in saver.alist(place.config)]
                    else:
                        saver.get_tuple(place.config)
                        [*saver.list(place.config)]
                except SealpointError as error:
                    refused[place] = type(error).__name__
        return refused

    return lambda path, _: asyncio.run(read(path))


def named(found: list[Failure]) -> Answers:
    return {Place(*each.place.values()): type(each.error).__name__ for each in found}


def by_verify(path: str, folder: Path) -> Answers:
    with redirect_stdout(StringIO()) as printed:
        sealpoint(["verify", path, "--keys", str(folder / "keys.toml"), "--json"])
    found = json.loads(printed.getvalue())["failures"]
    return {Place(*each["place"].values()): each["error"] for each in found}


def by_rebind(path: str, folder: Path) -> Answers:
    return named(failures(rebinding.run(path, RingCipher(RING), unbind=True)))


def by_inspect(path: str, folder: Path) -> Answers:
    found = list[Failure]()
    with closing(SqliteWholeRows(path)) as store:
        for place in PLACES:
            state = read_state(store, RingCipher(RING), place.thread, (place.ns, place.id), None, 10)
            found += state.failures
    return named(found)


def by_decrypt(path: str, folder: Path) -> Answers:
    events = [*decrypt(path, folder / "out.db", RingCipher(RING))]
    (folder / "out.db").unlink(missing_ok=True)
    return named(failures(events))


READERS: Final[dict[str, Callable[[str, Path], Answers]]] = {
    "verify": by_verify,
    "inspect": by_inspect,
    "decrypt": by_decrypt,
    **{name: by_savers(name) for name, entry in SAVERS.items() if entry.kind == "file"},
    "rebind": by_rebind,  # last: it changes the file
}

TYPES: Final = {"a number alone": edits.metadata(7), "a double alone": edits.metadata(7.5)}
EDITS: Final[dict[str, Act]] = {**edits.METADATA, **edits.SQLITE_METADATA, **STRICT, **PARENTS, **TYPES}
HARMLESS: Final = {
    "step removed",
    "run_id removed",
    "metadata emptied",
    "metadata NULL",
    "white space",
    "escapes",
    "parent null",
    "parent the same",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ring of the databases, as a file for commands."""
    folder = tmp_path_factory.mktemp("ring")
    keys = "version = 1\nactive = 'k1'\n"
    for number, (id_, state) in enumerate([("k1", "active"), ("k2", "decrypt-only")]):
        write(folder / f"{id_}.key", bytes(range(64 * number, 64 * number + 32)))
        keys += f"[[key]]\nid = '{id_}'\nstate = '{state}'\nsource = {{ file = '{id_}.key' }}\n"
    write(folder / "index.key", bytes(range(32, 64)))
    write(folder / "keys.toml", keys + "[[index]]\nid = 'i'\nsource = { file = 'index.key' }\n")
    return folder


@pytest.mark.parametrize("edit", EDITS)
def test_all_readers_of_sqlite_give_one_answer(scenes: Any, folder: Path, edit: str) -> None:
    scene = scenes("sqlite", "indexed" if "token" in edit else "plain metadata")
    (_, _, path) = scene.raw.connection.execute("PRAGMA database_list").fetchone()
    with scene.raw.undone():
        EDITS[edit](scene.raw)
        answers = {name: read(path, folder) for name, read in READERS.items()}
    if edit in TYPES:  # which are checked before a copy is made
        answers["decrypt"] = dict.fromkeys(answers["decrypt"], "MetadataError")
    assert answers == dict.fromkeys(READERS, answers["verify"])
    assert (answers["verify"] == {}) is (edit in HARMLESS)
