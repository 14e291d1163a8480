"""What `open` says of a value beside its bytes: whether a key authenticated them, and which."""

from __future__ import annotations

import pytest

from sealpoint.crypto import Opened, Row
from sealpoint.serde import EncryptedSerializer
from tests.support.rings import NEW, SECRET, SUITES, make_cipher, seal_with_old
from tests.unit.crypto.test_langgraph import legacy_cipher
from tests.unit.serde.test_ciphers import Flip


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("row", [None, {}, {"thread_id": "1"}])
@pytest.mark.parametrize("secret", [None, SECRET])
def test_sealed_value_is_authenticated_by_its_key(suite: str, row: Row | None, secret: bytes | None) -> None:
    cipher = make_cipher(suite)
    opened = cipher.open(*cipher.seal("msgpack", b"value", row=row, secret=secret), row=row, secret=secret)
    assert opened == Opened("msgpack", b"value", authenticated=True, key_id="new")
    assert type(opened) is Opened
    assert opened.typed == ("msgpack", b"value")
    assert cipher.open(*seal_with_old(suite)).key_id == "old"


def test_type_of_a_row_of_langgraph_is_not_authenticated() -> None:
    eax = pytest.importorskip("langgraph.checkpoint.serde.encrypted").EncryptedSerializer
    tag, blob = eax.from_pycryptodome_aes(key=NEW).dumps_typed(b"data")
    assert legacy_cipher(NEW).open(tag, blob) == Opened("bytes", b"data", authenticated=False, key_id=None)


def test_serializer_says_it_of_plaintext_and_of_other_ciphers_too() -> None:
    plain = EncryptedSerializer(make_cipher(), plaintext="allow").open("bytes", b"x")
    assert plain == Opened("bytes", b"x", authenticated=False, key_id=None)
    flipped = EncryptedSerializer(Flip())
    assert flipped.open(*flipped.dumps_typed(b"x")) == plain
