"""Sentinels: sealed once for a thread and namespace, as long as the ring is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing, RingCipher, Tag, cipher
from sealpoint.keys import watch
from sealpoint.keys.watch import LOOK_SECONDS
from sealpoint.langgraph import EncryptedSerializer
from sealpoint.seal import layouts as sentinels
from sealpoint.seal.layouts import Sentinels
from tests.support.keys.rings import replace, states_text, write

VALUES = {"table": "values", "channel": "__sealpoint__", "version": "0"}


def make(path: Path) -> tuple[EncryptedSerializer, Sentinels]:
    serde = EncryptedSerializer(RingCipher(KeyRing.load(path)))
    return serde, Sentinels(serde)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.toml", states_text(k1="active"))


def test_each_thread_and_namespace_has_its_own_and_keeps_it(file: Path) -> None:
    serde, made = make(file)
    places = [("t", ""), ("t", "child"), ("u", "")]
    found = {place: made.sealed(*place) for place in places}
    for (thread_id, ns), (tag, blob) in found.items():
        serde.open(tag, blob, row={**VALUES, "thread_id": thread_id, "checkpoint_ns": ns})
        assert made.sealed(thread_id, ns) == (tag, blob)
    assert len({blob for _, blob in found.values()}) == len(places)


def test_after_a_change_of_the_active_key_they_are_sealed_under_the_new_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    for module in (cipher, watch):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    serde, made = make(file)
    assert Tag.parse(made.sealed("t", "")[0]).key_id == "k1"
    replace(file, states_text(k2="active", k1="decrypt-only"))
    now[0] += LOOK_SECONDS
    serde.seal(None, row={})  # as the header of the same checkpoint is
    assert Tag.parse(made.sealed("t", "")[0]).key_id == "k2"


def test_few_are_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinels, "MAX_SENTINELS", 2)
    _, made = make(file)
    first = made.sealed("t", "")
    for thread_id in "uvw":
        made.sealed(thread_id, "")
    assert made.sealed("t", "") != first
