"""Errors and logs carry no decrypted bytes, though constructors put the value into theirs."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from sealpoint.errors import SealpointError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support.values.forge import envelope, extension, record

SECRET = "4242-secret"
HERE = __name__


class Strict(BaseModel):
    number: int


@dataclass
class Loud:
    text: str

    def __post_init__(self) -> None:
        raise ValueError(f"what is {self.text}?")


class Chained:
    def __init__(self, text: str) -> None:
        try:
            int(text)
        except ValueError as error:
            raise RuntimeError(text) from error


ROWS = [
    record(5, HERE, "Strict", {"number": SECRET}),
    record(5, HERE, "Strict", {SECRET: SECRET}),
    record(2, HERE, "Loud", {"text": SECRET}),
    record(2, HERE, "Loud", {SECRET: 1}),
    record(0, HERE, "Chained", SECRET),
    record(1, HERE, "Chained", [SECRET]),
    record(0, "uuid", "UUID", SECRET),
    record(0, "decimal", "Decimal", SECRET),
    record(0, "zoneinfo", "ZoneInfo", SECRET),
    record(0, "ipaddress", "IPv4Address", SECRET),
    record(1, "re", "compile", [f"({SECRET}", 0]),
    record(2, "datetime", "time", {"hour": SECRET}),
    record(3, "datetime", "datetime", SECRET, "fromisoformat"),
    record(5, "langchain_core.messages.human", "HumanMessage", {"content": 1, "id": [SECRET]}),
    record(5, "langchain_core.messages.ai", "AIMessage", {"content": "", "tool_calls": SECRET}),
    extension(6, ["<i8", [SECRET], "C", b""]),
    extension(6, ["<i8", [1], "C", SECRET.encode()]),
    extension(0, [SECRET]),
    ("msgpack", b"\x92\xab" + SECRET.encode() + b"\xc1"),
    ("json", f'{{"a": "{SECRET}'.encode()),
    ("json", f"{SECRET}".encode()),
    ("json", b"\xff" + SECRET.encode()),
    envelope(HERE, "Loud", args=[SECRET]),
    envelope(HERE, "Strict", kwargs={"number": SECRET}),
    envelope("uuid", "UUID", args=[SECRET]),
]


def everything_shown(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    """Return all that a log, a console or an error tracker would show of an error."""
    logging.getLogger("app").error("failed", exc_info=error)
    frames = "".join(traceback.format_exception(error))
    return "".join((str(error), repr(error), repr(error.args), frames, caplog.text))


def row_of_model(row: Any, serde: EncryptedSerializer) -> bool:
    """Whether a sealed row is a record of a model."""
    return serde.open(*row).data[2:3] == b"\x05"


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("sealed", [False, True])
def test_an_error_does_not_quote_the_value(row: Any, sealed: bool, caplog: pytest.LogCaptureFixture) -> None:
    plain = JsonPlusSerializer(allowed_msgpack_modules=True, allowed_json_modules=True)
    serde = EncryptedSerializer.from_key(bytes(32), serde=plain)
    if sealed:
        row = serde.cipher.seal(*row)  # type: ignore[attr-defined]
    reader = serde if sealed else plain
    if sealed and row_of_model(row, serde):
        with caplog.at_level(logging.DEBUG):
            reader.loads_typed(row)  # without validation, whose errors quote it
        assert SECRET not in caplog.text
        return
    with caplog.at_level(logging.DEBUG), pytest.raises(SealpointError) as caught:
        reader.loads_typed(row)
    assert SECRET not in everything_shown(caught.value, caplog)


@pytest.mark.parametrize("row", ROWS[:18])
def test_a_warning_does_not_quote_the_value(row: Any, caplog: pytest.LogCaptureFixture) -> None:
    raw = JsonPlusSerializer(allowed_msgpack_modules=True, on_blocked="raw")
    with caplog.at_level(logging.DEBUG), suppress(SealpointError):
        raw.loads_typed(row)
    assert SECRET not in caplog.text


def test_a_value_that_cannot_be_written_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    class Silent:
        def __repr__(self) -> str:
            return SECRET

        def model_dump(self) -> Any:
            raise ValueError(SECRET)

    for value in (Silent(), {SECRET: object()}, [SECRET, 2**70], {"k": Silent()}):
        with pytest.raises(SealpointError) as caught:
            JsonPlusSerializer().dumps_typed(value)
        assert SECRET not in everything_shown(caught.value, caplog)


def test_a_name_from_the_bytes_is_escaped_and_cut() -> None:
    """It may be a megabyte, or hold control characters for the operator's terminal."""
    for allowed in (None, True):
        serde = JsonPlusSerializer(allowed_msgpack_modules=allowed)
        with pytest.raises(SealpointError) as caught:
            serde.loads_typed(record(0, "m\x1b[31m\n" + "x" * 10_000, "N" * 10_000, 1))
        shown = str(caught.value) + "".join(caught.value.__notes__)
        assert len(shown) < 1000
        assert shown.isprintable()
