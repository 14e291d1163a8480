"""Suites: sizes, freshness, prefixes of nonces, and what a suite refuses by itself.

Known answers are in tests/vectors.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection

import pytest
from cryptography.cobblestone import Cobblestone256Decryptor, Cobblestone256Encryptor
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealpoint.errors import IntegrityError, SealedValueError, TagError
from sealpoint.seal import suites
from sealpoint.seal.legacy import LegacyAes
from sealpoint.seal.suites import (
    IN_PLACE_BYTES,
    Xaes256Gcm,
    derive_xaes_key,
    make_suite,
    random_source,
)
from tests.support.keys.rings import NEW, OTHER, SUITES

CHUNK = 16 * 1024
PREFIX = slice(12)
NONCE = slice(24)


SIZES = [
    *(0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK),
    *(IN_PLACE_BYTES + more for more in (-1, 0, 1, 15, 16, CHUNK - 1, CHUNK, CHUNK + 5, 7 * CHUNK + 16)),
]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_sealed_in_one_buffer_is_the_same_message(size: int) -> None:
    """The library, which joins parts, opens it, and what that has sealed opens.

    Cobblestone: salt 24, commitment 32, and a tag of 16 for every chunk, of which the last is never full.
    """
    data = os.urandom(size)
    opening, sealing = Cobblestone256Decryptor(NEW, b"context"), Cobblestone256Encryptor(NEW, b"context")
    blob = make_suite("cobblestone256", NEW).seal(data, b"context")
    assert (type(blob), len(blob)) == (bytes, 24 + 32 + size + 16 * (size // CHUNK + 1))
    assert opening.update(blob) + opening.finalize() == data
    opened = make_suite("cobblestone256", NEW).open(sealing.update(data) + sealing.finalize(), b"context")
    assert (type(opened), opened) == (bytes, data)
    blob = make_suite("xaes256gcm", NEW).seal(data, b"context")
    assert (type(blob), len(blob)) == (bytes, size + 40)
    assert AESGCM(derive_xaes_key(NEW, blob[:12])).decrypt(blob[12:24], blob[24:], b"context") == data
    opened = make_suite("xaes256gcm", NEW).open(blob, b"context")
    assert (type(opened), opened) == (bytes, data)


@pytest.mark.parametrize("cut", [1, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 15, CHUNK + 16, CHUNK + 17])
@pytest.mark.parametrize("name", SUITES)
def test_a_large_blob_cut_anywhere_does_not_open(name: str, cut: int) -> None:
    blob = make_suite(name, NEW).seal(os.urandom(IN_PLACE_BYTES + 2 * CHUNK + 100), b"")
    for damaged in (blob[:-cut], blob + bytes(cut), blob[:100] + blob[100 + cut :]):
        with pytest.raises(IntegrityError):
            make_suite(name, NEW).open(damaged, b"")


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("at", [-1, IN_PLACE_BYTES])
def test_a_failed_opening_leaves_nothing_in_a_frame(name: str, at: int) -> None:
    """Not the chunks before the damaged one either: tools that report errors show the locals of frames."""
    blob = bytearray(make_suite(name, NEW).seal(b"secret" * (IN_PLACE_BYTES // 3), b""))
    blob[at] ^= 1
    with pytest.raises(IntegrityError) as caught:
        make_suite(name, NEW).open(bytes(blob), b"")
    error: BaseException | None = caught.value
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            for value in trace.tb_frame.f_locals.values():
                held = value.getvalue() if hasattr(value, "getvalue") else value
                assert not isinstance(held, bytes | bytearray) or b"secretsecret" not in held
            trace = trace.tb_next
        error = error.__context__


@pytest.mark.claim("a1")
@pytest.mark.parametrize("name", SUITES)
def test_sealing_twice_gives_different_bytes(name: str) -> None:
    """Salt and the nonce's second half are drawn anew for every value."""
    suite = make_suite(name, NEW)
    first, second = suite.seal(b"same", b""), suite.seal(b"same", b"")
    assert first[12:24] != second[12:24]
    assert first[-20:] != second[-20:]


@pytest.mark.parametrize(("name", "least"), [("cobblestone256", 72), ("xaes256gcm", 40), ("aes", 32)])
def test_a_blob_too_short_has_an_error_of_its_own(name: str, least: int) -> None:
    suite = make_suite(name, NEW)
    for size in (0, 1, least - 1):
        with pytest.raises(SealedValueError):
            suite.open(bytes(size), b"")
    with pytest.raises(IntegrityError):
        suite.open(bytes(least), b"")


def test_the_legacy_suite_never_seals() -> None:
    with pytest.raises(TagError, match="read only"):
        LegacyAes(NEW).seal(b"value", b"")


def test_unknown_suite() -> None:
    for name in ("", "aes256gcm", "XAES256GCM", "cobblestone256.row"):
        with pytest.raises(TagError):
            make_suite(name, NEW)


@pytest.mark.skipif(not hasattr(os, "getrandom"), reason="a call of Linux")
def test_random_bytes_are_those_of_the_kernel_with_or_without_getrandom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`os.getrandom` does not release the GIL; a sandbox may refuse it, and other systems lack it."""

    def refuse(*_: object) -> bytes:
        raise OSError("not implemented")

    assert random_source() is os.getrandom
    monkeypatch.setattr(os, "getrandom", refuse)
    assert random_source() is os.urandom
    monkeypatch.delattr(os, "getrandom")
    assert random_source() is os.urandom


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


@pytest.mark.claim("k11")
def test_a_prefix_lasts_for_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with threads."""
    assert Xaes256Gcm.MAX_MESSAGES == 2**24
    monkeypatch.setattr(Xaes256Gcm, "MAX_MESSAGES", 3)
    first, second, third = (prefixes(suite, 3) for suite in [Xaes256Gcm(NEW)] * 3)
    assert [len(set(group)) for group in (first, second, third)] == [1, 1, 1]
    assert len({*first, *second, *third}) == 3
    suite = Xaes256Gcm(NEW)
    with ThreadPoolExecutor(8) as pool:
        seen = [*pool.map(lambda _: suite.seal(b"", b"")[PREFIX], range(1000))]
    assert max(map(seen.count, set(seen))) <= 3


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
    """But not kept for what does not open: forged rows would displace the prefixes of honest ones."""
    blobs, forged = [Xaes256Gcm(NEW).seal(b"value", b"") for _ in range(2)], Xaes256Gcm(OTHER).seal(b"", b"")
    derivations.clear()
    reader = Xaes256Gcm(NEW)
    for blob in blobs * 3:
        assert reader.open(blob, b"") == b"value"
    for _ in range(2):
        with pytest.raises(IntegrityError):
            reader.open(forged, b"")
    assert derivations == [blob[PREFIX] for blob in (*blobs, forged, forged)]


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
