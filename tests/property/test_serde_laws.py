"""Laws of the serializer: round trip, sealed or not; the same bytes again; nothing but our own errors."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sealpoint.errors import SealpointError, UnreadableTypeError
from sealpoint.serde import SAFE_TYPES, EncryptedSerializer, JsonPlusSerializer
from tests.support.values.forge import extension, record
from tests.support.values.samples import SAMPLES
from tests.support.values.strategies import anything, equal, exact

serde = JsonPlusSerializer()
writer = JsonPlusSerializer(on_blocked="raw")  # also what cannot be built again
strict = JsonPlusSerializer(allowed_msgpack_modules=None)
sealed = EncryptedSerializer.from_key(bytes(32))
packed = EncryptedSerializer.from_key(bytes(32), compress="zstd")
LABELS = ["msgpack", "json", "null", "bytes", "bytearray", "pickle", "zz"]


@given(exact())
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Sealed or not, of the same types all the way down."""
    assert equal(serde.loads_typed(serde.dumps_typed(value)), value)
    assert equal(sealed.loads_typed(sealed.dumps_typed(value)), value)
    assert equal(sealed.loads_typed(packed.dumps_typed([value] * 99))[98], value)


@given(anything())
def test_encoding_is_deterministic(value: Any) -> None:
    """The same value gives the same bytes, by any serializer of a process; some refuse it."""
    written = writer.dumps_typed(value)
    assert written == writer.dumps_typed(value)
    for other in (serde, strict):
        with suppress(UnreadableTypeError):  # of a class inside another, or that refuses what is stored
            assert other.dumps_typed(value) == written


@given(anything())
def test_what_was_written_is_read_or_refused(value: Any) -> None:
    for reader in (serde, strict):
        reads_or_refuses(reader, writer.dumps_typed(value))


def reads_or_refuses(reader: JsonPlusSerializer, row: tuple[str, bytes]) -> None:
    """Read a row; anything else than a value or one of our errors goes up."""
    with suppress(SealpointError):
        reader.loads_typed(row)


@given(st.sampled_from(LABELS), st.binary(max_size=200))
@example("json", b"1" * 5000)
@example("msgpack", b"\xc7\x00\x07")
def test_arbitrary_bytes_are_read_or_refused(label: str, data: bytes) -> None:
    reads_or_refuses(strict, (label, data))


VALID = [row for row in map(serde.dumps_typed, SAMPLES.values()) if row[0] == "msgpack"]

edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "repeat"]), st.integers(0, 10**6), st.binary(max_size=6)
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, how: str, at: int, more: bytes) -> bytes:
    """Damage bytes in one place."""
    at %= len(data) + 1
    if how == "flip":
        return data[:at] + bytes(byte ^ 0x80 >> at % 8 for byte in data[at : at + 1]) + data[at + 1 :]
    if how == "cut":
        return data[:at] + data[at + 1 + len(more) :]
    if how == "insert":
        return data[:at] + more + data[at:]
    return data[:at] + data[at : at + 8] + data[at:]


@given(st.sampled_from(VALID), edits)
def test_damaged_values_are_read_or_refused(row: tuple[str, bytes], changes: Any) -> None:
    label, data = row
    for change in changes:
        data = edited(data, *change)
    reads_or_refuses(strict, (label, data))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=9) | st.integers(0, 9) | st.sampled_from(["content", "node", "self"]), inner
        )
    ),
    max_leaves=6,
)
methods = st.sampled_from([[], ["fromisoformat"], ["model_validate_json"], [None]])


@given(st.sampled_from(sorted(SAFE_TYPES)), st.integers(0, 6), plain, methods)
def test_safe_types_take_or_refuse_any_argument(
    named: tuple[str, str], code: int, argument: Any, method: Any
) -> None:
    reads_or_refuses(strict, record(code, *named, argument, *method))


@given(st.integers(0, 127), plain)
@example(6, ["(1,2", [0], "C", b""])
@example(6, ["i4,,", [0], "C", b""])
@example(6, ["a5", [0], "C", b""])
@example(6, ["<i8", [2**40, 2**40], "C", b""])
@example(6, ["|S0", [10**9], "C", b""])
def test_any_extension_is_read_or_refused(code: int, payload: Any) -> None:
    reads_or_refuses(strict, extension(code, payload))


arrays = st.tuples(
    st.sampled_from(["<i8", "|b1", "<U2", "|S3", "|O", "|V4", "<M8[D]", "T", "(2,)i4", "i4,i4"])
    | st.text(max_size=6),
    st.lists(st.integers(-2, 2**40), max_size=3) | plain,
    st.sampled_from(["C", "F", "A", "K", None]),
    st.binary(max_size=24),
)


@given(arrays)
def test_any_array_is_read_or_refused(payload: Any) -> None:
    reads_or_refuses(strict, extension(6, list(payload)))


def test_any_depth_of_extensions_is_read_or_refused() -> None:
    """In a process of its own, which must live."""
    script = """
from sealpoint.errors import SealpointError, UnreadableTypeError
from sealpoint.serde import JsonPlusSerializer
strict = JsonPlusSerializer(allowed_msgpack_modules=None)
for body, code in ((b"", 7), (b"\\x93\\xa8builtins\\xa9frozenset\\x91", 0)):
    data = b"\\x01"
    for depth in range(1000):
        data = body + data
        data = b"\\xc9" + len(data).to_bytes(4, "big") + bytes([code]) + data
        if depth < 64 or depth > 960:
            try:
                strict.loads_typed(("msgpack", data))
            except SealpointError:
                assert depth >= 21  # three levels each, of 64
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
