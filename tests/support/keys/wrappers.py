"""A kind of wrapper within the process, whose service can be away, refuse, or wait at a gate."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pytest

from sealpoint.errors import KeyUnavailableError, WrappedKeyError
from sealpoint.keys.material import check_value
from sealpoint.keys.sources import require_fields, require_text
from sealpoint.keys.wrap import wrapper as kinds
from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, WrapperState
from tests.support.keys.rings import material_of

KIND = "fake"
NAME = "agents"


@dataclass
class Service:
    """A service as the wrappers of this process see it.

    Attributes:
        away: Keys of the service that do not answer.
        hangs: Keys of the service whose calls wait as long as the test runs.
        answers_at: How many calls fail until the next one is answered.
        gate: Calls wait until it is set.
        released: Set when the test has ended.
        version: Of its keys.
        problem: What it says of its keys.
        wraps: Whether this account may wrap.
        calls: Each call, with the key of the ring that it was for.
        threads: The names of the threads that called.
    """

    away: set[str] = field(default_factory=set)
    hangs: set[str] = field(default_factory=set)
    answers_at: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    version: str | None = None
    problem: str | None = None
    wraps: bool = True
    calls: list[tuple[str, str]] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)

    def count(self, act: str, key_id: str) -> int:
        """How many calls there were."""
        return self.calls.count((act, key_id))

    def called(self, key: str, act: str, key_id: str) -> None:
        """Note a call, and answer it unless the service is away."""
        self.calls.append((act, key_id))
        self.threads.append(threading.current_thread().name)
        if key in self.hangs:
            self.released.wait()
        if not self.gate.wait(60):
            raise KeyUnavailableError("the gate was never opened")
        if key in self.away or self.answers_at > 0:
            self.answers_at -= 1
            raise KeyUnavailableError("connection refused", may_pass=True)


service = Service()


@dataclass(frozen=True)
class Wrapper:
    """Material XOR a hash of the service's key and the context, with a tag; not a cipher."""

    kind: ClassVar = KIND
    key: str

    @classmethod
    def parse(cls, table: Mapping[str, object], where: str, _: Path, /) -> Wrapper:
        require_fields(table, {"key"}, {"key"}, where)
        return cls(require_text(table, "key", where))

    @property
    def location(self) -> str:
        return self.key

    def _mask(self, version: bytes, context: WrapContext) -> bytes:
        return sha256(self.key.encode() + version + context.to_bytes()).digest()

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        service.called(self.key, "wrap", context.key)
        if not service.wraps:
            raise KeyUnavailableError("access denied")
        version = (service.version or "0").encode()
        mask = self._mask(version, context)
        body = bytes(a ^ b for a, b in zip(material, mask, strict=False))
        return WrappedKey(version + b":" + body + sha256(mask + body).digest(), service.version)

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        service.called(self.key, "unwrap", context.key)
        version, _, rest = blob.partition(b":")
        mask, body = self._mask(version, context), rest[:-32]
        if sha256(mask + body).digest() != rest[-32:]:
            raise WrappedKeyError("invalid ciphertext")
        return bytes(a ^ b for a, b in zip(body, mask, strict=False))

    def describe(self) -> WrapperState:
        service.called(self.key, "describe", "")
        return WrapperState(service.version, service.problem)


@contextmanager
def fake_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The kind `fake`, and a service that answers."""
    monkeypatch.setitem(kinds.BUILT_IN, KIND, __name__)
    fresh = Service()
    for name, value in vars(fresh).items():
        setattr(service, name, value)
    service.gate.set()
    yield service
    service.gate.set()
    service.released.set()
    for thread in threading.enumerate():  # which would ask the service of the next test
        if thread.name.startswith("sealpoint-"):
            thread.join(60)


def wrapper_text(wrapper_id: str = "w", key: str = "one") -> str:
    """The table of a wrapper of this kind."""
    return f"[[wrapper]]\nid = '{wrapper_id}'\nkind = '{KIND}'\nkey = '{key}'\n"


def blob_of(key_id: str, *, key: str = "one", name: str = NAME, material: bytes | None = None) -> str:
    """A wrapped key, in base64, of material as by `material_of`."""
    context = WrapContext(name, key_id)
    return b64encode(Wrapper(key).wrap(material or material_of(key_id), context).blob).decode()


def key_text(key_id: str, state: str, by: str = "w", *, blob: str = "", more: str = "") -> str:
    """The entry of a wrapped key."""
    lines = ["[[key]]", f"id = '{key_id}'", f"state = '{state}'", more]
    return "\n".join([*lines, f"source = {{ wrapped = '{blob or blob_of(key_id)}', by = '{by}' }}", ""])


def wrapped_text(*, name: str = NAME, key: str = "one", by: str = "w", **states: str) -> str:
    """A ring file with wrapped keys of these states, in order, and the wrapper ``w``, or another."""
    active = [f"active = '{key_id}'" for key_id, state in states.items() if state == "active"]
    entries = [
        key_text(
            key_id,
            state,
            by,
            blob=blob_of(key_id, key=key, name=name),
            more=f"check = '{check_value(material_of(key_id))}'",
        )
        for key_id, state in states.items()
    ]
    return "\n".join(["version = 1", f"name = '{name}'", *active, wrapper_text(by, key), *entries])
