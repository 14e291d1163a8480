"""Suites: sizes, freshness, and what a suite refuses by itself. Known answers are in tests/vectors."""

from __future__ import annotations

import pytest

from sealpoint.crypto.eax import AesEax
from sealpoint.crypto.suites import Aes256Gcm, Cobblestone256, make_suite
from sealpoint.errors import BlobError, IntegrityError, UnknownSuiteError
from tests.unit.crypto.rings import NEW, OTHER, SUITES

CHUNK = 16 * 1024


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
@pytest.mark.parametrize("name", SUITES)
def test_round_trip_around_the_chunk_size(name: str, size: int) -> None:
    suite, data = make_suite(name, NEW), bytes(size)
    assert suite.open(suite.seal(data, b"context"), b"context") == data


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_cobblestone_size(size: int) -> None:
    """Salt 24, commitment 32, and a tag of 16 for every chunk, of which the last is never full."""
    blob = Cobblestone256(NEW).seal(bytes(size), b"")
    assert len(blob) == 24 + 32 + size + 16 * (size // CHUNK + 1)


def test_gcm_size() -> None:
    assert len(Aes256Gcm(NEW).seal(bytes(100), b"")) == 12 + 100 + 16


@pytest.mark.parametrize("name", SUITES)
def test_sealing_twice_gives_different_bytes(name: str) -> None:
    """Salt and nonce are drawn anew for every value."""
    suite = make_suite(name, NEW)
    first, second = suite.seal(b"same", b""), suite.seal(b"same", b"")
    assert first[:12] != second[:12]
    assert first[-20:] != second[-20:]


@pytest.mark.parametrize("name", SUITES)
def test_another_key_or_context_does_not_open(name: str) -> None:
    blob = make_suite(name, NEW).seal(b"value", b"context")
    for key, context in [(OTHER, b"context"), (NEW, b"contexT"), (NEW, b"")]:
        with pytest.raises(IntegrityError):
            make_suite(name, key).open(blob, context)


@pytest.mark.parametrize(("name", "least"), [("cobblestone256", 72), ("aes256gcm", 28), ("aes", 32)])
def test_a_blob_too_short_has_an_error_of_its_own(name: str, least: int) -> None:
    suite = make_suite(name, NEW)
    for size in (0, 1, least - 1):
        with pytest.raises(BlobError):
            suite.open(bytes(size), b"")
    with pytest.raises(IntegrityError):
        suite.open(bytes(least), b"")


def test_the_legacy_suite_never_seals() -> None:
    with pytest.raises(UnknownSuiteError, match="read only"):
        AesEax(NEW).seal(b"value", b"")


@pytest.mark.parametrize("name", ["", "aes128gcm", "AES256GCM", "cobblestone256.row"])
def test_unknown_suite(name: str) -> None:
    with pytest.raises(UnknownSuiteError):
        make_suite(name, NEW)
