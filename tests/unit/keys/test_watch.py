"""A cipher follows its ring file: what it takes over, when it looks, and what it leaves alone."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    KeyDestroyedError,
    KeyDisabledError,
    NoActiveKeyError,
    RingRollbackError,
    UnknownKeyError,
)
from sealpoint.keys.watch import LOOK_SECONDS, RETRY_SECONDS
from sealpoint.seal.ring import require_later
from tests.support.keys.rings import (
    NEW,
    OLD,
    OTHER,
    material_of,
    replace,
    ring_text,
    states_text,
    write,
)
from tests.unit.keys.conftest import VALUE, sealed_under, sealing_id


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ring file with the one key ``k1``."""
    return write(tmp_path / "keys.toml", states_text(k1="active"))


def open_in_row(subject: RingCipher) -> object:
    row = {"a": "b"}
    value = RingCipher(KeyRing([Key("k2", material_of("k2"), KeyState.ACTIVE)])).seal(*VALUE, row=row)
    return subject.open(*value, row=row)


Act = Callable[[RingCipher], object]
CALLS: dict[str, Act] = {
    "open": lambda subject: subject.open(*sealed_under("k1")),
    "encrypt": lambda subject: subject.encrypt(b"value"),
}
ACTIVE, STAGED_TOO = {"k1": "active"}, {"k1": "active", "k2": "staged"}
PROMOTED = {"k1": "decrypt-only", "k2": "active"}
AT_ONCE: dict[str, tuple[dict[str, str], dict[str, str], Act, type[Exception]]] = {
    "new key": (ACTIVE, STAGED_TOO, lambda subject: subject.open(*sealed_under("k2")), UnknownKeyError),
    "new key, with a row": (ACTIVE, STAGED_TOO, open_in_row, UnknownKeyError),
    "enabled key": ({"k1": "disabled", "k2": "active"}, PROMOTED, CALLS["open"], KeyDisabledError),
    "first active key": ({"k1": "staged"}, ACTIVE, sealing_id, NoActiveKeyError),
    "first active key, LangGraph's serializer": (
        {"k1": "staged"},
        ACTIVE,
        CALLS["encrypt"],
        NoActiveKeyError,
    ),
}


@pytest.mark.parametrize("put", [replace, write])
@pytest.mark.parametrize("name", AT_ONCE)
def test_call_that_lacks_a_key_reads_a_changed_file_at_once(
    file: Path, put: Callable[[Path, str], Path], name: str
) -> None:
    """A key that is staged here may be active on another host already; it does not seal before its time."""
    before, after, act, error = AT_ONCE[name]
    subject = RingCipher(KeyRing.load(write(file, states_text(**before))))
    with pytest.raises(error):
        act(subject)
    put(file, states_text(**after))
    act(subject)
    assert sealing_id(subject) == ("k2" if after is PROMOTED else "k1")


@pytest.mark.claim("k4")
def test_promoted_key_seals_at_the_next_look(file: Path, clock: list[float]) -> None:
    """No more than one look in a few seconds, and no less once there is something to do."""
    subject = RingCipher(KeyRing.load(file))
    replace(file, states_text(k1="decrypt-only", k2="active"))
    clock[0] += LOOK_SECONDS - 0.1
    assert sealing_id(subject) == "k1"
    clock[0] += 0.1
    assert sealing_id(subject) == "k2"
    assert subject.ring.active_id == "k2"
    replace(file, states_text(k1="active", k2="decrypt-only"))
    clock[0] += LOOK_SECONDS
    assert sealing_id(subject) == "k1"


@pytest.mark.parametrize("name", CALLS)
def test_every_call_looks(file: Path, clock: list[float], name: str) -> None:
    subject = RingCipher(KeyRing.load(file))
    replace(file, states_text(**PROMOTED))
    clock[0] += LOOK_SECONDS
    CALLS[name](subject)
    assert subject.ring.active_id == "k2"


def test_disabled_and_destroyed_keys_are_refused_from_the_next_look_on(
    tmp_path: Path, clock: list[float]
) -> None:
    """What was prepared for the key while it was usable does not outlive its state."""
    file = write(tmp_path / "keys.toml", states_text(k1="decrypt-only", k2="active"))
    subject, value = RingCipher(KeyRing.load(file)), sealed_under("k1")
    assert subject.open(*value).typed == VALUE
    for state, error in (("disabled", KeyDisabledError), ("destroyed", KeyDestroyedError)):
        replace(file, states_text(k1=state, k2="active"))
        clock[0] += LOOK_SECONDS
        with pytest.raises(error):
            subject.open(*value)


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_following_can_be_switched_off(file: Path, clock: list[float], is_by_hand: bool) -> None:
    """A ring that was made by hand follows nothing."""
    by_hand = KeyRing([Key("k1", material_of("k1"), KeyState.ACTIVE)])
    subject = RingCipher(by_hand) if is_by_hand else RingCipher(KeyRing.load(file), follow=False)
    replace(file, states_text(k1="decrypt-only", k2="active"))
    clock[0] += 10 * LOOK_SECONDS
    assert sealing_id(subject) == "k1"
    with pytest.raises(UnknownKeyError):
        subject.open(*sealed_under("k2"))


def test_hostile_rows_do_not_make_it_read(tmp_path: Path, clock: list[float]) -> None:
    """The key comes from a command, which notes that it ran: once for the ring, not again for a change."""
    ran = tmp_path / "ran"
    command = f"['sh', '-c', 'echo >> {ran}; printf {NEW.hex()}']"
    text = ring_text(source=f"{{ command = {command} }}")
    file = write(tmp_path / "keys.toml", text)
    subject = RingCipher(KeyRing.load(file))
    for _ in range(2):
        for number in range(500):
            clock[0] += LOOK_SECONDS / 100
            with pytest.raises(UnknownKeyError):
                subject.open(f"msgpack+cobblestone256@x{number}", bytes(100))
        assert len(ran.read_text()) == 1
        replace(file, text + "# changed\n")


BROKEN: dict[str, Callable[[Path], object]] = {
    "no TOML": lambda file: replace(file, "version = "),
    "cut": lambda file: replace(file, file.read_text()[:-20]),
    "empty": lambda file: replace(file, ""),
    "gone": lambda file: file.unlink(),
    "a link out": lambda file: file.symlink_to(file.rename(file.parent.parent / f"{file.parent.name}.old")),
    "writable by others": lambda file: file.chmod(0o622),
    "unknown field": lambda file: replace(file, states_text(k1="active", k2="staged") + "colour = 1\n"),
    "no key file": lambda file: replace(
        file, states_text(k1="active") + "[[key]]\nid = 'k2'\nstate = 'staged'\nsource = { file = 'none' }\n"
    ),
    "wrong check": lambda file: replace(file, states_text(k1="active", k2="staged") + "check = '00000000'\n"),
    "back in time": lambda file: replace(file, states_text(k1="staged", k2="active")),
    "another ring": lambda file: replace(file, states_text(k2="active")),
}


@pytest.mark.claim("k5")
@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_keeps_the_ring_and_says_so_once(
    file: Path, name: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """All goes on, the log has one line without a secret; once mended, the file is taken over, as loudly."""
    caplog.set_level(logging.DEBUG)
    subject = RingCipher(KeyRing.load(file))
    BROKEN[name](file)
    for _ in range(30):
        clock[0] += RETRY_SECONDS / 10
        assert subject.open(*sealed_under("k1")).typed == VALUE
        with pytest.raises(UnknownKeyError):
            subject.open(*sealed_under("k9"))
        assert sealing_id(subject) == "k1"
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("sealpoint.crypto", "WARNING")
    assert str(file) in record.getMessage()
    assert not any(material_of(key_id).hex()[:10] in caplog.text for key_id in ("k1", "k2"))
    replace(file, states_text(k1="decrypt-only", k9="active"))
    assert subject.open(*sealed_under("k9")).typed == VALUE
    told = caplog.records[-1]
    assert (told.levelname, "was read again" in told.getMessage()) == ("WARNING", True)
    replace(file, states_text(k1="decrypt-only", k9="active", k2="staged"))
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert caplog.records[-1].levelname == "INFO"


def test_mode_put_right_is_a_change(file: Path) -> None:
    subject = RingCipher(KeyRing.load(file))
    replace(file, states_text(k1="active", k2="staged"), mode=0o622)
    with pytest.raises(UnknownKeyError):
        subject.open(*sealed_under("k2"))
    file.chmod(0o600)
    assert subject.open(*sealed_under("k2")).typed == VALUE


def test_source_that_was_missing_is_asked_again(file: Path, clock: list[float]) -> None:
    """The ring file came before the key file: nothing changes in it, and still it is taken over."""
    subject, value = RingCipher(KeyRing.load(file)), sealed_under("k2")
    more = "[[key]]\nid = 'k2'\nstate = 'staged'\nsource = { file = 'k2.key' }\n"
    replace(file, states_text(k1="active") + more)
    with pytest.raises(UnknownKeyError):
        subject.open(*value)
    write(file.with_name("k2.key"), material_of("k2"))
    clock[0] += RETRY_SECONDS - 0.1
    with pytest.raises(UnknownKeyError):
        subject.open(*value)
    clock[0] += 0.1
    assert subject.open(*value).typed == VALUE


def test_look_that_is_interrupted_is_made_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the ring is read again: the next look finds the same change."""
    subject, value = RingCipher(KeyRing.load(file)), sealed_under("k2")
    replace(file, states_text(k1="active", k2="staged"))

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(KeyRing, "load_material", interrupt)
        with pytest.raises(KeyboardInterrupt):
            subject.open(*value)
    assert subject.open(*value).typed == VALUE


REACHED = {
    "staged": {"staged", "active", "decrypt-only", "disabled", "compromised", "destroyed"},
    "active": {"active", "decrypt-only", "disabled", "compromised", "destroyed"},
    "decrypt-only": {"active", "decrypt-only", "disabled", "compromised", "destroyed"},
    "disabled": {"active", "decrypt-only", "disabled", "compromised", "destroyed"},
    "compromised": {"compromised", "disabled", "destroyed"},
    "destroyed": {"destroyed"},
}


def ring_of(state: KeyState, material: bytes = OLD) -> KeyRing:
    return KeyRing([Key("k1", b"" if state is KeyState.DESTROYED else material, state)])


@pytest.mark.claim("k6")
@pytest.mark.parametrize(("before", "after"), list(product(KeyState, KeyState)))
def test_states_that_follow_each_other(before: KeyState, after: KeyState) -> None:
    """All pairs, with any number of moves between two looks."""
    old, new = ring_of(before), ring_of(after)
    if after.value in REACHED[before.value]:
        assert require_later(old, new) is new
    else:
        with pytest.raises(RingRollbackError, match="'k1'"):
            require_later(old, new)


INDEX = KeyRing([], index=OLD)
LEGACY = KeyRing([Key("k1", OLD, KeyState.DECRYPT_ONLY, suite="aes")])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (ring_of(KeyState.ACTIVE), KeyRing([]), "is missing"),
        (ring_of(KeyState.DESTROYED), KeyRing([]), "is missing"),
        (ring_of(KeyState.ACTIVE), ring_of(KeyState.ACTIVE, OTHER), "other material"),
        (ring_of(KeyState.STAGED), ring_of(KeyState.DISABLED, OTHER), "other material"),
        (ring_of(KeyState.DECRYPT_ONLY), LEGACY, "another suite"),
        (INDEX, KeyRing([]), "index key"),
        (INDEX, KeyRing([], index=OTHER), "index key"),
    ],
)
def test_rings_that_do_not_follow_each_other(old: KeyRing, new: KeyRing, words: str) -> None:
    with pytest.raises(RingRollbackError, match=words) as caught:
        require_later(old, new)
    assert "hint" in caught.value.__notes__[0]


GONE = "[[key]]\nid = 'k1'\nstate = '{}'\nsource = {{ file = 'k1.key' }}\n"


@pytest.mark.parametrize("way", [["disabled"], ["disabled", "decrypt-only", "disabled"]])
def test_material_that_is_exchanged_while_the_key_is_disabled(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture, way: list[str]
) -> None:
    """It was not loaded meanwhile. Without a check value the process is the only one who remembers it."""
    material = write(tmp_path / "k1.key", OLD)
    file = write(tmp_path / "keys.toml", states_text(k2="active") + GONE.format("decrypt-only"))
    subject = RingCipher(KeyRing.load(file))
    value = RingCipher(KeyRing([Key("k1", OLD, KeyState.ACTIVE)])).seal(*VALUE)
    assert subject.open(*value).typed == VALUE
    for number, state in enumerate(way):
        replace(file, states_text(k2="active") + GONE.format(state) + f"# {number}\n")
        clock[0] += LOOK_SECONDS
        subject.seal(*VALUE)
    write(material, OTHER)
    replace(file, states_text(k2="active") + GONE.format("decrypt-only"))
    forged = RingCipher(KeyRing([Key("k1", OTHER, KeyState.ACTIVE)])).seal(*VALUE)
    with pytest.raises(KeyDisabledError):
        subject.open(*forged)
    assert "key 'k1' has other material than in the ring in use" in caplog.text
    write(material, OLD)
    clock[0] += RETRY_SECONDS
    assert subject.open(*value).typed == VALUE


OVER_A_FORK = """
import os, sys
from sealpoint.crypto import KeyRing, RingCipher
cipher = RingCipher(KeyRing.load(sys.argv[1]))
cipher._follower._lock.acquire()  # a thread that reads the ring just now, and is not there after the fork
child = os.fork()
if child == 0:
    os.replace(sys.argv[2], sys.argv[1])
    print(cipher.open(sys.argv[3], bytes.fromhex(sys.argv[4])).typed, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_child_of_a_fork_follows(file: Path) -> None:
    newer = write(file.with_name("newer.toml"), states_text(k1="active", k2="staged"))
    tag, blob = sealed_under("k2")
    words = [sys.executable, "-c", OVER_A_FORK, str(file), str(newer), tag, blob.hex()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{VALUE}\n"), done.stderr


@pytest.mark.parametrize("way", [[], ["disabled"], ["disabled", "compromised"]])
@pytest.mark.parametrize("state", ["staged", "decrypt-only", "active"])
def test_compromised_key_is_not_trusted_again(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture, way: list[str], state: str
) -> None:
    """A file from before the key was marked is refused, also after the key was disabled meanwhile."""
    others = {"k2": "active"} if state != "active" else {"k2": "decrypt-only"}
    file = write(tmp_path / "keys.toml", states_text(k1="staged", **others))
    subject = RingCipher(KeyRing.load(file))
    mark = "compromised = 2026-11-01T00:00:00Z\n[[key]]\nid = 'k2'"
    for step in ["compromised", *way]:
        text = states_text(k1=step, **others).replace("[[key]]\nid = 'k2'", mark)
        replace(file, text)
        clock[0] += LOOK_SECONDS
        with contextlib.suppress(KeyDisabledError):
            subject.open(*sealed_under("k1"))
        assert [key.state.value for key in subject.ring.keys if key.id == "k1"] == [step]
    replace(file, states_text(k1=state, **others))
    clock[0] += LOOK_SECONDS
    with contextlib.suppress(KeyDisabledError):
        subject.open(*sealed_under("k1"))
    assert "'k1'" in caplog.text
    found = [key.state.value for key in subject.ring.keys if key.id == "k1"]
    assert found == [["compromised", *way][-1]]
