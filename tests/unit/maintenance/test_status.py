"""Status: shares by protection, from tags alone, however many a stranger makes up."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint import KeyState
from sealpoint.crypto.tag import Kind, classify
from sealpoint.databases.cells import require_decodable
from sealpoint.databases.rows import MAX_TAGS, RowStore, TagCount
from sealpoint.errors import RowError, UnknownTypeError
from sealpoint.keys.entry import RingEntry
from sealpoint.maintenance.status import MAX_KEYS, MAX_TYPES, Share, status
from tests.support.foreign import GOLDEN, insert, rows_of, write


def entry(key_id: str, state: KeyState, suite: str | None = None) -> RingEntry:
    """What a ring file says about a key."""
    return RingEntry(key_id, state, suite=suite, source="file")


def shares_of(path: Path, *entries: RingEntry) -> list[Share]:
    """Status of a file; with a ring, if there are entries."""
    with rows_of(path) as store:
        return status(store, entries or None)


class Counts:
    """A store of which nothing is known but its counts."""

    def __init__(self, counts: list[TagCount]) -> None:
        self.counts = counts

    def count(self, damage: object = None) -> list[TagCount]:
        return self.counts


def status_of(counts: list[TagCount]) -> list[Share]:
    """Status of counts: a store that has nothing else to ask for shows that no value is read."""
    return status(cast("RowStore", Counts(counts)))


def test_plaintext_of_langgraph() -> None:
    shares = shares_of(GOLDEN / "plain-3.1.2.db")
    assert [(share.table, share.kind, share.rows, share.types) for share in shares] == [
        ("checkpoints", Kind.PLAINTEXT, 6, ("msgpack",)),
        ("writes", Kind.PLAINTEXT, 7, ("msgpack", "null")),
    ]
    assert all(share.suite is share.key_id is share.state is None and share.size_bytes for share in shares)


def test_values_under_a_key() -> None:
    shares = shares_of(GOLDEN / "sealed.db")
    assert [(share.kind, share.suite, share.key_id, share.state) for share in shares] == [
        (Kind.SEALED, "cobblestone256", "k1", None)
    ] * 2


@pytest.mark.parametrize("state", KeyState)
def test_state_is_what_the_ring_says(state: KeyState) -> None:
    assert {share.state for share in shares_of(GOLDEN / "sealed.db", entry("k1", state))} == {state.value}


def test_key_that_the_ring_does_not_hold() -> None:
    shares = shares_of(GOLDEN / "sealed.db", entry("k2", KeyState.ACTIVE))
    assert {share.state for share in shares} == {"not in the ring"}


def test_legacy_key_is_known_by_its_suite() -> None:
    """Such rows name no key; a key that happens to be called so is another one."""
    path = GOLDEN / "langgraph-aes.db"
    legacy = entry("langgraph", KeyState.DECRYPT_ONLY, "aes")
    assert {(share.kind, share.state) for share in shares_of(path, legacy)} == {(Kind.LEGACY, "decrypt-only")}
    assert {share.state for share in shares_of(path, entry("aes", KeyState.ACTIVE))} == {"not in the ring"}


def test_flags_make_shares_of_their_own() -> None:
    tags = [
        "msgpack+xaes256gcm@k1",
        "msgpack+xaes256gcm.row@k1",
        "null+xaes256gcm.row@k1",
        "null+xaes256gcm.dek.row@k1",
    ]
    shares = status_of([TagCount("writes", tag, 1, 10) for tag in tags])
    assert [(share.flags, share.rows, share.size_bytes) for share in shares] == [
        (("row",), 2, 20),
        ((), 1, 10),
        (("dek", "row"), 1, 10),
    ]


@pytest.mark.parametrize(
    "tag",
    [
        None,
        7,
        1.5,
        b"msgpack",
        "",
        "+",
        "+aes",
        "+cobblestone256@k1",
        "a\0b",
        "msgpack\n",
        "msgpack+rot13@k1",
        "msgpack+cobblestone256",
        "msgpack+cobblestone256.col@k1",
        "msgpack+cobblestone256@k1\0",
        "msgpack+cobblestone256:" + "k" * 65,
        "x" * 65,
    ],
)
def test_tag_that_says_nothing_is_unknown(tag: Any) -> None:
    """It counts as neither sealed nor plaintext, and is shown escaped."""
    assert classify(tag) == (Kind.UNKNOWN, None)
    (share,) = status_of([TagCount("writes", tag, 3, 5)])
    assert (share.kind, share.rows, share.key_id) == (Kind.UNKNOWN, 3, None)
    assert all(shown.isprintable() and shown.isascii() for shown in share.types)


def test_hostile_columns_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db")
    insert(path, [(None, None), (b"\xff", 7), ("a\0b", "text"), (3, b"")])
    kinds = Counter[Kind]()
    for share in shares_of(path):
        kinds[share.kind] += share.rows * (share.table == "checkpoints")
    assert kinds == {Kind.UNKNOWN: 3, Kind.PLAINTEXT: 2}  # 3 became "3": the column turns numbers to text


def test_as_many_tags_as_there_may_be_are_few_shares(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db")
    insert(path, ((f"x{number}+rot13@k1", b"") for number in range(MAX_TAGS - 1)))  # and those of the agent
    share, *_ = (share for share in shares_of(path) if share.table == "checkpoints")
    assert (share.kind, share.rows, share.tags, len(share.types)) == (
        Kind.UNKNOWN,
        MAX_TAGS - 1,
        MAX_TAGS - 1,
        MAX_TYPES,
    )


def test_more_tags_than_an_agent_could_make_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db")
    insert(path, ((f"x{number}+rot13@k1", b"") for number in range(MAX_TAGS + 1)))
    with pytest.raises(RowError, match="'checkpoints' has over 100000 different tags"):
        shares_of(path)


@pytest.mark.parametrize("form", ["m+cobblestone256@k{}", "x{}", "x{}+aes", "\x1b[{}m", "x{}+xaes256gcm@{}"])
def test_many_tags_are_few_shares(form: str) -> None:
    shares = status_of([TagCount("writes", form.format(number, number), 1, 2) for number in range(10_000)])
    assert len(shares) <= MAX_KEYS + 1
    assert [sum(share.rows for share in shares), sum(share.tags for share in shares)] == [10_000] * 2
    assert all(len(share.types) <= MAX_TYPES for share in shares)


def test_commonest_keys_are_kept() -> None:
    """Made-up keys with a row each do not hide the one that is in use."""
    counts = [TagCount("writes", f"msgpack+xaes256gcm@a{number}", 1, 1) for number in range(500)]
    rest, kept, *others = status_of([*counts, TagCount("writes", "msgpack+xaes256gcm@z1", 9, 9)])
    assert (rest.key_id, rest.rows, rest.tags) == (None, 501 - MAX_KEYS, 501 - MAX_KEYS)
    assert (kept.key_id, kept.rows) == ("z1", 9)
    assert {share.rows for share in others} == {1}


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
        (*dataclasses.astuple(share)[:6], share.is_skipped, share.is_pickle)
        for share in shares
        if share.kind is not Kind.SEALED
    ]
    assert len(set(plain)) == len(plain)


KINDS = ("msgpack", "json", "null", "bytes", "bytearray", "pickle", "yaml", "Msgpack", "p")


@pytest.mark.parametrize("suffix", ["", "+aes"])
def test_types_that_rotation_refuses_have_a_share_of_their_own(suffix: str) -> None:
    shares = status_of([TagCount("writes", f"{kind}{suffix}", 2, 3) for kind in KINDS])
    found = {share.types: (share.rows, share.is_skipped, share.is_pickle) for share in shares}
    assert found == {
        ("msgpack", "json", "null", "bytes", "bytearray"): (10, False, False),
        ("yaml", "Msgpack", "p"): (6, True, False),
        ("pickle",): (2, True, True),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_stays_is_what_rotation_refuses(kind: str) -> None:
    """The plan and the run know the same types."""
    data = {"msgpack": b"\xc0", "json": b"{}"}.get(kind, b"")
    (share,) = status_of([TagCount("writes", kind, 1, 1)])
    with pytest.raises(UnknownTypeError) if share.is_skipped else nullcontext():
        require_decodable(kind, data)


@pytest.mark.parametrize("tag", ["pickle+cobblestone256@k1", "yaml+xaes256gcm@k1"])
def test_what_a_key_of_ours_vouches_for_moves_whatever_it_is(tag: str) -> None:
    (share,) = status_of([TagCount("writes", tag, 1, 1)])
    assert not share.is_skipped
