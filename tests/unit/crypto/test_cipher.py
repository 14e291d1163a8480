"""RingCipher: which key seals, which key opens, and that nothing else ever does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag
from sealpoint.errors import (
    BlobError,
    IntegrityError,
    KeyDestroyedError,
    KeyDisabledError,
    NoActiveKeyError,
    TagError,
    UnknownKeyError,
    UnknownSuiteError,
)
from tests.support.rings import (
    NEW,
    OLD,
    OTHER,
    SECRET,
    SUITES,
    make_cipher,
    make_ring,
    seal_with_old,
)


def test_cobblestone_is_the_default() -> None:
    assert RingCipher(make_ring()).seal("msgpack", b"")[0] == "msgpack+cobblestone256@new"


@pytest.mark.parametrize("suite", ["aes", "", "aes128gcm", "cobblestone256.row"])
def test_cannot_seal_in_another_suite(suite: str) -> None:
    with pytest.raises(UnknownSuiteError):
        RingCipher(make_ring(), suite)


@pytest.mark.parametrize("suite", SUITES)
def test_the_active_key_seals(suite: str) -> None:
    tag, blob = make_cipher(suite).seal("msgpack", b"value")
    assert Tag.parse(tag).key_id == "new"
    alone = RingCipher(KeyRing([Key("new", NEW, KeyState.DECRYPT_ONLY)]))
    assert alone.open(tag, blob).typed == ("msgpack", b"value")


@pytest.mark.parametrize("sealed_in", SUITES)
@pytest.mark.parametrize("reader", SUITES)
def test_a_cipher_opens_every_suite_whichever_it_seals_in(sealed_in: str, reader: str) -> None:
    assert make_cipher(reader).open(*make_cipher(sealed_in).seal("bytes", b"value")).typed == (
        "bytes",
        b"value",
    )


@pytest.mark.parametrize("state", [KeyState.STAGED, KeyState.ACTIVE, KeyState.DECRYPT_ONLY])
def test_usable_key_opens(state: KeyState) -> None:
    ring = KeyRing([Key("old", OLD, state)])
    assert RingCipher(ring).open(*seal_with_old()).typed == ("msgpack", b"value")


@pytest.mark.parametrize("state", [state for state in KeyState if state is not KeyState.ACTIVE])
def test_only_an_active_key_seals(state: KeyState) -> None:
    """A staged key among them: every host has it before one host writes with it."""
    ring = KeyRing([Key("old", b"" if state is KeyState.DESTROYED else OLD, state)])
    with pytest.raises(NoActiveKeyError):
        RingCipher(ring).seal("msgpack", b"value")
    with pytest.raises(NoActiveKeyError):
        RingCipher(ring).seal("msgpack", b"value", row={}, secret=SECRET)
    with pytest.raises(NoActiveKeyError):
        RingCipher(ring).encrypt(b"value")


def test_disabled_key_is_refused() -> None:
    with pytest.raises(KeyDisabledError, match="'old' is disabled"):
        RingCipher(make_ring(KeyState.DISABLED)).open(*seal_with_old())


def test_disabled_key_is_refused_with_row_and_secret() -> None:
    cipher = RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]))
    tag, blob = cipher.seal("msgpack", b"value", row={"a": "b"}, secret=SECRET)
    with pytest.raises(KeyDisabledError):
        RingCipher(make_ring(KeyState.DISABLED)).open(tag, blob, row={"a": "b"}, secret=SECRET)


def test_destroyed_key_is_refused_and_the_error_says_when() -> None:
    gone = Key("old", b"", KeyState.DESTROYED, destroyed=datetime(2026, 5, 1, 9, tzinfo=UTC))
    with pytest.raises(KeyDestroyedError, match=r"'old' was destroyed at 2026-05-01T09:00:00Z"):
        RingCipher(KeyRing([gone])).open(*seal_with_old())


def test_unknown_key_is_refused_and_the_error_names_what_is_held() -> None:
    with pytest.raises(UnknownKeyError, match=r"'old'.*held: new") as caught:
        RingCipher(KeyRing([Key("new", NEW, KeyState.ACTIVE)])).open(*seal_with_old())
    assert (caught.value.key_id, caught.value.held) == ("old", ("new",))


@pytest.mark.parametrize("suite", SUITES)
def test_no_other_key_of_the_ring_is_tried(suite: str) -> None:
    """The material is there under another id; only the named key counts."""
    ring = KeyRing([Key("old", OTHER, KeyState.DECRYPT_ONLY), Key("elsewhere", OLD, KeyState.DECRYPT_ONLY)])
    with pytest.raises(IntegrityError):
        RingCipher(ring).open(*seal_with_old(suite))


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(
    ("part", "other"),
    [("msgpack+", "bytes+"), ("msgpack+", "pickle+"), ("msgpack+", "+"), ("@new", "@old"), ("@new", "@copy")],
)
def test_relabelled_tag_is_refused(suite: str, part: str, other: str) -> None:
    """Even if the other id has the very same material."""
    ring = KeyRing([*make_ring().keys, Key("copy", NEW, KeyState.DECRYPT_ONLY)])
    tag, blob = RingCipher(ring, suite).seal("msgpack", b"value")
    with pytest.raises(IntegrityError):
        RingCipher(ring).open(tag.replace(part, other), blob)


def test_swapped_suite_is_refused() -> None:
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value" * 20)
    with pytest.raises(IntegrityError):
        cipher.open(tag.replace("cobblestone256", "xaes256gcm"), blob)


@pytest.mark.parametrize("blob", [None, 5, "text", bytearray(100), memoryview(bytes(100))])
def test_a_blob_is_bytes(blob: bytes) -> None:
    with pytest.raises(BlobError):
        make_cipher().open("msgpack+cobblestone256@new", blob)


@pytest.mark.parametrize("tag", [None, 5, b"msgpack+cobblestone256@new", "msgpack", "msgpack+"])
def test_a_tag_is_a_tag(tag: str) -> None:
    with pytest.raises(TagError):
        make_cipher().open(tag, bytes(100))


@pytest.mark.parametrize("inner", ["", "a+b", "a b", "ä", "a\n", "i" * 64])
def test_type_that_cannot_stand_in_a_tag_is_not_sealed(inner: str) -> None:
    for row in (None, {"a": "b"}):
        with pytest.raises(TagError):
            make_cipher().seal(inner, b"value", row=row)


def test_refusals_are_not_remembered_as_answers() -> None:
    """A tag that was prepared once still fails and opens by what each call brings."""
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value")
    for _ in range(2):
        with pytest.raises(IntegrityError):
            cipher.open(tag, blob[:-1] + bytes([blob[-1] ^ 1]))
        assert cipher.open(tag, blob).typed == ("msgpack", b"value")
        with pytest.raises(UnknownKeyError):
            cipher.open("msgpack+cobblestone256@none", blob)


@pytest.mark.parametrize("suite", SUITES)
def test_cipher_protocol(suite: str) -> None:
    """The two methods of LangGraph's protocol: the name carries suite and key, as the tag would."""
    cipher = make_cipher(suite)
    name, blob = cipher.encrypt(b"value")
    assert name == f"{suite}@new"
    assert cipher.decrypt(name, blob) == b"value"


def test_protocol_values_are_none_of_any_type() -> None:
    """A value without a bound type cannot be passed off as one that has it."""
    cipher = make_cipher()
    name, blob = cipher.encrypt(b"value")
    with pytest.raises(IntegrityError):
        cipher.open(f"msgpack+{name}", blob)


def test_eight_threads_share_one_cipher() -> None:
    """Each seals and opens values with and without row and secret; all start at once."""
    cipher, gate = RingCipher(make_ring()), Barrier(8)

    def work(number: int) -> int:
        gate.wait()
        for turn in range(50):
            data = f"{number}-{turn}".encode()
            row = {"thread_id": str(number)} if turn % 2 else None
            secret = bytes([number + 1]) * 32 if turn % 3 else None
            tag, blob = cipher.seal(f"type{turn % 5}", data, row=row, secret=secret)
            assert cipher.open(tag, blob, row=row, secret=secret).typed == (f"type{turn % 5}", data)
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, range(8))) == list(range(8))


class Text(str):
    """A text of a class of its own, which could be equal to another than it shows."""

    __slots__ = ()


@pytest.mark.parametrize("act", ["open", "reseal"])
def test_a_tag_is_text_and_nothing_like_it(act: str) -> None:
    """Nor what has no hash, by which tags are remembered; and the blob is bytes."""
    cipher = RingCipher(make_ring())
    tag, blob = cipher.seal("msgpack", b"value")
    wrong: list[Any] = [None, 7, [], {}, [tag], tag.encode(), Text(tag)]
    for other in wrong:
        with pytest.raises(TagError, match="is not a type tag"):
            getattr(cipher, act)(other, blob)
    for other in (None, 7, [], bytearray(blob), memoryview(blob), blob.hex()):
        with pytest.raises(BlobError, match="not bytes"):
            getattr(cipher, act)(tag, other)
