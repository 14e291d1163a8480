"""Keys from commands and services: loaded at first use, and read again beside the data path."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import (
    KeyDestroyedError,
    KeyDisabledError,
    KeyMaterialError,
    NoActiveKeyError,
    SourceError,
    UnknownKeyError,
)
from sealpoint.keys import material, sources, watch
from sealpoint.keys.files import Origin
from sealpoint.keys.sources import run_command
from sealpoint.keys.stats import source_stats
from sealpoint.keys.watch import LOOK_SECONDS, RETRY_SECONDS
from tests.support.keys import wrappers
from tests.support.keys.rings import material_of, replace, write
from tests.support.keys.wrappers import Service, wrapped_text
from tests.unit.keys.conftest import VALUE, running, sealed_under, sealing_id, wait_until_loaded


class Commands:
    """A ring whose keys come from commands; each notes that it ran, and a gated one waits to be released."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "keys.toml"
        os.mkfifo(folder / "gate")

    def text(self, *, gated: str = "", failing: str = "", **states: str) -> str:
        lines = ["version = 1", *(f"active = '{k}'" for k, state in states.items() if state == "active")]
        for key_id, state in states.items():
            steps = [f"echo >> {self.folder}/{key_id}.ran"]
            steps += [f"read line < {self.folder}/gate"] if key_id == gated else []
            steps += ["exit 3"] if key_id == failing else [f"printf {material_of(key_id).hex()}"]
            source = f"source = {{ command = ['sh', '-c', '{'; '.join(steps)}'] }}"
            lines += ["[[key]]", f"id = '{key_id}'", f"state = '{state}'"]
            lines += [] if state == "destroyed" else [source]
        return "\n".join([*lines, ""])

    def put(self, *, gated: str = "", failing: str = "", **states: str) -> None:
        replace(self.file, self.text(gated=gated, failing=failing, **states))

    def ran(self, key_id: str) -> int:
        path = self.folder / f"{key_id}.ran"
        return len(path.read_text()) if path.exists() else 0

    def wait_for(self, key_id: str) -> None:
        """Wait until a command has begun: the thread that runs it holds no lock then."""
        while not self.ran(key_id):
            time.sleep(0.005)

    def release(self) -> None:
        """Let the gated command go on; waits until it stands at the gate."""
        (self.folder / "gate").write_text("\n")


@pytest.fixture
def ring(tmp_path: Path) -> Commands:
    made = Commands(tmp_path)
    write(made.file, made.text(k0="decrypt-only", k1="active"))
    return made


def look(subject: RingCipher, clock: list[float]) -> None:
    """A call that finds the file changed."""
    clock[0] += LOOK_SECONDS
    assert subject.open(*sealed_under("k1")).typed == VALUE


def test_material_that_is_held_is_not_asked_for_again(ring: Commands, clock: list[float]) -> None:
    subject = RingCipher(KeyRing.load(ring.file))
    assert subject.open(*sealed_under("k0")).typed == VALUE
    ring.put(k0="decrypt-only", k1="decrypt-only", k2="active")
    look(subject, clock)
    assert sealing_id(subject) == "k2"
    ring.put(k0="disabled", k1="active", k2="decrypt-only")
    look(subject, clock)
    assert sealing_id(subject) == "k1"
    assert [ring.ran(key_id) for key_id in ("k0", "k1", "k2")] == [1, 1, 1]


@pytest.mark.parametrize("change", ["material", "check"])
def test_material_of_another_command_is_asked_for(ring: Commands, clock: list[float], change: str) -> None:
    """And what it gives is held against what it was: another command may lead to another key.

    So it is if the entry has another check value.
    """
    subject = RingCipher(KeyRing.load(ring.file))
    assert subject.open(*sealed_under("k0")).typed == VALUE
    text = ring.text(k0="decrypt-only", k1="active")
    if change == "material":
        replace(ring.file, text.replace(material_of("k0").hex(), material_of("other").hex()))
    else:
        replace(ring.file, text + "check = '00000000'\n")
    look(subject, clock)
    wait_until_loaded()
    assert (ring.ran("k0"), ring.ran("k1")) == ((2, 1) if change == "material" else (1, 2))
    assert subject.open(*sealed_under("k0")).typed == VALUE


def test_material_that_was_loaded_late_is_compared_after_the_key_was_disabled(
    ring: Commands, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Its command had not run when the ring was loaded, and has when the file disables the key."""
    subject = RingCipher(KeyRing.load(ring.file))
    assert subject.open(*sealed_under("k0")).typed == VALUE
    ring.put(k0="disabled", k1="active")
    look(subject, clock)
    text = ring.text(k0="decrypt-only", k1="active")
    replace(ring.file, text.replace(material_of("k0").hex(), material_of("other").hex()))
    look(subject, clock)
    wait_until_loaded()
    assert "key 'k0' has other material than in the ring in use" in caplog.text
    with pytest.raises(KeyDisabledError):
        subject.open(*sealed_under("k0"))


def test_no_call_waits_for_a_command_that_it_does_not_need(ring: Commands, clock: list[float]) -> None:
    """While the command of a new key runs: every call returns, values of hostile rows too."""
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="decrypt-only", k1="active", k2="staged", gated="k2")
    look(subject, clock)
    assert sealing_id(subject) == "k1"
    assert subject.open(*sealed_under("k0")).typed == VALUE
    with pytest.raises(UnknownKeyError):
        subject.open(*sealed_under("k9"))
    ring.release()
    assert subject.open(*sealed_under("k2")).typed == VALUE


@pytest.mark.parametrize(
    ("state", "error"), [("disabled", KeyDisabledError), ("destroyed", KeyDestroyedError)]
)
def test_closed_key_is_refused_while_a_command_runs(
    ring: Commands, clock: list[float], state: str, error: type[Exception]
) -> None:
    """Both in the file that names the new command, and in one that comes while the command runs."""
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="disabled", k1="active", k2="staged", gated="k2")
    look(subject, clock)
    with pytest.raises(KeyDisabledError):
        subject.open(*sealed_under("k0"))
    ring.wait_for("k2")
    ring.put(k0="disabled", k1=state, k2="staged", gated="k2")
    clock[0] += LOOK_SECONDS
    with pytest.raises(error):
        subject.open(*sealed_under("k1"))
    assert len(running()) == 1
    ring.release()
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert ring.ran("k2") == 1
    with pytest.raises(error):
        subject.open(*sealed_under("k1"))


ACTS: dict[str, Callable[[RingCipher], object]] = {
    "seal": sealing_id,
    "open": lambda subject: subject.open(*sealed_under("k2")).typed,
}


@pytest.mark.parametrize(("act", "done"), [("seal", "k2"), ("open", VALUE)])
def test_call_waits_for_a_key_that_was_never_held(
    ring: Commands, clock: list[float], act: str, done: object
) -> None:
    """The key before it is decrypt-only from now on: nothing is sealed under it meanwhile."""
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="decrypt-only", k1="decrypt-only", k2="active", gated="k2")
    look(subject, clock)
    assert subject.ring.active_id is None
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ACTS[act], subject)
        with pytest.raises(TimeoutError):
            future.result(0.2)
        ring.put(k0="disabled", k1="decrypt-only", k2="active", gated="k2")  # meanwhile
        look(subject, clock)
        with pytest.raises(KeyDisabledError):
            subject.open(*sealed_under("k0"))
        ring.release()
        assert future.result() == done
    assert ring.ran("k2") == 1


def test_a_check_that_another_thread_prevents_is_made_by_the_next_call(
    ring: Commands, clock: list[float]
) -> None:
    """And not `LOOK_SECONDS` later: a key may have been disabled."""
    subject = RingCipher(KeyRing.load(ring.file))
    assert subject.open(*sealed_under("k0")).typed == VALUE
    ring.put(k0="disabled", k1="active")
    assert subject._follower
    with subject._follower._lock:
        look(subject, clock)
    with pytest.raises(KeyDisabledError):
        subject.open(*sealed_under("k0"))


def test_command_of_the_active_key_that_fails(
    ring: Commands, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The ring stays, but for what the file closes; said once, tried again later."""
    caplog.set_level(logging.DEBUG)
    subject = RingCipher(KeyRing.load(ring.file))
    wait_until_loaded()
    ring.put(k0="disabled", k1="decrypt-only", k2="active", failing="k2")
    for number in range(1, 4):
        look(subject, clock)
        wait_until_loaded()
        assert (sealing_id(subject), ring.ran("k2")) == ("k1", number)
        with pytest.raises(KeyDisabledError):
            subject.open(*sealed_under("k0"))
        with pytest.raises(UnknownKeyError):
            subject.open(*sealed_under("k2"))
        clock[0] += RETRY_SECONDS
    (record,) = caplog.records
    assert (record.levelname, "exited with 3" in record.getMessage()) == ("WARNING", True)
    ring.put(k0="disabled", k1="decrypt-only", k2="active")
    look(subject, clock)
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


@pytest.mark.parametrize("is_slow", [True, False])
def test_compromised_key_seals_nothing_when_its_successor_fails(
    ring: Commands, clock: list[float], is_slow: bool
) -> None:
    """Not even while no other key can: a value under a key that is known to others is no secret."""
    subject = RingCipher(KeyRing.load(ring.file))
    if is_slow:
        ring.put(k0="decrypt-only", k1="compromised", k2="active", failing="k2")
    else:
        missing = "[[key]]\nid = 'k2'\nstate = 'active'\nsource = { file = 'none' }\n"
        text = ring.text(k0="decrypt-only", k1="compromised")
        replace(ring.file, text.replace("version = 1", "version = 1\nactive = 'k2'") + missing)
    for _ in range(3):
        look(subject, clock)
        wait_until_loaded()
        with pytest.raises(NoActiveKeyError):
            subject.seal(*VALUE)
        assert subject.open(*sealed_under("k1")).typed == VALUE
        assert subject.open(*sealed_under("k0")).typed == VALUE
        clock[0] += RETRY_SECONDS
    ring.put(k0="decrypt-only", k1="compromised", k2="active")
    look(subject, clock)
    assert sealing_id(subject) == "k2"


def test_closed_key_stays_closed_when_another_source_fails(ring: Commands, clock: list[float]) -> None:
    """A missing key file delays no `disable` either, and an older file does not take it back."""
    subject, first = RingCipher(KeyRing.load(ring.file)), ring.file.read_text()
    missing = "[[key]]\nid = 'k2'\nstate = 'staged'\nsource = { file = 'none' }\n"
    replace(ring.file, ring.text(k0="destroyed", k1="active") + missing)
    for _ in range(2):
        look(subject, clock)
        with pytest.raises(KeyDestroyedError):
            subject.open(*sealed_under("k0"))
        replace(ring.file, first)


def test_file_from_before_is_refused_after_commands_too(
    ring: Commands, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="staged", k1="active", k2="staged", gated="k2")
    look(subject, clock)
    assert "'k0' is staged, and was decrypt-only" in caplog.text
    assert ring.ran("k2") == 0


# --- material is loaded when a key is first used -----------------------------------------------


def test_only_the_command_of_the_active_key_is_run_at_load(ring: Commands) -> None:
    ring.put(k0="decrypt-only", k1="active", k2="staged", k3="disabled")
    loaded, ids = KeyRing.load(ring.file), ("k0", "k1", "k2", "k3")
    assert [ring.ran(key_id) for key_id in ids] == [0, 1, 0, 0]
    for _ in range(2):
        assert loaded.require_key("k0").material == material_of("k0")
    assert [ring.ran(key_id) for key_id in ids] == [1, 1, 0, 0]
    assert loaded.load_material() is loaded
    assert [ring.ran(key_id) for key_id in ids] == [1, 1, 1, 0]


def test_calls_that_seal_and_open_run_no_command(ring: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ring that is followed and with one that is not: they wait for a thread that runs it."""
    threads: list[str] = []

    def run(argv: Sequence[str]) -> bytes:
        threads.append(threading.current_thread().name)
        return run_command(argv)

    ring.put(k0="decrypt-only", k1="active", k2="staged")
    loaded = KeyRing.load(ring.file)
    monkeypatch.setattr(sources, "run_command", run)
    assert RingCipher(loaded, follow=False).open(*sealed_under("k0")).typed == VALUE
    assert RingCipher(loaded).open(*sealed_under("k2")).typed == VALUE
    assert threads == ["sealpoint-key", "sealpoint-key"]


def test_old_key_that_is_not_available_stops_nothing_else(
    ring: Commands, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Its values raise, and its command is not run again for each of them."""
    ring.put(k0="decrypt-only", k1="active", failing="k0")
    loaded = KeyRing.load(ring.file)
    subject = RingCipher(loaded)
    assert subject.open(*subject.seal(*VALUE)).typed == VALUE
    for number in (1, 2):
        for _ in range(5):
            with pytest.raises(SourceError, match="key 'k0': command 'sh' exited with 3") as caught:
                subject.open(*sealed_under("k0"))
            assert "by hand" in caught.value.hint
        assert ring.ran("k0") == number
        clock[0] += material.RETRY_SECONDS
    assert "'k0'" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    with pytest.raises(SourceError):
        loaded.load_material()


def test_lazy_material_is_checked_when_it_is_loaded(ring: Commands) -> None:
    text = ring.text(k0="decrypt-only")
    loaded = KeyRing.load(write(ring.file, text + "check = '00000000'\n"))
    with pytest.raises(ValueError, match="'check'"):
        RingCipher(loaded).open(*sealed_under("k0"))
    loaded = KeyRing.load(
        write(ring.file, text.replace(material_of("k0").hex(), "short") + "suite = 'aes'\n")
    )
    with pytest.raises(KeyMaterialError, match="5 bytes of material instead of 16 or 24 or 32"):
        loaded.require_legacy().subkey("aes")


def test_reads_of_a_slow_source_are_counted_once_for_all_ciphers(ring: Commands) -> None:
    """And its failures, by class."""
    before = source_stats()
    loaded = KeyRing.load(ring.file)
    ring.put(k1="active", failing="k1")
    with pytest.raises(SourceError):
        KeyRing.load(ring.file)
    for cipher in (RingCipher(loaded, follow=False), RingCipher(loaded, follow=False)):
        cipher.seal(*VALUE)
        wait_until_loaded()
        assert cipher.stats().sources == source_stats()
    after = source_stats()
    assert after.reads - before.reads == 2
    assert Counter(after.failed) - Counter(before.failed) == {"SourceError": 1}


FORK = """
import os, sys
from pathlib import Path
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.keys.material import background
folder, tag, blob = sys.argv[1:]
ring = KeyRing.load(f"{folder}/keys.toml")
BEFORE
gate = open(f"{folder}/gate", "w")  # once the command stands there; its thread is not there after the fork
child = os.fork()
if child == 0:
    Path(folder, "open").touch()  # the command that the child runs itself finds no gate
    WITHIN
    print(cipher.open(tag, bytes.fromhex(blob)).typed, flush=True)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.write("\\n")
gate.close()
sys.exit(code)
"""
FORKS = {
    "key that is being loaded": (
        {"k0": "decrypt-only"},
        "ring.get_key('k0').lazy_material.start()",
        "cipher = RingCipher(ring)",
        "k0",
    ),
    "key that waits for its turn": (
        {"k1": "active", "k0": "decrypt-only", "k2": "staged"},
        "cipher = RingCipher(ring)",
        "background.load([cipher.ring.get_key('k2').lazy_material])",
        "k2",
    ),
    "ring that is read again": (
        {"k0": "active", "k1": "decrypt-only"},
        "cipher = RingCipher(ring); os.replace(folder + '/new', ring.path); cipher._follower.look(wait=True)",
        "pass",
        "k0",
    ),
}


@pytest.mark.parametrize("name", FORKS)
def test_child_of_a_fork_asks_for_itself(ring: Commands, name: str) -> None:
    """The thread of the parent is within the command of k0."""
    states, before, within, opened = FORKS[name]
    text = ring.text(**states, gated="k0").replace("read line", f"test -e {ring.folder}/open || read line")
    if "/new" in before:
        write(ring.file, ring.text(k1="active"))
        write(ring.folder / "new", text)
    else:
        write(ring.file, text)
    tag, blob = sealed_under(opened)
    code = FORK.replace("BEFORE", before).replace("WITHIN", within)
    words = [sys.executable, "-c", code, str(ring.folder), tag, blob.hex()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{VALUE}\n"), done.stderr


# --- wrapped keys ------------------------------------------------------------------------------


def follow(folder: Path, text: str) -> tuple[Path, RingCipher]:
    file = write(folder / "keys.toml", text)
    return file, RingCipher(KeyRing.load(file))


def test_many_old_keys_are_loaded_by_one_thread(tmp_path: Path, service: Service) -> None:
    """Of two ciphers, too."""
    old = {f"k{number}": "decrypt-only" for number in range(2, 30)}
    file = write(tmp_path / "keys.toml", wrapped_text(k1="active", **old))
    rings = KeyRing.load(file), KeyRing.load(file)
    service.gate.clear()
    ciphers = [RingCipher(ring) for ring in rings]
    assert len(running()) == 1
    service.gate.set()
    wait_until_loaded()
    assert all(one.is_loaded for ring in rings for one in ring.materials)
    assert service.count("unwrap", "k29") == 2
    assert all(subject.open(*sealed_under("k29"))[:2] == VALUE for subject in ciphers)


@pytest.mark.parametrize("is_in_file", [False, True])
def test_ring_by_a_relative_path_is_the_same_ring(
    tmp_path: Path, service: Service, clock: list[float], monkeypatch: pytest.MonkeyPatch, is_in_file: bool
) -> None:
    """A daemon leaves the folder: its keys are loaded, and a service that is away is not asked again.

    Nor is it for a key that moves from a file to the wrapper.
    """
    write(tmp_path / "k1.key", material_of("k1"))
    text = wrapped_text(k1="active")
    before = text[: text.index("source")] + "source = { file = 'k1.key' }\n" if is_in_file else text
    file = write(tmp_path / "keys.toml", before)
    monkeypatch.chdir(tmp_path)
    subject = RingCipher(KeyRing.load("keys.toml"))
    monkeypatch.chdir("/")
    rewrapped = wrapped_text(key="two", by="v", k1="active")
    service.away.add("two")
    service.calls.clear()
    replace(file, rewrapped)
    look(subject, clock)
    wait_until_loaded()
    assert not service.calls
    assert subject.ring.origin == Origin.of(file)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_wrapper_that_raises_an_error_of_its_own(
    tmp_path: Path,
    service: Service,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kind of another package: the ring in use stays as it was, and the file is read again."""

    def fail(*_: object) -> bytes:
        raise KeyError("CANARY")

    file, subject = follow(tmp_path, wrapped_text(k1="active"))
    with monkeypatch.context() as patch:
        patch.setattr(wrappers.Wrapper, "unwrap", fail)
        replace(file, wrapped_text(k1="decrypt-only", k2="active"))
        look(subject, clock)
        wait_until_loaded()
        assert sealing_id(subject) == "k1"
    assert subject.stats().ring.refused == {"KeyError": 1}
    assert "is refused, the ring in use is unchanged: KeyError" in caplog.text
    assert "CANARY" not in caplog.text
    clock[0] += watch.RETRY_SECONDS
    look(subject, clock)
    wait_until_loaded()
    assert sealing_id(subject) == "k2"
