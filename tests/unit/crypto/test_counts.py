"""What a cipher counts: values by key id, and refusals by class."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealedValueError
from tests.support.keys.rings import (
    NEW,
    OLD,
    make_cipher,
    make_ring,
    replace,
    seal_with_old,
    states_text,
    write,
)


def counts(cipher: RingCipher) -> dict[str, Mapping[str, int]]:
    """What was counted by key id."""
    stats = cipher.stats()
    return {"sealed": stats.sealed, "opened": stats.opened, "opened_retired": stats.opened_retired}


def test_every_way_of_sealing_and_opening_counts() -> None:
    cipher = make_cipher()
    stats = cipher.stats()
    assert not any((stats.sealed, stats.opened, stats.opened_retired, stats.refused, stats.tolerated))
    assert (stats.plaintext, stats.ring.reloads, stats.ring.error) == (0, 0, None)
    assert stats.ring.active_id == "new"
    for row in (None, {}, {"a": "b"}):
        for compress in (False, True):
            tag, blob = cipher.seal("msgpack", bytes(1000), row=row, compress=compress)
            cipher.open(tag, blob, row=row)
    cipher.decrypt(*cipher.encrypt(b"value"))
    cipher.open(*seal_with_old())
    assert cipher.stats().sealed is not cipher.stats().sealed  # a copy
    assert counts(cipher) == {
        "sealed": {"new": 7},
        "opened": {"new": 7, "old": 1},
        "opened_retired": {"old": 1},
    }


@pytest.mark.parametrize(
    ("state", "retired"),
    [(KeyState.STAGED, {}), (KeyState.ACTIVE, {}), (KeyState.DECRYPT_ONLY, {"old": 1})],
)
def test_retired_is_what_was_active_once(state: KeyState, retired: dict[str, int]) -> None:
    cipher = RingCipher(KeyRing([Key("old", OLD, state)]))
    cipher.open(*seal_with_old())
    assert cipher.stats().opened == {"old": 1}
    assert cipher.stats().opened_retired == retired


def test_failures_leave_no_key_id() -> None:
    """A law in tests/property is about the classes that are counted."""
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value")
    for bad_tag, bad_blob in ((tag, blob[:-1]), ("msgpack+cobblestone256@x", blob)):
        with pytest.raises((SealedValueError, LookupError)):
            cipher.open(bad_tag, bad_blob)
    assert counts(cipher) == {"sealed": {"new": 1}, "opened": {}, "opened_retired": {}}
    assert cipher.stats().refused == {"IntegrityError": 1, "UnknownKeyError": 1}


def test_a_change_of_ring_goes_on_counting(tmp_path: Path) -> None:
    """Under the same key, and as retired from the change on."""
    file = write(tmp_path / "keys.toml", states_text(k1="active"))
    cipher = RingCipher(KeyRing.load(file))
    before = cipher.seal("msgpack", b"value")
    cipher.open(*before)
    replace(file, states_text(k1="decrypt-only", k2="active"))
    other = RingCipher(KeyRing.load(file))
    cipher.open(*other.seal("msgpack", b"value"))
    cipher.open(*before)
    cipher.seal("msgpack", b"value")
    assert counts(cipher) == {
        "sealed": {"k1": 1, "k2": 1},
        "opened": {"k1": 2, "k2": 1},
        "opened_retired": {"k1": 1},
    }


def test_eight_threads_share_one_cipher() -> None:
    """Each seals and opens values with and without a row; all counts are exact."""
    cipher, gate = RingCipher(KeyRing([*make_ring().keys, Key("more", NEW, KeyState.STAGED)])), Barrier(8)
    old = seal_with_old()

    def work(number: int) -> None:
        gate.wait()
        for turn in range(100):
            data = f"{number}-{turn}".encode()
            row = {"thread_id": str(number)} if turn % 2 else None
            tag, blob = cipher.seal(f"type{turn % 5}", data, row=row)
            assert cipher.open(tag, blob, row=row).typed == (f"type{turn % 5}", data)
            cipher.open(*old)
            counts(cipher)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counts(cipher) == {
        "sealed": {"new": 800},
        "opened": {"new": 800, "old": 800},
        "opened_retired": {"old": 800},
    }
