"""Secrets of threads leave a cipher when it is asked to forget them, and all that was derived goes too."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.crypto import cipher as prepared_module
from sealpoint.keys.key import mix
from tests.support.keys.rings import NEW, OLD, OTHER, SECRET, SUITES, make_cipher

ROW = {"thread_id": "1"}


def reachable(start: object) -> Iterator[Any]:
    """Yield all objects that a reference leads to, modules and classes left out."""
    seen, waiting = {id(start)}, [start]
    while waiting:
        found = waiting.pop()
        yield found
        for other in gc.get_referents(found):
            is_part = not isinstance(other, type | type(gc)) and type(other).__name__ != "function"
            if is_part and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)


def holds(cipher: RingCipher, secret: bytes) -> set[str]:
    """Return what a cipher keeps of a secret: itself, the mixed keys, the keys of the suites."""
    keys = {"old": OLD, "new": NEW}
    traces = {"secret": secret}
    for name, material in keys.items():
        traces[f"mixed {name}"] = mix(material, secret)
        for suite in SUITES:
            subkey = Key(name, material, KeyState.ACTIVE).subkey(suite, secret)
            traces[f"{name} {suite}"] = subkey
    kept = {found for found in reachable(cipher) if type(found) is bytes}
    return {name for name, trace in traces.items() if trace in kept}


@pytest.mark.parametrize("suite", SUITES)
def test_nothing_of_a_forgotten_secret_is_reachable(suite: str) -> None:
    cipher = make_cipher(suite)
    old = RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]), suite)
    for secret in (SECRET, OTHER):
        for row in (None, ROW):
            cipher.open(*cipher.seal("msgpack", b"value", row=row, secret=secret), row=row, secret=secret)
            cipher.open(*old.seal("msgpack", b"value", row=row, secret=secret), row=row, secret=secret)
    assert {"secret", f"old {suite}", f"new {suite}"} <= holds(cipher, SECRET)
    cipher.forget_secret(SECRET)
    assert holds(cipher, SECRET) == set()
    assert {"secret", f"old {suite}", f"new {suite}"} <= holds(cipher, OTHER)


@pytest.mark.parametrize("suite", SUITES)
def test_ciphers_of_a_forgotten_secret_are_freed(suite: str) -> None:
    cipher = make_cipher(suite)
    cipher.seal("msgpack", b"value", secret=SECRET)
    made = [weakref.ref(found) for found in reachable(cipher) if hasattr(found, "OVERHEAD_BYTES")]
    cipher.forget_secret(SECRET)
    gc.collect()
    alive = [found for ref in made if (found := ref()) is not None]
    assert len(alive) == len(made) - 1  # that of the key without a secret


def test_forgotten_secret_can_be_used_again() -> None:
    cipher = make_cipher()
    sealed = cipher.seal("msgpack", b"value", secret=SECRET)
    cipher.forget_secret(SECRET)
    assert cipher.open(*sealed, secret=SECRET).data == b"value"


def test_secret_that_was_never_used_may_be_forgotten() -> None:
    make_cipher().forget_secret(SECRET)


def test_number_of_secrets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_module, "_CACHED_SECRETS", 4)
    cipher = make_cipher("xaes256gcm")
    secrets = [os.urandom(32) for _ in range(20)]
    for secret in secrets:
        cipher.seal("msgpack", b"value", secret=secret)
        assert sum("secret" in holds(cipher, other) for other in secrets) <= 4
