"""Messages built without their constructors, or without validation, are the same messages."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from langchain_core import messages as lc
from langchain_core.messages import BaseMessage
from langchain_core.messages.tool import ToolOutputMixin
from pydantic import BaseModel, model_validator

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde import rebuild as adoption
from sealpoint.serde.codes import PYDANTIC_V2
from sealpoint.serde.rebuild import make_builder
from tests.support.values.forge import named, pack
from tests.support.values.samples import SAMPLES

MESSAGES = [value for value in SAMPLES.values() if isinstance(value, BaseMessage)]
SIGHTS = 5  # one teaches the class, one is noted, one compared, and from then on a message may be adopted


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes that were looked up to adopt, from the second sight on."""
    looked_up: list[str] = []
    real = adoption.adopter

    def counting(cls: Any) -> Any:
        adopt = real(cls)

        def counted(fields: Any) -> Any:
            looked_up.append(cls.__name__)
            return adopt(fields)

        return counted

    monkeypatch.setattr(adoption, "adopter", counting)
    return looked_up


def state(message: BaseMessage) -> tuple[Any, ...]:
    """Return everything about a message; ``repr`` tells 1, 1.0 and True, and a tuple from a list."""
    return (
        type(message),
        repr(vars(message)),
        [*vars(message)],
        message.model_fields_set,
        message.__pydantic_extra__,
        message.__pydantic_private__,
    )


def record(cls: type, fields: Any) -> bytes:
    """Return msgpack of one message as it would stand in a value."""
    return pack(named(PYDANTIC_V2, cls.__module__, cls.__name__, fields, "model_validate_json"))


def warm() -> JsonPlusSerializer:
    """Return a serializer that has met the classes, so that the next sight of a record is its first."""
    serde = JsonPlusSerializer()
    serde.loads_typed(serde.dumps_typed(MESSAGES))
    return serde


def loads(serde: JsonPlusSerializer, data: bytes) -> Any:
    return serde.loads_typed(("msgpack", data))


def test_a_message_is_adopted_from_the_third_sight_on(adopted: list[str]) -> None:
    """Otherwise the tests above would compare validation with itself."""
    serde = warm()
    data = serde.dumps_typed(lc.HumanMessage("x", id="1"))
    sights = []
    for _ in range(SIGHTS):
        serde.loads_typed(data)
        sights.append(len(adopted))
    assert sights == [0, 1, 2, 3, 4]  # the second adopts one to compare it


def test_adopted_messages_share_nothing() -> None:
    serde = JsonPlusSerializer()
    data = serde.dumps_typed(
        lc.AIMessage(["a", {"type": "text"}], additional_kwargs={"k": []}, response_metadata={"m": 1}, id="1")
    )
    general = state(serde.loads_typed(data))
    for _ in range(SIGHTS):
        message = serde.loads_typed(data)
        assert state(message) == general
        message.content.append("changed")
        message.content[1]["changed"] = True
        message.additional_kwargs["k"].append("changed")
        message.response_metadata["changed"] = message.name = "changed"
        message.extra_field = "changed"


def usage(**more: Any) -> dict[str, Any]:
    return {"usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3} | more}


HUMAN, AI = lc.HumanMessage("x").model_dump(), lc.AIMessage("x").model_dump()
RAW_CALL = {"id": "1", "function": {"name": "f", "arguments": "{}"}, "type": "function"}
CHANGED: dict[str, tuple[type, dict[str, Any]]] = {
    "a default is filled in": (lc.HumanMessage, {"content": "x"}),
    "a number becomes text": (lc.HumanMessage, HUMAN | {"id": 5}),
    "a float becomes an integer": (lc.AIMessage, AI | usage(input_tokens=1.0)),
    "true becomes an integer": (lc.AIMessage, AI | usage(input_tokens=True)),
    "fields in another order": (lc.HumanMessage, dict(reversed(HUMAN.items()))),
    "a field of its own": (lc.HumanMessage, HUMAN | {"more": 1}),
    "tool calls are derived": (lc.AIMessage, AI | {"additional_kwargs": {"tool_calls": [RAW_CALL]}}),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_validation_changes_is_validated_each_time(name: str, adopted: list[str]) -> None:
    cls, fields = CHANGED[name]
    serde, data = JsonPlusSerializer(), record(cls, fields)
    general = state(cls(**fields))
    for _ in range(SIGHTS):
        assert state(loads(serde, data)) == general
    assert adopted == []


@pytest.mark.parametrize("part", ["__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"])
def test_nothing_is_adopted_where_that_makes_another_message(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would with a release of pydantic or LangChain whose validation leaves more behind."""

    def other(cls: Any) -> Any:
        def adopt(fields: Any) -> Any:
            made = cls.model_construct(**fields)
            object.__setattr__(made, part, {"other": 1})
            return made

        return adopt

    monkeypatch.setattr(adoption, "adopter", other)
    serde = JsonPlusSerializer()
    data = serde.dumps_typed(lc.HumanMessage("x", id="1"))
    assert len({repr(state(serde.loads_typed(data))) for _ in range(SIGHTS)}) == 1


def test_a_tuple_is_not_taken_for_the_list_of_a_record() -> None:
    """No message of today has one after validation; one of tomorrow might."""
    held = lc.HumanMessage("x", additional_kwargs={"pair": [1, 2]}).model_dump()
    pair = lc.HumanMessage(**held)
    fields = [pair.__class__.__module__, "HumanMessage", held, "model_validate_json"]
    data = ormsgpack.packb(fields)
    assert adoption._is_unchanged(data, fields, pair)
    pair.additional_kwargs["pair"] = (1, 2)
    assert not adoption._is_unchanged(data, fields, pair)


def test_a_message_with_an_object_in_it_is_rebuilt_each_time(adopted: list[str]) -> None:
    serde = JsonPlusSerializer()
    data = serde.dumps_typed(lc.HumanMessage("x", additional_kwargs={"of": {1, 2}}))
    for _ in range(SIGHTS):
        assert serde.loads_typed(data).additional_kwargs["of"] == {1, 2}
    assert adopted == []


CALLS: list[int] = []


def test_unauthenticated_messages_are_validated_every_time(adopted: list[str]) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    data = serde.dumps_typed(lc.HumanMessage("x", id="1"))
    for _ in range(SIGHTS):
        assert serde.loads_unsealed(*data) == serde.loads_typed(data) == lc.HumanMessage("x", id="1")
    assert adopted == []
    for _ in range(SIGHTS):
        assert serde.loads_sealed(*data) == lc.HumanMessage("x", id="1")
    assert adopted != []


def test_what_is_no_message_is_left_alone() -> None:
    """Some classes beside the messages are not pydantic's."""
    serde = JsonPlusSerializer()
    data = record(ToolOutputMixin, {})
    for _ in range(SIGHTS):
        assert type(loads(serde, data)) is ToolOutputMixin


class Wrapped(BaseModel):
    """Its validation gives a message."""

    content: str
    type: str

    @model_validator(mode="wrap")
    @classmethod
    def count(cls, fields: Any, _: Any) -> Any:
        CALLS.append(1)
        return lc.HumanMessage(**fields)


def test_a_message_that_a_model_of_the_user_gives_is_validated_at_every_sight() -> None:
    serde = warm()
    data = record(Wrapped, lc.HumanMessage("x").model_dump())
    CALLS.clear()
    for _ in range(SIGHTS):
        assert loads(serde, data) == lc.HumanMessage("x")
    assert len(CALLS) == SIGHTS


def test_records_of_one_hash_keep_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "hash", lambda data: 1, raising=False)
    serde = warm()
    for message in [lc.HumanMessage("x")] * SIGHTS + [lc.AIMessage("x"), lc.SystemMessage("x")]:
        assert serde.loads_typed(serde.dumps_typed(message)) == message


def test_a_comparison_that_goes_too_deep_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: Any) -> bool:
        raise RecursionError

    serde = warm()
    monkeypatch.setattr(adoption, "are_alike", too_deep)
    data = serde.dumps_typed(lc.HumanMessage("x", id="1"))
    for _ in range(SIGHTS):
        assert serde.loads_typed(data) == lc.HumanMessage("x", id="1")


def test_bare_arguments_are_those_of_the_record() -> None:
    """Validators write into what they are given, before they refuse it."""
    serde = JsonPlusSerializer(on_blocked="raw")
    serde.loads_typed(serde.dumps_typed(lc.ToolMessage("x", tool_call_id="1")))
    fields = {"content": "x", "tool_call_id": 2.0, "status": "unheard of"}
    assert loads(serde, record(lc.ToolMessage, fields)) == fields


def test_how_much_is_known_is_bounded(adopted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three messages here; all are forgotten for a fourth."""
    monkeypatch.setattr(adoption, "MAX_LEARNED_MESSAGES", 3)
    serde = JsonPlusSerializer()
    data = [serde.dumps_typed(lc.HumanMessage("x", id=str(number))) for number in range(5)]
    for number, known in ((0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (1, 2), (4, 2), (1, 2), (1, 3)):
        assert serde.loads_typed(data[number]).id == str(number)
        assert len(adopted) == known


# --- validation without constructors --------------------------------------------------------------


def built(cls: type[BaseMessage], payload: dict[str, Any]) -> Any:
    """Return everything about what the builder makes, once it takes the shortcut, or its error."""
    build = make_builder(PYDANTIC_V2, cls.__module__, cls.__name__)
    build(GOOD[cls])
    try:
        return state(build(payload))
    except UnbuildableValueError:
        return "refused"


def constructed(cls: type[BaseMessage], payload: dict[str, Any]) -> Any:
    try:
        return state(cls(**payload))
    except Exception:  # noqa: BLE001 -- whatever it is, the shortcut must refuse it too
        return "refused"


GOOD: dict[type[BaseMessage], dict[str, Any]] = {type(message): message.model_dump() for message in MESSAGES}


CHANGES: list[dict[str, Any]] = [
    {},
    *({"content": content} for content in (None, 5, ["a", {"type": "text", "text": "b"}])),
    *({"content_blocks": blocks} for blocks in (None, [{"type": "text", "text": "b"}])),
    {"content": "", "content_blocks": [{"type": "text", "text": "b"}]},
    {"id": 5},
    {"type": "wrong"},
    {"name": ["no"]},
    {"extra_field": [1]},
    {"response_metadata": {"output_version": "v1"}},
    {"additional_kwargs": {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}},
    *({"tool_calls": calls} for calls in ("x", [{"name": "f", "args": {}, "id": "1", "type": "tool_call"}])),
    {"tool_call_id": 5, "status": "error"},
]


@pytest.mark.parametrize("cls", GOOD, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("change", CHANGES, ids=repr)
def test_the_shortcut_refuses_what_the_constructor_refuses(
    cls: type[BaseMessage], change: dict[str, Any]
) -> None:
    payload = {**GOOD[cls], **change}
    assert built(cls, dict(payload)) == constructed(cls, dict(payload))
    payload.pop("content")
    assert built(cls, dict(payload)) == constructed(cls, dict(payload))


def test_the_shortcut_is_taken_from_the_second_message_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would compare the constructor with itself."""
    calls: list[Any] = []
    init = BaseMessage.__init__

    def counted(self: BaseMessage, *args: Any, **kwargs: Any) -> None:
        calls.append(kwargs)
        init(self, *args, **kwargs)

    monkeypatch.setattr(BaseMessage, "__init__", counted)
    build = make_builder(PYDANTIC_V2, "langchain_core.messages.human", "HumanMessage")
    for _ in range(3):
        assert build({"content": "x"}).content == "x"
    assert len(calls) == 1


def test_the_shortcut_is_not_taken_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would with a release of LangChain whose constructor does more."""
    init = lc.HumanMessage.__init__

    def marked(self: lc.HumanMessage, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "name": "marked"})

    monkeypatch.setattr(lc.HumanMessage, "__init__", marked)
    build = make_builder(PYDANTIC_V2, "langchain_core.messages.human", "HumanMessage")
    assert [build({"content": "x"}).name for _ in range(3)] == ["marked"] * 3
