"""What the tests of keys share: a ring file, a service that wraps keys, a clock, and sealed values."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sealpoint.admin.keys.edit import create_ring
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag, cipher
from sealpoint.keys import material, watch
from sealpoint.keys.wrap import wrapper as ask
from tests.support.keys.rings import material_of
from tests.support.keys.wrappers import Service, fake_service
from tests.support.runs.forks import in_child

VALUE = "msgpack", b"value"


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A ring file with a key ``k1``, which is active."""
    create_ring(tmp_path / "keys.toml", "k1")
    return tmp_path / "keys.toml"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list: it goes on when a test says so."""
    now = [1000.0]
    for module in (cipher, watch, material):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The service of the kind `fake`. No attempt waits for the one before it."""
    monkeypatch.setattr(ask, "sleep", lambda _: None)
    with fake_service(monkeypatch) as found:
        yield found


def sealed_under(key_id: str) -> tuple[str, bytes]:
    """A value from a host whose active key is another."""
    return RingCipher(KeyRing([Key(key_id, material_of(key_id), KeyState.ACTIVE)])).seal(*VALUE)


def sealing_id(subject: RingCipher) -> str | None:
    return Tag.parse(subject.seal(*VALUE)[0]).key_id


def running() -> list[threading.Thread]:
    """The threads that load keys."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("sealpoint-")]


def wait_until_loaded() -> None:
    """Until no thread loads a key any more."""
    while threads := running():
        threads[0].join()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


def outcome_as(account: int, groups: list[int], work: Callable[[], object]) -> str:
    """The class of the error that ``work`` raises in a process of another account, or ``ok``."""

    def as_other() -> str:
        os.setgroups(groups)
        os.setgid(account)
        os.setuid(account)
        work()
        return "ok"

    return in_child(as_other).partition(":")[0]
