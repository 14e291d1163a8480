"""Wrapping keys of a ring file: new ones, those in files, and wrapped ones again."""

from __future__ import annotations

import os
import tomllib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.keys.destroy import destroy_key
from sealpoint.admin.keys.edit import key_file, stage_key
from sealpoint.admin.keys.wrapping import (
    check_wrappers,
    find_left_files,
    rewrap_keys,
    wrap_key,
)
from sealpoint.crypto import KeyRing
from sealpoint.errors import (
    KeyDestroyedError,
    KeyTransitionError,
    KeyUnavailableError,
    StoppedError,
    UnknownKeyError,
    WrappedKeyError,
)
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from tests.support.keys.rings import write
from tests.support.keys.wrappers import Service, Wrapper, wrapper_text


@pytest.fixture
def ring(ring: Path, service: Service) -> Path:
    """A ring with the key ``k1`` in a file, and the wrappers ``w`` and ``v``."""
    ring.write_text(f"{ring.read_text()}\n{wrapper_text()}\n{wrapper_text('v', 'two')}")
    return ring


def refuse(path: Path, _: Path) -> None:
    raise PermissionError(1, f"Operation not permitted: {path}")


@pytest.fixture
def left(ring: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same ring; ``k1`` is wrapped by ``w``, and its file could not be removed."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StoppedError, match=r"k1\.key cannot be removed") as caught:
            wrap_key(ring, "k1", "w")
    assert "run the same command again" in caught.value.hint
    return ring


def source(ring: Path, key_id: str) -> dict[str, Any]:
    table = tomllib.loads(ring.read_text())
    entries = [*table["key"], *table.get("index", [])]
    found: dict[str, Any] = next(entry["source"] for entry in entries if entry["id"] == key_id)
    return found


def material(ring: Path, key_id: str) -> bytes:
    return RingFile(ring).require_loader(key_id)()


@pytest.mark.parametrize("is_table", [False, True])
def test_key_in_a_file_is_wrapped(ring: Path, is_table: bool) -> None:
    """The rest of the ring stays. A source may be in a table of its own."""
    before, file = material(ring, "k1"), key_file(ring, "k1")
    text = ring.read_text()
    if is_table:
        line = 'source = { file = "keys.d/k1.key" }'
        ring.write_text(text.replace(line, '[key.source]  # where\nfile = "keys.d/k1.key"\n'))
    assert wrap_key(ring, "k1", "w") == file
    assert not file.exists()
    assert source(ring, "k1").keys() == {"wrapped", "by"}
    assert material(ring, "k1") == before
    assert str(read_ring_entries(ring)[0].check) in text
    assert not find_left_files(ring)
    if not is_table:
        kept = [line for line in text.splitlines() if not line.startswith("source")]
        assert [line for line in ring.read_text().splitlines() if line in kept] == kept
    with pytest.raises(KeyTransitionError, match="already wrapped by 'w'") as caught:
        wrap_key(ring, "k1", "v")
    assert "rewrap k1 --with v" in caught.value.hint


def test_key_without_check_value_gets_one_and_the_ring_a_name(ring: Path) -> None:
    text = "\n".join(line for line in ring.read_text().splitlines() if not line.startswith("check"))
    ring.write_text(text)
    wrap_key(ring, "k1", "w")
    assert read_ring_entries(ring)[0].check
    name = str(RingFile(ring).wrappers.ring)
    assert name.startswith("ring-")
    stage_key(ring, "k3", "w")
    assert RingFile(ring).wrappers.ring == name


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
    shared = "cannot wrap 'k2': its key file is also the key file of 'k1'"
    with pytest.raises(KeyTransitionError, match=shared):
        wrap_key(ring, "k2", "w")


WRONG: list[Callable[[pytest.MonkeyPatch], None]] = [
    lambda patch: patch.setattr(Wrapper, "unwrap", lambda *_: bytes(32)),
    lambda patch: patch.setattr(Wrapper, "_mask", lambda *_: os.urandom(32)),
]


@pytest.mark.parametrize("break_it", WRONG)
def test_wrapper_that_does_not_unwrap_what_it_wrapped(
    ring: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Found before anything is changed. It is no missing right of this host: the wrapper fails."""
    text = ring.read_text()
    break_it(monkeypatch)
    for call in (lambda: wrap_key(ring, "k1", "w"), lambda: stage_key(ring, "k2", "w")):
        with pytest.raises(WrappedKeyError):
            call()
    assert ring.read_text() == text
    assert key_file(ring, "k1").exists()
    first, _ = check_wrappers(ring, unwrapped=["w"])
    assert first["problem"]
    assert first["is_failing"]


def test_file_that_cannot_be_removed(left: Path) -> None:
    """The key is wrapped; the command run again removes the file."""
    assert find_left_files(left) == {"k1": "keys.d/k1.key"}
    KeyRing.load(left)
    assert wrap_key(left, "k1", "w") == key_file(left, "k1")
    assert not key_file(left, "k1").exists()
    assert not find_left_files(left)


def test_file_that_is_replaced_or_gone(left: Path, service: Service) -> None:
    """After the command was interrupted: another key is not removed, and no service asked without a file."""
    write(key_file(left, "k1"), os.urandom(32))
    with pytest.raises(KeyTransitionError, match="not known to contain the key 'k1'"):
        wrap_key(left, "k1", "w")
    key_file(left, "k1").unlink()
    service.away.add("one")
    assert wrap_key(left, "k1", "w") is None
    assert not find_left_files(left)


def test_file_is_kept_if_the_service_has_lost_its_key_meanwhile(left: Path, service: Service) -> None:
    """The file may be the last copy: the wrapped key is tried again before it is removed."""
    service.away.add("one")
    with pytest.raises(KeyUnavailableError, match="wrapper 'w'"):
        wrap_key(left, "k1", "w")
    assert key_file(left, "k1").exists()
    service.away.clear()
    blob = source(left, "k1")["wrapped"]
    left.write_text(left.read_text().replace(blob, b64encode(b"damaged").decode()))
    with pytest.raises(WrappedKeyError):
        wrap_key(left, "k1", "w")
    assert key_file(left, "k1").exists()


def test_interrupted_key_is_not_wrapped_by_another_wrapper(left: Path) -> None:
    for wrapper in ("v", "unknown"):
        with pytest.raises(KeyTransitionError, match="already wrapped by 'w'") as caught:
            wrap_key(left, "k1", wrapper)
        assert "keys wrap k1 --with w" in caught.value.hint
    assert key_file(left, "k1").exists()


def test_destroyed_key_is_removed_from_the_ring(ring: Path) -> None:
    stage_key(ring, "k2", "w")
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
