"""What a cipher says of its ring: the active key, reloads and their errors, and reads of slow sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import KeyRingError, KeyUnavailableError
from sealpoint.keys.stats import source_stats
from sealpoint.keys.watch import LOOK_SECONDS
from tests.support.keys.rings import NEW, replace, ring_text, states_text, write, write_ring
from tests.support.keys.wrappers import NAME, Service, key_text, wrapper_text
from tests.unit.keys.conftest import sealed_under

FIRST = states_text(k1="active")


@pytest.fixture
def check(clock: list[float]) -> Callable[[RingCipher], None]:
    """Lets a cipher look at its file now."""

    def look(cipher: RingCipher) -> None:
        clock[0] += LOOK_SECONDS
        cipher.seal("msgpack", b"")

    return look


def test_a_ring_of_the_code() -> None:
    created = datetime(2026, 11, 1, tzinfo=UTC)
    before = datetime.now(UTC)
    stats = RingCipher(KeyRing([Key("k1", NEW, KeyState.ACTIVE, created)])).stats().ring
    assert (stats.active_id, stats.active_created) == ("k1", created)
    assert before <= stats.read_at <= datetime.now(UTC)
    assert (stats.reloads, stats.refused, stats.error) == (0, {}, None)
    assert RingCipher(KeyRing([])).stats().ring.active_id is None


def test_a_reload_is_recorded(tmp_path: Path, check: Callable[[RingCipher], None]) -> None:
    file = write(tmp_path / "keys.toml", FIRST)
    cipher = RingCipher(KeyRing.load(file))
    before = cipher.stats().ring
    replace(file, states_text(k1="decrypt-only", k2="active"))
    check(cipher)
    stats = cipher.stats().ring
    assert (stats.active_id, stats.reloads, stats.error) == ("k2", 1, None)
    assert stats.read_at >= before.read_at
    assert before.active_id == "k1"  # a snapshot does not change


def test_a_refused_file_is_recorded_until_one_is_accepted(
    tmp_path: Path, check: Callable[[RingCipher], None]
) -> None:
    file = write(tmp_path / "keys.toml", FIRST)
    cipher = RingCipher(KeyRing.load(file))
    read_at = cipher.stats().ring.read_at
    file.unlink()
    check(cipher)
    assert cipher.stats().ring.error == "RingFileMissingError"
    for broken in ("version = ", states_text(k2="active")):
        replace(file, broken)
        check(cipher)
    stats = cipher.stats().ring
    assert stats.refused == {"RingFileMissingError": 1, "RingFileError": 1, "RingRollbackError": 1}
    assert (stats.error, stats.reloads, stats.read_at) == ("RingRollbackError", 0, read_at)
    replace(file, states_text(k1="active", k2="staged"))
    check(cipher)
    stats = cipher.stats().ring
    assert (stats.error, stats.reloads) == (None, 1)
    assert stats.refused == {"RingFileMissingError": 1, "RingFileError": 1, "RingRollbackError": 1}


def test_reads_of_a_slow_source_are_counted_once_for_all_ciphers(tmp_path: Path) -> None:
    """And its failures, by class. A file is no slow source."""
    before = source_stats()
    KeyRing.load(write_ring(tmp_path, ring_text())).load_material()
    assert source_stats() == before
    source = f'{{ command = ["cat", "{tmp_path}/k1.key"] }}'
    ring = KeyRing.load(write_ring(tmp_path, ring_text(source=source)))
    after = source_stats()
    assert after.reads - before.reads == 1
    for cipher in (RingCipher(ring), RingCipher(ring)):
        cipher.seal("msgpack", b"")
        assert cipher.stats().sources == after
    with pytest.raises(KeyRingError) as met:
        KeyRing.load(write_ring(tmp_path, ring_text(source='{ command = ["false"] }')))
    failed = source_stats()
    assert failed.reads - after.reads == 1
    assert Counter(failed.failed) - Counter(after.failed) == {met.type.__name__: 1}


def test_a_service_that_is_away_is_one_failure_and_each_error_a_refusal(
    tmp_path: Path, service: Service
) -> None:
    before = source_stats()
    text = f"version = 1\nname = '{NAME}'\n{wrapper_text()}{key_text('k2', 'decrypt-only')}"
    service.away.add("one")
    cipher = RingCipher(KeyRing.load(write(tmp_path / "keys.toml", text)))
    for _ in range(3):
        with pytest.raises(KeyUnavailableError):
            cipher.open(*sealed_under("k2"))
    stats = cipher.stats()
    assert stats.refused == {"KeyUnavailableError": 3}
    assert Counter(stats.sources.failed) - Counter(before.failed) == {"KeyUnavailableError": 1}
