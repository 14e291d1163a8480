"""Laws of sealing: what went in comes out, and nothing that was touched does."""

from __future__ import annotations

import struct
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Row, RowTemplate, Tag, context
from sealpoint.errors import (
    IntegrityError,
    RingRollbackError,
    SealedValueError,
    SealpointError,
    TagError,
)
from sealpoint.seal.ring import require_later
from tests.property.strategies_crypto import (
    inners,
    key_ids,
    letters,
    materials,
    ring_files,
    rings,
    rows,
    suites,
    texts,
    values,
)

MATERIAL = bytes(range(32))


def cipher_of(material: bytes, suite: str, key_id: str = "k1") -> RingCipher:
    return RingCipher(KeyRing([Key(key_id, material, KeyState.ACTIVE)]), suite)


@given(rings(), suites, inners, values, rows)
def test_round_trip(ring: KeyRing, suite: str, inner: str, value: bytes, row: Row | None) -> None:
    cipher = RingCipher(ring, suite)
    tag, blob = cipher.seal(inner, value, row=row)
    assert len(tag) <= 64
    assert cipher.open(tag, blob, row=row).typed == (inner, value)


@pytest.mark.claim("b1")
@given(suites, values, st.integers(min_value=0))
def test_any_flipped_bit_is_refused(suite: str, value: bytes, bit: int) -> None:
    cipher = cipher_of(MATERIAL, suite)
    tag, blob = cipher.seal("msgpack", value)
    damaged = bytearray(blob)
    damaged[bit // 8 % len(blob)] ^= 1 << bit % 8
    with pytest.raises(IntegrityError):
        cipher.open(tag, bytes(damaged))


@pytest.mark.parametrize("suite", ["cobblestone256", "xaes256gcm"])
def test_every_flipped_bit_of_a_small_value_is_refused(suite: str) -> None:
    """No sample: all bits of salt, commitment, nonce, ciphertext and tag."""
    cipher = cipher_of(MATERIAL, suite)
    tag, blob = cipher.seal("msgpack", b"v")
    for bit in range(8 * len(blob)):
        damaged = (int.from_bytes(blob, "big") ^ 1 << bit).to_bytes(len(blob), "big")
        with pytest.raises(IntegrityError):
            cipher.open(tag, damaged)


@given(suites, values, st.integers(min_value=0))
def test_any_truncation_is_refused(suite: str, value: bytes, size: int) -> None:
    cipher = cipher_of(MATERIAL, suite)
    tag, blob = cipher.seal("msgpack", value)
    with pytest.raises(SealedValueError):
        cipher.open(tag, blob[: size % len(blob)])


@pytest.mark.parametrize("chunks", [1, 2])
def test_truncation_at_a_chunk_is_refused(chunks: int) -> None:
    """A message of whole chunks that lacks its last one."""
    cipher = cipher_of(MATERIAL, "cobblestone256")
    tag, blob = cipher.seal("msgpack", bytes(3 * 16_384))
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob[: 56 + chunks * (16_384 + 16)])


@given(suites, values, st.binary(min_size=1, max_size=40))
def test_any_extension_is_refused(suite: str, value: bytes, more: bytes) -> None:
    cipher = cipher_of(MATERIAL, suite)
    tag, blob = cipher.seal("msgpack", value)
    for longer in (blob + more, more + blob, blob + blob):
        with pytest.raises(IntegrityError):
            cipher.open(tag, longer)


@pytest.mark.claim("b1")
@given(st.binary(max_size=200))
def test_made_up_bytes_are_refused(blob: bytes) -> None:
    ring = KeyRing(
        [
            Key("k1", MATERIAL, KeyState.ACTIVE),
            Key("langgraph", MATERIAL, KeyState.DECRYPT_ONLY, suite="aes"),
        ]
    )
    for tag in ("msgpack+cobblestone256@k1", "msgpack+xaes256gcm@k1", "msgpack+aes"):
        with pytest.raises(SealedValueError):
            RingCipher(ring).open(tag, blob)


@pytest.mark.claim("b2")
@given(st.data(), suites, rows)
def test_any_edited_tag_is_refused(data: st.DataObject, suite: str, row: Row | None) -> None:
    """One character exchanged, dropped or added; the ring has the material under every short id."""
    ids = ["k1", "k2", "k", "k11"]
    ring = KeyRing([Key(i, MATERIAL, KeyState.ACTIVE if i == "k1" else KeyState.DECRYPT_ONLY) for i in ids])
    cipher = RingCipher(ring, suite)
    tag, blob = cipher.seal("msgpack", b"value", row=row)
    at = data.draw(st.integers(0, len(tag)))
    put = data.draw(st.text(st.sampled_from("abckmswz0123456789+.:-A \n\0ä"), max_size=1))
    edited = tag[:at] + put + tag[at + data.draw(st.integers(0, 1)) :]
    assume(edited != tag)
    with pytest.raises(SealpointError):
        cipher.open(edited, blob, row=row)


@given(rings(), st.text(max_size=80) | inners, st.binary(max_size=100), rows)
def test_any_tag_opens_nothing_and_raises_only_our_errors(
    ring: KeyRing, tag: str, blob: bytes, row: Row | None
) -> None:
    with pytest.raises(SealpointError):
        RingCipher(ring).open(tag, blob, row=row)


@pytest.mark.claim("d3")
@given(suites, materials, materials, values, rows)
def test_another_ring_with_the_same_id_is_refused(
    suite: str, one: bytes, two: bytes, value: bytes, row: Row | None
) -> None:
    assume(one != two)
    tag, blob = cipher_of(one, suite).seal("msgpack", value, row=row)
    with pytest.raises(IntegrityError):
        cipher_of(two, suite).open(tag, blob, row=row)


@given(suites, rows, rows)
def test_only_the_same_row_opens(suite: str, row: Row | None, other: Row | None) -> None:
    cipher = cipher_of(MATERIAL, suite)
    assume(row != other)
    tag, blob = cipher.seal("msgpack", b"value", row=row)
    with pytest.raises(SealedValueError):
        cipher.open(tag, blob, row=other)


@given(inners, rows, inners, rows)
def test_contexts_differ_where_tags_or_rows_do(
    tag: str, row: Row | None, other_tag: str, other_row: Row | None
) -> None:
    same = (tag, row or {}) == (other_tag, other_row or {})
    assert (context(tag, row) == context(other_tag, other_row)) == same


@pytest.mark.claim("d1")
@given(suites, suites, inners, values, rows)
def test_resealing_keeps_the_value_and_leaves_the_old_key_behind(
    before: str, after: str, inner: str, value: bytes, row: Row | None
) -> None:
    """What rotation does: the new key alone opens it, at the same row, and doing it again changes no tag."""
    old = Key("old", MATERIAL[::-1], KeyState.DECRYPT_ONLY)
    tag, blob = cipher_of(old.material, before, "old").seal(inner, value, row=row)
    both = RingCipher(KeyRing([Key("k1", MATERIAL, KeyState.ACTIVE), old]), after)
    tag, blob = both.seal(*both.open(tag, blob, row=row).typed, row=row)
    assert cipher_of(MATERIAL, before).open(tag, blob, row=row).typed == (inner, value)
    assert both.seal(*both.open(tag, blob, row=row).typed, row=row)[0] == tag


def not_in(held: dict[str, Key], key_id: str) -> bool:
    return key_id not in held


def moved(key: Key, state: KeyState) -> Key:
    """A key in another state, as a command sets it: one that was compromised is enabled as compromised."""
    if key.is_compromised and state is KeyState.DECRYPT_ONLY:
        state = KeyState.COMPROMISED
    since = LONG_AGO if key.is_compromised or state is KeyState.COMPROMISED else None
    return Key(key.id, b"" if state is KeyState.DESTROYED else key.material, state, compromised=since)


LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
COMPROMISE = [
    KeyRing([Key("k1", MATERIAL, KeyState.ACTIVE), Key("k2", MATERIAL[::-1], state)])
    for state in (KeyState.DECRYPT_ONLY, KeyState.COMPROMISED)
]


@st.composite
def histories(draw: st.DrawFn) -> list[KeyRing]:
    """Rings as a ring file has them one after the other: keys are added and moved, one at a time."""
    history = [draw(rings())]
    for _ in range(draw(st.integers(0, 8))):
        states = {key.id: key for key in history[-1].keys}
        key = draw(st.sampled_from(list(states.values())))
        to = draw(st.sampled_from(KeyState))
        if to in key.state.transitions:
            active = history[-1].get_key(history[-1].active_id or "")
            if to is KeyState.ACTIVE and active:
                states[active.id] = moved(active, KeyState.DECRYPT_ONLY)
            states[key.id] = moved(key, to)
        else:
            added = draw(key_ids.filter(partial(not_in, states)))
            states[added] = Key(added, draw(materials), KeyState.STAGED)
        history.append(KeyRing(states.values()))
    return history


@given(histories(), st.data())
def test_any_later_ring_of_a_history_is_taken_over(history: list[KeyRing], data: st.DataObject) -> None:
    """Whatever lies between two looks."""
    at = data.draw(st.integers(0, len(history) - 1))
    assert require_later(history[at], history[-1]) is history[-1]


@pytest.mark.claim("k5")
@given(histories())
@example(COMPROMISE)
def test_no_ring_from_before_a_state_that_does_not_end(history: list[KeyRing]) -> None:
    """A key was added, has left its first state, is destroyed, or is known to be compromised."""
    first, last = history[0], history[-1]
    left = len(last.keys) > len(first.keys)
    for was in first.keys:
        now = last.get_key(was.id)
        assert now is not None
        if was.state is not now.state:
            left |= was.state is KeyState.STAGED or now.state is KeyState.DESTROYED
        left |= now.is_compromised and not was.is_compromised and was.state.opens
    if left:
        with pytest.raises(RingRollbackError):
            require_later(last, first)
    else:
        require_later(last, first)


@st.composite
def tag_texts(draw: st.DrawFn) -> str:
    """Texts that are tags, or nearly."""
    flags = draw(st.lists(st.sampled_from([".zst", ".row", ".", ".dek"]), max_size=3))
    suite = draw(suites | st.sampled_from(["aes", "", "rot13"]))
    key = draw(st.just("") | (key_ids | texts).map(lambda key_id: f"@{key_id}"))
    return f"{draw(inners | st.just(''))}+{suite}{''.join(flags)}{key}"


@given(st.text(max_size=80) | tag_texts())
@example("msgpack+aes")
@example("msgpack+cobblestone256.zst.row@k1")
def test_parse_then_format_is_identity_or_an_error(text: str) -> None:
    try:
        tag = Tag.parse(text)
    except TagError:
        return
    assert tag.format() == text


@given(
    inners | st.text(letters, min_size=17, max_size=64),
    suites,
    st.sampled_from([(), ("zst",), ("row",), ("zst", "row")]),
    key_ids,
)
def test_format_then_parse_is_identity_or_an_error(
    inner: str, suite: str, flags: tuple[str, ...], key_id: str
) -> None:
    tag = Tag(inner, suite, flags, key_id)
    try:
        text = tag.format()
    except TagError:
        assert len(f"{inner}+{suite}{'.'.join(('', *flags))}@{key_id}") > 64
        return
    assert Tag.parse(text) == tag


@given(ring_files())
def test_ring_file_reads_back(made: tuple[KeyRing, str, dict[str, bytes]]) -> None:
    """Ids, states, dates and material, in order, from raw, hex and base64 files; none of disabled keys."""
    ring, text, files = made
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keys.d").mkdir()
        paths = {folder / "keys.d" / key_id: data for key_id, data in files.items()}
        for path, data in {**paths, folder / "keys.toml": text.encode()}.items():
            path.write_bytes(data)
            path.chmod(0o600)
        loaded = KeyRing.load(folder / "keys.toml")
    fields = ("id", "state", "created", "destroyed", "suite")
    wanted, found = ([[getattr(key, field) for field in fields] for key in r.keys] for r in (ring, loaded))
    assert found == wanted
    assert [key.material for key in loaded.keys] == [
        b"" if key.state is KeyState.DISABLED else key.material for key in ring.keys
    ]
    assert loaded.index_key("purpose") == ring.index_key("purpose")


@given(st.dictionaries(texts, texts, max_size=6), st.data())
def test_packed_contexts_are_the_plain_definition(row: dict[str, str], data: st.DataObject) -> None:
    """However the coordinates are divided into shared ones and others, and in whatever order they come."""
    names = data.draw(st.permutations(sorted(row)))
    names = names[: data.draw(st.integers(0, len(names)))]
    shared = {name: value for name, value in row.items() if name not in names}
    packed = RowTemplate(shared, names).row(*(row[name] for name in names))
    tag = "msgpack+cobblestone256.row@k1"
    fields = [tag, *(text for pair in sorted(row.items()) for text in pair)]
    plain = b"sealpoint\0\x01" + b"".join(struct.pack(">I", len(f.encode())) + f.encode() for f in fields)
    assert context(tag, packed) == context(tag, row) == plain


@given(suites, st.dictionaries(texts, texts, max_size=4))
def test_packed_row_opens_what_its_coordinates_sealed(suite: str, row: dict[str, str]) -> None:
    cipher, names = cipher_of(MATERIAL, suite), list(row)[:1]
    template = RowTemplate({name: row[name] for name in row if name not in names}, names)
    packed = template.row(*(row[name] for name in names))
    sealed = cipher.seal("msgpack", b"value", row=row)
    assert cipher.open(*sealed, row=packed).data == b"value"
    with pytest.raises(IntegrityError):
        cipher.open(*sealed, row=RowTemplate(row, ["another"]).row(""))
