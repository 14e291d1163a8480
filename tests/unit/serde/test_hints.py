"""What an error of a serializer advises is Python that can be pasted, and reads the value then."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint.errors import (
    BlockedTypeError,
    ConfigError,
    LimitError,
    PlaintextError,
    SealpointError,
    UnauthenticatedTypeError,
    UnbuildableValueError,
    UnknownTypeError,
)
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer, classes
from sealpoint.serde.limits import Limits
from tests.support.keys.rings import states_text, write
from tests.support.sample_types import Point

KEY: Final = bytes(32)
STRICT: Final[Any] = {"allowed_msgpack_modules": None}
ARGUMENT: Final = re.compile(r"(serde|allowed_msgpack_modules|plaintext)=((?:\w+\(.*\))|\[.*?\]|\"\w+\")")
POINT: Final = ("tests.support.sample_types", "Point")
OF_JSON: Final = ("json", json.dumps({"lc": 2, "type": "constructor", "id": [*POINT], "args": [1]}).encode())

Make = Callable[..., EncryptedSerializer]


@pytest.fixture(params=["class", "from_key", "from_key_file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Each of the constructors, with the rest of its arguments."""
    if request.param == "from_key":
        return lambda **named: EncryptedSerializer.from_key(KEY, **named)
    if request.param == "from_key_file":
        ring = write(tmp_path / "keys.toml", states_text(k1="active"))
        return lambda **named: EncryptedSerializer.from_key_file(ring, **named)
    return lambda **named: EncryptedSerializer(EncryptedSerializer.from_key(KEY).cipher, **named)


def pasted(hint: str) -> dict[str, Any]:
    """The argument of a constructor in a hint, as Python reads it."""
    found = ARGUMENT.search(hint)
    assert found, hint
    known = {"JsonPlusSerializer": JsonPlusSerializer, "Limits": Limits}
    return {found[1]: eval(found[2], known)}  # noqa: S307 -- what a reader of the hint does


def sealed(serde: EncryptedSerializer, inner: str, data: bytes) -> tuple[str, bytes]:
    """A value of another serializer, sealed."""
    cipher: Any = serde.cipher
    tag, blob = cipher.seal(inner, data)
    return str(tag), bytes(blob)


class Odd:
    """Only pickle can store this."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Odd

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("error", "row", "value"),
    [
        (BlockedTypeError, JsonPlusSerializer().dumps_typed([Point(1)]), [Point(1)]),
        (BlockedTypeError, OF_JSON, Point(1)),
        (UnknownTypeError, JsonPlusSerializer(pickle_fallback=True).dumps_typed(Odd()), Odd()),
    ],
    ids=["a type", "a type of json", "a pickle"],
)
def test_what_the_error_of_a_sealed_value_says_reads_it(
    make: Make, error: type[SealpointError], row: tuple[str, bytes], value: object
) -> None:
    serde = make(**STRICT)
    stored = sealed(serde, *row)
    with pytest.raises(error) as raised:
        serde.loads_typed(stored)
    assert make(**pasted(raised.value.hint)).loads_typed(stored) == value


def test_bare_arguments_are_returned_as_the_error_says(make: Make) -> None:
    kind, data = JsonPlusSerializer().dumps_typed(Point(1))
    stored = sealed(make(), kind, data.replace(b"Point", b"Paint"))
    with pytest.raises(UnbuildableValueError) as raised:
        make().loads_typed(stored)
    assert make(**pasted(raised.value.hint)).loads_typed(stored) == {"x": 1, "label": "p"}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


OVER: dict[str, Callable[[], tuple[str, bytes]]] = {
    "elements": lambda: JsonPlusSerializer().dumps_typed([0] * 2_000_001),
    "depth": lambda: JsonPlusSerializer().dumps_typed(nested(65)),
    "depth of json": lambda: ("json", json.dumps(nested(65)).encode()),
    "records": lambda: JsonPlusSerializer().dumps_typed([{1}] * 100_001),
    "patterns": lambda: JsonPlusSerializer().dumps_typed([re.compile("a")] * 101),
    "size_bytes of json": lambda: ("json", json.dumps("x" * 2**26).encode()),
}


@pytest.mark.parametrize("over", OVER)
def test_a_value_over_a_limit_is_read_as_the_error_says(make: Make, over: str) -> None:
    """The hint names the limit that was met, and no other."""
    row, limit = OVER[over](), over.partition(" ")[0]
    with pytest.raises(LimitError) as raised:
        make(plaintext="allow").loads_typed(row)
    assert raised.value.limit == limit
    assert re.findall(r"(\w+)=\d+", raised.value.hint) == [limit] * (1 if limit == "patterns" else 2)
    reader = make(plaintext="allow", **pasted(raised.value.hint))
    assert reader.loads_typed(row) == JsonPlusSerializer(
        allowed_msgpack_modules=True, limits=Limits(*[2**40] * 6)
    ).loads_typed(row)


def test_a_bound_that_cannot_be_raised_says_so(make: Make) -> None:
    with pytest.raises(LimitError) as raised:
        make(plaintext="allow").loads_typed(("json", b"1" * 4301))
    assert (raised.value.limit, "limit is fixed" in raised.value.hint) == ("", True)


def test_a_value_that_is_not_sealed_is_read_as_the_errors_say(make: Make) -> None:
    """The first says that such values are read, the second which types they may name."""
    row = JsonPlusSerializer().dumps_typed(Point(1))
    with pytest.raises(PlaintextError) as raised:
        make().loads_typed(row)
    serde = make(**pasted(raised.value.hint))
    with pytest.raises(UnauthenticatedTypeError) as blocked:
        serde.loads_typed(row)
    line = blocked.value.hint.partition("allow it: ")[2].partition(";")[0]
    names = {"serde": serde}
    exec(line, names)  # noqa: S102 -- what a reader of the hint does
    assert names["serde"].loads_typed(row) == Point(1)


def test_the_warning_of_a_type_names_the_argument(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = sealed(make(), *JsonPlusSerializer().dumps_typed(Point(1)))
    monkeypatch.setattr(classes, "_warned", set())  # another test may have warned of it
    with caplog.at_level(logging.WARNING, "sealpoint.serde"):
        make(allowed_msgpack_modules=True).loads_typed(row)
    (line,) = [line for line in caplog.messages if "allow it" in line]
    assert make(**pasted(line)).loads_typed(row) == Point(1)


@pytest.mark.parametrize("allowed", [None, True, [Point], [POINT]])
def test_the_list_means_what_it_means_to_the_serializer(make: Make, allowed: Any) -> None:
    made: Any = make(allowed_msgpack_modules=allowed).serde
    assert made.allowlist == JsonPlusSerializer(allowed_msgpack_modules=allowed).allowlist


@pytest.mark.parametrize("strict", ["true", "false"])
def test_without_a_list_the_environment_decides(make: Make, strict: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANGGRAPH_STRICT_MSGPACK", strict)
        made: Any = make().serde
    assert made.allowlist.permissive is (strict == "false")


def test_a_list_and_a_serializer_are_two_ways(make: Make) -> None:
    with pytest.raises(ConfigError, match="both given") as raised:
        make(serde=JsonPlusSerializer(), allowed_msgpack_modules=[Point])
    assert "serde=JsonPlusSerializer(allowed_msgpack_modules=...)" in raised.value.hint
