"""A model that refuses its own dump is made without validation from authenticated bytes, and no others."""

from __future__ import annotations

import datetime
import enum
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import BaseModel, Field

from sealpoint.admin.maintenance.verify import trial
from sealpoint.admin.results.events import Failure
from sealpoint.errors import BlockedTypeError, SerdeError, UnbuildableValueError, UnreadableTypeError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support.databases import foreign
from tests.support.values.changing import Aliased, Holder, Ticket, Webhook
from tests.support.values.forge import envelope, record
from tests.unit.serde.test_unauthenticated import WAYS, reader

KEY = bytes(32)


class Attempts(BaseModel):
    left: int = Field(ge=0)
    tags: list[Any] = []


class Colour(enum.Enum):
    RED = "red"


class Painted(BaseModel):
    colour: Colour = Colour.RED
    other: Any = None


LISTED: Any = [Attempts, Painted, Ticket, Webhook, Aliased]
FORGED = record(5, __name__, "Attempts", {"left": -1})


def unsealed(allowed: Any) -> dict[str, Callable[[], Any]]:
    """Every way to read bytes that no key has authenticated."""
    inner = JsonPlusSerializer(allowed_msgpack_modules=allowed, allowed_json_modules=True)
    allows = EncryptedSerializer.from_key(
        KEY, serde=inner, plaintext="allow", allow_unauthenticated_types=True
    )
    listed = EncryptedSerializer.from_key(KEY, serde=inner, plaintext="allow").with_msgpack_allowlist(LISTED)

    class Foreign:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "foreign", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext

    foreign = EncryptedSerializer(Foreign(), inner)
    raw_json = envelope(__name__, "Attempts", kwargs={"left": -1})
    sealed_json = allows.cipher.seal(*raw_json)  # type: ignore[attr-defined]
    return {
        "the serializer alone": lambda: inner.loads_typed(FORGED),
        "unsealed": lambda: inner.loads_unsealed(*FORGED),
        "unsealed, any type": lambda: inner.loads_unsealed(*FORGED, allow_any_type=True),
        "plaintext, any type": lambda: allows.loads_typed(FORGED),
        "plaintext, listed": lambda: listed.loads_typed(FORGED),
        "a foreign cipher": lambda: foreign.loads_typed((FORGED[0] + "+foreign", FORGED[1])),
        "LANGGRAPH_AES_KEY, listed": lambda: (
            reader().with_msgpack_allowlist(LISTED).loads_typed(WAYS["LANGGRAPH_AES_KEY"](FORGED))
        ),
        "json": lambda: allows.loads_typed(raw_json),
        "json, sealed": lambda: allows.loads_typed(sealed_json),
    }


@pytest.mark.parametrize("allowed", [True, LISTED], ids=["permissive", "strict"])
@pytest.mark.parametrize("way", unsealed(True))
def test_bytes_without_a_key_are_validated(way: str, allowed: Any) -> None:
    """Also after a sealed value has shown the same serializer how such a model is made."""
    sealing = EncryptedSerializer.from_key(KEY, serde=JsonPlusSerializer(allowed_msgpack_modules=allowed))
    for _ in range(3):
        assert sealing.loads_typed(sealing.cipher.seal(*FORGED)).left == -1  # type: ignore[attr-defined]
        with pytest.raises(UnbuildableValueError):
            sealing.serde.loads_typed(FORGED)
        with pytest.raises(SerdeError):
            unsealed(allowed)[way]()


@pytest.mark.parametrize("way", WAYS)
def test_a_trial_validates_what_no_key_authenticated(way: str, tmp_path: Path) -> None:
    """As the agents do: it names rows that would be read without validation, were they sealed first."""
    path = foreign.write(tmp_path / "x.db", {})
    foreign.insert(path, [WAYS[way](FORGED)])
    serde = reader().with_msgpack_allowlist(LISTED)
    with foreign.rows_of(path) as store:
        failures = [event for event in trial(store, serde) if isinstance(event, Failure)]
    assert {type(failure.error) for failure in failures} == {UnbuildableValueError}


def test_a_type_that_is_not_allowed_is_not_made() -> None:
    strict = EncryptedSerializer.from_key(KEY, allowed_msgpack_modules=[Painted])
    with pytest.raises(BlockedTypeError):
        strict.loads_typed(strict.cipher.seal(*FORGED))  # type: ignore[attr-defined]


def test_a_blocked_type_in_a_model_is_read_by_it_and_not_imported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LangGraph does: only of sealed values, and a warning names it."""
    strict = EncryptedSerializer.from_key(KEY, allowed_msgpack_modules=[Painted], plaintext="allow")
    stored = strict.dumps_typed(Painted())
    with caplog.at_level(logging.WARNING, "sealpoint.serde"):
        assert strict.loads_typed(stored) == Painted()
    assert any("Colour" in line for line in caplog.messages)
    with pytest.raises(BlockedTypeError):
        strict.loads_typed(JsonPlusSerializer().dumps_typed(Painted()))
    inner = (
        JsonPlusSerializer()
        .dumps_typed(Painted())[1]
        .replace(b"test_unvalidated\xa6Colour", b"test_unvalidateX\xa6Colour")
    )
    strict.loads_typed(strict.cipher.seal("msgpack", inner))  # type: ignore[attr-defined]
    assert "tests.unit.serde.test_unvalidateX" not in sys.modules


@pytest.mark.parametrize("allowed", [True, [*LISTED, Holder]], ids=["permissive", "strict"])
def test_no_warning_tells_of_what_a_model_reads(allowed: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A class inside another, in a field of it; in a field of any type it would be its bare value."""
    serde = EncryptedSerializer.from_key(KEY, allowed_msgpack_modules=allowed)
    value = Ticket(stages=[Ticket.Stage.DONE] * 2, kinds={*Ticket.Stage})
    stored = serde.dumps_typed([value, {"deep": value}])
    assert not caplog.records
    assert serde.loads_typed(stored) == [value, {"deep": value}]
    if allowed is True:
        serde.dumps_typed(Ticket(other=Ticket.Stage.DONE))
        assert any("cannot be read back" in line for line in caplog.messages)
    else:
        with pytest.raises(UnreadableTypeError):
            serde.dumps_typed(Ticket(other=Ticket.Stage.DONE))


class Lapse(datetime.timedelta):
    """As pandas makes its own: the arguments of the base class are not those of this one."""

    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, seconds=int(text))


class Nothing(datetime.datetime):
    def isoformat(self, *_: Any, **__: Any) -> str:
        return "NaT"


@pytest.mark.parametrize("allowed", [True, None], ids=["permissive", "strict"])
@pytest.mark.parametrize("value", [Lapse("5"), Nothing(2026, 1, 1)], ids=["timedelta", "datetime"])
def test_a_class_that_refuses_what_is_stored_is_named_when_it_is_written(value: Any, allowed: Any) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=allowed)
    with pytest.raises(UnreadableTypeError, match=type(value).__name__) as caught:
        serde.dumps_typed({"a": [value]})
    assert "dict" in caught.value.hint
    assert serde.dumps_typed(datetime.timedelta(1))[0] == "msgpack"
