"""A ring whose keys come from commands is read again beside the data path."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag, cipher
from sealpoint.errors import (
    KeyDestroyedError,
    KeyDisabledError,
    NoActiveKeyError,
    SourceError,
    UnknownKeyError,
)
from sealpoint.keys import watch
from sealpoint.keys.watch import LOOK_SECONDS, RETRY_SECONDS
from tests.support.rings import material_of, replace, write

VALUE = "msgpack", b"value"


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    for module in (cipher, watch):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def sealed_under(key_id: str) -> tuple[str, bytes]:
    return RingCipher(KeyRing([Key(key_id, material_of(key_id), KeyState.ACTIVE)])).seal(*VALUE)


def sealing_id(subject: RingCipher) -> str | None:
    return Tag.parse(subject.seal(*VALUE)[0]).key_id


def wait_until_loaded(subject: RingCipher) -> None:
    assert subject._follower
    while (load := subject._follower._load) is not None:
        load.ended.wait()


def wait_until_ended() -> None:
    """Until no thread loads a key any more."""
    while threads := [one for one in threading.enumerate() if one.name.startswith("sealpoint-")]:
        threads[0].join()


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


def test_material_of_another_command_is_asked_for(ring: Commands, clock: list[float]) -> None:
    """And what it gives is held against what it was: another command may lead to another key."""
    subject = RingCipher(KeyRing.load(ring.file))
    assert subject.open(*sealed_under("k0")).typed == VALUE
    text = ring.text(k0="decrypt-only", k1="active")
    replace(ring.file, text.replace(material_of("k0").hex(), material_of("other").hex()))
    look(subject, clock)
    wait_until_loaded(subject)
    assert ring.ran("k0") == 2
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
    wait_until_loaded(subject)
    assert "key 'k0' has other material than before" in caplog.text
    with pytest.raises(KeyDisabledError):
        subject.open(*sealed_under("k0"))


def test_material_that_has_not_the_check_value_is_asked_for(ring: Commands, clock: list[float]) -> None:
    subject = RingCipher(KeyRing.load(ring.file))
    assert subject.open(*sealed_under("k0")).typed == VALUE
    replace(ring.file, ring.text(k0="decrypt-only", k1="active") + "check = '00000000'\n")
    look(subject, clock)
    wait_until_loaded(subject)
    assert (ring.ran("k0"), ring.ran("k1")) == (1, 2)


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
    assert sum(thread.name.startswith("sealpoint-") for thread in threading.enumerate()) == 1
    ring.release()
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert ring.ran("k2") == 1
    with pytest.raises(error):
        subject.open(*sealed_under("k1"))


def wait_in(pool: ThreadPoolExecutor, subject: RingCipher) -> Future[str | None]:
    """Start a call that seals and has to wait, and return once it does."""
    waits = threading.Event()
    assert subject._follower
    real = subject._follower.wait_for

    def wait_for(need: str) -> None:
        waits.set()
        real(need)

    subject._follower.wait_for = wait_for  # type: ignore[method-assign]
    future = pool.submit(sealing_id, subject)
    waits.wait()
    return future


def test_value_under_a_key_that_was_never_held_waits(
    ring: Commands, clock: list[float], pool: ThreadPoolExecutor
) -> None:
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="decrypt-only", k1="active", k2="staged", gated="k2")
    look(subject, clock)
    future = pool.submit(lambda: subject.open(*sealed_under("k2")).typed)
    ring.wait_for("k2")
    assert not future.done()
    ring.release()
    assert future.result() == VALUE


def test_sealing_waits_for_an_active_key_that_was_never_held(
    ring: Commands, clock: list[float], pool: ThreadPoolExecutor
) -> None:
    """The key before it is decrypt-only from now on: nothing is sealed under it meanwhile."""
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="decrypt-only", k1="decrypt-only", k2="active", gated="k2")
    look(subject, clock)
    assert subject.ring.active_id is None
    future = wait_in(pool, subject)
    assert not future.done()
    ring.release()
    assert future.result() == "k2"


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


def test_staged_key_is_there_when_it_is_promoted(ring: Commands, clock: list[float]) -> None:
    """The usual order: nothing waits."""
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="decrypt-only", k1="active", k2="staged", gated="k2")
    look(subject, clock)
    ring.release()
    wait_until_loaded(subject)
    ring.put(k0="decrypt-only", k1="decrypt-only", k2="active", gated="k2")
    clock[0] += LOOK_SECONDS
    assert sealing_id(subject) == "k2"
    assert ring.ran("k2") == 1


def test_command_of_the_active_key_that_fails(
    ring: Commands, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The ring stays, but for what the file closes; said once, tried again later."""
    caplog.set_level(logging.DEBUG)
    subject = RingCipher(KeyRing.load(ring.file))
    wait_until_ended()
    ring.put(k0="disabled", k1="decrypt-only", k2="active", failing="k2")
    for number in range(1, 4):
        look(subject, clock)
        wait_until_loaded(subject)
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


def test_command_of_a_staged_key_that_fails(
    ring: Commands, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The ring is used, as by a process that starts with it; values under the key raise."""
    subject = RingCipher(KeyRing.load(ring.file))
    ring.put(k0="disabled", k1="active", k2="staged", failing="k2")
    look(subject, clock)
    wait_until_ended()
    assert (sealing_id(subject), ring.ran("k2")) == ("k1", 1)
    for _ in range(3):
        with pytest.raises(SourceError, match="exited with 3"):
            subject.open(*sealed_under("k2"))
    with pytest.raises(KeyDisabledError):
        subject.open(*sealed_under("k0"))
    assert ring.ran("k2") == 1
    assert caplog.text.count("exited with 3") == 1


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
        wait_until_loaded(subject)
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


OVER_A_FORK = """
import os, sys
from pathlib import Path
from sealpoint.crypto import KeyRing, RingCipher
folder, newer, tag, blob = sys.argv[1:]
cipher = RingCipher(KeyRing.load(f"{folder}/keys.toml"))
os.replace(newer, f"{folder}/keys.toml")
cipher._follower.look(wait=True)
gate = open(f"{folder}/gate", "w")  # once the command stands there; its thread is not there after the fork
child = os.fork()
if child == 0:
    Path(folder, "open").touch()  # the command that the child runs itself finds no gate
    print(cipher.open(tag, bytes.fromhex(blob)).typed, flush=True)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.write("\\n")
gate.close()
sys.exit(code)
"""


def test_child_of_a_fork_asks_for_itself(ring: Commands) -> None:
    text = ring.text(k0="disabled", k1="active", k2="staged", gated="k2")
    newer = ring.folder / "newer.toml"
    write(newer, text.replace("read line", f"test -e {ring.folder}/open || read line"))
    tag, blob = sealed_under("k2")
    words = [sys.executable, "-c", OVER_A_FORK, str(ring.folder), str(newer), tag, blob.hex()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{VALUE}\n"), done.stderr
