"""Keys and rings: states and their transitions, what a ring refuses to hold, what is derived from a key."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState
from sealpoint.errors import (
    KeyDestroyedError,
    KeyIdError,
    KeyMaterialError,
    KeyRingError,
    KeyTransitionError,
    NoActiveKeyError,
    RingFileError,
    SealpointError,
    UnknownKeyError,
)
from tests.support.keys.rings import NEW, OLD, OTHER, make_cipher, make_ring

STAGED, ACTIVE, DECRYPT_ONLY, DISABLED, COMPROMISED, DESTROYED = KeyState


def legacy(key_id: str, material: bytes = NEW, state: KeyState = DECRYPT_ONLY) -> Key:
    return Key(key_id, material, state, suite="aes")


def bad(value: object) -> Any:
    """A value of a type that mypy refuses."""
    return value


REFUSED: list[tuple[Callable[[], object], type[SealpointError], str]] = [
    *(
        (partial(Key, "k1", bytes(size), ACTIVE), KeyMaterialError, f"{size} bytes of material instead of 32")
        for size in (0, 16, 31, 33, 64)
    ),
    *((partial(legacy, "k1", bytes(size)), KeyMaterialError, "16 or 24 or 32") for size in (0, 15, 31, 33)),
    *(
        (partial(Key, "k1", bad(material), ACTIVE), KeyMaterialError, "not bytes")
        for material in (None, "a" * 32, bytearray(32), memoryview(bytes(32)), [0] * 32)
    ),
    *(
        (partial(KeyRing, [], index=bad(index)), KeyMaterialError, "index")
        for index in (b"", bytes(31), bytes(33), "a" * 32)
    ),
    (partial(Key, "k1", NEW, DESTROYED), KeyMaterialError, "'k1'"),
    # The word would compare unequal to all states, and open.
    (partial(Key, "k1", NEW, bad("disabled")), KeyRingError, "not KeyState"),
    (partial(Key, "k1", NEW, bad(None)), KeyRingError, "not KeyState"),
    (partial(Key, "K1", NEW, ACTIVE), KeyIdError, "'K1'"),
    (partial(Key, "k1", NEW, ACTIVE, suite="cobblestone256"), RingFileError, "cobblestone256"),
    (partial(legacy, "k1", state=STAGED), KeyTransitionError, "only opens"),
    (partial(legacy, "k1", state=ACTIVE), KeyTransitionError, "only opens"),
    (partial(KeyRing, [Key("k1", NEW, ACTIVE), Key("k2", OLD, ACTIVE)]), RingFileError, "k1, k2"),
    (partial(KeyRing, [Key("k1", b"", DESTROYED), Key("k1", NEW, ACTIVE)]), KeyIdError, "'k1'"),
]


@pytest.mark.parametrize(("make", "error", "problem"), REFUSED)
def test_what_is_refused(make: Callable[[], object], error: type[SealpointError], problem: str) -> None:
    with pytest.raises(error, match=problem) as caught:
        make()
    if problem == "cobblestone256":
        assert "LANGGRAPH_AES_KEY" in str(caught.value.hint)


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
    with pytest.raises(UnknownKeyError, match="index"):
        ring.index_key("thread_id")


def test_legacy_key_is_not_to_be_had_under_its_id() -> None:
    """It opens LangGraph's rows and nothing else: no tag of ours may reach its material."""
    ring = KeyRing([Key("langgraph", NEW, KeyState.DECRYPT_ONLY, suite="aes")])
    assert ring.require_legacy().id == "langgraph"
    with pytest.raises(UnknownKeyError):
        ring.require_key("langgraph")
    with pytest.raises(UnknownKeyError):
        make_ring().require_legacy()


def test_subkeys_all_differ() -> None:
    """Between keys, suites, purposes, and from the key itself."""
    keys = [Key("k", material, KeyState.ACTIVE) for material in (NEW, OLD)]
    derived = {key.subkey(suite) for key in keys for suite in ("cobblestone256", "xaes256gcm", "check")}
    derived |= {KeyRing([], index=NEW).index_key(purpose) for purpose in ("a", "b", "")}
    assert len(derived | {NEW, OLD}) == 2 * 3 + 3 + 2
    assert {len(key) for key in derived} == {32}


@pytest.mark.claim("d3")
def test_index_key_does_not_rotate_with_the_others() -> None:
    before = KeyRing([Key("k1", NEW, KeyState.ACTIVE)], index=OTHER)
    after = KeyRing([Key("k2", OLD, KeyState.ACTIVE)], index=OTHER)
    assert before.index_key("thread_id") == after.index_key("thread_id")


@pytest.mark.claim("e2")
@pytest.mark.parametrize(
    "take",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda x, p=p: pickle.dumps({"inside": [x]}, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
    ],
)
@pytest.mark.parametrize("holder", [make_ring().require_active(), make_ring(), make_cipher()], ids=repr)
def test_nothing_with_material_is_pickled_or_copied(holder: object, take: Callable[[object], object]) -> None:
    with pytest.raises(KeyRingError, match="never pickled"):
        take(holder)


@pytest.mark.parametrize(("ring", "held"), [(KeyRing([]), "none"), (KeyRing([Key("k1", OLD, STAGED)]), "k1")])
def test_an_error_names_the_keys_that_are_held(ring: KeyRing, held: str) -> None:
    with pytest.raises(NoActiveKeyError) as none_active:
        ring.require_active()
    with pytest.raises(UnknownKeyError) as unknown:
        ring.require_key("k2")
    assert str(none_active.value) == f"no key of the ring is active (held: {held})"
    assert str(unknown.value) == f"no key 'k2' in the ring (held: {held})"
