"""What a cipher counts: seals and opens by key id, and opens under keys that are retired."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealedValueError
from tests.support.rings import (
    NEW,
    OLD,
    SECRET,
    make_cipher,
    make_ring,
    replace,
    seal_with_old,
    states_text,
    write,
)


def test_nothing_yet() -> None:
    assert make_cipher().counts() == {"sealed": {}, "opened": {}, "opened_retired": {}}


def test_every_way_of_sealing_and_opening_counts() -> None:
    cipher = make_cipher()
    for row, secret in ((None, None), ({}, None), (None, SECRET), ({"a": "b"}, SECRET)):
        tag, blob = cipher.seal("msgpack", b"value", row=row, secret=secret)
        cipher.open(tag, blob, row=row, secret=secret)
    cipher.decrypt(*cipher.encrypt(b"value"))
    cipher.reseal(*seal_with_old())
    assert cipher.counts() == {
        "sealed": {"new": 6},
        "opened": {"new": 5, "old": 1},
        "opened_retired": {"old": 1},
    }


@pytest.mark.parametrize(
    ("state", "retired"),
    [(KeyState.STAGED, {}), (KeyState.ACTIVE, {}), (KeyState.DECRYPT_ONLY, {"old": 1})],
)
def test_retired_is_what_was_active_once(state: KeyState, retired: dict[str, int]) -> None:
    cipher = RingCipher(KeyRing([Key("old", OLD, state)]))
    cipher.open(*seal_with_old())
    assert cipher.counts()["opened"] == {"old": 1}
    assert cipher.counts()["opened_retired"] == retired


def test_failures_are_not_counted() -> None:
    """Nor does a hostile tag leave a key id behind."""
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value")
    for bad_tag, bad_blob in ((tag, blob[:-1]), (tag, b""), ("msgpack+cobblestone256@x", blob), ("", blob)):
        with pytest.raises((SealedValueError, LookupError)):
            cipher.open(bad_tag, bad_blob)
    with suppress(SealedValueError):
        cipher.seal("a b", b"value")
    assert cipher.counts() == {"sealed": {"new": 1}, "opened": {}, "opened_retired": {}}


def test_reading_changes_nothing_and_gives_a_copy() -> None:
    cipher = make_cipher()
    cipher.seal("msgpack", b"value")
    cipher.counts()["sealed"]["new"] = 7
    assert [cipher.counts()["sealed"] for _ in range(3)] == [{"new": 1}] * 3


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
    assert cipher.counts() == {
        "sealed": {"k1": 1, "k2": 1},
        "opened": {"k1": 2, "k2": 1},
        "opened_retired": {"k1": 1},
    }


def test_exact_over_eight_threads() -> None:
    cipher, gate = RingCipher(KeyRing([*make_ring().keys, Key("more", NEW, KeyState.STAGED)])), Barrier(8)
    old = seal_with_old()

    def work(_: int) -> None:
        gate.wait()
        for _ in range(500):
            cipher.open(*cipher.seal("msgpack", b""))
            cipher.open(*old)
            cipher.counts()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert cipher.counts() == {
        "sealed": {"new": 4000},
        "opened": {"new": 4000, "old": 4000},
        "opened_retired": {"old": 4000},
    }
