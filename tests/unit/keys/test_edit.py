"""Changes of a ring file: what they change, what they leave alone, and what they refuse."""

from __future__ import annotations

import base64
import builtins
import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealpoint.crypto import KeyRing, KeyState, RingCipher
from sealpoint.databases.rows import RowStore, TagCount
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import (
    DuplicateKeyError,
    FileLinkError,
    FilePermissionsError,
    HeldError,
    KeyIdError,
    KeyInUseError,
    KeyTransitionError,
    MissingExtraError,
    OutputExistsError,
    RingFileError,
    SealpointError,
    SourceError,
    StoppedError,
    UnknownKeyError,
    UnrelatedDatabaseError,
    WrongRingError,
)
from sealpoint.keys import change, destroy, files, leftovers
from sealpoint.keys.edit import (
    check_ring,
    compromise_key,
    create_ring,
    enable_key,
    stage_key,
)
from sealpoint.keys.ids import require_key_id
from sealpoint.keys.lock import holding
from sealpoint.keys.ringfile import find_ring_file, read_ring_entries
from sealpoint.maintenance.transitions import destroy_key, disable_key, promote_key
from tests.support import containers
from tests.support.rings import material_of
from tests.support.sealed import write

LEGACY = """[[key]]
id = 'old'
suite = 'aes'
state = '{}'
source = {{ env = 'LANGGRAPH_AES_KEY' }}
"""
EXAMPLE = Path(__file__).parents[3] / "keys.example"


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A ring with a key ``k1``, which is active."""
    create_ring(tmp_path / "keys.toml", "k1")
    return tmp_path / "keys.toml"


def states(ring: Path) -> dict[str, str]:
    return {entry.id: entry.state.value for entry in read_ring_entries(ring)}


def names(ring: Path) -> set[str]:
    """Every file below the ring's folder."""
    return {str(path.relative_to(ring.parent)) for path in ring.parent.rglob("*") if not path.is_dir()}


class Store:
    """As much of a store as moves ask for: its name and its counts."""

    name = "state.db"
    columns = ()

    def __init__(self, *tags: Any) -> None:
        self.tags = tags

    def count(self) -> list[TagCount]:
        return [TagCount("writes", tag, 3, 100) for tag in self.tags]


def store(*tags: Any) -> list[RowStore]:
    found: Any = Store(*tags)
    return [found]


# --- making rings and keys --------------------------------------------------------------------


def test_new_ring_seals(ring: Path) -> None:
    cipher = RingCipher(KeyRing.load(ring))
    assert cipher.open(*cipher.seal("msgpack", b"value")).typed == ("msgpack", b"value")


def test_new_files_are_private(ring: Path) -> None:
    """The ring holds no secret and may be read by all; keys and their folder are for their owner."""
    modes = {name: (ring.parent / name).stat().st_mode & 0o777 for name in ("keys.toml", "keys.d")}
    assert modes == {"keys.toml": 0o644, "keys.d": 0o700}
    assert leftovers.key_file(ring, "k1").stat().st_mode & 0o777 == 0o600
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_new_key_is_base64_of_its_own_bytes(ring: Path) -> None:
    stage_key(ring, "k2")
    lines = [leftovers.key_file(ring, key_id).read_bytes() for key_id in ("k1", "k2")]
    assert all(line.endswith(b"\n") and len(base64.b64decode(line)) == 32 for line in lines)
    assert lines[0] != lines[1]


def test_new_ring_replaces_nothing(ring: Path) -> None:
    before = ring.read_bytes()
    with pytest.raises(OutputExistsError):
        create_ring(ring, "k2")
    assert ring.read_bytes() == before
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_folder_without_a_name_is_no_ring() -> None:
    with pytest.raises(OutputExistsError):
        create_ring("/")


def test_default_ids_count_on(tmp_path: Path) -> None:
    """Each with a random part, which a tag has room for: `require_key_id` checks the whole."""
    ring, began = tmp_path / "keys.toml", datetime.now(UTC)
    ids = [create_ring(ring), stage_key(ring), stage_key(ring)]
    years = {f"{moment:k%y}" for moment in (began, datetime.now(UTC))}  # two of them at New Year
    assert {key_id[:3] for key_id in ids} <= years
    assert [key_id[3:-4] for key_id in ids] == ["a-", "b-", "c-"]
    assert all(int(key_id[-4:], 16) >= 0 and require_key_id(key_id) for key_id in ids)


def test_default_ids_of_two_rings_differ(tmp_path: Path) -> None:
    """Rows under a key of one environment never name a key of another one."""
    ids = {create_ring(tmp_path / str(number) / "keys.toml") for number in range(20)}
    assert len(ids) > 15  # of 65,536


def test_default_ids_go_on_after_z(tmp_path: Path) -> None:
    ids = [leftovers.free_id(tmp_path / "keys.toml", (), 2026)]
    while len(ids) < 60:
        ids.append(leftovers.free_id(tmp_path / "keys.toml", set(ids), 2026))
    assert [key_id[:-5] for key_id in ids[25:28]] == ["k26z", "k26aa", "k26ab"]
    assert ids[-1][:-5] == "k26bh"


def test_default_id_goes_on_after_ids_of_earlier_versions(tmp_path: Path) -> None:
    ring = tmp_path / "keys.toml"
    leftovers.key_file(ring, "k26c").parent.mkdir()
    leftovers.key_file(ring, "k26c").write_text("of a ring that is not here")
    assert leftovers.free_id(ring, ["k26a", "k26b"], 2026)[:-4] == "k26d-"


def test_default_id_of_a_stopped_move_is_taken_up(tmp_path: Path) -> None:
    """Else each attempt would leave another key file."""
    ring = tmp_path / "keys.toml"
    key_id = leftovers.free_id(ring, (), 2026)
    material = leftovers.make_material(ring, key_id)
    assert leftovers.free_id(ring, (), 2026) == key_id
    assert leftovers.make_material(ring, key_id) == material
    assert leftovers.free_id(tmp_path / "other.toml", (), 2026) != key_id


@pytest.mark.parametrize("data", [b"", b"AAAA"], ids=["empty", "cut"])
@pytest.mark.parametrize("left", ["k26b-0123", "k19a-0123", "mine"])
def test_file_of_a_command_that_was_killed_before_the_link_is_removed(
    ring: Path, left: str, data: bytes
) -> None:
    """Its random id is not drawn again, and an id of the user's need not be: any new key removes it."""
    (ring.parent / "keys.d" / f".keys.toml.{left}.new").write_bytes(data)
    key_id = stage_key(ring)
    assert names(ring) == {"keys.toml", "keys.d/k1.key", f"keys.d/{key_id}.key"}


def test_file_of_an_init_that_was_killed_before_the_link_is_removed(tmp_path: Path) -> None:
    ring = tmp_path / "keys.toml"
    (tmp_path / "keys.d").mkdir(mode=0o700)
    (tmp_path / "keys.d" / ".keys.toml.k26a-0123.new").write_bytes(b"")
    key_id = create_ring(ring)
    assert names(ring) == {"keys.toml", f"keys.d/{key_id}.key"}


@pytest.mark.parametrize("left", ["k19c-0123", "k26b-0123"])
def test_default_id_of_a_stopped_move_is_taken_up_later(ring: Path, left: str) -> None:
    """Also in another year, and if the letter was given to another key meanwhile."""
    material = leftovers.make_material(ring, left)
    stage_key(ring, "k26b")
    assert stage_key(ring) == left
    assert KeyRing.load(ring).require_key(left).material == material
    assert names(ring) == {"keys.toml", "keys.d/k1.key", "keys.d/k26b.key", f"keys.d/{left}.key"}


def test_second_names_of_another_ring_are_left_alone(ring: Path) -> None:
    """``.a.b.k1.new`` may be for the key ``b.k1`` of the ring ``a``, or for ``k1`` of ``a.b``."""
    other = ring.with_name("keys.toml.b")
    for file in (".keys.toml.b.k26b-0123.new", ".other.toml.k26b-0123.new"):
        (ring.parent / "keys.d" / file).write_bytes(b"")
    leftovers.make_material(other, "k26c-0123")
    before = names(ring)
    key_id = stage_key(ring)
    assert names(ring) == {*before, f"keys.d/{key_id}.key"}
    assert leftovers.free_id(other, (), 2026) == "k26c-0123"


def test_tombstone_keeps_its_id(ring: Path) -> None:
    stage_key(ring, "k2")
    destroy_key(ring, "k2")
    with pytest.raises(DuplicateKeyError):
        stage_key(ring, "k2")


@pytest.mark.parametrize("key_id", ["", "K2", "../k2", "k2/x", ".k", "k" * 25])
def test_odd_id_is_refused(ring: Path, key_id: str) -> None:
    with pytest.raises(KeyIdError):
        stage_key(ring, key_id)
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_key_file_of_somebody_else_is_left_alone(ring: Path) -> None:
    """Two rings may share a folder: neither takes up the other's key, nor writes over it."""
    create_ring(ring.with_name("other.toml"), "k2")
    before = leftovers.key_file(ring, "k2").read_bytes()
    with pytest.raises(OutputExistsError):
        stage_key(ring, "k2")
    assert leftovers.key_file(ring, "k2").read_bytes() == before
    assert states(ring) == {"k1": "active"}


# --- from state to state ----------------------------------------------------------------------

ACTS: dict[str, Callable[[Path, str], object]] = {
    "promote": promote_key,
    "disable": disable_key,
    "enable": enable_key,
    "compromise": compromise_key,
    "destroy": destroy_key,
}
AIMS = {
    "promote": KeyState.ACTIVE,
    "disable": KeyState.DISABLED,
    "enable": KeyState.DECRYPT_ONLY,
    "compromise": KeyState.COMPROMISED,
    "destroy": KeyState.DESTROYED,
}
MOVES = {
    KeyState.STAGED: ["promote", "compromise", "destroy"],
    KeyState.ACTIVE: [],
    KeyState.DECRYPT_ONLY: ["promote", "disable", "compromise"],
    KeyState.DISABLED: ["enable", "compromise", "destroy"],
    KeyState.COMPROMISED: ["disable", "destroy"],
    KeyState.DESTROYED: [],
}
WAYS = {
    KeyState.STAGED: [],
    KeyState.ACTIVE: ["promote"],
    KeyState.DECRYPT_ONLY: ["promote", "back"],
    KeyState.DISABLED: ["promote", "back", "disable"],
    KeyState.COMPROMISED: ["compromise"],
    KeyState.DESTROYED: ["destroy"],
}


def bring(ring: Path, state: KeyState) -> None:
    """Make a key ``k2`` and bring it to a state."""
    stage_key(ring, "k2")
    for move in WAYS[state]:
        promote_key(ring, "k1") if move == "back" else ACTS[move](ring, "k2")
    assert states(ring)["k2"] == state.value


@pytest.mark.parametrize("state", KeyState)
@pytest.mark.parametrize("move", ACTS)
def test_every_move_from_every_state(ring: Path, state: KeyState, move: str) -> None:
    """It is done, it was done already, or it is refused and the file is as it was."""
    bring(ring, state)
    before, entry = ring.read_bytes(), read_ring_entries(ring)[1]
    if move in MOVES[state]:
        assert move in entry.transitions
        ACTS[move](ring, "k2")
        assert states(ring)["k2"] == AIMS[move].value
        KeyRing.load(ring)
    elif AIMS[move] is state:
        ACTS[move](ring, "k2")
        assert ring.read_bytes() == before
    else:
        assert move not in entry.transitions
        with pytest.raises(KeyTransitionError):
            ACTS[move](ring, "k2")
        assert ring.read_bytes() == before


@pytest.mark.parametrize("move", ACTS)
def test_unknown_key(ring: Path, move: str) -> None:
    with pytest.raises(UnknownKeyError):
        ACTS[move](ring, "k9")


def test_promotion_says_which_key_was_active(ring: Path) -> None:
    stage_key(ring, "k2")
    assert promote_key(ring, "k2") == "k1"
    assert promote_key(ring, "k2") == "k2"
    assert states(ring) == {"k1": "decrypt-only", "k2": "active"}
    assert KeyRing.load(ring).require_active().id == "k2"


def test_promotion_asks_for_the_material(ring: Path) -> None:
    """A key that is not to be had would take sealing away from every process that follows the ring."""
    stage_key(ring, "k2")
    leftovers.key_file(ring, "k2").unlink()
    with pytest.raises(SourceError):
        promote_key(ring, "k2")
    assert states(ring) == {"k1": "active", "k2": "staged"}


def test_legacy_key_is_never_promoted(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    ring.write_text(f"{ring.read_text()}\n{LEGACY.format('decrypt-only')}")
    with pytest.raises(KeyTransitionError, match="LANGGRAPH_AES_KEY"):
        promote_key(ring, "old")
    disable_key(ring, "old")
    assert destroy_key(ring, "old") is None


# --- rows that stand in the way ---------------------------------------------------------------


@pytest.mark.parametrize("tag", ["msgpack+cobblestone256@k2", "null+xaes256gcm.row@k2", "x+later9.new@k2"])
def test_key_with_rows_is_not_destroyed(ring: Path, tag: str) -> None:
    """Also if only a later release knows what else the tag says."""
    stage_key(ring, "k2")
    with pytest.raises(KeyInUseError, match=r"state\.db has 3 rows under 'k2'"):
        destroy_key(ring, "k2", store("msgpack+cobblestone256@k1", tag))
    assert states(ring)["k2"] == "staged"
    assert leftovers.key_file(ring, "k2").exists()


@pytest.mark.parametrize("tag", ["msgpack", "msgpack+cobblestone256@k1", "msgpack+aes", 7, None, b"x+y@k2"])
def test_rows_of_others_are_in_nobodys_way(ring: Path, tag: object) -> None:
    stage_key(ring, "k2")
    destroy_key(ring, "k2", store("msgpack+cobblestone256@k1", tag))
    assert states(ring)["k2"] == "destroyed"


@pytest.mark.parametrize("tags", [(), ("msgpack", 7, None), ("m+cobblestone256@k9", "msgpack+aes")], ids=str)
def test_database_of_another_ring_is_no_evidence(ring: Path, tags: tuple[object, ...]) -> None:
    """An empty one, one that is not sealed, and one under other keys; also beside one that is evidence."""
    stage_key(ring, "k2")
    with pytest.raises(UnrelatedDatabaseError, match=r"state\.db has no value under any key of the ring"):
        destroy_key(ring, "k2", [*store("msgpack+cobblestone256@k1"), *store(*tags)])
    assert states(ring)["k2"] == "staged"
    assert leftovers.key_file(ring, "k2").exists()
    destroy_key(ring, "k2", store(*tags), allow_unrelated=True)
    assert states(ring)["k2"] == "destroyed"


def test_promotion_waits_for_rows_of_older_keys(ring: Path) -> None:
    """Two steps back are refused; one step back is what every rotation begins with."""
    stage_key(ring, "k2")
    promote_key(ring, "k2", store("msgpack+cobblestone256@k1"))
    stage_key(ring, "k3")
    with pytest.raises(KeyInUseError, match="'k1'"):
        promote_key(ring, "k3", store("msgpack+cobblestone256@k2", "msgpack+cobblestone256@k1"))
    promote_key(ring, "k3", store("msgpack+cobblestone256@k2", "msgpack+cobblestone256@k3", "json"))


def test_key_that_does_not_open_the_rows_of_its_id_is_not_promoted(ring: Path, tmp_path: Path) -> None:
    """Two hosts each made a key ``k2``: what this one went on to seal, the other could not open."""
    stage_key(ring, "k2")
    write(tmp_path / "state.db", "k2", "a")
    with closing(SqliteRows(tmp_path / "state.db")) as store:
        with pytest.raises(WrongRingError, match="cannot promote 'k2'"):
            promote_key(ring, "k2", [store])
        assert states(ring)["k2"] == "staged"
        leftovers.key_file(ring, "k2").write_bytes(material_of("k2"))
        ring.write_text(re.sub(r'\ncheck = "[0-9a-f]*"', "", ring.read_text()))
        assert promote_key(ring, "k2", [store]) == "k1"


def test_legacy_rows_are_under_the_legacy_key(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    entry = (
        "\n[[key]]\nid = 'old'\nsuite = 'aes'\nstate = 'disabled'\nsource = { env = 'LANGGRAPH_AES_KEY' }\n"
    )
    ring.write_text(ring.read_text() + entry)
    stage_key(ring, "k2")
    with pytest.raises(KeyInUseError):
        destroy_key(ring, "old", store("msgpack+aes"))
    with pytest.raises(KeyInUseError):
        promote_key(ring, "k2", store("msgpack+aes"))


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("decrypt-only", "reseal the rows first: sealpoint rotate DB --apply --allow-legacy"),
        (
            "disabled",
            "enable the key and reseal the rows first: sealpoint rotate DB --apply --allow-legacy",
        ),
        ("destroyed", "such rows open with no key any more: restore a backup, or delete them"),
    ],
)
def test_refusal_says_how_rows_come_away_from_under_a_key(
    ring: Path, monkeypatch: pytest.MonkeyPatch, state: str, hint: str
) -> None:
    """Rows under LANGGRAPH_AES_KEY are moved by an option, and those of a disabled key not at all."""
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    entry = LEGACY.format(state).replace("source", "# source" if state == "destroyed" else "source")
    ring.write_text(ring.read_text() + "\n" + entry)
    stage_key(ring, "k2")
    with pytest.raises(KeyInUseError) as caught:
        promote_key(ring, "k2", store("msgpack+aes"))
    assert caught.value.hint == hint


# --- what becomes of material -----------------------------------------------------------------


def test_destroying_removes_the_key_file(ring: Path) -> None:
    stage_key(ring, "k2")
    file = leftovers.key_file(ring, "k2")
    assert destroy_key(ring, "k2") == file
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}
    entry = read_ring_entries(ring)[1]
    assert entry.destroyed is not None
    assert (entry.source, entry.location, entry.material) == ("file", "keys.d/k2.key", "removed")


def test_file_that_cannot_be_removed_is_named(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tombstone stands, and the same move again does the rest."""
    stage_key(ring, "k2")
    file = leftovers.key_file(ring, "k2")

    def refuse(path: Path, _: Path) -> None:
        raise OSError(errno.EACCES, f"no, not {path}")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StoppedError, match="cannot be removed"):
            destroy_key(ring, "k2")
    assert states(ring)["k2"] == "destroyed"
    assert read_ring_entries(ring)[1].material == "left"
    assert file.exists()
    assert destroy_key(ring, "k2") == file
    assert read_ring_entries(ring)[1].material == "removed"
    assert not file.exists()
    assert destroy_key(ring, "k2") is None


@pytest.mark.parametrize("is_destroyed", [False, True])
def test_second_name_of_a_file_that_was_taken_away_is_removed(ring: Path, is_destroyed: bool) -> None:
    """A second name is a hard link: the material is on the disk as long as either name is."""
    stage_key(ring, "k2")
    file = leftovers.key_file(ring, "k2")
    second = file.with_name(".keys.toml.k2.new")
    if is_destroyed:
        file.rename(second)
        destroy_key(ring, "k2")
        second.write_bytes(b"killed right after the entry was marked")
    else:
        file.rename(second)
    assert destroy_key(ring, "k2") is None
    assert not second.exists()


@pytest.mark.parametrize("gone", ["file", "folder"])
def test_file_that_was_taken_away_before_is_not_said_to_be_removed(ring: Path, gone: str) -> None:
    stage_key(ring, "k2")
    file = leftovers.key_file(ring, "k2")
    file.rename(ring.parent / "safe") if gone == "file" else file.parent.rename(ring.parent / "safe")
    assert destroy_key(ring, "k2") is None
    assert states(ring)["k2"] == "destroyed"
    assert read_ring_entries(ring)[1].material == "gone-before"
    assert not list(ring.parent.glob(".keys.toml.*"))


def test_file_of_two_keys_is_not_removed(ring: Path) -> None:
    stage_key(ring, "k2")
    entry = "\n[[key]]\nid = 'k3'\nstate = 'staged'\nsource = { file = './keys.d/../keys.d/k2.key' }\n"
    ring.write_text(ring.read_text() + entry)
    with pytest.raises(KeyTransitionError, match="also that of 'k3'") as caught:
        destroy_key(ring, "k2")
    assert "a file of its own" in caught.value.hint
    assert leftovers.key_file(ring, "k2").exists()


def index_of(file: str, key_id: str | None = None) -> str:
    name = f"id = '{key_id}'\n" if key_id else ""
    return f"\n[[index]]\n{name}source = {{ file = '{file}' }}\n"


def test_key_is_not_taken_for_the_index(ring: Path) -> None:
    """A key may be called as an index without an id is; each keeps its own file."""
    stage_key(ring, "index")
    other = ring.with_name("other.key")
    other.write_bytes(leftovers.key_file(ring, "k1").read_bytes())
    ring.write_text(ring.read_text() + index_of("other.key"))
    assert destroy_key(ring, "index") == leftovers.key_file(ring, "index")
    assert names(ring) == {"keys.toml", "keys.d/k1.key", "other.key"}


def test_file_of_the_index_is_not_removed(ring: Path) -> None:
    stage_key(ring, "index")
    ring.write_text(ring.read_text() + index_of("keys.d/index.key"))
    with pytest.raises(KeyTransitionError, match=r"also that of the \[\[index\]\]"):
        destroy_key(ring, "index")
    assert leftovers.key_file(ring, "index").exists()


def test_id_of_the_index_is_taken(ring: Path) -> None:
    """Nothing is made for a key that the ring could not be read with."""
    ring.write_text(ring.read_text() + index_of("keys.d/k1.key", "k2"))
    with pytest.raises(DuplicateKeyError):
        stage_key(ring, "k2")
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


@pytest.mark.parametrize("content", [b"precious", bytes(32)], ids=["no key", "another key"])
@pytest.mark.parametrize("check", [True, False])
def test_file_that_is_no_longer_the_key_is_not_removed(ring: Path, content: bytes, check: bool) -> None:
    """A destroyed key whose file is left: by now another file may have that name."""
    stage_key(ring, "k2")
    text = ring.read_text()
    destroy_key(ring, "k2")
    ring.write_text(text.replace('state = "staged"', 'state = "destroyed"\nmaterial = "left"'))
    if not check:
        ring.write_text(re.sub(r'\ncheck = "[0-9a-f]*"', "", ring.read_text()))
    other = leftovers.key_file(ring, "k2")
    other.write_bytes(content)
    other.chmod(0o600)
    with pytest.raises(KeyTransitionError, match="not known to hold the key 'k2'"):
        destroy_key(ring, "k2")
    assert other.read_bytes() == content


def test_file_of_a_destroyed_key_is_not_removed_if_another_key_has_it(ring: Path) -> None:
    stage_key(ring, "k2")
    ring.write_text(ring.read_text().replace('state = "staged"', 'state = "destroyed"\nmaterial = "left"'))
    entry = "\n[[key]]\nid = 'k3'\nstate = 'staged'\nsource = { file = 'keys.d/k2.key' }\n"
    ring.write_text(ring.read_text() + entry)
    with pytest.raises(KeyTransitionError, match="also that of 'k3'"):
        destroy_key(ring, "k2")
    assert leftovers.key_file(ring, "k2").exists()


@pytest.mark.parametrize(
    ("source", "recorded"),
    [
        ("{ env = 'SEALPOINT_K2' }", ("env", "SEALPOINT_K2", "left")),
        ("{ command = ['vault', 'token'] }", ("command", "vault", "left")),
        ("{ credential = 'k2' }", ("credential", "k2", "left")),
        ("{ inline = 'hunter2' }", (None, None, None)),
    ],
)
def test_destroyed_key_says_where_its_material_was(
    ring: Path, source: str, recorded: tuple[str | None, ...]
) -> None:
    """The place, never the bytes: inline material is removed with its source."""
    ring.write_text(f"{ring.read_text()}\n[[key]]\nid = 'k2'\nstate = 'staged'\nsource = {source}\n")
    destroy_key(ring, "k2")
    entry = read_ring_entries(ring)[1]
    assert (entry.source, entry.location, entry.material) == recorded
    assert "hunter2" not in ring.read_text()
    before = ring.read_bytes()
    assert destroy_key(ring, "k2") is None
    assert ring.read_bytes() == before


def test_check_names_each_key_that_is_wrong(ring: Path) -> None:
    for key_id in ("k2", "k3", "k4"):
        stage_key(ring, key_id)
    leftovers.key_file(ring, "k2").unlink()
    leftovers.key_file(ring, "k3").write_bytes(os.urandom(32))
    destroy_key(ring, "k4")
    found = {key_id: type(error).__name__ for key_id, error in check_ring(ring).items()}
    assert found == {"k1": "NoneType", "k2": "SourceError", "k3": "CheckValueError"}


# --- the file itself --------------------------------------------------------------------------


def test_mode_stays(ring: Path) -> None:
    ring.chmod(0o640)
    stage_key(ring, "k2")
    assert ring.stat().st_mode & 0o777 == 0o640


def test_ring_is_found_as_elsewhere(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    assert find_ring_file() == ring
    stage_key(None, "k2")
    promote_key(None, "k2")
    assert states(ring) == {"k1": "decrypt-only", "k2": "active"}


def test_link_is_refused(ring: Path) -> None:
    ring.rename(ring.with_name("real.toml"))
    ring.symlink_to("real.toml")
    with pytest.raises(FileLinkError):
        stage_key(ring, "k2")


def test_ring_that_others_can_write_is_refused(ring: Path) -> None:
    ring.chmod(0o666)
    with pytest.raises(FilePermissionsError):
        stage_key(ring, "k2")


def test_folder_that_is_not_ours_is_refused(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said at once, by name, and not as a lock that cannot be made."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(FilePermissionsError, match="may not write in"):
        stage_key(ring, "k2")


@pytest.mark.skipif(containers.MISSING is not None, reason=str(containers.MISSING))
@pytest.mark.parametrize("call", ["stage_key({!r}, 'k2')", "create_ring({!r} + '.d/keys.toml', 'k1')"])
def test_folder_that_is_mounted_read_only_is_named(ring: Path, call: str) -> None:
    """Another account would not help."""
    folder = shlex.quote(str(ring.parent))
    code = f"from sealpoint.keys.edit import create_ring, stage_key; {call.format(str(ring))}"
    mounted = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    script = f"{mounted} && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert f"FilePermissionsError: {ring.parent} is on a read-only file system" in done.stderr


@pytest.mark.parametrize(
    ("place", "error", "problem"),
    [
        ("file/keys.toml", OutputExistsError, "file is not a folder"),
        ("file/below/keys.toml", OutputExistsError, "file is not a folder"),
        ("here/keys.toml", OutputExistsError, "keys.d is not a folder"),
        (f"{'x' * 256}/keys.toml", StoppedError, "x cannot be made: File name too long"),
    ],
)
def test_folder_that_cannot_be_made(
    tmp_path: Path, place: str, error: type[SealpointError], problem: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "keys.d").touch()
    with pytest.raises(error, match=problem):
        create_ring(tmp_path / place, "k1")


def test_folder_that_all_accounts_use_is_not_to_be_closed(tmp_path: Path) -> None:
    """`chmod o-w /tmp` would be the end of other programs."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(FilePermissionsError) as caught:
        create_ring(folder / "keys.toml", "k1")
    assert caught.value.hint == "use a folder of your own"


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
def test_folder_that_everybody_can_write_is_refused(ring: Path, mode: int) -> None:
    """They could put another ring there, or notes of their own."""
    ring.parent.chmod(mode)
    for act in (stage_key, lambda file: create_ring(file.with_name("new.toml"))):
        with pytest.raises(FilePermissionsError, match=f"mode {mode:04o}"):
            act(ring)
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_folder_that_a_group_can_write_serves(ring: Path) -> None:
    """So folders are made where each account has a group of its own."""
    ring.parent.chmod(0o775)
    stage_key(ring, "k2")
    assert "k2" in ring.read_text(encoding="utf-8")


def test_key_folder_that_others_can_write_is_refused(ring: Path) -> None:
    (ring.parent / "keys.d").chmod(0o777)
    with pytest.raises(FilePermissionsError, match="mode 0777"):
        stage_key(ring, "k2")


def test_key_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir(mode=0o700)
    (tmp_path / "keys.d").symlink_to("else")
    with pytest.raises(FileLinkError, match=r"keys\.d is a symbolic link"):
        create_ring(tmp_path / "keys.toml", "k1")
    assert list((tmp_path / "else").iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_new_folders_are_closed_to_others_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    ring = tmp_path / "a" / "b" / "keys.toml"
    before = os.umask(umask)
    try:
        create_ring(ring, "k1")
    finally:
        os.umask(before)
    modes = [
        folder.stat().st_mode & 0o777 for folder in (tmp_path / "a", ring.parent, ring.parent / "keys.d")
    ]
    assert modes == [0o755, 0o755, 0o700]


def test_owner_stays_or_nothing_is_written(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of another account is not turned into one of ours."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no")

    theirs = Path("/etc/passwd")  # of root
    if os.geteuid() == 0:
        theirs = ring
        os.chown(theirs, 12345, 12345)
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(FilePermissionsError, match=f"file of user {theirs.stat().st_uid}, "):
        files.write_private(ring.with_name("new"), b"text", theirs)
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_one_move_at_a_time(ring: Path) -> None:
    with holding(ring), pytest.raises(HeldError):
        stage_key(ring, "k2")
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_change_by_hand_meanwhile_is_not_lost(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_key(ring, "k2")

    def write_and_edit(*arguments: Any) -> Path:
        ring.write_text(ring.read_text() + "# by hand\n")
        return files.write_private(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(change, "files", _with(files, write_private=write_and_edit))
        with pytest.raises(HeldError, match="changed by hand"):
            promote_key(ring, "k2")
    assert states(ring)["k2"] == "staged"
    assert ring.read_text().endswith("# by hand\n")
    assert names(ring) == {"keys.toml", "keys.d/k1.key", "keys.d/k2.key"}


def _with(module: Any, **changed: Any) -> Any:
    """A module with some names changed."""
    kind = type("Changed", (), {"__getattr__": lambda _, name: getattr(module, name)})
    stand_in = kind()
    vars(stand_in).update(changed)
    return stand_in


@pytest.mark.parametrize("act", [stage_key, lambda ring: disable_key(ring, "k2")])
def test_full_disk_changes_nothing(
    ring: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]
) -> None:
    """Not enough room for the new file: the old one stays, nothing is left beside it."""
    bring(ring, KeyState.DECRYPT_ONLY)
    before, there = ring.read_bytes(), names(ring)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoppedError, match="No space left"):
            act(ring)
    assert ring.read_bytes() == before
    assert names(ring) == there


def test_without_tomlkit(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def block(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("tomlkit"):
            raise ModuleNotFoundError(name=name)
        return real(name, *arguments, **named)

    stage_key(ring, "k2")
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", block)
        with pytest.raises(MissingExtraError):
            promote_key(ring, "k2")


# --- what people wrote stays ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "version = 1\nkey = [{ id = 'k1', state = 'staged', source = { env = 'X' } }]\n",
        "version = 1\n[[key]]\nid = 'k1'\nstate = 'staged'\nsource.env = 'X'\n[[index]]\nsource.env = 'X'\n"
        "[[key]]\nid = 'k2'\nstate = 'disabled'\nsource.env = 'X'\n",
    ],
    ids=["array", "apart"],
)
def test_what_cannot_be_kept_is_not_touched(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(RingFileError):
        stage_key(tmp_path / "keys.toml", "k9")
    assert (tmp_path / "keys.toml").read_text() == text


def test_example_keeps_its_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line: nothing but the lines that had to change, and a new entry after the last."""
    monkeypatch.setenv("SEALPOINT_ALLOW_TEST_KEYS", "1")
    ring, text = tmp_path / "keys.toml", EXAMPLE.read_text()
    ring.write_text(text)
    promote_key(ring, "k26a")
    wanted = text.replace('active = "k26b" ', 'active = "k26a" ')
    wanted = wanted.replace('state = "active"', "1").replace('state = "decrypt-only"', 'state = "active"', 1)
    wanted = wanted.replace("1\ncreated", 'state = "decrypt-only"\ncreated', 1)
    assert rest(ring.read_text()) == rest(wanted)
    assert without_times(ring.read_text()) == without_times(wanted)
    promote_key(ring, "k26b")
    assert without_times(ring.read_text()) == without_times(text)
    before = ring.read_text()
    stage_key(ring, "k27")
    new = ring.read_text()
    start = new.index('\n[[key]]\nid = "k27"')
    assert new[:start] + new[new.index("\n# Rows that LangGraph") :] == before


def without_times(text: str) -> str:
    """A ring without the lines that transitions add or remove."""
    return re.sub(rf"(?m)^\s*({'|'.join(TIMES)})\s*=.*\n?", "", text)


spaces = st.text(" \t", max_size=3)
notes = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8)
blanks = st.lists(st.one_of(st.just(""), spaces, notes.map(lambda text: f"# {text}")), max_size=3)


@st.composite
def lines(draw: st.DrawFn, field: str, value: str) -> str:
    """One field, with spaces around it, in either kind of quotes, perhaps with a comment."""
    quote = draw(st.sampled_from("\"'"))
    shown = f"{quote}{value}{quote}" if value.isidentifier() or value == "decrypt-only" else value
    end = draw(st.one_of(st.just(""), notes.map(lambda text: f" # {text}")))
    return f"{draw(spaces)}{field}{draw(spaces)}={draw(spaces)}{shown}{draw(spaces)}{end}"


@st.composite
def entries(draw: st.DrawFn, key_id: str, state: str) -> list[str]:
    """An entry, its fields in any order with anything between them."""
    material = f"'{key_id.encode().hex():0<64}'"
    source = draw(
        st.sampled_from([f"{{inline={material}}}", f"{{ inline = {material} }}", "dotted", "table"])
    )
    fields = {"id": key_id, "state": state, "created": "2026-11-01T09:00:00Z", "source": source}
    dotted = {"source.inline": material} if source == "dotted" else {}
    if source in ("dotted", "table"):
        del fields["source"]
    found = [f"{draw(spaces)}[[key]]", *draw(blanks)]
    for field, value in draw(st.permutations([*(fields | dotted).items()])):
        found += [draw(lines(field, value)), *draw(blanks)]
    if source == "table":
        found += ["[key.source]", *draw(blanks), draw(lines("inline", material)), *draw(blanks)]
    return found


WRAPPER = """[[wrapper]]  # the first
id = "w"
kind   = 'command' # of two
wrap = [ "base64" ]

unwrap = ["base64", "-d"]
"""


@st.composite
def rings(draw: st.DrawFn) -> str:
    """A ring with a key in each state that can move on."""
    order = draw(
        st.permutations(
            [
                ("a", "active"),
                ("s", "staged"),
                ("d", "decrypt-only"),
                ("x", "disabled"),
                ("c", "compromised"),
            ]
        )
    )
    found = [
        *draw(blanks),
        draw(lines("version", "1")),
        *draw(blanks),
        draw(lines("active", "a")),
        *draw(blanks),
    ]
    for key_id, state in order:
        found += draw(entries(key_id, state))
    if draw(st.booleans()):
        found += [
            f"{draw(spaces)}[[database]]",
            *draw(blanks),
            draw(lines("path", "database")),
            *draw(blanks),
        ]
    if draw(st.booleans()):
        found += WRAPPER.splitlines()
    if draw(st.booleans()):
        found += ["[[index]]", f"source = {{ inline = '{'0' * 64}' }}", *draw(blanks)]
    return "\n".join(found) + draw(st.sampled_from(["", "\n", "\n\n"]))


fewer = settings(max_examples=max(10, settings().max_examples // 5))  # each writes files, and syncs them
TIMES = ("activated", "retired", "disabled", "compromised", "destroyed")
TOUCHED = re.compile(rf"\s*(state|active|{'|'.join(TIMES)}|source\.inline|source|inline)\s*=|\[key\.source\]")


def rest(text: str) -> list[str]:
    """All lines but those that a move may touch, and but an end of line at the end of the file."""
    found = [line for line in text.split("\n") if not TOUCHED.match(line)]
    while found and not found[-1]:
        found.pop()
    return found


def inner(text: str) -> list[str]:
    """As `rest`; a field that is added before a table ``[key.source]`` brings a blank line."""
    return [line for line in rest(text) if line.strip()] if "[key.source]" in text else rest(text)


def comments(text: str, field: str) -> list[str]:
    """What stands beside the values of a field."""
    return re.findall(rf"(?m)^\s*{field}\s*=[^#\n]*(#.*)?$", text)


@given(
    text=rings(),
    move=st.sampled_from(
        [
            ("promote", "s"),
            ("promote", "d"),
            ("disable", "d"),
            ("disable", "c"),
            ("enable", "x"),
            ("compromise", "s"),
            ("compromise", "d"),
            ("compromise", "x"),
        ]
    ),
)
def test_moves_leave_the_rest_as_it_was(text: str, move: tuple[str, str]) -> None:
    """Every line but those of states stays, and so do the comments beside those."""
    with TemporaryDirectory() as folder:
        ring = Path(folder) / "keys.toml"
        ring.write_text(text, encoding="utf-8", newline="")
        ring.chmod(0o600)
        ACTS[move[0]](ring, move[1])
        new = ring.read_bytes().decode()
        assert inner(new) == inner(text)
        assert [comments(new, name) for name in ("state", "active")] == [
            comments(text, name) for name in ("state", "active")
        ]
        assert states(ring)[move[1]] == AIMS[move[0]].value


@fewer
@given(text=rings(), key_id=st.sampled_from(["s", "x", "c"]))
def test_tombstones_leave_the_rest_as_it_was(text: str, key_id: str) -> None:
    """Gone are the source, what stood in it and beside it; all other comments stay."""
    with TemporaryDirectory() as folder:
        ring = Path(folder) / "keys.toml"
        ring.write_text(text, encoding="utf-8", newline="")
        ring.chmod(0o600)
        destroy.destroy_key(ring, key_id, lambda *_: ())  # nothing is waived
        new = ring.read_bytes().decode()
        if "[key.source]" not in text:
            assert inner(new) == inner(text)
        assert comments(new, "state") == comments(text, "state")
        assert f"{key_id.encode().hex():0<64}" not in new
        assert states(ring)[key_id] == "destroyed"


@fewer
@given(text=rings())
def test_new_entries_leave_the_rest_as_it_was(text: str) -> None:
    """The entry comes after the last key; take it out, and the old file is back."""
    with TemporaryDirectory() as folder:
        ring = Path(folder) / "keys.toml"
        ring.write_text(text, encoding="utf-8", newline="")
        ring.chmod(0o600)
        stage_key(ring, "new")
        new = ring.read_bytes().decode()
        start = new.index('\n[[key]]\nid = "new"\n')
        end = new.index("\n", new.index("keys.d/new.key", start)) + 1
        old = new[:start] + new[end:]
        assert old.removesuffix("\n") == text.removesuffix("\n")
        assert [entry.id for entry in read_ring_entries(ring)][-1] == "new"


def test_first_key_of_a_ring_without_keys(tmp_path: Path) -> None:
    ring = tmp_path / "keys.toml"
    ring.write_text("version = 1  # by hand\n")
    promote_key(ring, stage_key(ring, "k1"))
    assert KeyRing.load(ring).active_id == "k1"
    assert ring.read_text().startswith("version = 1  # by hand\n")
