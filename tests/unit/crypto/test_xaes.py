"""Xaes256Gcm: how long a prefix lasts, and which prefixes of others are kept.

Known answers are in tests/vectors.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection

import pytest

from sealpoint.crypto import suites
from sealpoint.crypto.suites import IN_PLACE_BYTES, Xaes256Gcm
from sealpoint.errors import IntegrityError
from tests.support.keys.rings import NEW, OTHER

PREFIX = slice(12)
NONCE = slice(24)


def prefixes(suite: Xaes256Gcm, messages: int) -> list[bytes]:
    """The first 12 bytes of the nonces of some messages."""
    return [suite.seal(b"value", b"")[PREFIX] for _ in range(messages)]


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The prefixes for which a key was derived."""
    seen: list[bytes] = []
    derive = suites.derive_xaes_key

    def counting(key: bytes, prefix: bytes) -> bytes:
        seen.append(prefix)
        return derive(key, prefix)

    monkeypatch.setattr(suites, "derive_xaes_key", counting)
    return seen


def test_messages_share_a_prefix_and_no_nonce() -> None:
    blobs = [Xaes256Gcm(NEW).seal(b"", b"") for _ in range(2)]
    assert blobs[0][PREFIX] != blobs[1][PREFIX]
    suite = Xaes256Gcm(NEW)
    blobs = [suite.seal(bytes(size), b"") for size in (0, 5, IN_PLACE_BYTES, 5, 0)]
    assert len({blob[PREFIX] for blob in blobs}) == 1
    assert len({blob[NONCE] for blob in blobs}) == len(blobs)


def test_a_prefix_lasts_for_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Xaes256Gcm.MAX_MESSAGES == 2**24
    monkeypatch.setattr(Xaes256Gcm, "MAX_MESSAGES", 3)
    first, second, third = (prefixes(suite, 3) for suite in [Xaes256Gcm(NEW)] * 3)
    assert [len(set(group)) for group in (first, second, third)] == [1, 1, 1]
    assert len({*first, *second, *third}) == 3


def test_no_prefix_has_more_messages_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Xaes256Gcm, "MAX_MESSAGES", 10)
    suite = Xaes256Gcm(NEW)
    with ThreadPoolExecutor(8) as pool:
        seen = [*pool.map(lambda _: suite.seal(b"", b"")[PREFIX], range(1000))]
    assert max(map(seen.count, set(seen))) <= 10


def _seal_in_child(pipe: Connection, suite: Xaes256Gcm) -> None:
    pipe.send(suite.seal(b"from the child", b""))


def test_a_forked_process_draws_its_own(derivations: list[bytes]) -> None:
    suite = Xaes256Gcm(NEW)
    before = suite.seal(b"", b"")
    context = get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_seal_in_child, args=(theirs, suite))
    child.start()
    blob = ours.recv()
    child.join()
    assert blob[PREFIX] != before[PREFIX]
    assert suite.seal(b"", b"")[PREFIX] == before[PREFIX]
    assert suite.open(blob, b"") == b"from the child"


def test_a_cipher_is_derived_once_for_each_prefix(derivations: list[bytes]) -> None:
    blobs = [Xaes256Gcm(NEW).seal(b"value", b"") for _ in range(2)]
    derivations.clear()
    reader = Xaes256Gcm(NEW)
    for blob in blobs * 3:
        assert reader.open(blob, b"") == b"value"
    assert derivations == [blob[PREFIX] for blob in blobs]


def test_what_does_not_open_is_not_remembered(derivations: list[bytes]) -> None:
    """Else made-up rows would push out the prefixes of honest ones."""
    reader, blob = Xaes256Gcm(NEW), Xaes256Gcm(OTHER).seal(b"value", b"")
    for _ in range(2):
        derivations.clear()
        with pytest.raises(IntegrityError):
            reader.open(blob, b"")
        assert derivations == [blob[PREFIX]]


def test_so_many_prefixes_are_remembered(monkeypatch: pytest.MonkeyPatch, derivations: list[bytes]) -> None:
    monkeypatch.setattr(Xaes256Gcm, "MAX_PREFIXES", 4)
    blobs = [Xaes256Gcm(NEW).seal(b"value", b"") for _ in range(10)]
    reader = Xaes256Gcm(NEW)
    for blob in blobs + blobs[:2]:
        assert reader.open(blob, b"") == b"value"
    derivations.clear()
    for blob in blobs[-2:]:
        reader.open(blob, b"")
    assert derivations == []
    for blob in blobs:
        reader.open(blob, b"")
    assert len(derivations) >= len(blobs) - 4
