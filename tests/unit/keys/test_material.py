"""Material is loaded when a key is first used; what is slow is never loaded by a call that seals or opens."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import KeyMaterialError, RingFileError, SourceError
from sealpoint.keys import material as lazy
from sealpoint.keys import sources
from sealpoint.keys.command import run_command
from sealpoint.keys.material import RETRY_SECONDS
from tests.support.rings import material_of, replace, write

VALUE = "msgpack", b"value"


def ring_text(folder: Path, *, failing: Sequence[str] = (), check: str = "", **states: str) -> str:
    """A ring whose keys come from commands; each notes that it ran."""
    lines = ["version = 1", *(f"active = '{k}'" for k, state in states.items() if state == "active")]
    for key_id, state in states.items():
        act = "exit 3" if key_id in failing else f"printf {material_of(key_id).hex()}"
        command = f"['sh', '-c', 'echo >> {folder}/{key_id}.ran; {act}']"
        lines += ["[[key]]", f"id = '{key_id}'", f"state = '{state}'", f"source = {{ command = {command} }}"]
        lines += [f"check = '{check}'"] if check else []
    return "\n".join([*lines, ""])


def ran(folder: Path, key_id: str) -> int:
    path = folder / f"{key_id}.ran"
    return len(path.read_text()) if path.exists() else 0


def sealed_under(key_id: str) -> tuple[str, bytes]:
    return RingCipher(KeyRing([Key(key_id, material_of(key_id), KeyState.ACTIVE)])).seal(*VALUE)


def load(folder: Path, text: str) -> KeyRing:
    return KeyRing.load(write(folder / "keys.toml", text))


def test_only_the_command_of_the_active_key_is_run_at_load(tmp_path: Path) -> None:
    ring = load(tmp_path, ring_text(tmp_path, k0="decrypt-only", k1="active", k2="staged", k3="disabled"))
    assert [ran(tmp_path, key_id) for key_id in ("k0", "k1", "k2", "k3")] == [0, 1, 0, 0]
    assert ring.require_key("k0").material == material_of("k0")
    assert ring.require_key("k0").material == material_of("k0")
    assert [ran(tmp_path, key_id) for key_id in ("k0", "k1", "k2", "k3")] == [1, 1, 0, 0]
    assert ring.load_material() is ring
    assert [ran(tmp_path, key_id) for key_id in ("k0", "k1", "k2", "k3")] == [1, 1, 1, 0]


def test_calls_that_seal_and_open_run_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ring that is followed and with one that is not: they wait for a thread that runs it."""
    threads: list[str] = []

    def run(argv: Sequence[str]) -> bytes:
        threads.append(threading.current_thread().name)
        return run_command(argv)

    ring = load(tmp_path, ring_text(tmp_path, k0="decrypt-only", k1="active", k2="staged"))
    monkeypatch.setattr(sources, "run_command", run)
    assert RingCipher(ring, follow=False).open(*sealed_under("k0"))[:2] == VALUE
    assert RingCipher(ring).open(*sealed_under("k2"))[:2] == VALUE
    assert threads == ["sealpoint-key", "sealpoint-key"]


def test_process_that_follows_does_not_wait_for_first_use(tmp_path: Path) -> None:
    """The commands of all keys are started when the cipher is made."""
    ring = load(tmp_path, ring_text(tmp_path, k0="decrypt-only", k1="active"))
    cipher = RingCipher(ring)
    for material in ring.materials:
        material.start().join()
    assert all(material.is_loaded for material in ring.materials)
    assert cipher.open(*sealed_under("k0"))[:2] == VALUE
    assert ran(tmp_path, "k0") == 1


def test_old_key_that_is_not_available_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its values raise, and its command is not run again for each of them."""
    now = [1000.0]
    monkeypatch.setattr(lazy, "monotonic", lambda: now[0])
    ring = load(tmp_path, ring_text(tmp_path, failing=["k0"], k0="decrypt-only", k1="active"))
    cipher = RingCipher(ring)
    assert cipher.open(*cipher.seal(*VALUE))[:2] == VALUE
    for number in (1, 2):
        for _ in range(5):
            with pytest.raises(SourceError, match="key 'k0': command 'sh' exited with 3") as caught:
                cipher.open(*sealed_under("k0"))
            assert "by hand" in caught.value.hint
        assert ran(tmp_path, "k0") == number
        now[0] += RETRY_SECONDS
    assert "'k0'" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    with pytest.raises(SourceError):
        ring.load_material()


def test_lazy_material_is_checked_when_it_is_loaded(tmp_path: Path) -> None:
    ring = load(tmp_path, ring_text(tmp_path, check="00000000", k0="decrypt-only"))
    with pytest.raises(ValueError, match="'check'"):
        RingCipher(ring).open(*sealed_under("k0"))


def test_lazy_legacy_key_of_another_size_is_refused(tmp_path: Path) -> None:
    text = ring_text(tmp_path, k0="decrypt-only") + "suite = 'aes'\n"
    ring = load(tmp_path, text.replace(material_of("k0").hex(), "short"))
    with pytest.raises(KeyMaterialError, match="5 bytes of material instead of 16 or 24 or 32"):
        ring.require_legacy().subkey("aes")


def test_changed_ring_asks_no_source_again(tmp_path: Path) -> None:
    """Neither for material that is held, nor for that which is being loaded; its states are in force."""
    states = {"k0": "decrypt-only", "k1": "active"}
    ring = load(tmp_path, ring_text(tmp_path, **states))
    cipher = RingCipher(ring)
    replace(tmp_path / "keys.toml", ring_text(tmp_path, **states, k2="staged"))
    assert cipher.open(*sealed_under("k2"))[:2] == VALUE
    assert cipher.open(*sealed_under("k0"))[:2] == VALUE
    assert [ran(tmp_path, key_id) for key_id in ("k0", "k1", "k2")] == [1, 1, 1]


OVER_A_FORK = """
import os, sys
from sealpoint.crypto import KeyRing, RingCipher
folder, tag, blob = sys.argv[1:]
ring = KeyRing.load(f"{folder}/keys.toml")
thread = ring.get_key("k0").lazy_material.start()
gate = open(f"{folder}/gate", "w")  # once the command stands there; its thread is not there after the fork
child = os.fork()
if child == 0:
    open(f"{folder}/open", "w").close()  # the command that the child runs itself finds no gate
    print(RingCipher(ring).open(tag, bytes.fromhex(blob))[:2], flush=True)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.write("\\n")
gate.close()
thread.join()
sys.exit(code)
"""


def test_child_of_a_fork_loads_for_itself(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    text = ring_text(tmp_path, k0="decrypt-only")
    wait = f"test -e {tmp_path}/open || read line < {tmp_path}/gate; printf"
    write(tmp_path / "keys.toml", text.replace("printf", wait))
    tag, blob = sealed_under("k0")
    words = [sys.executable, "-c", OVER_A_FORK, str(tmp_path), tag, blob.hex()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{VALUE}\n"), done.stderr


@dataclass(frozen=True)
class VaultSource:
    """A source of another kind, as an extra would bring it."""

    kind: ClassVar = "vault"
    is_slow: ClassVar = True
    location: str

    def read(self, folder: Path) -> bytes:
        return (folder / self.location).read_bytes()


def test_source_of_another_kind_is_one_class_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "version = 1\n[[key]]\nid = 'k0'\nstate = 'decrypt-only'\nsource = { vault = 'place' }\n"
    with pytest.raises(RingFileError, match="'vault' is not one of"):
        load(tmp_path, text)
    known: Any = sources.SOURCES
    monkeypatch.setitem(known, "vault", VaultSource)
    ring = load(tmp_path, text)  # nothing is read yet
    write(tmp_path / "place", material_of("k0"))
    assert RingCipher(ring).open(*sealed_under("k0"))[:2] == VALUE


BESIDE_A_FORK = """
import os, sys
from sealpoint.crypto import KeyRing, RingCipher
folder, tag, blob = sys.argv[1:]
cipher = RingCipher(KeyRing.load(f"{folder}/keys.toml"))
gate = open(f"{folder}/gate", "w")  # once the command of k0 stands there; k2 waits for its turn
child = os.fork()
if child == 0:
    open(f"{folder}/open", "w").close()
    from sealpoint.keys.material import background
    background.load([cipher.ring.get_key("k2").lazy_material])  # a thread of its own
    print(cipher.open(tag, bytes.fromhex(blob))[:2], flush=True)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.write("\\n")
gate.close()
sys.exit(code)
"""


def test_child_of_a_fork_has_its_own_thread_in_the_background(tmp_path: Path) -> None:
    """That of the parent is within a command, and another key waits for it."""
    os.mkfifo(tmp_path / "gate")
    text = ring_text(tmp_path, k1="active", k0="decrypt-only", k2="staged")
    wait = f"test -e {tmp_path}/open || read line < {tmp_path}/gate; printf {material_of('k0').hex()}"
    write(tmp_path / "keys.toml", text.replace(f"printf {material_of('k0').hex()}", wait))
    tag, blob = sealed_under("k2")
    words = [sys.executable, "-c", BESIDE_A_FORK, str(tmp_path), tag, blob.hex()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{VALUE}\n"), done.stderr
