"""Audit: what anybody can read is found and counted, and never quoted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.databases.cleartext import InlineValue
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.maintenance import audit as module
from sealpoint.maintenance.audit import MAX_EXAMPLES, MAX_LABELS, Audit, audit, label, shape
from tests.support.foreign import GOLDEN, SECRET, insert, rows_of, write


def audit_of(path: Path) -> Audit:
    """The audit of a file."""
    with rows_of(path) as store:
        return audit(store)


def test_sealed_database_is_sealed_and_silent(tmp_path: Path) -> None:
    found = audit_of(write(tmp_path / "a.db", sealed=True))
    assert (found.rows, found.open_rows, found.is_sealed, found.is_silent) == (2, 0, True, True)
    assert all(field.known for field in found.metadata.fields)


@pytest.mark.parametrize("name", ["plain.db", "older.db", "langgraph-aes.db", "langgraph-aes-3.1.2.db"])
def test_what_sealpoint_did_not_seal_is_open(name: str) -> None:
    found = audit_of(GOLDEN / name)
    assert found.open_rows == found.rows > 0
    assert not found.is_sealed


def test_one_plaintext_row_among_many_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {f"t{number}": {} for number in range(50)}, sealed=True)
    insert(path, [("msgpack", b"\xc0")])
    assert audit_of(path).open_rows == 1


def test_value_with_a_tag_of_nobody_counts_as_open(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, [("msgpack+rot13@k1", b"\xc0"), (None, None)])
    assert audit_of(path).open_rows == 2


def test_scalars_of_a_config_are_found_in_metadata(tmp_path: Path) -> None:
    """LangGraph stores them in the clear, whatever the serializer."""
    config = {"user_email": "ada.byron@example.com", "age": 36, "premium": True}
    found = audit_of(write(tmp_path / "a.db", sealed=True, configurable=config))
    fields = {field.key: field for field in found.metadata.fields if not field.known}
    assert fields.keys() == config.keys()
    assert fields["user_email"].types == ("text",)
    assert fields["user_email"].examples == ("21: aaa.aaaaa@aaaaaaa.aaa",)
    assert fields["age"].examples == ("99",)
    assert fields["premium"].examples == ()
    assert found.is_sealed
    assert not found.is_silent


def test_metadata_of_older_graphs_holds_whole_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, [("null+cobblestone256@k1", b"")], json.dumps({"writes": {"node": {"text": SECRET}}}))
    (field,) = (field for field in audit_of(path).metadata.fields if not field.known)
    assert (field.key, field.types, field.examples) == ("writes", ("object",), ("1 inside",))


def test_nothing_that_is_readable_is_quoted(tmp_path: Path) -> None:
    """Neither values nor ids nor keys that look like a user's."""
    markers = ["Kumquat", "zebra", "pelican", "walrus", "ocelot"]
    path = write(
        tmp_path / "a.db",
        {"zebra@example.com": {"messages": "Kumquat"}},
        configurable={"plan": "pelican 12", "walrus@example.com": 1, "note": "ocelot" * 100},
    )
    found = audit_of(path)
    assert not found.is_silent
    assert not [marker for marker in markers if marker.lower() in repr(found).lower()]


@pytest.mark.parametrize(
    "metadata",
    [
        b"not json",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b"[1]",
        "text",
        7,
        2.5,
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(9),
)
def test_metadata_that_is_not_strict_json_is_counted(tmp_path: Path, metadata: Any) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, [("null+cobblestone256@k1", b"")], metadata)
    found = audit_of(path)
    assert (found.metadata.rows, found.metadata.unreadable) == (2, 1)
    assert not found.is_silent


def test_absent_metadata_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, [("null+cobblestone256@k1", b"")], None)
    assert audit_of(path).is_silent


def test_many_keys_of_metadata_are_bounded_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    names = [chr(97 + n // 676) + chr(97 + n // 26 % 26) + chr(97 + n % 26) for n in range(10_000)]
    insert(path, [("null+cobblestone256@k1", b"")] * 2, json.dumps(dict.fromkeys(names, "x" * 9)))
    metadata = audit_of(path).metadata
    assert len(metadata.fields) == MAX_LABELS
    assert sum(field.rows for field in metadata.fields) + metadata.other_rows == 3 + 2 * 10_000


def test_keys_like_a_users_fall_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", sealed=True)
    users = {f"user{number:06}@example.com": f"{number}" for number in range(1_000)}
    insert(path, [("null+cobblestone256@k1", b"")], json.dumps(users))
    (field,) = (field for field in audit_of(path).metadata.fields if not field.known)
    assert (field.key, field.rows) == ("22: aaaa999999@aaaaaaa.aaa", 1_000)
    assert len(field.examples) <= MAX_EXAMPLES


def test_addresses_in_ids_are_found(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.db", {"a@example.com": {}, "user:b%40example.org:7": {}, "plain": {}}, sealed=True
    )
    (found,) = audit_of(path).addresses
    assert (found.column, found.texts) == ("thread_id", 2)
    assert set(found.examples) == {"13: a@aaaaaaa.aaa", "22: aaaa:a%99aaaaaaa.aaa:9"}


def test_addresses_beyond_the_bound_are_no_longer_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ADDRESSES", 5)
    path = write(tmp_path / "a.db", {f"user{number}@example.com": {} for number in range(9)})
    (found,) = audit_of(path).addresses
    assert found.texts == 5


@pytest.mark.parametrize("text", ["a@b", "@", "a@b.", "me@home", "x" * 3000 + "a@example.com", "1f1e@" * 500])
def test_text_without_an_address_is_none(tmp_path: Path, text: str) -> None:
    assert audit_of(write(tmp_path / "a.db", {text: {}})).addresses == ()


def audit_inline(path: Path, *channels: tuple[str, str]) -> Audit:
    """The audit of a sealed file with inline values, which a Postgres saver keeps readable."""

    def inline() -> Iterator[InlineValue]:
        yield from (InlineValue(channel, kind, 2) for channel, kind in channels)

    with closing(SqliteRows(write(path, sealed=True))) as store:
        store.cleartext.inline = inline  # type: ignore[method-assign]
        return audit(store)


def test_inline_values_are_shown_by_channel(tmp_path: Path) -> None:
    found = audit_inline(tmp_path / "a.db", ("name", "string"), ("ann@example.com", "number"))
    assert [(part.channel, part.kind, part.rows) for part in found.inline] == [
        ("name", "string", 2),
        ("15: aaa@aaaaaaa.aaa", "number", 2),
    ]
    assert found.is_sealed
    assert not found.is_silent


def test_inline_nulls_say_nothing(tmp_path: Path) -> None:
    assert audit_inline(tmp_path / "a.db", ("branch:to:node", "null")).is_silent


def test_inline_channels_are_bounded(tmp_path: Path) -> None:
    names = (chr(97 + n // 26) + chr(97 + n % 26) for n in range(500))
    found = audit_inline(tmp_path / "a.db", *((name, "string") for name in names))
    assert len(found.inline) == MAX_LABELS
    assert found.other_inline == 2 * (500 - MAX_LABELS)


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


@pytest.mark.parametrize(
    "text", ["user_id", "langgraph_api_url", "branch:to:node", "__start__", "ls_provider"]
)
def test_name_of_a_programmer_is_shown(text: str) -> None:
    assert label(text) == text


@pytest.mark.parametrize(
    "text", ["a b", "ann@example.com", "x_1234567", "größe", "x" * 49, "", "7up", "a\x1b[m", "user\n"]
)
def test_name_like_a_users_is_masked(text: str) -> None:
    assert label(text) == shape(text)
