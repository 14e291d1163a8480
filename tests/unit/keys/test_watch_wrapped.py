"""A ring with wrapped keys that is followed: services are asked beside the data path, and only if needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag, cipher
from sealpoint.errors import KeyDisabledError, KeyUnavailableError
from sealpoint.keys import material, watch
from sealpoint.keys.files import Origin
from sealpoint.keys.watch import LOOK_SECONDS
from sealpoint.keys.wrap import ask
from tests.support import wrappers
from tests.support.rings import material_of, replace, write
from tests.support.wrappers import Service, fake_service, wrapped_text

VALUE = "msgpack", b"value"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(ask, "sleep", lambda _: None)
    with fake_service(monkeypatch) as found:
        yield found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    for module in (cipher, watch, material):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def sealed_under(key_id: str) -> tuple[str, bytes]:
    return RingCipher(KeyRing([Key(key_id, material_of(key_id), KeyState.ACTIVE)])).seal(*VALUE)


def sealing_id(subject: RingCipher) -> str | None:
    return Tag.parse(subject.seal(*VALUE)[0]).key_id


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sealpoint-")]


def wait_until_loaded() -> None:
    """Until no thread asks a service any more."""
    while threads := running():
        threads[0].join()


def follow(folder: Path, text: str) -> tuple[Path, RingCipher]:
    file = write(folder / "keys.toml", text)
    return file, RingCipher(KeyRing.load(file))


def look(subject: RingCipher, clock: list[float]) -> None:
    """A call that finds the file changed."""
    clock[0] += LOOK_SECONDS
    assert subject.open(*sealed_under("k1")).typed == VALUE


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


def test_value_in_hand_waits_for_its_own_key_alone(
    tmp_path: Path, service: Service, clock: list[float]
) -> None:
    """Not for those that are loaded before it, and whose service does not answer."""
    text = wrapped_text(k1="active", k2="decrypt-only")
    other = wrapped_text(key="two", by="v", k3="decrypt-only")
    tables = other.partition("[[wrapper]]")
    file = write(tmp_path / "keys.toml", text.replace("[[key]]", f"[[wrapper]]{tables[2]}\n[[key]]", 1))
    service.hangs.add("two")
    subject = RingCipher(KeyRing.load(file))
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert sealing_id(subject) == "k1"


def test_rewrapped_key_is_not_asked_for(tmp_path: Path, service: Service, clock: list[float]) -> None:
    """By another wrapper, whose service is away: neither the active key nor an old one."""
    file, subject = follow(tmp_path, wrapped_text(k1="active", k2="decrypt-only"))
    wait_until_loaded()
    rewrapped = wrapped_text(key="two", by="v", k1="active", k2="decrypt-only", k3="staged")
    service.away.add("two")
    service.calls.clear()
    replace(file, rewrapped)
    look(subject, clock)
    wait_until_loaded()
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert sealing_id(subject) == "k1"
    assert {key_id for _, key_id in service.calls} == {"k3"}
    assert subject.ring.ids == ("k1", "k2", "k3")


def test_ring_by_a_relative_path_is_the_same_ring(
    tmp_path: Path, service: Service, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon leaves the folder: its keys are loaded, and a service that is away is not asked again."""
    file = write(tmp_path / "keys.toml", wrapped_text(k1="active"))
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


def test_key_that_moves_from_a_file_to_a_wrapper_is_not_asked_for(
    tmp_path: Path, service: Service, clock: list[float]
) -> None:
    write(tmp_path / "k1.key", material_of("k1"))
    wrapped = wrapped_text(k1="active")
    start = wrapped.index("source")
    file, subject = follow(tmp_path, wrapped[:start] + "source = { file = 'k1.key' }\n")
    service.calls.clear()
    replace(file, wrapped)
    look(subject, clock)
    wait_until_loaded()
    assert not service.calls
    assert subject.ring.origin == Origin.of(file)


def test_new_key_whose_service_is_away_stops_no_reload(
    tmp_path: Path, service: Service, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The other changes of the file apply, and only values under the key raise."""
    file, subject = follow(tmp_path, wrapped_text(k1="active", k2="staged"))
    wait_until_loaded()
    tables = wrapped_text(key="two", by="v", k3="decrypt-only").partition("[[wrapper]]")
    promoted = wrapped_text(k1="decrypt-only", k2="active")
    service.away.add("two")
    replace(file, promoted.replace("[[key]]", f"[[wrapper]]{tables[2]}\n[[key]]", 1))
    look(subject, clock)
    wait_until_loaded()
    assert sealing_id(subject) == "k2"
    with pytest.raises(KeyUnavailableError, match="key 'k3': wrapper 'v'"):
        subject.open(*sealed_under("k3"))
    assert caplog.text.count("'k3'") == 1
    service.away.clear()
    clock[0] += material.RETRY_SECONDS
    assert subject.open(*sealed_under("k3")).typed == VALUE


def test_active_key_whose_service_is_away_is_not_used(
    tmp_path: Path, service: Service, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The process continues with the ring in use, and tries again."""
    file, subject = follow(tmp_path, wrapped_text(k1="active"))
    later = wrapped_text(k1="decrypt-only", k2="active")
    service.away.add("one")
    replace(file, later)
    look(subject, clock)
    wait_until_loaded()
    assert sealing_id(subject) == "k1"
    assert "wrapper 'w'" in caplog.text
    service.away.clear()
    clock[0] += watch.RETRY_SECONDS
    look(subject, clock)
    wait_until_loaded()
    assert sealing_id(subject) == "k2"


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


def test_staged_key_that_was_never_loaded_is_asked_for_when_it_is_promoted(
    tmp_path: Path, service: Service, clock: list[float]
) -> None:
    """Its service was away until then. While it is asked, nothing is sealed under the key before it."""
    file, subject = follow(tmp_path, wrapped_text(k1="active"))
    staged = wrapped_text(k1="active", k2="staged")
    promoted = wrapped_text(k1="decrypt-only", k2="active")
    service.away.add("one")
    replace(file, staged)
    look(subject, clock)
    wait_until_loaded()
    clock[0] += material.RETRY_SECONDS
    replace(file, promoted)
    look(subject, clock)
    wait_until_loaded()
    assert sealing_id(subject) == "k1"
    service.away.clear()
    clock[0] += watch.RETRY_SECONDS
    look(subject, clock)
    wait_until_loaded()
    assert sealing_id(subject) == "k2"


def test_ring_that_was_renamed_is_refused(
    tmp_path: Path, service: Service, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """A process that runs says so before the next one fails to start."""
    text = wrapped_text(k1="active", k2="decrypt-only")
    file, subject = follow(tmp_path, text)
    wait_until_loaded()
    replace(file, text.replace("'agents'", "'other'"))
    look(subject, clock)
    wait_until_loaded()
    assert "not a wrapped key 'k1' of ring 'other'" in caplog.text
    assert subject.open(*sealed_under("k2")).typed == VALUE
    assert sealing_id(subject) == "k1"


def test_key_is_disabled_while_a_service_is_asked(
    tmp_path: Path, service: Service, clock: list[float]
) -> None:
    file, subject = follow(tmp_path, wrapped_text(k1="active", k2="decrypt-only"))
    wait_until_loaded()
    later = wrapped_text(k1="active", k2="disabled", k3="staged")
    service.gate.clear()
    replace(file, later)
    look(subject, clock)
    with pytest.raises(KeyDisabledError):
        subject.open(*sealed_under("k2"))
    assert sealing_id(subject) == "k1"
    service.gate.set()
    assert subject.open(*sealed_under("k3")).typed == VALUE


def test_service_that_is_away_for_an_hour(tmp_path: Path, service: Service, clock: list[float]) -> None:
    """A process that has its keys asks nothing; a key that it lacks is asked for every 30 seconds of use."""
    both = wrapped_text(k1="active", k2="decrypt-only")
    tables = wrapped_text(key="two", by="v", k3="decrypt-only").partition("[[wrapper]]")
    file = write(tmp_path / "keys.toml", both.replace("[[key]]", f"[[wrapper]]{tables[2]}\n[[key]]", 1))
    service.away.add("two")
    subject = RingCipher(KeyRing.load(file))
    wait_until_loaded()
    service.away.add("one")
    service.calls.clear()
    for _ in range(0, 3600, 60):
        clock[0] += 60
        replace(file, file.read_text() + "# a change that changes nothing\n")
        assert subject.open(*sealed_under("k2")).typed == VALUE
        assert sealing_id(subject) == "k1"
        for _ in range(3):
            with pytest.raises(KeyUnavailableError, match="wrapper 'v'"):
                subject.open(*sealed_under("k3"))
    assert set(service.calls) == {("unwrap", "k3")}
    assert service.count("unwrap", "k3") == 60 * ask.ATTEMPTS
    service.away.clear()
    clock[0] += material.RETRY_SECONDS
    assert subject.open(*sealed_under("k3")).typed == VALUE
