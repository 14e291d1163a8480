"""Changes of a ring file: what they change, what they leave alone, and what they refuse."""

from __future__ import annotations

import base64
import errno
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealpoint.admin.databases.rows import RowStore, TagCount
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.keys import destroy, edit, files
from sealpoint.admin.keys.edit import change_state, create_ring, stage_key
from sealpoint.admin.maintenance.transitions import destroy_key, disable_key, promote_key
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import (
    FilePermissionsError,
    HeldError,
    KeyIdError,
    KeyInUseError,
    KeyTransitionError,
    MaintenanceError,
    OutputError,
    RingFileError,
    SealpointError,
    SourceError,
    StoppedError,
    UnknownKeyError,
    WrongRingError,
)
from sealpoint.keys.ringfile import read_ring_entries
from tests.support.databases.sealed import write
from tests.support.keys.rings import material_of
from tests.support.keys.wrappers import Service, wrapper_text
from tests.support.servers import containers

LEGACY = """[[key]]
id = 'old'
suite = 'aes'
state = '{}'
source = {{ env = 'LANGGRAPH_AES_KEY' }}
"""


def states(ring: Path) -> dict[str, str]:
    return {entry.id: entry.state.value for entry in read_ring_entries(ring)}


def names(ring: Path) -> set[str]:
    """Every file below the ring's folder, without the .gitignore that each folder of keys has."""
    found = {str(path.relative_to(ring.parent)) for path in ring.parent.rglob("*") if not path.is_dir()}
    return found - {"keys.d/.gitignore"}


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


def index_of(file: str, key_id: str | None = None) -> str:
    name = f"id = '{key_id}'\n" if key_id else ""
    return f"\n[[index]]\n{name}source = {{ file = '{file}' }}\n"


# --- making rings and keys --------------------------------------------------------------------


def test_new_files(ring: Path) -> None:
    """The ring holds no secret and may be read by all; keys and their folder are for their owner.

    A key is base64 of its own bytes.
    """
    modes = {name: (ring.parent / name).stat().st_mode & 0o777 for name in ("keys.toml", "keys.d")}
    assert modes == {"keys.toml": 0o644, "keys.d": 0o700}
    assert edit.key_file(ring, "k1").stat().st_mode & 0o777 == 0o600
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}

    ring.parent.chmod(0o775)  # as where each account has a group of its own
    ring.chmod(0o640)
    stage_key(ring, "k2")
    assert ring.stat().st_mode & 0o777 == 0o640
    lines = [edit.key_file(ring, key_id).read_bytes() for key_id in ("k1", "k2")]
    assert all(line.endswith(b"\n") and len(base64.b64decode(line)) == 32 for line in lines)
    assert lines[0] != lines[1]


def test_default_ids_go_on_after_z(tmp_path: Path) -> None:
    """And after ids of earlier versions, which had no random part: also one that only a file has."""
    ring = tmp_path / "keys.toml"
    ids = [edit.free_id(ring, (), 2026)]
    while len(ids) < 60:
        ids.append(edit.free_id(ring, set(ids), 2026))
    assert [key_id[:-5] for key_id in ids[25:28]] == ["k26z", "k26aa", "k26ab"]
    assert ids[-1][:-5] == "k26bh"
    edit.key_file(ring, "k26c").parent.mkdir()
    edit.key_file(ring, "k26c").write_text("of a ring that is not here")
    assert edit.free_id(ring, ["k26a", "k26b"], 2026)[:-4] == "k26d-"


@pytest.mark.parametrize("wrapper", [None, "w"])
def test_key_file_that_a_killed_command_has_left_is_named(ring: Path, wrapper: str | None) -> None:
    """No entry names it: no key uses it, it is not overwritten, and its id is free when it is removed."""
    left = edit.key_file(ring, "k2")
    left.write_text("half a k")
    with pytest.raises(OutputError, match=re.escape(str(left))) as caught:
        stage_key(ring, "k2", wrapper)
    assert "killed" in caught.value.hint
    assert states(ring) == {"k1": "active"}
    key_id = stage_key(ring)
    assert left.read_text() == "half a k"
    assert names(ring) == {"keys.toml", *(f"keys.d/{name}.key" for name in ("k1", "k2", key_id))}
    left.unlink()
    stage_key(ring, "k2")
    assert KeyRing.load(ring).ids == ("k1", key_id, "k2")


@pytest.mark.parametrize("key_id", ["k1", "dead", "tokens", "../k2", ""])
def test_id_that_no_key_can_have(ring: Path, key_id: str) -> None:
    """Of another key, a destroyed one too, of the index key, or of another form: nothing is made for it."""
    destroy_key(ring, stage_key(ring, "dead"))
    ring.write_text(ring.read_text() + index_of("keys.d/k1.key", "tokens"))
    with pytest.raises(KeyIdError):
        stage_key(ring, key_id)
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


# --- from state to state ----------------------------------------------------------------------

ACTS: dict[str, Callable[[Path, str], object]] = {
    "promote": promote_key,
    "disable": disable_key,
    "enable": partial(change_state, state=KeyState.DECRYPT_ONLY),
    "compromise": partial(change_state, state=KeyState.COMPROMISED),
    "destroy": destroy_key,
}
AIMS = {
    "promote": KeyState.ACTIVE,
    "disable": KeyState.DISABLED,
    "enable": KeyState.DECRYPT_ONLY,
    "compromise": KeyState.COMPROMISED,
    "destroy": KeyState.DESTROYED,
}
# The way to a state, and the moves from it.
MOVES: dict[KeyState, tuple[list[str], list[str]]] = {
    KeyState.STAGED: ([], ["promote", "compromise", "destroy"]),
    KeyState.ACTIVE: (["promote"], []),
    KeyState.DECRYPT_ONLY: (["promote", "back"], ["promote", "disable", "compromise"]),
    KeyState.DISABLED: (["promote", "back", "disable"], ["enable", "compromise", "destroy"]),
    KeyState.COMPROMISED: (["compromise"], ["disable", "destroy"]),
    KeyState.DESTROYED: (["destroy"], []),
}


@pytest.mark.parametrize("state", KeyState)
@pytest.mark.parametrize("move", ACTS)
def test_every_move_from_every_state(ring: Path, state: KeyState, move: str) -> None:
    """It is done, it was done already, or it is refused and the file is as it was."""
    with pytest.raises(UnknownKeyError):
        ACTS[move](ring, "k2")
    stage_key(ring, "k2")
    for step in MOVES[state][0]:
        promote_key(ring, "k1") if step == "back" else ACTS[step](ring, "k2")
    assert states(ring)["k2"] == state.value
    before, entry = ring.read_bytes(), read_ring_entries(ring)[1]
    if move in MOVES[state][1]:
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


def test_promotion_asks_for_the_material(ring: Path) -> None:
    """A key that is not available would take sealing away from every process that follows the ring."""
    file = edit.key_file(ring, stage_key(ring, "k2"))
    away = file.rename(ring.parent / "away")
    with pytest.raises(SourceError):
        promote_key(ring, "k2")
    assert states(ring) == {"k1": "active", "k2": "staged"}
    away.rename(file)
    assert [promote_key(ring, "k2"), promote_key(ring, "k2")] == ["k1", "k2"]  # which key was active


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
    assert edit.key_file(ring, "k2").exists()


@pytest.mark.parametrize(
    "tags", [(), ("msgpack", 7, None, b"x+y@k2"), ("m+cobblestone256@k9", "msgpack+aes")], ids=str
)
def test_database_of_another_ring_is_no_evidence(ring: Path, tags: tuple[object, ...]) -> None:
    """An empty one, one that is not sealed, and one under other keys; also beside one that is evidence.

    Beside a value of the ring, such rows are in no key's way.
    """
    stage_key(ring, "k2")
    with pytest.raises(MaintenanceError, match=r"state\.db has no value under any key of the ring"):
        destroy_key(ring, "k2", [*store("msgpack+cobblestone256@k1"), *store(*tags)])
    assert states(ring)["k2"] == "staged"
    assert edit.key_file(ring, "k2").exists()
    stage_key(ring, "k3")
    destroy_key(ring, "k3", store("msgpack+cobblestone256@k1", *tags))
    destroy_key(ring, "k2", store(*tags), allow_unrelated=True)
    assert [states(ring)[key_id] for key_id in ("k2", "k3")] == ["destroyed", "destroyed"]


def test_key_that_does_not_open_the_rows_of_its_id_is_not_promoted(ring: Path, tmp_path: Path) -> None:
    """Two hosts each made a key ``k2``: what this one went on to seal, the other could not open."""
    stage_key(ring, "k2")
    write(tmp_path / "state.db", "k2", "a")
    with closing(SqliteRows(tmp_path / "state.db")) as store:
        with pytest.raises(WrongRingError, match="cannot promote 'k2'"):
            promote_key(ring, "k2", [store])
        assert states(ring)["k2"] == "staged"
        edit.key_file(ring, "k2").write_bytes(material_of("k2"))
        ring.write_text(re.sub(r'\ncheck = "[0-9a-f]*"', "", ring.read_text()))
        assert promote_key(ring, "k2", [store]) == "k1"


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("decrypt-only", "reseal the rows first: sealpoint rotate state.db --apply --allow-legacy"),
        (
            "disabled",
            "enable the key and reseal the rows first: sealpoint rotate state.db --apply --allow-legacy",
        ),
        ("destroyed", "no key opens these rows any more: restore a backup, or delete the rows"),
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
    if state == "disabled":
        with pytest.raises(KeyInUseError):
            destroy_key(ring, "old", store("msgpack+aes"))


# --- what becomes of material -----------------------------------------------------------------


@pytest.mark.claim("k8")
def test_destroying_removes_the_key_file(ring: Path) -> None:
    stage_key(ring, "k2")
    file = edit.key_file(ring, "k2")
    assert destroy_key(ring, "k2") == file
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}
    entry = read_ring_entries(ring)[1]
    assert entry.destroyed is not None
    assert (entry.source, entry.location, entry.material) == ("file", "keys.d/k2.key", "removed")


K3 = "\n[[key]]\nid = 'k3'\nstate = 'staged'\nsource = {{ file = '{}' }}\n"


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize(
    ("entry", "other"),
    [
        (K3.format("./keys.d/../keys.d/index.key"), "'k3'"),
        (index_of("keys.d/index.key"), r"the \[\[index\]\]"),
    ],
    ids=["key", "index"],
)
def test_file_of_two_keys_is_not_removed(ring: Path, entry: str, other: str, is_left: bool) -> None:
    """Nor if the entry says that the file of a destroyed key is left."""
    stage_key(ring, "index")
    text = ring.read_text() + entry
    if is_left:
        text = text.replace('state = "staged"', 'state = "destroyed"\nmaterial = "left"')
    ring.write_text(text)
    with pytest.raises(KeyTransitionError, match=f"also the key file of {other}") as caught:
        destroy_key(ring, "index")
    assert "a key file of its own" in caught.value.hint
    assert edit.key_file(ring, "index").exists()


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


# --- the file itself --------------------------------------------------------------------------


def test_link_is_refused(ring: Path) -> None:
    """Of the ring, and of the folder for key files: nothing is made where it leads."""
    ring.rename(ring.with_name("real.toml"))
    ring.symlink_to("real.toml")
    with pytest.raises(FilePermissionsError, match="is a symbolic link") as caught:
        stage_key(ring, "k2")
    assert "change the original" in caught.value.hint
    other = ring.parent / "other"
    (other / "else").mkdir(parents=True, mode=0o700)
    (other / "keys.d").symlink_to("else")
    with pytest.raises(FilePermissionsError, match=r"keys\.d is a symbolic link"):
        create_ring(other / "keys.toml", "k1")
    assert list((other / "else").iterdir()) == []


def test_folder_that_is_not_ours_is_refused(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said at once, by name, and not as a lock that cannot be made."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(FilePermissionsError, match="cannot write to"):
        stage_key(ring, "k2")


@pytest.mark.skipif(containers.MISSING is not None, reason=str(containers.MISSING))
def test_folder_that_is_mounted_read_only_is_named(ring: Path) -> None:
    """Another account would not help."""
    folder = shlex.quote(str(ring.parent))
    code = f"""
from sealpoint.admin.keys.edit import create_ring, stage_key
for call in (stage_key, lambda ring: create_ring(ring + ".d/keys.toml")):
    try:
        call({str(ring)!r})
    except OSError as error:
        print(type(error).__name__, error)
"""
    mounted = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    script = f"{mounted} && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    said = f"FilePermissionsError {ring.parent} is on a read-only file system"
    assert [line for line in done.stdout.splitlines() if line.startswith("F")] == [said] * 2


@pytest.mark.parametrize(
    ("place", "error", "problem"),
    [
        ("/", OutputError, "/ is a folder"),
        ("there.toml", OutputError, "there.toml already exists"),
        ("file/keys.toml", OutputError, "file is not a folder"),
        ("file/below/keys.toml", OutputError, "file is not a folder"),
        ("here/keys.toml", OutputError, "keys.d is not a folder"),
        (f"{'x' * 256}/keys.toml", StoppedError, "x cannot be created: File name too long"),
    ],
)
def test_folder_that_cannot_be_made(
    tmp_path: Path, place: str, error: type[SealpointError], problem: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "there.toml").symlink_to("nowhere")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "keys.d").touch()
    with pytest.raises(error, match=problem):
        create_ring(tmp_path / place, "k1")


@pytest.mark.parametrize(("folder", "mode"), [(".", 0o757), (".", 0o1777), ("keys.d", 0o777)])
def test_folder_that_everybody_can_write_is_refused(ring: Path, folder: str, mode: int) -> None:
    """They could put another ring there, or notes of their own. `chmod o-w /tmp` would end other programs."""
    (ring.parent / folder).chmod(mode)
    for act in (stage_key, lambda file: create_ring(file.with_name("new.toml"))):
        with pytest.raises(FilePermissionsError, match=f"mode {mode:04o}") as caught:
            act(ring)
        assert caught.value.hint.startswith("chmod o-w") == (mode != 0o1777)
        assert caught.value.hint.endswith("use a folder of your own")
    assert names(ring) == {"keys.toml", "keys.d/k1.key"}


def test_new_folders_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    ring = tmp_path / "a" / "b" / "keys.toml"
    before = os.umask(0)
    try:
        create_ring(ring, "k1")
    finally:
        os.umask(before)
    folders = (tmp_path / "a", ring.parent, ring.parent / "keys.d")
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o755, 0o755, 0o700]


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


def test_change_by_hand_meanwhile_is_not_lost(ring: Path) -> None:
    stage_key(ring, "k2")
    with pytest.raises(HeldError, match="changed by hand"):
        edit.promote_key(ring, "k2", lambda *_: ring.write_text(ring.read_text() + "# by hand\n"))
    assert states(ring)["k2"] == "staged"
    assert ring.read_text().endswith("# by hand\n")
    assert names(ring) == {"keys.toml", "keys.d/k1.key", "keys.d/k2.key"}


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


TABLES = """
[[wrapper]]
id = "aws-prod"  # a comment
kind = "command"
wrap = ["base64"]
unwrap = ["base64", "-d"]

[[database]]
service = "agents"  # of production

[ledger]  # kept
dir = "ledger"
origin = "example.org/agents"

[threads]  # kept
store = "threads.db"
"""


@st.composite
def rings(draw: st.DrawFn) -> str:
    """A ring with a key in each state that can move on."""
    states = {"a": "active", "s": "staged", "d": "decrypt-only", "x": "disabled", "c": "compromised"}
    head = [draw(lines("version", "1")), draw(lines("active", "a"))]
    found = [*draw(blanks), head[0], *draw(blanks), head[1], *draw(blanks)]
    before_keys = len(found)
    for key_id in draw(st.permutations([*states])):
        found += draw(entries(key_id, states[key_id]))
    if draw(st.booleans()):
        found += ["[[index]]", f"source = {{ inline = '{'0' * 64}' }}", *draw(blanks)]
    before, after = draw(st.sampled_from([("", ""), (TABLES, ""), ("", TABLES)]))
    found = [*found[:before_keys], before, *found[before_keys:], after]
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


@contextmanager
def written(text: str) -> Iterator[Path]:
    """A ring file with exactly this text."""
    with TemporaryDirectory() as folder:
        ring = Path(folder) / "keys.toml"
        ring.write_text(text, encoding="utf-8", newline="")
        ring.chmod(0o600)
        yield ring


CHANGES: dict[str, tuple[str, Callable[[Path, str], object]]] = {
    "promote": ("sd", promote_key),
    "disable": ("dc", disable_key),
    "enable": ("x", partial(change_state, state=KeyState.DECRYPT_ONLY)),
    "compromise": ("sdx", partial(change_state, state=KeyState.COMPROMISED)),
    "destroy": ("sxc", lambda ring, key_id: destroy.destroy_key(ring, key_id, lambda *_: ())),
}


@given(
    text=rings(),
    change=st.sampled_from([(act, key_id) for act, (ids, _) in CHANGES.items() for key_id in ids]),
)
def test_changes_of_states_leave_the_rest_as_it_was(text: str, change: tuple[str, str]) -> None:
    """Every line but those of states, and the comments after those. A destroyed key loses its source."""
    act, key_id = change
    with written(text) as ring:
        CHANGES[act][1](ring, key_id)
        new = ring.read_bytes().decode()
        if act != "destroy" or "[key.source]" not in text:
            assert inner(new) == inner(text)
        for name in ("state", "active")[: 1 if act == "destroy" else 2]:
            assert comments(new, name) == comments(text, name)
        assert (f"{key_id.encode().hex():0<64}" in new) == (act != "destroy")
        assert states(ring)[key_id] == AIMS[act].value


@fewer
@given(text=rings())
def test_new_entries_leave_the_rest_as_it_was(text: str) -> None:
    """The entry comes after the last key; take it out, and the old file is back."""
    with written(text) as ring:
        stage_key(ring, "new")
        new = ring.read_bytes().decode()
        start = new.index('\n[[key]]\nid = "new"\n')
        end = new.index("\n", new.index("keys.d/new.key", start)) + 1
        old = new[:start] + new[end:]
        assert old.removesuffix("\n") == text.removesuffix("\n")
        assert [entry.id for entry in read_ring_entries(ring)][-1] == "new"


@pytest.mark.parametrize("wrapper", [None, "w"])
def test_first_key_of_a_ring_without_keys(tmp_path: Path, service: Service, wrapper: str | None) -> None:
    """A wrapped one is never in a file, and its ring gets a name."""
    ring = tmp_path / "keys.toml"
    ring.write_text("version = 1  # by hand\n" + wrapper_text() * bool(wrapper))
    promote_key(ring, stage_key(ring, "k1", wrapper))
    assert KeyRing.load(ring).active_id == "k1"
    assert ring.read_text().startswith("version = 1  # by hand\n")
    assert names(ring) == {"keys.toml", *(() if wrapper else ("keys.d/k1.key",))}
    assert tomllib.loads(ring.read_text()).keys() >= ({"name", "active"} if wrapper else {"active"})
