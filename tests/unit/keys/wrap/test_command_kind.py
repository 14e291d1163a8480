"""Kind `command`: what is wrapped contains its context, and only the same context unwraps it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.errors import KeyUnavailableError, RingFileError, WrappedKeyError
from sealpoint.keys.wrap.command import Wrapper, format_bound, parse_bound
from sealpoint.keys.wrap.wrapper import WrapContext

CONTEXT = WrapContext("agents", "k1")
MATERIAL = bytes(range(32))
TABLE: dict[str, object] = {"wrap": ["base64"], "unwrap": ["base64", "-d"]}

contexts = st.builds(WrapContext, st.text(), st.text())
materials = st.binary(min_size=1, max_size=64)


@given(material=materials, context=contexts)
def test_parse_after_format_is_the_identity(material: bytes, context: WrapContext) -> None:
    """The line is ASCII, and the newline at its end may be lost or written as on Windows."""
    line = format_bound(material, context)
    assert line.isascii()
    assert line.count(b"\n") == 1
    for ending in (b"\n", b"", b"\r\n"):
        assert parse_bound(line.rstrip(b"\n") + ending, context) == material


@given(material=materials, context=contexts, other=contexts)
def test_other_context_is_refused(material: bytes, context: WrapContext, other: WrapContext) -> None:
    if other != context:
        with pytest.raises(WrappedKeyError):
            parse_bound(format_bound(material, context), other)


@given(material=materials, context=contexts, bit=st.integers(min_value=0))
def test_changed_bit_changes_the_material_or_is_refused(
    material: bytes, context: WrapContext, bit: int
) -> None:
    """Programs that do not authenticate are not made better; but the context cannot be changed unnoticed."""
    line = bytearray(format_bound(material, context))
    line[bit // 8 % len(line)] ^= 1 << bit % 8
    with suppress(WrappedKeyError):
        found = parse_bound(bytes(line), context)
        assert line.rstrip(b"\r\n") == format_bound(found, context).rstrip(b"\n")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps({"material": "not base64"}),
        json.dumps({"material": ""}),
        json.dumps({"material": 5}),
        json.dumps({"material": "AAAA", "sealpoint:key": "k1", "sealpoint:ring": "agents", "more": 1}),
        '{"material":"AAAA", "sealpoint:key":"k1","sealpoint:ring":"agents"}',
    ],
)
def test_text_that_is_nearly_such_a_line_is_refused(text: str) -> None:
    with pytest.raises(WrappedKeyError):
        parse_bound(text.encode(), CONTEXT)


def test_error_names_the_ring_and_the_key_of_the_blob() -> None:
    """A ring that was renamed shows here."""
    with pytest.raises(WrappedKeyError, match="it was wrapped for key 'k1' of ring 'agents'") as caught:
        parse_bound(format_bound(MATERIAL, CONTEXT), WrapContext("renamed", "k1"))
    assert "'name'" in caught.value.hint


def wrapper(**fields: object) -> Wrapper:
    table = {name: value for name, value in {**TABLE, **fields}.items() if value is not None}
    return Wrapper.parse(table, "a table", Path())


def test_wrap_and_unwrap() -> None:
    made = wrapper()
    wrapped = made.wrap(MATERIAL, CONTEXT)
    assert wrapped.version is None
    assert made.unwrap(wrapped.blob, CONTEXT) == MATERIAL
    assert made.location == "base64"
    assert made.describe().problem is None
    with pytest.raises(WrappedKeyError):
        made.unwrap(wrapped.blob, WrapContext("agents", "k2"))
    # Another recipient or time limit changes nothing about what exists.
    assert made == wrapper(wrap=["other"], timeout_seconds=5)
    assert made != wrapper(unwrap=["other"])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"wrap": "base64"}, "'wrap' must be a list of words"),
        ({"unwrap": []}, "'unwrap' must be a list of words"),
        ({"unwrap": [1]}, "'unwrap' must be a list of words"),
        ({"key": "x"}, "unknown field 'key'"),
        ({"wrap": None}, "lacks the field 'wrap'"),
        ({"unwrap": None}, "lacks the field 'unwrap'"),
        *[
            ({"timeout_seconds": seconds}, "'timeout_seconds' is not a number of seconds up to 60")
            for seconds in (True, 0, -1, 61, "5", float("nan"))
        ],
    ],
)
def test_fields_are_checked(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(RingFileError, match=problem):
        wrapper(**fields)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["false"], "command 'false' exited with 1"),
        (["/nowhere"], "cannot be started"),
        (["sh", "-c", "exec sleep 300", "arg-secret"], "command 'sh' did not end in time"),
        (["sh", "-c", "cat; echo err-secret >&2; exit 3", "arg-secret"], "command 'sh' exited with 3"),
    ],
)
def test_program_that_fails(argv: list[str], said: str) -> None:
    """Not repeated: the program has its own retries. Nothing that it read or printed is shown."""
    made = wrapper(wrap=argv, unwrap=argv, timeout_seconds=0.3)
    for call in (lambda: made.wrap(MATERIAL, CONTEXT), lambda: made.unwrap(b"blob-secret", CONTEXT)):
        with pytest.raises(KeyUnavailableError, match=said) as caught:
            call()
        assert not caught.value.may_pass
        assert "by hand" in caught.value.hint
        assert "secret" not in f"{caught.value!r} {caught.value} {made!r}"
