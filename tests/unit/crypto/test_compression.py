"""Compressed values: what is compressed, that every change is refused, and that a bomb ends early."""

from __future__ import annotations

import random
import tracemalloc
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.crypto import zstd as zstd_module
from sealpoint.crypto.zstd import compress, require_zstd, zstd_for
from sealpoint.errors import DecodeError, IntegrityError, LimitError, MissingExtraError, SealpointError
from sealpoint.seal import compression
from sealpoint.seal.cipher import PreparedRing
from sealpoint.seal.compression import MAX_BYTES, MIN_BYTES, decompress

MIB = 2**20
ROW = {"thread_id": "1"}

cipher = RingCipher(KeyRing([Key(id="k1", material=bytes(range(32)), state=KeyState.ACTIVE)]))


def frame(data: bytes, **options: object) -> bytes:
    """Return a frame as another program may make it."""
    made: bytes = require_zstd().compress(data, **options)
    return made


@given(st.binary(max_size=2_000), st.integers(0, 50), st.booleans())
def test_a_value_returns_as_it_was(data: bytes, times: int, bound: bool) -> None:
    data *= times
    row = ROW if bound else None
    tag, blob = cipher.seal("bytes", data, row=row, compress=True)
    plain, whole = cipher.seal("bytes", data, row=row)
    assert cipher.open(tag, blob, row=row).typed == ("bytes", data)
    assert len(blob) <= len(whole)
    assert (tag == plain) is (".zst" not in tag)
    if ".zst" in tag:
        assert len(data) >= MIN_BYTES
        assert len(compress(data) or data) * 10 <= len(data) * 9


@pytest.mark.parametrize(
    ("data", "is_compressed"),
    [
        (b"a" * (MIN_BYTES - 1), False),
        (b"a" * MIN_BYTES, True),
        (random.Random(1).randbytes(10_000), False),
        (random.Random(1).randbytes(10_000) + bytes(2_000), True),
        (b"", False),
    ],
)
def test_only_what_becomes_smaller_is_compressed(data: bytes, is_compressed: bool) -> None:
    tag, _ = cipher.seal("bytes", data, row=ROW, compress=True)
    assert tag == f"bytes+cobblestone256{'.zst' * is_compressed}.row@k1"


def test_the_shortest_value_is_that_of_each_release() -> None:
    """A release refuses frames of shorter ones, so no other may write them."""
    assert decompress(frame(bytes(512)), zstd_for) == bytes(512)
    with pytest.raises(DecodeError):
        decompress(frame(bytes(511)), zstd_for)
    assert compress(bytes(511)) is None


def test_nothing_is_compressed_that_is_not_to_be() -> None:
    """Without a frame the value is sealed as it is."""
    prepared = PreparedRing(cipher.ring, "cobblestone256", lambda kind, key_id: count(), zstd_for)
    tag, blob = prepared.seal("bytes", bytes(10_000), ROW)
    assert (tag, len(blob)) == ("bytes+cobblestone256.row@k1", 10_000 + 72)


def test_a_value_over_the_limit_is_sealed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compression, zstd_module):
        monkeypatch.setattr(module, "MAX_BYTES", MIB)
    for size, is_compressed in ((MIB, True), (MIB + 1, False)):
        tag, blob = cipher.seal("bytes", bytes(size), compress=True)
        assert (".zst" in tag) is is_compressed
        assert cipher.open(tag, blob).data == bytes(size)


def test_every_flipped_bit_is_refused() -> None:
    tag, blob = cipher.seal("bytes", b"sealed " * 100, row=ROW, compress=True)
    for at in range(len(blob) * 8):
        changed = bytearray(blob)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(SealpointError):
            cipher.open(tag, bytes(changed), row=ROW)
    for at in range(len(tag) * 8):
        text = bytearray(tag.encode())
        text[at // 8] ^= 1 << at % 8
        with pytest.raises(SealpointError):
            cipher.open(text.decode("latin-1"), blob, row=ROW)


def test_flag_and_content_belong_together() -> None:
    data = b"sealed " * 100
    tag, blob = cipher.seal("bytes", data, row=ROW, compress=True)
    plain, whole = cipher.seal("bytes", data, row=ROW)
    with pytest.raises(IntegrityError):
        cipher.open(plain, blob, row=ROW)
    with pytest.raises(IntegrityError):
        cipher.open(tag, whole, row=ROW)
    inner_frame = cipher.seal(
        "bytes", compress(data) or b"", row=ROW
    )  # sealed as bytes, not as a compressed value
    with pytest.raises(IntegrityError):
        cipher.open(tag, inner_frame[1], row=ROW)
    assert cipher.open(*inner_frame, row=ROW).data == compress(data)


GOOD = b"sealed " * 1_000
zstd = require_zstd()
UNSIZED = {zstd.CompressionParameter.content_size_flag: 0}
BOMB = frame(bytes(1024 * MIB), level=1)

REFUSED = {
    "bomb": (BOMB, LimitError),
    "one byte over": (frame(bytes(MAX_BYTES + 1), level=1), LimitError),
    "no size": (frame(GOOD, options=UNSIZED), DecodeError),
    "no frame": (GOOD, DecodeError),
    "empty": (b"", DecodeError),
    "short": (frame(b"a" * (MIN_BYTES - 1)), DecodeError),
    "truncated": (frame(GOOD)[:-1], DecodeError),
    "header alone": (frame(GOOD)[:8], DecodeError),
    "trailing byte": (frame(GOOD) + b"\0", DecodeError),
    "two frames": (frame(GOOD) * 2, DecodeError),
    "a frame to skip": (b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + frame(GOOD), DecodeError),
    "dictionary": (frame(GOOD, zstd_dict=zstd.ZstdDict(GOOD, is_raw=True)), DecodeError),
}
WITH_SIZE = frame(GOOD)
for size in (len(GOOD) - 1, len(GOOD) + 1):
    # Two bytes of the header are the size, less 256 (RFC 8878, 3.1.1.1.4).
    true, false = ((number - 256).to_bytes(2, "little") for number in (len(GOOD), size))
    REFUSED[f"declares {size}"] = WITH_SIZE.replace(true, false, 1), DecodeError


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_one_whole_frame_is_refused(name: str) -> None:
    data, error = REFUSED[name]
    assert data != WITH_SIZE
    with pytest.raises(error):
        decompress(data, zstd_for)


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    assert len(BOMB) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="1073741824 bytes") as refused:
            decompress(BOMB, zstd_for)
        assert not refused.value.hint  # no limit that a caller may pass is higher
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tag, blob = cipher.seal("bytes", GOOD, compress=True)
    for name in ("compression", "compression.zstd", "backports", "backports.zstd"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    require_zstd.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match="'zstd'") as refused:
            cipher.open(tag, blob)
        assert refused.value.hint == "pip install 'sealpoint[zstd]'"
        assert cipher.open(*cipher.seal("bytes", GOOD)).data == GOOD
    finally:
        require_zstd.cache_clear()
