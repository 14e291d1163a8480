"""Keys and rings: states and their transitions, what a ring refuses to hold, what is derived from a key."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    ActiveKeyError,
    DuplicateKeyError,
    KeyDestroyedError,
    KeyIdError,
    KeyMaterialError,
    KeyPickleError,
    KeyRingError,
    KeyTransitionError,
    UnknownKeyError,
    UnknownSuiteError,
)
from tests.support.rings import NEW, OLD, OTHER, SECRET, make_cipher, make_ring

STAGED, ACTIVE, DECRYPT_ONLY, DISABLED, COMPROMISED, DESTROYED = KeyState
TRANSITIONS = {
    (STAGED, ACTIVE),
    (STAGED, COMPROMISED),
    (STAGED, DESTROYED),
    (ACTIVE, DECRYPT_ONLY),
    (DECRYPT_ONLY, ACTIVE),
    (DECRYPT_ONLY, DISABLED),
    (DECRYPT_ONLY, COMPROMISED),
    (DISABLED, DECRYPT_ONLY),
    (DISABLED, COMPROMISED),
    (DISABLED, DESTROYED),
    (COMPROMISED, DISABLED),
    (COMPROMISED, DESTROYED),
}


def test_states_are_those_of_the_ring_file() -> None:
    assert [state.value for state in KeyState] == [
        "staged",
        "active",
        "decrypt-only",
        "disabled",
        "compromised",
        "destroyed",
    ]


@pytest.mark.parametrize("state", KeyState)
def test_which_states_open(state: KeyState) -> None:
    assert state.opens == (state in {STAGED, ACTIVE, DECRYPT_ONLY, COMPROMISED})


def test_transitions_are_these_and_no_others() -> None:
    assert {(state, to) for state in KeyState for to in state.transitions} == TRANSITIONS


def test_key_knows_its_defaults() -> None:
    key = Key(id="k1", material=NEW, state=KeyState.ACTIVE)
    assert (key.created, key.destroyed, key.suite) == (None, None, None)


@pytest.mark.parametrize("size", [0, 16, 31, 33, 64])
def test_material_has_32_bytes(size: int) -> None:
    with pytest.raises(KeyMaterialError, match=f"{size} bytes of material instead of 32"):
        Key("k1", bytes(size), KeyState.ACTIVE)


@pytest.mark.parametrize("size", [16, 24, 32])
def test_legacy_material_has_the_sizes_of_aes(size: int) -> None:
    assert Key("k1", bytes(size), KeyState.DECRYPT_ONLY, suite="aes").subkey("aes") == bytes(size)


@pytest.mark.parametrize("size", [0, 15, 31, 33])
def test_legacy_material_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(KeyMaterialError, match="16 or 24 or 32"):
        Key("k1", bytes(size), KeyState.DECRYPT_ONLY, suite="aes")


@pytest.mark.parametrize("material", [None, "a" * 32, bytearray(32), memoryview(bytes(32)), [0] * 32])
def test_material_is_bytes(material: bytes) -> None:
    with pytest.raises(KeyMaterialError, match="not bytes"):
        Key("k1", material, KeyState.ACTIVE)


def test_destroyed_key_has_no_material() -> None:
    with pytest.raises(KeyMaterialError):
        Key("k1", NEW, KeyState.DESTROYED)


@pytest.mark.parametrize("state", ["active", "disabled", None, 5])
def test_state_is_a_state(state: KeyState) -> None:
    """The word ``"disabled"`` is no state: it would compare unequal to all of them, and open."""
    with pytest.raises(KeyRingError, match="not KeyState"):
        Key("k1", NEW, state)


def test_key_id_is_checked() -> None:
    with pytest.raises(KeyIdError):
        Key("K1", NEW, KeyState.ACTIVE)


def test_key_names_no_suite_but_the_legacy_one() -> None:
    with pytest.raises(UnknownSuiteError) as caught:
        Key("k1", NEW, KeyState.ACTIVE, suite="cobblestone256")
    assert "LANGGRAPH_AES_KEY" in caught.value.hint


@pytest.mark.parametrize("state", [STAGED, ACTIVE])
def test_legacy_key_only_opens(state: KeyState) -> None:
    with pytest.raises(KeyTransitionError, match="only opens"):
        Key("k1", NEW, state, suite="aes")


def test_two_keys_of_one_id_are_refused() -> None:
    with pytest.raises(DuplicateKeyError, match="'k1'"):
        KeyRing([Key("k1", NEW, KeyState.ACTIVE), Key("k1", OLD, KeyState.DECRYPT_ONLY)])


def test_a_destroyed_key_keeps_its_id_taken() -> None:
    with pytest.raises(DuplicateKeyError):
        KeyRing([Key("k1", b"", KeyState.DESTROYED), Key("k1", NEW, KeyState.ACTIVE)])


def test_two_active_keys_are_refused() -> None:
    with pytest.raises(ActiveKeyError, match="k1, k2"):
        KeyRing([Key("k1", NEW, KeyState.ACTIVE), Key("k2", OLD, KeyState.ACTIVE)])


def test_two_legacy_keys_are_refused() -> None:
    with pytest.raises(KeyRingError, match="which of them") as caught:
        KeyRing([Key(name, NEW, KeyState.DECRYPT_ONLY, suite="aes") for name in ("a", "b")])
    assert caught.value.hint


@pytest.mark.parametrize("index", [b"", bytes(31), bytes(33), "a" * 32])
def test_index_key_is_32_bytes(index: bytes) -> None:
    with pytest.raises(KeyMaterialError, match="index"):
        KeyRing([], index=index)


def test_get_and_require() -> None:
    ring = make_ring(KeyState.DESTROYED)
    old = ring.get_key("old")
    assert old is not None
    assert old.state is KeyState.DESTROYED
    assert ring.get_key("none") is None
    assert ring.ids == ("new", "old")
    assert ring.require_active().id == "new"
    with pytest.raises(KeyDestroyedError, match=r"'old' was destroyed\n"):
        ring.require_key("old")


def test_legacy_key_is_not_to_be_had_under_its_id() -> None:
    """It opens LangGraph's rows and nothing else: no tag of ours may reach its material."""
    ring = KeyRing([Key("langgraph", NEW, KeyState.DECRYPT_ONLY, suite="aes")])
    assert ring.require_legacy().id == "langgraph"
    with pytest.raises(UnknownKeyError):
        ring.require_key("langgraph")
    with pytest.raises(UnknownKeyError):
        make_ring().require_legacy()


def test_subkeys_all_differ() -> None:
    """Between keys, suites, secrets, purposes, and from the key itself."""
    keys = [Key("k", material, KeyState.ACTIVE) for material in (NEW, OLD)]
    derived = {
        key.subkey(suite, secret)
        for key in keys
        for suite in ("cobblestone256", "xaes256gcm", "check")
        for secret in (None, SECRET, OTHER)
    }
    derived |= {KeyRing([], index=NEW).index_key(purpose) for purpose in ("a", "b", "")}
    assert len(derived | {NEW, OLD}) == 2 * 3 * 3 + 3 + 2
    assert {len(key) for key in derived} == {32}


def test_index_key_needs_an_entry_of_its_own() -> None:
    with pytest.raises(UnknownKeyError, match="index"):
        make_ring().index_key("thread_id")


def test_index_key_does_not_rotate_with_the_others() -> None:
    before = KeyRing([Key("k1", NEW, KeyState.ACTIVE)], index=OTHER)
    after = KeyRing([Key("k2", OLD, KeyState.ACTIVE)], index=OTHER)
    assert before.index_key("thread_id") == after.index_key("thread_id")


@pytest.mark.parametrize(
    "take",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda x, p=p: pickle.dumps(x, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
    ],
)
@pytest.mark.parametrize("holder", [make_ring().require_active(), make_ring(), make_cipher()], ids=repr)
def test_nothing_with_material_is_pickled_or_copied(holder: object, take: Callable[[object], object]) -> None:
    with pytest.raises(KeyPickleError, match="never pickled"):
        take(holder)


def test_nothing_with_material_is_pickled_inside_something_else() -> None:
    with pytest.raises(KeyPickleError):
        pickle.dumps({"cipher": [RingCipher(make_ring())]})
