"""Wrapping keys of a ring file: new ones, those in files, and wrapped ones again."""

from __future__ import annotations

import os
import tomllib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sealpoint.crypto import KeyRing
from sealpoint.errors import (
    DuplicateKeyError,
    FileLinkError,
    HeldError,
    KeyDestroyedError,
    KeyTransitionError,
    KeyUnavailableError,
    OutputExistsError,
    RingFileError,
    StoppedError,
    UnknownKeyError,
    WrappedKeyError,
)
from sealpoint.keys import files
from sealpoint.keys.destroy import destroy_key
from sealpoint.keys.edit import add_index, check_ring, create_ring, disable_key, promote_key, stage_key
from sealpoint.keys.leftovers import key_file
from sealpoint.keys.lock import holding
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from sealpoint.keys.state import KeyState
from sealpoint.keys.wrap import ask
from sealpoint.keys.wrapping import (
    add_wrapped_index,
    check_wrappers,
    find_left_files,
    rewrap_keys,
    stage_wrapped_key,
    wrap_key,
)
from tests.support.rings import write
from tests.support.wrappers import Service, Wrapper, fake_service, wrapper_text


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(ask, "sleep", lambda _: None)
    with fake_service(monkeypatch) as found:
        yield found


@pytest.fixture
def ring(tmp_path: Path, service: Service) -> Path:
    """A ring with the key ``k1`` in a file, and the wrappers ``w`` and ``v``."""
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    file.write_text(f"{file.read_text()}\n{wrapper_text()}\n{wrapper_text('v', 'two')}")
    return file


def source(ring: Path, key_id: str) -> dict[str, Any]:
    table = tomllib.loads(ring.read_text())
    entries = [*table["key"], *table.get("index", [])]
    found: dict[str, Any] = next(entry["source"] for entry in entries if entry["id"] == key_id)
    return found


def material(ring: Path, key_id: str) -> bytes:
    return RingFile(ring).require_loader(key_id)()


def test_new_key_is_never_in_a_file(ring: Path, service: Service) -> None:
    service.version = "3"
    assert stage_wrapped_key(ring, "w", "k2", owner="a team") == "k2"
    assert not key_file(ring, "k2").exists()
    assert source(ring, "k2").keys() == {"wrapped", "by", "version"}
    entry = read_ring_entries(ring)[1]
    assert (entry.state.value, entry.owner, entry.wrapper, entry.version) == ("staged", "a team", "w", "3")
    assert entry.check
    assert check_ring(ring) == {"k1": None, "k2": None}
    promote_key(ring, "k2")
    assert KeyRing.load(ring).active_id == "k2"


def test_ring_gets_a_name_once(ring: Path) -> None:
    stage_wrapped_key(ring, "w", "k2")
    name = RingFile(ring).wrappers.ring
    assert name is not None
    assert name.startswith("ring-")
    stage_wrapped_key(ring, "w", "k3")
    assert RingFile(ring).wrappers.ring == name


def test_name_of_the_ring_is_kept(ring: Path) -> None:
    ring.write_text(ring.read_text().replace("version = 1", "version = 1\nname = 'agents'  # ours"))
    stage_wrapped_key(ring, "w", "k2")
    assert RingFile(ring).wrappers.ring == "agents"
    assert "name = 'agents'  # ours" in ring.read_text()


@pytest.mark.parametrize("head", ["version = 1\n", "version = 1\n\n# all that is here\n"])
def test_first_key_of_a_ring(tmp_path: Path, service: Service, head: str) -> None:
    """A ring file that was written by hand, with no key."""
    ring = write(tmp_path / "keys.toml", head + wrapper_text())
    assert stage_wrapped_key(ring, "w").startswith("k")
    promote_key(ring, stage_wrapped_key(ring, "w", "k2"))
    assert KeyRing.load(ring).active_id == "k2"
    lines = ring.read_text().splitlines(keepends=True)
    assert {line.partition(" ")[0] for line in lines[1:3]} == {"name", "active"}
    assert "".join([lines[0], *lines[3:]]).startswith(head.rstrip())
    assert list(tmp_path.iterdir()) == [ring]


def test_key_needs_a_wrapper_of_the_ring(ring: Path) -> None:
    for call in (lambda: stage_wrapped_key(ring, "x"), lambda: wrap_key(ring, "k1", "x")):
        with pytest.raises(RingFileError, match=r"has no wrapper 'x' \(held: w, v\)") as caught:
            call()
        assert "by hand" in caught.value.hint


def test_id_that_is_taken(ring: Path) -> None:
    for key_id in ("k1", "w"):
        with pytest.raises(DuplicateKeyError):
            stage_wrapped_key(ring, "w", key_id)
    write(key_file(ring, "k2"), "another key")
    with pytest.raises(OutputExistsError, match=r"k2\.key is there already"):
        stage_wrapped_key(ring, "w", "k2")
    with pytest.raises(DuplicateKeyError):
        stage_key(ring, "w")


def test_key_in_a_file_is_wrapped(ring: Path) -> None:
    before, file = material(ring, "k1"), key_file(ring, "k1")
    text = ring.read_text()
    assert wrap_key(ring, "k1", "w") == file
    assert not file.exists()
    assert source(ring, "k1").keys() == {"wrapped", "by"}
    assert material(ring, "k1") == before
    assert str(read_ring_entries(ring)[0].check) in text
    assert not find_left_files(ring)
    kept = [line for line in text.splitlines() if not line.startswith("source")]
    assert [line for line in ring.read_text().splitlines() if line in kept] == kept


def test_key_from_another_source_is_wrapped(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = material(ring, "k1")
    monkeypatch.setenv("SEALPOINT_KEY", before.hex())
    text = ring.read_text().replace('file = "keys.d/k1.key"', 'env = "SEALPOINT_KEY"')
    ring.write_text(text)
    assert wrap_key(ring, "k1", "w") is None
    monkeypatch.delenv("SEALPOINT_KEY")
    assert material(ring, "k1") == before
    assert key_file(ring, "k1").exists()  # it is not the key's any more


def test_key_without_check_value_gets_one(ring: Path) -> None:
    text = "\n".join(line for line in ring.read_text().splitlines() if not line.startswith("check"))
    ring.write_text(text)
    wrap_key(ring, "k1", "w")
    assert read_ring_entries(ring)[0].check


def test_index_key_is_wrapped(ring: Path) -> None:
    add_index(ring)
    before = KeyRing.load(ring).index_key("x")
    file = key_file(ring, "index")
    assert wrap_key(ring, "index", "w") == file
    assert not file.exists()
    assert KeyRing.load(ring).index_key("x") == before
    assert rewrap_keys(ring) == ["index"]
    assert KeyRing.load(ring).index_key("x") == before


def test_new_index_key_is_wrapped(ring: Path) -> None:
    assert add_wrapped_index(ring, "w") == "index"
    assert not key_file(ring, "index").exists()
    assert KeyRing.load(ring).index_key("x")
    with pytest.raises(DuplicateKeyError, match="has an index key already"):
        add_wrapped_index(ring, "w")


def test_disabled_key_is_wrapped(ring: Path) -> None:
    stage_key(ring, "k2")
    promote_key(ring, "k2")
    disable_key(ring, "k1")
    assert wrap_key(ring, "k1", "w")
    assert check_ring(ring) == {"k1": None, "k2": None}


def test_key_that_is_wrapped_already(ring: Path) -> None:
    wrap_key(ring, "k1", "w")
    with pytest.raises(KeyTransitionError, match="wrapped by 'w' already") as caught:
        wrap_key(ring, "k1", "v")
    assert "rewrap k1 --with v" in caught.value.hint


def test_unknown_and_destroyed_keys(ring: Path) -> None:
    stage_key(ring, "k2")
    destroy_key(ring, "k2")
    for call in (lambda key_id: wrap_key(ring, key_id, "w"), lambda key_id: rewrap_keys(ring, [key_id])):
        with pytest.raises(KeyDestroyedError):
            call("k2")
        with pytest.raises(UnknownKeyError):
            call("k9")


def test_file_of_two_keys_is_not_removed(ring: Path) -> None:
    stage_key(ring, "k2")
    ring.write_text(ring.read_text().replace("keys.d/k1.key", "keys.d/k2.key"))
    with pytest.raises(KeyTransitionError, match="cannot wrap 'k2': its file is also that of 'k1'"):
        wrap_key(ring, "k2", "w")


def test_file_that_is_a_link_is_not_removed(ring: Path) -> None:
    file = key_file(ring, "k1")
    file.rename(file.with_name("real"))
    file.symlink_to("real")
    with pytest.raises(FileLinkError, match="is a symbolic link"):
        wrap_key(ring, "k1", "w")
    assert file.exists()


WRONG: list[Callable[[pytest.MonkeyPatch], None]] = [
    lambda patch: patch.setattr(Wrapper, "unwrap", lambda *_: bytes(32)),
    lambda patch: patch.setattr(Wrapper, "_mask", lambda *_: os.urandom(32)),
]


@pytest.mark.parametrize("break_it", WRONG)
def test_wrapper_that_does_not_unwrap_what_it_wrapped(
    ring: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Found before anything is changed."""
    text = ring.read_text()
    break_it(monkeypatch)
    with pytest.raises(WrappedKeyError):
        wrap_key(ring, "k1", "w")
    with pytest.raises(WrappedKeyError):
        stage_wrapped_key(ring, "w", "k2")
    assert ring.read_text() == text
    assert key_file(ring, "k1").exists()


def test_service_that_is_away_changes_nothing(ring: Path, service: Service) -> None:
    text = ring.read_text()
    service.away.add("one")
    for call in (lambda: wrap_key(ring, "k1", "w"), lambda: stage_wrapped_key(ring, "w", "k2")):
        with pytest.raises(KeyUnavailableError, match="wrapper 'w'"):
            call()
    assert ring.read_text() == text
    assert key_file(ring, "k1").exists()


def test_file_that_cannot_be_removed(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is wrapped; the command run again removes the file."""
    file = key_file(ring, "k1")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StoppedError, match=r"k1\.key cannot be removed") as caught:
            wrap_key(ring, "k1", "w")
        assert "run the same command again" in caught.value.hint
    assert find_left_files(ring) == {"k1": "keys.d/k1.key"}
    KeyRing.load(ring)
    assert wrap_key(ring, "k1", "w") == file
    assert not file.exists()
    assert not find_left_files(ring)


def refuse(path: Path, _: Path) -> None:
    raise PermissionError(1, f"Operation not permitted: {path}")


def test_file_with_another_key_is_not_removed(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was replaced after the command was interrupted."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StoppedError):
            wrap_key(ring, "k1", "w")
    write(key_file(ring, "k1"), os.urandom(32))
    with pytest.raises(KeyTransitionError, match="not known to hold the key 'k1'"):
        wrap_key(ring, "k1", "w")
    key_file(ring, "k1").unlink()
    assert wrap_key(ring, "k1", "w") is None
    assert not find_left_files(ring)


def leave_file(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrap ``k1`` by ``w``, and be interrupted before its file is removed."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StoppedError):
            wrap_key(ring, "k1", "w")


def test_file_is_kept_if_the_service_has_lost_its_key_meanwhile(
    ring: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be the last copy: the wrapped key is tried again before it is removed."""
    leave_file(ring, monkeypatch)
    service.away.add("one")
    with pytest.raises(KeyUnavailableError, match="wrapper 'w'"):
        wrap_key(ring, "k1", "w")
    assert key_file(ring, "k1").exists()
    service.away.clear()
    blob = source(ring, "k1")["wrapped"]
    ring.write_text(ring.read_text().replace(blob, b64encode(b"damaged").decode()))
    with pytest.raises(WrappedKeyError):
        wrap_key(ring, "k1", "w")
    assert key_file(ring, "k1").exists()


def test_file_that_is_gone_needs_no_service(
    ring: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_file(ring, monkeypatch)
    key_file(ring, "k1").unlink()
    service.away.add("one")
    assert wrap_key(ring, "k1", "w") is None
    assert not find_left_files(ring)


def test_interrupted_key_is_destroyed_with_its_file(
    ring: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its service, which may have lost its key. What cannot be removed is still recorded."""
    leave_file(ring, monkeypatch)
    promote_key(ring, stage_key(ring, "k2"))
    disable_key(ring, "k1")
    service.away.add("one")
    service.calls.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StoppedError, match=r"k1\.key cannot be removed"):
            destroy_key(ring, "k1")
    assert find_left_files(ring) == {"k1": "keys.d/k1.key"}
    material = key_file(ring, "k1").read_bytes()
    write(key_file(ring, "k1"), os.urandom(32))
    with pytest.raises(KeyTransitionError, match="not known to hold the key 'k1'") as caught:
        destroy_key(ring, "k1")
    assert "run the same command again" in caught.value.hint
    write(key_file(ring, "k1"), material)
    assert destroy_key(ring, "k1") == key_file(ring, "k1")
    assert not key_file(ring, "k1").exists()
    entry = read_ring_entries(ring)[0]
    assert (entry.state, entry.material, entry.wrapper) == (KeyState.DESTROYED, "removed", "w")
    assert not service.calls


def test_interrupted_key_whose_file_is_gone_is_destroyed(
    ring: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_file(ring, monkeypatch)
    promote_key(ring, stage_key(ring, "k2"))
    disable_key(ring, "k1")
    key_file(ring, "k1").unlink()
    service.away.add("one")
    assert destroy_key(ring, "k1") is None
    assert read_ring_entries(ring)[0].material == "removed"


def test_interrupted_key_is_not_wrapped_by_another_wrapper(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_file(ring, monkeypatch)
    for wrapper in ("v", "unknown"):
        with pytest.raises(KeyTransitionError, match="wrapped by 'w' already") as caught:
            wrap_key(ring, "k1", wrapper)
        assert "keys wrap k1 --with w" in caught.value.hint
    assert key_file(ring, "k1").exists()


def test_keys_are_rewrapped(ring: Path, service: Service) -> None:
    """All of them, or some; under the newest version, or by another wrapper. Their material is the same."""
    service.version = "1"
    wrap_key(ring, "k1", "w")
    stage_wrapped_key(ring, "w", "k2")
    before = {key_id: material(ring, key_id) for key_id in ("k1", "k2")}
    service.version = "2"
    assert rewrap_keys(ring) == ["k1", "k2"]
    assert [entry.version for entry in read_ring_entries(ring)] == ["2", "2"]
    assert rewrap_keys(ring, ["k2"], "v") == ["k2"]
    assert [entry.wrapper for entry in read_ring_entries(ring)] == ["w", "v"]
    assert {key_id: material(ring, key_id) for key_id in before} == before


def test_rewrap_of_a_key_that_is_not_wrapped(ring: Path) -> None:
    with pytest.raises(KeyTransitionError, match="has no wrapped key"):
        rewrap_keys(ring)
    stage_wrapped_key(ring, "w", "k2")
    text = ring.read_text()
    with pytest.raises(KeyTransitionError, match="'k1' is not wrapped") as caught:
        rewrap_keys(ring, ["k2", "k1"])
    assert "keys wrap" in caught.value.hint
    assert ring.read_text() == text


def test_only_one_command_at_a_time(ring: Path) -> None:
    with holding(ring), pytest.raises(HeldError):
        wrap_key(ring, "k1", "w")


def test_destroyed_key_is_removed_from_the_ring(ring: Path) -> None:
    stage_wrapped_key(ring, "w", "k2")
    assert destroy_key(ring, "k2") is None
    assert source(ring, "k2") == {"wrapped": "", "by": "w"}
    entry = read_ring_entries(ring)[1]
    assert (entry.state.value, entry.source, entry.wrapper, entry.material) == (
        "destroyed",
        "wrapped",
        "w",
        "removed",
    )
    ring.write_text(ring.read_text().replace(wrapper_text(), ""))
    assert KeyRing.load(ring).ids == ("k1", "k2")  # the wrapper may go


def test_destroyed_key_with_a_blob_is_refused(ring: Path) -> None:
    stage_wrapped_key(ring, "w", "k2")
    ring.write_text(ring.read_text().replace('"staged"', '"destroyed"'))
    with pytest.raises(RingFileError, match="its material is still in the ring"):
        RingFile(ring)


def test_source_in_a_table_of_its_own(ring: Path) -> None:
    text = ring.read_text().replace(
        'source = { file = "keys.d/k1.key" }', '[key.source]  # where\nfile = "keys.d/k1.key"\n'
    )
    ring.write_text(text)
    before = material(ring, "k1")
    wrap_key(ring, "k1", "w")
    assert material(ring, "k1") == before


def test_wrappers_are_tried(ring: Path, service: Service) -> None:
    service.version = "7"
    first, second = check_wrappers(ring)
    assert (first.id, first.kind, first.location, first.version) == ("w", "fake", "one", "7")
    assert (first.problem, first.is_failing, second.id, second.is_failing) == (None, False, "v", False)
    assert {act for act, _ in service.calls} == {"wrap", "unwrap", "describe"}


def test_wrapper_that_is_away(ring: Path, service: Service) -> None:
    service.away.add("two")
    first, second = check_wrappers(ring)
    assert not first.is_failing
    assert second.is_failing
    assert second.problem == "connection refused"


def test_wrapper_whose_key_waits_for_deletion(ring: Path, service: Service) -> None:
    service.problem = "waits for deletion"
    (first, _) = check_wrappers(ring, unwrapped=["w"])
    assert (first.problem, first.is_failing) == ("waits for deletion", True)


def test_host_that_may_not_wrap(ring: Path, service: Service) -> None:
    """Hosts of agents need no right to that: a key that was unwrapped is enough."""
    service.wraps = False
    first, second = check_wrappers(ring, unwrapped=["w"])
    assert "access denied" in str(first.problem)
    assert (first.is_failing, second.is_failing) == (False, True)


def test_wrapper_that_wraps_wrongly_fails_although_it_unwraps(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is no missing right: the next key that it wraps would be refused."""
    monkeypatch.setattr(Wrapper, "unwrap", lambda *_: bytes(32))
    first, _ = check_wrappers(ring, unwrapped=["w"])
    assert "does not unwrap what it wrapped" in str(first.problem)
    assert first.is_failing


def test_material_is_in_no_file(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    real = files.write_private

    def write_private(path: Path, data: bytes, *rest: Any) -> Path:
        written.append(data)
        return real(path, data, *rest)

    monkeypatch.setattr(files, "write_private", write_private)
    stage_wrapped_key(ring, "w", "k2")
    found = material(ring, "k2")
    forms = (found, found.hex().encode(), b64encode(found)[:40])
    assert written
    assert all(form not in data for data in written for form in forms)
