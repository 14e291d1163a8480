"""Audit and status: what anybody can read is found and counted, and never quoted."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint import KeyState
from sealpoint.admin.databases.cells import InlineValue, require_decodable
from sealpoint.admin.databases.rows import RowStore, TagCount
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance import audit as module
from sealpoint.admin.maintenance.audit import MAX_EXAMPLES, MAX_LABELS, Audit, audit, shape
from sealpoint.admin.maintenance.status import MAX_TYPES, Share, status
from sealpoint.admin.results.tags import Kind
from sealpoint.errors import RowError, UnknownTypeError
from sealpoint.keys.entry import RingEntry
from tests.support.databases.foreign import GOLDEN, SECRET, insert, rows_of, write

MANY = [InlineValue(chr(97 + n // 26) + chr(97 + n % 26), "string", 2) for n in range(500)]


def audit_of(path: Path) -> Audit:
    """The audit of a file."""
    with rows_of(path) as store:
        return audit(store)


def test_metadata_is_shown_as_types_and_shapes(tmp_path: Path) -> None:
    """LangGraph stores scalars of a config in the clear, whatever the serializer, and did so with writes."""
    config = {"user_email": "ada.byron@example.com", "age": 36, "premium": True}
    path = write(tmp_path / "a.db", sealed=True, configurable=config)
    users = {f"user{number:06}@example.com": f"{number}" for number in range(1_000)}
    insert(
        path, [("null+cobblestone256@k1", b"")], json.dumps({"writes": {"node": {"text": SECRET}}, **users})
    )
    found = audit_of(path)
    fields = {field.key: field for field in found.metadata.fields if not field.known}
    users_key = "22: aaaa999999@aaaaaaa.aaa"
    assert fields.keys() == {*config, "writes", users_key}
    assert {key: (field.rows, field.types, field.examples) for key, field in fields.items()} == {
        "user_email": (1, ("text",), ("21: aaa.aaaaa@aaaaaaa.aaa",)),
        "age": (1, ("number",), ("99",)),
        "premium": (1, ("boolean",), ()),
        "writes": (1, ("object",), ("1 inside",)),
        users_key: (1_000, ("text",), ("1: 9", "2: 99", "3: 999")),
    }
    assert MAX_EXAMPLES == 3
    assert found.is_sealed
    assert not found.is_silent


@pytest.mark.parametrize(
    "metadata",
    [b"not json", b'{"a": NaN}', b"[1]", "text", 7, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
    ids=range(6),
)
def test_metadata_that_is_not_strict_json_is_counted(tmp_path: Path, metadata: Any) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, [("null+cobblestone256@k1", b"")], metadata)
    found = audit_of(path)
    assert (found.metadata.rows, found.metadata.unreadable) == (2, 1)
    assert not found.is_silent


def test_many_keys_of_metadata_are_bounded_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    names = [chr(97 + n // 676) + chr(97 + n // 26 % 26) + chr(97 + n % 26) for n in range(10_000)]
    insert(path, [("null+cobblestone256@k1", b"")] * 2, json.dumps(dict.fromkeys(names, "x" * 9)))
    metadata = audit_of(path).metadata
    assert len(metadata.fields) == MAX_LABELS
    assert sum(field.rows for field in metadata.fields) + metadata.other_rows == 3 + 2 * 10_000


@pytest.mark.parametrize("bound", [10, 1])
def test_addresses_in_ids_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    """And counted, up to a bound."""
    monkeypatch.setattr(module, "MAX_ADDRESSES", bound)
    threads: dict[str, dict[str, Any]] = {"a@example.com": {}, "user:b%40example.org:7": {}, "plain": {}}
    (found,) = audit_of(write(tmp_path / "a.db", threads, sealed=True)).addresses
    assert (found.column, found.texts) == ("thread_id", min(bound, 2))
    assert set(found.examples) == {"13: a@aaaaaaa.aaa", "22: aaaa:a%99aaaaaaa.aaa:9"}


@pytest.mark.parametrize(
    ("values", "shown", "is_silent"),
    [
        (
            [InlineValue("name", "string", 2), InlineValue("ann@example.com", "number", 2)],
            [InlineValue("name", "string", 2), InlineValue("15: aaa@aaaaaaa.aaa", "number", 2)],
            False,
        ),
        ([InlineValue("branch:to:node", "null", 2)], [InlineValue("branch:to:node", "null", 2)], True),
        (MANY, MANY[:MAX_LABELS], False),
    ],
    ids=["strings", "nulls", "many"],
)
def test_inline_values_are_shown_by_channel(
    tmp_path: Path, values: list[InlineValue], shown: list[InlineValue], is_silent: bool
) -> None:
    """Those that a Postgres saver keeps readable in a database that is sealed."""
    with closing(SqliteRows(write(tmp_path / "a.db", sealed=True))) as store:
        store.inline = lambda: iter(values)  # type: ignore[method-assign]
        found = audit(store)
    assert sorted(found.inline) == sorted(shown)
    assert found.other_inline == 2 * max(0, len(values) - MAX_LABELS)
    assert (found.is_sealed, found.is_silent) == (True, is_silent)


@given(st.text())
def test_shape_has_no_sign_of_the_text(text: str) -> None:
    """Letters and digits are gone; what is left is ASCII that can be printed, and short."""
    number, _, signs = shape(text).partition(": ")
    assert int(number) == len(text)
    assert len(signs) <= 43
    assert set(filter(str.isalnum, signs)) <= set("Aa9")
    assert signs.isascii()
    assert signs.isprintable()


@given(st.integers() | st.floats() | st.booleans() | st.none() | st.lists(st.integers()))
def test_shape_of_what_is_no_text_is_short(value: Any) -> None:
    assert len(shape(value)) <= 24
    assert set("12345678") & set(shape(value)) <= (set(str(len(value))) if isinstance(value, list) else set())


def entry(key_id: str, state: KeyState, suite: str | None = None) -> RingEntry:
    """What a ring file says about a key."""
    return RingEntry(key_id, state, suite=suite, source="file")


def shares_of(path: Path, *entries: RingEntry) -> list[Share]:
    """Status of a file; with a ring, if there are entries."""
    with rows_of(path) as store:
        return status(store, entries or None)


def status_of(counts: list[TagCount]) -> list[Share]:
    """Status of counts: a store that has nothing else to ask for shows that no value is read."""
    return status(cast("RowStore", SimpleNamespace(count=lambda damage: counts)))


def test_legacy_key_is_known_by_its_suite() -> None:
    """Such rows name no key; a key that happens to be called so is another one."""
    path = GOLDEN / "langgraph-aes.db"
    legacy = entry("langgraph", KeyState.DECRYPT_ONLY, "aes")
    assert {(share.kind, share.state) for share in shares_of(path, legacy)} == {(Kind.LEGACY, "decrypt-only")}
    assert {share.state for share in shares_of(path, entry("aes", KeyState.ACTIVE))} == {"not in the ring"}


@pytest.mark.parametrize("count", [19, 21])
def test_more_tags_than_an_agent_could_make_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """And those of the agent; as many as there may be are few shares."""
    monkeypatch.setattr("sealpoint.admin.databases.rows.MAX_TAGS", 20)
    path = write(tmp_path / "a.db")
    insert(path, ((f"x{number}+rot13@k1", b"") for number in range(count)))
    with pytest.raises(RowError, match="'checkpoints' has over 20") if count > 20 else nullcontext():
        share, *_ = (share for share in shares_of(path) if share.table == "checkpoints")
        assert (share.rows, share.tags, len(share.types)) == (count, count, MAX_TYPES)


tags = st.one_of(
    st.none() | st.integers() | st.binary(max_size=3) | st.text(max_size=8),
    st.builds(
        "{}+{}@{}".format,
        st.sampled_from(["msgpack", "null"]),
        st.sampled_from(["xaes256gcm", "xaes256gcm.row", "x"]),
        st.integers(0, 300),
    ),
)


@given(
    st.lists(
        st.builds(TagCount, st.sampled_from(["a", "b"]), tags, st.integers(1, 9), st.integers(0, 9)),
        max_size=400,
    )
)
def test_every_row_is_in_one_share(counts: list[TagCount]) -> None:
    """Whatever the tags, nothing is lost and nothing counted twice."""
    shares = status_of(counts)
    for sums in ("rows", "size_bytes"):
        wanted, found = Counter[str](), Counter[str]()
        for count in counts:
            wanted[count.table] += getattr(count, sums)
        for share in shares:
            found[share.table] += getattr(share, sums)
        assert found == wanted
    plain = [
        (*dataclasses.astuple(share)[:6], share.is_skipped, "pickle" in share.types)
        for share in shares
        if share.kind is not Kind.SEALED
    ]
    assert len(set(plain)) == len(plain)


KINDS = ("msgpack", "json", "null", "bytes", "bytearray", "pickle", "yaml", "Msgpack", "p")


@pytest.mark.parametrize("suffix", ["", "+aes", "+xaes256gcm@k1"])
def test_types_that_rotation_refuses_have_a_share_of_their_own(suffix: str) -> None:
    """Under a key of ours, all types are rotated."""
    shares = status_of([TagCount("writes", f"{kind}{suffix}", 2, 3) for kind in KINDS])
    found = {share.types: (share.rows, share.is_skipped, "pickle" in share.types) for share in shares}
    if suffix.endswith("@k1"):
        assert found == {KINDS[:MAX_TYPES]: (18, False, False)}
        return
    assert found == {
        ("msgpack", "json", "null", "bytes", "bytearray"): (10, False, False),
        ("yaml", "Msgpack", "p"): (6, True, False),
        ("pickle",): (2, True, True),
    }
    for kind in KINDS:
        is_skipped = any(kind in share.types and share.is_skipped for share in shares)
        with pytest.raises(UnknownTypeError) if is_skipped else nullcontext():
            require_decodable(kind, {"msgpack": b"\xc0", "json": b"{}"}.get(kind, b""))
