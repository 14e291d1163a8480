"""What a cipher says of its ring: the active key, reloads and their errors, and reads of slow sources."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import KeyRingError, KeyUnavailableError
from sealpoint.keys.stats import source_stats
from sealpoint.keys.wrap import ask
from tests.support.rings import (
    NEW,
    make_cipher,
    material_of,
    replace,
    ring_text,
    states_text,
    write,
    write_ring,
)
from tests.support.wrappers import NAME, fake_service, key_text, wrapped_text, wrapper_text

FIRST = states_text(k1="active")


def check(cipher: RingCipher) -> None:
    """Let the cipher look at its file now."""
    cipher._look_at = 0.0
    cipher.seal("msgpack", b"")


def test_a_ring_of_the_code() -> None:
    created = datetime(2026, 11, 1, tzinfo=UTC)
    before = datetime.now(UTC)
    stats = RingCipher(KeyRing([Key("k1", NEW, KeyState.ACTIVE, created)])).stats().ring
    assert (stats.active_id, stats.active_created) == ("k1", created)
    assert before <= stats.read_at <= datetime.now(UTC)
    assert (stats.reloads, stats.refused, stats.error) == (0, {}, None)
    assert RingCipher(KeyRing([])).stats().ring.active_id is None


def test_a_reload_is_recorded(tmp_path: Path) -> None:
    file = write(tmp_path / "keys.toml", FIRST)
    cipher = RingCipher(KeyRing.load(file))
    before = cipher.stats().ring
    replace(file, states_text(k1="decrypt-only", k2="active"))
    check(cipher)
    stats = cipher.stats().ring
    assert (stats.active_id, stats.reloads, stats.error) == ("k2", 1, None)
    assert stats.read_at >= before.read_at
    assert before.active_id == "k1"  # a snapshot does not change


def test_a_refused_file_is_recorded_until_one_is_accepted(tmp_path: Path) -> None:
    file = write(tmp_path / "keys.toml", FIRST)
    cipher = RingCipher(KeyRing.load(file))
    read_at = cipher.stats().ring.read_at
    for broken in ("version = ", states_text(k2="active")):
        replace(file, broken)
        check(cipher)
    stats = cipher.stats().ring
    assert stats.refused == {"RingFileError": 1, "RingRollbackError": 1}
    assert (stats.error, stats.reloads, stats.read_at) == ("RingRollbackError", 0, read_at)
    replace(file, states_text(k1="active", k2="staged"))
    check(cipher)
    stats = cipher.stats().ring
    assert (stats.error, stats.reloads) == (None, 1)
    assert stats.refused == {"RingFileError": 1, "RingRollbackError": 1}


def test_a_missing_file_is_recorded(tmp_path: Path) -> None:
    file = write(tmp_path / "keys.toml", FIRST)
    cipher = RingCipher(KeyRing.load(file))
    file.unlink()
    check(cipher)
    assert cipher.stats().ring.error == "RingFileMissingError"


def test_reads_of_a_slow_source_are_counted_once_for_all_ciphers(tmp_path: Path) -> None:
    source = f'{{ command = ["cat", "{tmp_path}/k1.key"] }}'
    ring = KeyRing.load(write_ring(tmp_path, ring_text(source=source)))
    after = source_stats()
    for cipher in (RingCipher(ring), RingCipher(ring)):
        cipher.seal("msgpack", b"")
        assert cipher.stats().sources == after


def test_a_slow_source_that_fails_is_counted_by_class(tmp_path: Path) -> None:
    before = source_stats()
    file = write_ring(tmp_path, ring_text(source='{ command = ["false"] }'))
    with pytest.raises(KeyRingError) as met:
        KeyRing.load(file)
    after = source_stats()
    assert after.reads - before.reads == 1
    assert Counter(after.failed) - Counter(before.failed) == {met.type.__name__: 1}


def test_unwrapping_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_service(monkeypatch) as service:
        before = source_stats()
        ring = KeyRing.load(write(tmp_path / "keys.toml", wrapped_text(k1="active", k2="decrypt-only")))
        cipher = RingCipher(ring.load_material())
        for _ in range(3):
            check(cipher)
        assert cipher.stats().sources.reads - before.reads == 2
        assert service.count("unwrap", "k1") == service.count("unwrap", "k2") == 1


def test_a_service_that_is_away_is_one_failure_and_each_error_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_service(monkeypatch) as service:
        monkeypatch.setattr(ask, "sleep", lambda _: None)
        before = source_stats()
        text = f"version = 1\nname = '{NAME}'\n{wrapper_text()}{key_text('k2', 'decrypt-only')}"
        service.away.add("one")
        cipher = RingCipher(KeyRing.load(write(tmp_path / "keys.toml", text)))
        sealed = RingCipher(KeyRing([Key("k2", material_of("k2"), KeyState.ACTIVE)])).seal("msgpack", b"")
        for _ in range(3):
            with pytest.raises(KeyUnavailableError):
                cipher.open(*sealed)
        stats = cipher.stats()
        assert stats.refused == {"KeyUnavailableError": 3}
        assert Counter(stats.sources.failed) - Counter(before.failed) == {"KeyUnavailableError": 1}


def test_files_are_no_slow_source(tmp_path: Path) -> None:
    before = source_stats()
    KeyRing.load(write_ring(tmp_path, ring_text())).load_material()
    assert source_stats() == before


def test_a_snapshot_is_plain_data() -> None:
    """It can be turned into JSON as it is, but for its times."""
    cipher = make_cipher()
    cipher.seal("msgpack", b"value")
    made = json.dumps(dataclasses.asdict(cipher.stats()), default=datetime.isoformat)
    assert json.loads(made)["sealed"] == {"new": 1}
    assert NEW.hex() not in made
