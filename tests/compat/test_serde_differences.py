"""Every deliberate difference from LangGraph's serializer in what is written or read back, with its reason.

docs/serializer.md tells them to the user.
"""

from __future__ import annotations

import logging
import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
from pydantic import BaseModel

from sealpoint.errors import SerdeError, UnbuildableValueError, UnreadableTypeError, UnsupportedTypeError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support import sample_types as t
from tests.support.values.forge import envelope, extension, record
from tests.support.values.samples import Samples, alike
from tests.support.values.strategies import equal

ours = JsonPlusSerializer()
raw = JsonPlusSerializer(on_blocked="raw")
theirs = Theirs()
sealed = EncryptedSerializer.from_key(bytes(32))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def _changed() -> t.Computed:
    value = t.Computed(2)
    value.double = 99
    return value


REFUSED_AT_WRITING: Samples = {
    "object array: its bytes are addresses": np.array([{"a": 1}], dtype=object),
    "structured array: its field names are lost": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "void array: of no type": np.array([b"ab"], dtype="V2"),
}

REBUILT: Samples = {
    "dataclass with computed fields: LangGraph gives a dict": t.Computed(2),
    "computed field that was changed: LangGraph gives a dict": _changed(),
    "frozen dataclass with computed fields: LangGraph gives a dict": t.FrozenComputed(1),
    "enum with a tuple as value: LangGraph gives a list": t.Pair.P,
    "set of tuples: LangGraph gives a list of lists": {(1, 2)},
    "set of nested tuples: LangGraph gives a list of lists": {(3, (4, 5))},
    "frozenset of tuples: LangGraph gives a list of lists": frozenset({("a", 1)}),
    "subclass of datetime: LangGraph gives text": t.MyDatetime(2020, 1, 1, 2, 3),
    "root model of a list: LangGraph gives the list": t.RootList([1]),
    "alias with a default: LangGraph gives the default": t.AliasedDefault(fooAlias=5),
    "aliases inside: LangGraph gives a dict and a default": t.AliasedInside(
        one=t.Aliased(fooAlias=1), many=[t.AliasedDefault(fooAlias=2)]
    ),
}
if sys.version_info < (3, 14):
    from tests.support.values.sample_types_v1 import AliasedDefault1

    REBUILT["v1 alias with a default: LangGraph gives the default"] = AliasedDefault1(fooAlias=5)

REFUSED_AT_READING: Samples = {
    "enum of lists in tuples: the bytes do not tell them apart": t.MixedPair.P,
    "dataclass that needs what is not stored: LangGraph gives a dict": t.NeedsInitOnly(1, seed=2),
    "nested class: its name is not to be found in the module": t.Outer.Inner(1),
    "strict model: a list is no tuple to it": t.StrictTuple(pair=(1, 2)),
    "model that forbids what it computes: its own dump does not validate": t.ForbidsComputed(a=1),
    "model that dumps a number as text: its own dump does not validate": t.Unfit(a=1),
    "object that dumps and does not take it back": t.Dumps(),
    "object that looks like a Send and is none": t.SendLike(),
}


@pytest.mark.parametrize("reason", REFUSED_AT_WRITING)
def test_langgraph_writes_what_it_cannot_read(reason: str) -> None:
    value = REFUSED_AT_WRITING[reason]
    row = theirs.dumps_typed(value)
    with pytest.raises(UnsupportedTypeError, match="cannot serialize a numpy array of"):
        ours.dumps_typed(value)
    with pytest.raises(UnbuildableValueError):
        ours.loads_typed(row)


@pytest.mark.parametrize("reason", REBUILT)
def test_what_langgraph_gives_back_as_something_else_is_rebuilt(reason: str) -> None:
    value = REBUILT[reason]
    row = ours.dumps_typed(value)
    assert row == theirs.dumps_typed(value)
    assert alike(ours.loads_typed(row), value)
    assert not alike(theirs.loads_typed(row), value)


@pytest.mark.parametrize("reason", REFUSED_AT_READING)
def test_what_langgraph_gives_back_as_something_else_is_refused(reason: str) -> None:
    value = REFUSED_AT_READING[reason]
    row = raw.dumps_typed(value)
    assert row == theirs.dumps_typed(value)
    with pytest.raises(UnbuildableValueError):
        ours.loads_typed(row)
    assert not isinstance(theirs.loads_typed(row), type(value)) or isinstance(value, BaseModel)


@pytest.mark.parametrize("reason", REFUSED_AT_READING)
def test_what_cannot_be_built_is_refused_when_it_is_written(reason: str) -> None:
    """But models: sealed, they come back as LangGraph gives them. A class in another one is warned of."""
    value = REFUSED_AT_READING[reason]
    if isinstance(value, BaseModel):
        got, wanted = (
            sealed.loads_typed(sealed.dumps_typed(value)),
            theirs.loads_typed(theirs.dumps_typed(value)),
        )
        assert equal(got, wanted)
    elif not isinstance(value, t.Outer.Inner):
        for serde in (ours, sealed):
            with pytest.raises(UnreadableTypeError, match=r"does not accept the stored form") as caught:
                serde.dumps_typed({"deep": [value]})
            assert (caught.value.module, caught.value.name) == (t.__name__, type(value).__name__)


@pytest.mark.parametrize("reason", REFUSED_AT_READING)
def test_raw_gives_the_bare_arguments(reason: str) -> None:
    """As LangGraph does, but for models, which it makes without validation."""
    value = REFUSED_AT_READING[reason]
    got, wanted = raw.loads_typed(raw.dumps_typed(value)), theirs.loads_typed(theirs.dumps_typed(value))
    assert alike(got, wanted) or got == vars(wanted) or got == wanted.model_dump()


def test_a_path_names_the_module_that_every_python_has() -> None:
    """On Python 3.13 LangGraph writes ``pathlib._local``, which it reads on no other."""
    path = pathlib.Path("/a/b")
    assert ours.dumps_typed(path) == record(1, "pathlib", type(path).__name__, ["/", "a", "b"])
    assert theirs.loads_typed(ours.dumps_typed(path)) == path
    assert ours.loads_typed(record(1, "pathlib._local", type(path).__name__, ["/", "a", "b"])) == path


class Row(NamedTuple):
    row: tuple[str, bytes]
    theirs: Any


FORGED: dict[str, Row] = {
    "arguments that a type refuses": Row(record(0, "uuid", "UUID", "no"), "no"),
    "a method that is none of ours": Row(record(3, "datetime", "datetime", "x", "strptime"), "x"),
    "an extension that nobody knows": Row(extension(42, [1]), None),
    "an array of objects": Row(extension(6, ["|O", [1], "C", bytes(8)]), None),
    "an array whose bytes do not fill its shape": Row(extension(6, ["<i8", [2], "C", bytes(8)]), None),
    "json: arguments that a type refuses": Row(envelope("uuid", "UUID", args=["no"]), None),
    "json: a secret": Row(envelope("A_NAME", lc=1, kind="secret"), None),
}


@pytest.mark.parametrize("reason", FORGED)
def test_what_langgraph_turns_into_raw_data_or_none_is_refused(reason: str) -> None:
    case = FORGED[reason]
    assert theirs.loads_typed(case.row) == case.theirs
    with pytest.raises(SerdeError):
        ours.loads_typed(case.row)
