"""Strategies for what a stranger writes: msgpack by the header, tags, key files, rows and database files."""

from __future__ import annotations

import functools

from hypothesis import strategies as st

from fuzz.seeds import seeds, words
from fuzz.targets import SAFE, SEPARATOR
from tests.unit.serde.wire import array, extension, mapping, text, token

_headers = st.integers(0, 255).map(token)
_numbers = st.sampled_from(["00", "c2", "c3", "01", "ca3f800000", "ca7fc00000", "cf" + "ff" * 8, "d0ff"]).map(
    bytes.fromhex
)
_texts = st.sampled_from(["", "a", "x" * 40, "1", "fromisoformat", "2020-01-01", "UTC", "content"]).map(text)
_names = st.sampled_from(SAFE) | st.sampled_from([("os", "system"), ("no.such", "Type"), ("", "")])
_leaves = _headers | _numbers | _texts | st.binary(max_size=3)


def _containers(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    parts = st.lists(inner, max_size=4)
    records = st.builds(
        lambda name, argument, method: array(*map(text, name), argument, *method),
        _names,
        inner,
        st.sampled_from([[], [text("fromisoformat")], [text("model_validate_json")], [b"\xc0"]]),
    )
    return st.one_of(
        parts.map(lambda items: array(*items)),
        parts.map(lambda items: mapping(*items, *items[: len(items) % 2])),
        st.builds(extension, st.integers(0, 8), records | inner, st.sampled_from([1, 2, 4]).map(lambda _: 4)),
    )


msgpack = st.recursive(_leaves, _containers, max_leaves=12) | st.binary(max_size=60)
"""Bytes that are often one value, and often not."""

records = st.builds(
    lambda code, number, argument: bytes((code, number)) + argument,
    st.integers(0, 7),
    st.integers(0, 255),
    st.recursive(_leaves, _containers, max_leaves=4),
)
"""What the target ``record`` takes."""

_edits = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.sampled_from(["put", "insert", "cut", "word"]), st.binary(max_size=4)
    ),
    min_size=1,
    max_size=6,
)


@functools.cache
def _honest(target: str) -> tuple[bytes, ...]:
    return tuple(seeds(target))


def damaged(target: str) -> st.SearchStrategy[bytes]:
    """Honest inputs of a target, changed in some places."""
    known = [word.encode() for word in words(target)] or [b"\0"]

    def damage(data: bytes, edits: list[tuple[int, str, bytes]]) -> bytes:
        for place, how, more in edits:
            at = place % (len(data) + 1)
            new = known[place % len(known)] if how == "word" else more
            end = at + {"put": len(more), "cut": place % 20}.get(how, 0)
            data = data[:at] + (b"" if how == "cut" else new) + data[end:]
        return data

    return st.builds(
        damage, st.sampled_from(range(len(_honest(target)))).map(_honest(target).__getitem__), _edits
    )


_columns = st.builds(
    lambda kind, content: kind + content,
    st.sampled_from([b"i", b"r", b"t", b"b", b""]),
    msgpack | st.sampled_from([b"msgpack", b"json", b"null", b"bytes", b"{}", b'{"a": 1}', b"\x80", b"\xff"]),
)
rows = st.lists(_columns, min_size=9, max_size=9).map(SEPARATOR.join)
"""What the target ``row`` takes."""
