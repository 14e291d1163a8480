"""What is sealed in front of a document and of a write reads back as it was written."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.errors import DecodeError, MetadataError, UnsupportedTypeError
from sealpoint.sealed.rows import (
    Claims,
    Header,
    new_call,
    pack_claims,
    pack_header,
    split_claims,
    split_header,
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
)
finite = scalars.filter(lambda value: not isinstance(value, float) or math.isfinite(value))
metadata = st.dictionaries(st.text(st.characters(codec="utf-8")), finite, max_size=5)
# Lone surrogates and infinity may be in inline values, but not in metadata.
texts = st.text(st.characters())
calls = st.lists(st.tuples(st.sampled_from(["a", "b", "__error__", "__resume__"]), st.none()), max_size=8)


@given(
    metadata=metadata,
    parent=st.none() | texts,
    inline=st.dictionaries(texts, scalars | texts),
    rest=st.binary(),
)
def test_a_header_reads_back(
    metadata: dict[str, Any], parent: str | None, inline: dict[str, Any], rest: bytes
) -> None:
    header: Header = {"metadata": metadata, "parent": parent, "inline": inline, "channels": list(inline)}  # type: ignore[typeddict-item]
    assert split_header(pack_header(header) + rest) == (header, rest)


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"metadata": {"step": float("nan")}, "parent": None}, MetadataError),
        ({"metadata": {}, "parent": None, "inline": {"a": 10**5000}}, UnsupportedTypeError),
    ],
)
def test_a_value_without_a_form_in_json_is_refused(header: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack_header(header)


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
