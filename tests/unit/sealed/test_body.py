"""What is sealed in front of a document and of a write reads back as it was written."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sealpoint.errors import DecodeError, MetadataError, UnsupportedTypeError
from sealpoint.seal.calls import Claims, new_call, pack_claims, split_claims
from sealpoint.seal.rows import split_header, with_length
from tests.support.databases.headers import packed_header


def in_json(text: str) -> str:
    """Two surrogates that are a pair are one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


texts = st.text(st.characters()).map(in_json)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=4)


def require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


calls = st.lists(st.tuples(st.sampled_from(["a", "b", "__error__", "__resume__"]), st.none()), max_size=8)


@given(metadata=objects, parent=st.none() | st.text(), inline=objects, rest=st.binary())
def test_a_header_reads_back(
    metadata: dict[str, Any], parent: str | None, inline: dict[str, Any], rest: bytes
) -> None:
    """Whatever Python's JSON holds, in strict JSON."""
    header: Any = {"metadata": metadata, "parent": parent, "inline": inline, "rebound": "0" * 24}
    packed = packed_header(header)
    assert repr(split_header(packed + rest)) == repr((header, rest))
    json.loads(packed[4:].decode(), parse_constant=pytest.fail, object_pairs_hook=require_unique)


@pytest.mark.parametrize(
    "form",
    [
        *(
            [],
            [1],
            [True],
            [False],
            [0.0],
            ["x"],
            ["n"],
            ["n", "NaN"],
            ["n", 1],
            ["n", "nan", 0],
            ["u", "d8"],
            ["u", 1],
        ),
        *(["o", ["a"]], ["o", ["a", 1, 2]], ["o", "ab"], ["o", [1, 2]], ["o", ["a", 1], ["a", 2]]),
        [0, []],
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["metadata", "inline"])
def test_an_array_in_another_form_is_refused(form: Any, part: str) -> None:
    """Each array of a header has one meaning."""
    header = {"metadata": {}, "parent": None, part: {"x": form}}
    with pytest.raises(DecodeError):
        split_header(with_length(json.dumps(header).encode()))


@pytest.mark.parametrize(
    "text",
    ['{"metadata":{},"metadata":{},"parent":null}', '{"metadata":{"a":NaN},"parent":null}', "[" * 9999, "{}"],
)
def test_a_header_is_strict_json(text: str) -> None:
    with pytest.raises(DecodeError):
        split_header(with_length(text.encode()))


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"metadata": {"step": b"x"}, "parent": None}, MetadataError),
        ({"metadata": {}, "parent": None, "inline": {"a": 10**5000}}, UnsupportedTypeError),
    ],
)
def test_a_value_without_a_form_in_json_is_refused(header: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        packed_header(header)


@example(path="\ud800", idx=0, writes=None, rest=b"")
@given(path=texts, idx=st.integers(-(2**31), 2**31 - 1), writes=st.none() | calls, rest=st.binary())
def test_claims_read_back(path: str, idx: int, writes: Any, rest: bytes) -> None:
    claims = Claims(path, idx, b"" if writes is None else new_call(writes))
    assert split_claims(pack_claims(claims) + rest) == (claims, rest)


@given(st.binary(max_size=40))
def test_other_bytes_have_no_header(data: bytes) -> None:
    with pytest.raises(DecodeError):
        split_header(data)
    with suppress(DecodeError):  # any bytes may be claims: they are authenticated before
        split_claims(data)


@pytest.mark.parametrize("path", [b"path", b"\xff"])
def test_claims_that_end_early_are_refused(path: bytes) -> None:
    data = pack_claims(Claims("path", 1, new_call([("__resume__", 1)]))).replace(b"path", path.ljust(4))
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            split_claims(data[:end])


@pytest.mark.parametrize("header", [{}, {"metadata": []}, {"metadata": {}}, [], None])
def test_a_header_has_its_parts(header: Any) -> None:
    text = json.dumps(header).encode()
    with pytest.raises(DecodeError):
        split_header(len(text).to_bytes(4, "big") + text)
