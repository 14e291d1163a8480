"""Commands that remove key files: never that of another key, and never ``ok`` while the material is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sealpoint import EncryptedSerializer
from sealpoint.admin.results.exits import Exit
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import KeyRing, check_value
from sealpoint.errors import KeyRingError
from sealpoint.keys.material import parse_material
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from sealpoint.sqlite import SqliteSaver
from tests.cli.conftest import Ended, Run
from tests.cli.meddling import ACTS, MATERIAL
from tests.support.keys.kubelet import Volume
from tests.support.keys.rings import write

ROOT = Path(__file__).parents[2]
WRAPPER = """
[[wrapper]]
id = "w"
kind = "command"
wrap = ["base64"]
unwrap = ["base64", "-d"]

[[database]]
path = "state.db"
"""


@pytest.fixture
def ring(run: Run, ring: Path) -> Path:
    """A ring with ``k1``, which is active, a staged ``k2``, an index key and a wrapper; and a database."""
    assert run("keys", "generate", "k2").code == 0
    assert run("keys", "generate", "--index").code == 0
    ring.write_text(ring.read_text() + WRAPPER)
    config: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    serde = EncryptedSerializer.from_key_file(ring)
    with SqliteSaver.from_conn_string(str(ring.parent / "state.db"), serde=serde) as saver:
        saver.put(config, empty_checkpoint(), {}, {})
    return ring


def file_of(ring: Path, key_id: str) -> Path:
    return ring.parent / "keys.d" / f"{key_id}.key"


def held(folder: Path) -> set[str]:
    """The check values of all material in files of a folder, under whatever name."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file():
            try:
                found.add(check_value(parse_material(path.read_bytes(), "")))
            except KeyRingError:
                continue
    return found


def checks(ring: Path) -> dict[str, str]:
    """The check value of each key."""
    found = {entry.id: str(entry.check) for entry in read_ring_entries(ring)}
    return found | {"index": str(RingFile(ring).require_loader("index").check)}


# --- commands, each up to the point where it would remove a file -------------------------------------


def leave_destroyed(run: Run, ring: Path) -> None:
    """As a `destroy` that was killed before it removed the file."""
    text = ring.read_text()
    entry = text[text.index('id = "k2"') :]
    marked = entry.replace('"staged"', '"destroyed"\nmaterial = "left"', 1)
    ring.write_text(text.replace(entry, marked))


def leave_wrapped(run: Run, ring: Path) -> None:
    """As a `wrap` that was killed before it removed the file."""
    material = file_of(ring, "k2").read_bytes()
    assert run("keys", "wrap", "k2", "--with", "w").code == 0
    write(file_of(ring, "k2"), material)
    ring.write_text(re.sub(r'(wrapped = .*, by = "w")', r'\1, left = "keys.d/k2.key"', ring.read_text()))


def leave_nothing(run: Run, ring: Path) -> None:
    """The command was not run before."""


DESTROY = ("destroy", "k2", "--yes")
COMMANDS: dict[str, tuple[Callable[[Run, Path], None], tuple[str, ...]]] = {
    "destroy": (leave_nothing, DESTROY),
    "destroy again": (leave_destroyed, DESTROY),
    "destroy wrapped": (leave_wrapped, DESTROY),
    "wrap": (leave_nothing, ("wrap", "k2", "--with", "w")),
    "wrap again": (leave_wrapped, ("wrap", "k2", "--with", "w")),
    "wrap index": (leave_nothing, ("wrap", "index", "--with", "w")),
}


# --- what may have become of the file ----------------------------------------------------------------


def swap(file: Path) -> None:
    """Two files were restored under each other's name."""
    other, away = file.with_name("k1.key"), file.with_name("away")
    for old, new in ((file, away), (other, file), (away, other)):
        old.rename(new)


def link(file: Path) -> None:
    file.rename(file.with_name("real"))
    file.symlink_to("real")


def mount(file: Path) -> None:
    """The links of a mounted Secret."""
    volume, content = Volume(file.parent, mode=0o600), file.read_bytes()
    file.unlink()
    volume.write({file.name: content})


def link_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("real"))
    file.parent.symlink_to("real")


def link_hard(file: Path) -> None:
    """A backup by ``cp -al``."""
    os.link(file, file.parent.parent / "backup")


def overwrite(file: Path) -> None:
    """It holds no key; the key is elsewhere."""
    file.rename(file.with_name("away"))
    write(file, b"precious")


WRONG = [swap, link, mount, link_folder, link_hard, overwrite]


@pytest.fixture(params=COMMANDS)
def command(run: Run, ring: Path, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The words of a command, and its ring in the state before it."""
    prepare, words = COMMANDS[request.param]
    prepare(run, ring)
    return words


@pytest.mark.parametrize("become", WRONG, ids=lambda become: become.__name__)
def test_file_that_is_not_the_key_alone(
    run: Run, ring: Path, command: tuple[str, ...], become: Callable[[Path], None]
) -> None:
    """Refused before anything is changed, with a hint."""
    before, text = held(ring.parent), ring.read_bytes()
    become(file_of(ring, command[1]))
    names = set(ring.parent.rglob("*.*"))
    ended = run("keys", *command)
    assert ended.code in (Exit.USAGE, Exit.KEYS)
    assert "hint: " in ended.err
    assert held(ring.parent) == before
    assert {path for path in names if os.path.lexists(path)} == names
    assert ring.read_bytes() == text


def test_file_of_the_key_is_removed(run: Run, ring: Path, command: tuple[str, ...]) -> None:
    known = checks(ring)
    ended = run("keys", *command, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True)
    assert held(ring.parent) == {check for key_id, check in known.items() if key_id != command[1]}
    KeyRing.load(ring).load_material()


@pytest.mark.broad
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", ["destroy", "wrap"])
def test_file_that_changes_during_the_command(run: Run, ring: Path, act: str, name: str) -> None:
    """Right before it is renamed or removed."""
    words, file, known = COMMANDS[name][1], file_of(ring, "k2"), checks(ring)
    write(file, MATERIAL)
    ring.write_text(ring.read_text().replace(known["k2"], check_value(MATERIAL)))
    known = checks(ring)
    if (act, name) == ("appears", "destroy"):
        file.unlink()
    meddling = [sys.executable, "-m", "tests.cli.meddling", act, str(file), str(file_of(ring, "k1"))]
    done = subprocess.run(
        [*meddling, "keys", *words, "--keys", ring, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    ended = Ended(done.returncode, done.stdout, done.stderr)
    left = held(ring.parent)
    assert {known["k1"], known["index"]} <= left
    assert ended.code != Exit.BUG
    assert not (ended.document["ok"] and known["k2"] in left)
    assert (ended.code == Exit.DONE) == (act == "appears")


def material_of(ring: Path, key_id: str) -> str | None:
    """What the ring records of a destroyed key."""
    return {entry.id: entry.material for entry in read_ring_entries(ring)}[key_id]


@pytest.mark.parametrize("become", [link, mount, link_folder, link_hard], ids=lambda become: become.__name__)
def test_material_is_left_and_removed_later(run: Run, ring: Path, become: Callable[[Path], None]) -> None:
    """The way out that the refusal of a linked file names."""
    before, known = held(ring.parent), checks(ring)
    content = file_of(ring, "k2").read_bytes()
    become(file_of(ring, "k2"))
    assert "--leave-material" in run("keys", *DESTROY).err
    left = run("keys", *DESTROY, "--leave-material", "--json")
    assert (left.code, left.document["ok"], left.document["reasons"]) == (
        Exit.FOUND,
        None,
        ["material-not-removed"],
    )
    assert "keys.d/k2.key and all links to the file still exist" in left.err
    assert " is removed" not in left.err
    assert (held(ring.parent), material_of(ring, "k2")) == (before, "left")
    again = run("keys", *DESTROY)
    assert again.code == Exit.KEYS
    assert "--leave-material" not in again.err
    for path in ring.parent.rglob("*"):  # the operator removes the links, and other names of the file
        if path.is_symlink() or (path.is_file() and path.read_bytes() == content):
            path.unlink()
    file_of(ring, "k2").parent.mkdir(exist_ok=True)
    write(file_of(ring, "k2"), content)
    done = run("keys", *DESTROY, "--json")
    assert (done.code, done.document["ok"], material_of(ring, "k2")) == (Exit.DONE, True, "removed")
    assert known["k2"] not in held(ring.parent)


def test_material_that_was_left_and_is_gone(run: Run, ring: Path) -> None:
    """No command has removed it: it may be elsewhere."""
    assert run("keys", *DESTROY, "--leave-material").code == Exit.FOUND
    file_of(ring, "k2").rename(ring.parent / "backup")
    ended = run("keys", *DESTROY, "--json")
    assert (ended.code, ended.document["ok"], material_of(ring, "k2")) == (Exit.FOUND, None, "gone-before")


@pytest.mark.parametrize("source", ["wrapped", "inline"])
def test_material_in_the_ring_is_not_left(run: Run, ring: Path, source: str) -> None:
    leave_wrapped(run, ring)
    if source == "inline":
        ring.write_text(
            re.sub(r"source = { wrapped.*", f'source = {{ inline = "{"a" * 64}" }}', ring.read_text())
        )
        ring.chmod(0o600)
    text = ring.read_bytes()
    ended = run("keys", *DESTROY, "--leave-material")
    assert ended.code == Exit.USAGE
    assert "it is in the ring file" in ended.err
    assert ring.read_bytes() == text


@pytest.mark.parametrize("prepare", [leave_nothing, leave_destroyed])
def test_file_of_a_key_without_check_value(
    run: Run, ring: Path, prepare: Callable[[Run, Path], None]
) -> None:
    """Nothing says that it holds the key. The hint has the line to add to the entry."""
    line, before = f'check = "{checks(ring)["k2"]}"\n', held(ring.parent)
    prepare(run, ring)
    text = ring.read_text()
    ring.write_text(text.replace(line, ""))
    ended = run("keys", *DESTROY)
    assert ended.code == Exit.USAGE
    assert "its entry has no check value" in ended.err
    assert line.strip() in ended.err
    assert held(ring.parent) == before
    ring.write_text(text)
    assert run("keys", *DESTROY).code == Exit.DONE


def test_rewrap_of_a_key_without_check_value(run: Run, ring: Path) -> None:
    """A program that unwraps to other bytes would make the key that it replaces unreadable."""
    line = f'check = "{checks(ring)["k2"]}"\n'
    assert run("keys", "wrap", "k2", "--with", "w").code == Exit.DONE
    text = ring.read_text()
    ring.write_text(text.replace(line, ""))
    ended = run("keys", "rewrap", "k2")
    assert ended.code == Exit.USAGE
    assert line.strip() in ended.err
    assert ring.read_text() == text.replace(line, "")
    ring.write_text(text)
    assert run("keys", "rewrap", "k2").code == Exit.DONE


def test_file_that_was_being_removed(run: Run, ring: Path) -> None:
    """The command was killed between the two names. The next one puts the file back first."""
    file, known = file_of(ring, "k2"), checks(ring)
    leave_destroyed(run, ring)
    hidden = file.rename(file.with_name(".k2.key.old"))
    write(file, MATERIAL)
    ended = run("keys", *DESTROY)
    assert ended.code == Exit.USAGE
    assert "both exist" in ended.err
    assert {known["k2"], check_value(MATERIAL)} <= held(ring.parent)
    file.unlink()
    assert run("keys", *DESTROY).code == Exit.DONE
    assert (hidden.exists(), known["k2"] in held(ring.parent)) == (False, False)


@pytest.mark.parametrize("location", ["/", ".", "..", "x" * 5000, "loop/k2.key", "keys.toml/k2.key"])
@pytest.mark.parametrize("words", [DESTROY, COMMANDS["wrap"][1]], ids=lambda words: words[0])
def test_path_that_is_no_key_file(run: Run, ring: Path, location: str, words: tuple[str, ...]) -> None:
    """Refused as an ordinary error, or recorded as gone."""
    (ring.parent / "loop").symlink_to("loop")
    before = held(ring.parent)
    ring.write_text(ring.read_text().replace("keys.d/k2.key", location))
    ended = run("keys", *words, "--json")
    assert ended.code not in (Exit.DONE, Exit.BUG)
    assert held(ring.parent) == before


def test_rewrap_names_a_file_that_is_left(run: Run, ring: Path) -> None:
    leave_wrapped(run, ring)
    ended = run("keys", "rewrap", "k2", "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["material-not-removed"])
    assert "k2.key still exists" in ended.err
    assert file_of(ring, "k2").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_another_file_under_the_hidden_name_stays(run: Run, ring: Path, command: str) -> None:
    """It is not renamed to the name of the key that is removed."""
    leave, words = COMMANDS[command]
    leave(run, ring)
    key_id = "index" if "index" in words else "k2"
    file = file_of(ring, key_id)
    hidden = file.with_name(f".{file.name}.old")
    material = file.read_bytes()
    file.unlink()
    hidden.write_bytes(file_of(ring, "k1").read_bytes())
    hidden.chmod(0o600)
    for is_there in (False, True):
        if is_there:
            write(file, material)
        before = hidden.read_bytes()
        ended = run("keys", *words)
        assert ended.code != Exit.DONE, ended
        assert (hidden.read_bytes(), file.exists()) == (before, is_there)
        assert hidden.name in ended.err or not is_there
