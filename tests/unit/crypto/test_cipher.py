"""RingCipher: which key seals, which key opens, and that nothing else ever does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, Opened, RingCipher
from sealpoint.errors import (
    IntegrityError,
    KeyDestroyedError,
    KeyDisabledError,
    NoActiveKeyError,
    SealedValueError,
    TagError,
    UnknownKeyError,
)
from sealpoint.serde import EncryptedSerializer
from tests.support.keys.rings import NEW, OLD, OTHER, SUITES, make_cipher, make_ring, seal_with_old


@pytest.mark.parametrize("suite", ["aes", "", "aes128gcm", "cobblestone256.row"])
def test_cannot_seal_in_another_suite(suite: str) -> None:
    with pytest.raises(TagError):
        RingCipher(make_ring(), suite)


@pytest.mark.parametrize("options", [{}, {"suite": "cobblestone256"}, {"suite": "xaes256gcm"}])
def test_the_active_key_seals(options: dict[str, Any]) -> None:
    """In Cobblestone-256 by default; any cipher with this key opens it."""
    tag, blob = RingCipher(make_ring(), **options).seal("msgpack", b"value")
    assert tag == f"msgpack+{options.get('suite', 'cobblestone256')}@new"
    for reader in SUITES:
        alone = RingCipher(KeyRing([Key("new", NEW, KeyState.DECRYPT_ONLY)]), reader)
        assert alone.open(tag, blob).typed == ("msgpack", b"value")


@pytest.mark.parametrize("state", [state for state in KeyState if state is not KeyState.ACTIVE])
def test_only_an_active_key_seals(state: KeyState) -> None:
    """A staged key among them: every host has it before one host writes with it."""
    cipher = RingCipher(KeyRing([Key("old", b"" if state is KeyState.DESTROYED else OLD, state)]))
    with pytest.raises(NoActiveKeyError):
        cipher.encrypt(b"value")
    for row in (None, {"a": "b"}):
        with pytest.raises(NoActiveKeyError):
            cipher.seal("msgpack", b"value", row=row)


def test_disabled_key_is_refused() -> None:
    before, after = make_cipher(), RingCipher(make_ring(KeyState.DISABLED))
    old = RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]))
    for row in (None, {"a": "b"}):
        sealed = old.seal("msgpack", b"value", row=row)
        assert before.open(*sealed, row=row).data == b"value"
        with pytest.raises(KeyDisabledError, match="'old' is disabled"):
            after.open(*sealed, row=row)


@pytest.mark.claim("c1")
def test_destroyed_key_is_refused_and_the_error_says_when() -> None:
    gone = Key("old", b"", KeyState.DESTROYED, destroyed=datetime(2026, 5, 1, 9, tzinfo=UTC))
    with pytest.raises(KeyDestroyedError, match=r"'old' was destroyed at 2026-05-01T09:00:00Z"):
        RingCipher(KeyRing([gone])).open(*seal_with_old())


def test_unknown_key_is_refused_and_the_error_names_what_is_held() -> None:
    with pytest.raises(UnknownKeyError, match=r"'old'.*held: new") as caught:
        RingCipher(KeyRing([Key("new", NEW, KeyState.ACTIVE)])).open(*seal_with_old())
    assert (caught.value.key_id, caught.value.held) == ("old", ("new",))


@pytest.mark.claim("b5")
@pytest.mark.parametrize("suite", SUITES)
def test_no_other_key_of_the_ring_is_tried(suite: str) -> None:
    """The material is there under another id; only the named key counts."""
    ring = KeyRing([Key("old", OTHER, KeyState.DECRYPT_ONLY), Key("elsewhere", OLD, KeyState.DECRYPT_ONLY)])
    with pytest.raises(IntegrityError):
        RingCipher(ring).open(*seal_with_old(suite))


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(
    ("part", "other"),
    [
        *(("msgpack+", inner) for inner in ("bytes+", "pickle+", "+")),
        *(("@new", "@old"), ("@new", "@copy"), ("@new", ".row@new"), (".row", ""), (".zst", "")),
        *((".row@", ".zst.row@"), ("cobblestone256", "xaes256gcm"), ("xaes256gcm", "cobblestone256")),
    ],
)
def test_relabelled_tag_is_refused(suite: str, part: str, other: str) -> None:
    """Even if the other id has the very same material, and the call has the row that the other flags need."""
    ring = KeyRing([*make_ring().keys, Key("copy", NEW, KeyState.DECRYPT_ONLY)])
    cipher = RingCipher(ring, suite)

    def row(tag: str) -> dict[str, str] | None:
        return {} if ".row" in tag else None

    flags = part.rstrip("@") if part.startswith(".") else ""
    tag, blob = cipher.seal("msgpack", b"value" * 200, row=row(flags), compress=flags == ".zst")
    edited = tag.replace(part, other)
    if edited != tag:
        with pytest.raises(IntegrityError):
            cipher.open(edited, blob, row=row(edited))


class Text(str):
    """A text of a class of its own, which could be equal to another than it shows."""

    __slots__ = ()


def test_a_tag_is_text_and_a_blob_is_bytes() -> None:
    """Nor is a tag what has no hash, by which tags are remembered."""
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value")
    wrong: list[Any] = [None, 7, [], {}, [tag], tag.encode(), Text(tag)]
    for other in wrong:
        with pytest.raises(TagError, match="is not a type tag"):
            cipher.open(other, blob)
    wrong = [None, 7, [], bytearray(blob), memoryview(blob), blob.hex()]
    for other in wrong:
        with pytest.raises(SealedValueError, match="not bytes"):
            cipher.open(tag, other)


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
    with pytest.raises(IntegrityError):  # a value without a bound type has none of any type
        cipher.open(f"msgpack+{name}", blob)


def test_plaintext_and_values_of_other_ciphers_are_not_authenticated() -> None:
    class Plain:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "plain", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext

    plain = EncryptedSerializer(make_cipher(), plaintext="allow").open("bytes", b"x")
    assert plain == Opened("bytes", b"x", authenticated=False, key_id=None)
    other = EncryptedSerializer(Plain())
    assert other.open(*other.dumps_typed(b"x")) == plain
