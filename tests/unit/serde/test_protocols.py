"""The protocols: who satisfies them, and what is wrapped."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

from sealpoint.serde import (
    EncryptedSerializer,
    JsonPlusSerializer,
    SerializerCompat,
    SerializerProtocol,
    maybe_add_typed_methods,
)
from sealpoint.serde.types import SendProtocol, _DeltaSnapshot


class Untyped:
    def dumps(self, obj: Any) -> bytes:
        return json.dumps(obj).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


def test_a_typed_serializer_is_left_as_it_is() -> None:
    for serde in (JsonPlusSerializer(), EncryptedSerializer.from_key(bytes(32))):
        assert isinstance(serde, SerializerProtocol)
        assert maybe_add_typed_methods(serde) is serde


def test_an_untyped_one_is_wrapped() -> None:
    """Also a whole module, such as pickle."""
    wrapped = maybe_add_typed_methods(Untyped())
    assert isinstance(wrapped, SerializerCompat)
    assert wrapped.dumps_typed([1]) == ("list", b"[1]")
    assert wrapped.loads_typed(("whatever", b"[1]")) == [1]
    assert maybe_add_typed_methods(pickle).dumps_typed(1) == ("int", pickle.dumps(1))


def test_what_looks_like_a_send_is_one() -> None:
    class Looks:
        node = "n"
        arg = 1

    assert isinstance(Looks(), SendProtocol)
    assert not isinstance(object(), SendProtocol)


def test_a_delta_snapshot_is_our_own_where_langgraph_is_not_loaded() -> None:
    """And the whole serializer works there, without anything but its two packages."""
    script = """
import sys
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.types import _DeltaSnapshot
serde = JsonPlusSerializer(allowed_msgpack_modules=None)
made = serde.loads_typed(serde.dumps_typed(_DeltaSnapshot([1, {2}])))
assert type(made) is _DeltaSnapshot and made.value == [1, {2}]
heavy = {"langgraph", "langchain_core", "pydantic", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert _DeltaSnapshot(1).value == 1
