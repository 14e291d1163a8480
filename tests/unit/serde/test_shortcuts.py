"""The shortcuts of encoder and decoder give what the general path gives."""

from __future__ import annotations

import dataclasses
import datetime
from enum import Enum, IntFlag
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.codes import SINGLE_ARGUMENT
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.rebuild import make_builder
from tests.support.values.strategies import zones


def written(value: Any) -> Inert:
    made: Inert = decode_inert(
        *JsonPlusSerializer(allowed_msgpack_modules=True, on_blocked="raw").dumps_typed(value)
    )
    return made


class ByInstance:
    """Has a method ``dict`` only if it was given an answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        if name == "dict" and self.__dict__.get("answer") is not None:
            return lambda: {"answer": self.answer}
        raise AttributeError(name)


@dataclasses.dataclass
class FieldCalledDict:
    dict: Any = None


def test_an_object_is_asked_where_its_class_cannot_tell() -> None:
    """Two objects of one class may have different forms."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")
    assert serde.loads_typed(serde.dumps_typed(ByInstance(1))) == {"answer": 1}
    with pytest.raises(TypeError, match="ByInstance"):
        serde.dumps_typed(ByInstance(None))
    assert serde.loads_typed(serde.dumps_typed(FieldCalledDict(5))) == {"dict": 5}
    assert serde.loads_typed(serde.dumps_typed(FieldCalledDict(lambda: {"called": 1}))) == {"called": 1}


# --- dates and times -----------------------------------------------------------------------------


class Moment(datetime.datetime):
    def isoformat(self, *_: Any, **__: Any) -> str:
        return "of its own"


@given(st.datetimes(timezones=zones | st.just(ZoneInfo("Europe/Berlin"))))
@example(datetime.datetime(1, 1, 1, tzinfo=datetime.UTC))
@example(datetime.datetime(999, 12, 31, 23, 59, 59, 10, tzinfo=datetime.UTC))
@example(Moment.min)
@example(Moment(2026, 1, 1, tzinfo=datetime.UTC))
def test_a_moment_is_written_as_its_isoformat(moment: datetime.datetime) -> None:
    """Some of them msgpack writes itself; others it would write in another way, or not at all."""
    assert written(moment).payload == moment.isoformat()


# --- addresses -----------------------------------------------------------------------------------


TEXTS = [
    *("1.2.3.4", "255.255.255.255", "01.2.3.4", "1.2.3", "256.1.1.1", " 1.2.3.4", "0x1.2.3.4", "1.2.3.4\0"),
    *("\u0661.2.3.4", "::", "::1", "2001:db8::1", "2001:DB8::1", "::ffff:1.2.3.4", "fe80::1%eth0"),
    *("0:0:0:0:0:0:0:1", ":::", "1::2::3", "", 5, -1, b"\1\2\3\4", ["1.2.3.4"]),
    *("1.2.3.4/24", "1.2.3.0/24", "1.2.3.4/32", "0.0.0.0/0", "1.2.3.4/33", "1.2.3.4/-1", "1.2.3.4/+24"),
    *("1.2.3.4/024", "1.2.3.4/ 24", "1.2.3.4/2_4", "1.2.3.4/\u0662", "1.2.3.0/255.255.255.0"),
    *("1.2.3.4/", "1.2.3.4/24/24", "/", "/24", "2001:db8::1/64", "2001:db8::/64", "::/0"),
    *("2001:DB8::/64", "::1/129", "fe80::1%eth0/64", "::ffff:1.2.3.4/128"),
]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize(
    "cls", [IPv4Address, IPv6Address, IPv4Interface, IPv6Interface, IPv4Network, IPv6Network]
)
def test_an_address_is_what_its_class_makes_of_it(cls: Any, text: Any) -> None:
    try:
        expected: Any = cls(text)
    except ValueError:
        expected = "refused"
    try:
        made = make_builder(SINGLE_ARGUMENT, "ipaddress", cls.__name__)(text)
    except UnbuildableValueError:
        made = "refused"
    assert (type(made), repr(made)) == (type(expected), repr(expected))


@given(
    bits=st.integers(0, 128).flatmap(lambda width: st.integers(0, 2**width - 1)),
    shift=st.integers(0, 128),
    prefix=st.integers(0, 128),
)
@example(bits=0xFFFF_0102_0304, shift=0, prefix=128)
@example(bits=0x0102_0304, shift=0, prefix=128)
def test_an_address_is_written_as_its_class_writes_it(bits: int, shift: int, prefix: int) -> None:
    """Runs of zeros at either end, and the forms that hold an IPv4 address."""
    six, four = (bits << shift) % 2**128, (bits << shift) % 2**32
    four_bits = prefix % 33
    for value in (
        IPv6Address(six),
        IPv6Interface((six, prefix)),
        IPv6Network((six >> (128 - prefix) << (128 - prefix), prefix)),
        IPv4Address(four),
        IPv4Interface((four, four_bits)),
        IPv4Network((four >> (32 - four_bits) << (32 - four_bits), four_bits)),
    ):
        assert written(value)[1:] == ("ipaddress", type(value).__name__, str(value))


@pytest.mark.parametrize("value", [IPv6Address("fe80::1%eth0"), IPv6Interface("fe80::1%eth0/64")])
def test_an_ipv6_scope_is_written(value: Any) -> None:
    assert written(value).payload == str(value)


@pytest.mark.parametrize("module", ["elsewhere", "ipaddress"])
def test_a_class_made_from_an_address_writes_itself(module: str) -> None:
    class Shouted(IPv6Address):
        def __str__(self) -> str:
            return "2001:DB8::1"

    Shouted.__module__ = module
    assert written(Shouted(1)).payload == "2001:DB8::1"


# --- enums ---------------------------------------------------------------------------------------


class Level(IntFlag):
    LOW = 1
    HIGH = 2


class Loud(Enum):
    """An enum that tells another value than the one it was made from."""

    A = "a"

    @property
    def value(self) -> str:
        return "loud"


class Odd(Enum):
    """An enum that answers for every attribute itself."""

    A = 1

    def __getattribute__(self, name: str) -> Any:
        return "odd" if name == "value" else super().__getattribute__(name)


Named = Enum("Named", {"value": 7, "other": 8})


@pytest.mark.parametrize(
    "member", [Level.LOW, Level.LOW | Level.HIGH, Loud.A, Odd.A, Named["value"], Named["other"]], ids=repr
)
def test_an_enum_is_written_as_the_value_that_it_tells(member: Enum) -> None:
    assert written(member).payload == member.value
