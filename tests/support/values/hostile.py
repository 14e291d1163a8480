"""Strategies for untrusted input: msgpack by the header, tags, ring files, rows and database files."""

from __future__ import annotations

import functools
from itertools import chain

from hypothesis import strategies as st

from fuzz.seeds import seeds, words
from fuzz.targets import SAFE, SEPARATOR
from tests.support.values.wire import array, extension, mapping, text, token

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


_scalars = _numbers | _texts | st.just(bytes.fromhex("c40161"))
_fields = st.lists(st.sampled_from("abcd"), max_size=3, unique=True) | st.lists(
    st.sampled_from("ab"), max_size=3
)
_codes = st.sampled_from([*range(8), *range(8), 8])
_wrong = st.sampled_from([*[0] * 9, 1, -1])


def _level(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Arrays, maps and records as LangGraph writes them: the shortest headers, and names that are short."""
    item = inner | _scalars
    flat = st.lists(item, min_size=1, max_size=3).map(lambda items: array(*items)) | st.builds(
        lambda names, values: mapping(*chain(*zip(map(text, names), values, strict=False))),
        _fields,
        st.lists(item, min_size=3, max_size=3),
    )
    method = st.sampled_from([[], [], [text("a")]]) | st.lists(item, max_size=1)
    payload = st.builds(
        lambda code, what, more: array(text("re"), code, what, *more), _texts, flat | item, method
    )
    records = st.builds(_announced, _codes, payload, _wrong)
    return records | records | flat


def _announced(code: int, payload: bytes, wrong: int) -> bytes:
    """An extension with the shortest header that announces so many bytes, or more or less than there are."""
    width = 1 if len(payload) < 250 else 2
    head = extension(code, payload, width)
    return head[:1] + (len(payload) + wrong).to_bytes(width, "big") + head[1 + width :]


_one = _level(_scalars)
_two = _level(_one)
_three = _level(_two)


def _damage(data: bytes, places: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(data)
    for place, head in places:
        damaged[place % len(data)] = head
    return bytes(damaged)


_heads = st.sampled_from([0x80, 0x81, 0x92, 0x93, 0x94, 0xA1, 0xC0, 0xC7, 0xC8, 0xD9, 0xDC])
_places = st.lists(st.tuples(st.integers(0, 10**6), _heads), min_size=1, max_size=2)
_values = _one | _two | _three | _level(_three)
written = _values | _values | st.builds(_damage, _values, _places)
"""Records in records; in some a header stands in a place that is not its own."""

_blanks = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from("_ \t\n\x1c\x85\xa0\u2003\u3000")), max_size=3
)


def _scatter(text: str, blanks: list[tuple[int, str]]) -> str:
    for place, blank in blanks:
        text = text[:place] + blank + text[place:]
    return text


decimals = st.builds(
    lambda sign, digits, mark, exponent, blanks: _scatter(f"{sign}{digits}{mark}{exponent}", blanks),
    st.sampled_from(["", "-", "+"]),
    st.sampled_from(["1", "0", "1.5", ".1", "\u0661"]),
    st.sampled_from("eE"),
    st.sampled_from(["5", "6144", "-6144", "99999", "+99999", "-99999", "\uff19" * 5, "9" * 17]),
    _blanks,
)
"""Numbers with an exponent, in many spellings."""

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
