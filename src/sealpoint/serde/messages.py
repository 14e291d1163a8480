"""LangChain's messages, built without their four Python constructors, or without validation.

A conversation is read again at every turn, and a history contains most of its messages once per checkpoint.
Validation takes half of the time of reading a message. A sealed record that validation did not change is
adopted when it is read again: its fields become those of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.serde.fast import is_on
from sealpoint.serde.limits import MAX_LEARNED_MESSAGES

Builder = Callable[[Any], Any]

MESSAGES: Final = "langchain_core.messages"


def is_message_class(cls: Any) -> bool:
    """Whether a class is one of LangChain's own messages of conversations."""
    return (
        cls.__module__.startswith(f"{MESSAGES}.")
        and cls.__name__ != "RemoveMessage"
        and hasattr(cls, "__pydantic_validator__")
    )


def make_message_builder(cls: Any) -> Builder:
    """Skip the four Python constructors of a LangChain message, which take half of the time.

    They pass an existing ``content`` on unchanged. This is checked with the first payload: if the validator
    alone makes a different object than the constructor, the constructor is called.
    """
    # Looked up once, and not for every message.
    validate, make = cls.__pydantic_validator__.validate_python, cls.__new__
    is_enough = None if is_on("constructors") else False

    def build(payload: Any) -> Any:
        nonlocal is_enough
        if not isinstance(payload, dict):
            raise TypeError
        if is_enough and _has_content(payload):
            return validate(payload, self_instance=make(cls))
        long = cls(**payload)
        if is_enough is None and _has_content(payload):
            is_enough = are_alike(validate(payload, self_instance=make(cls)), long)
        return long

    return build


def _has_content(payload: dict[str, Any]) -> bool:
    return payload.get("content") is not None and "content_blocks" not in payload


def are_alike(one: Any, other: Any) -> bool:
    """Whether two messages have the same class and equal contents; 1, 1.0 and True are equal here."""
    return _state(one) == _state(other)


def _state(model: Any) -> tuple[Any, ...]:
    return (
        type(model),
        vars(model),
        model.__pydantic_fields_set__,
        model.__pydantic_extra__,
        model.__pydantic_private__,
    )


# Packs only the types that unpacking returns: no tuple as a list, no subclass.
_EXACTLY: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


def adopting(validate: Builder) -> Callable[[bytes, Any], Any]:
    """Return a builder of the messages of one class, which validates a record only when it is new.

    It takes the bytes of a record, and the record. A record is identified by a hash of its bytes, which
    Python keys per process. Nothing else of it is kept.
    """
    # By hash, what makes the message; None after the first sight, False if it is validated each time.
    known: dict[int, Builder | Literal[False] | None] = {}

    def build(data: bytes, record: Any) -> Any:
        mark = hash(data)
        adopt = known.get(mark)
        if adopt:
            return adopt(record[2])
        made = validate(record[2])
        if mark not in known:
            if len(known) >= MAX_LEARNED_MESSAGES:
                known.clear()
            known[mark] = None
        elif adopt is None:
            known[mark] = _is_unchanged(data, record, made) and adopter(made.__class__)
        return made

    return build


@cache
def adopter(cls: Any) -> Builder:
    """Return what makes a message of all its fields as they are, without validation."""
    make, put = cls.__new__, object.__setattr__

    def adopt(fields: dict[str, Any]) -> Any:
        made = make(cls)
        put(made, "__dict__", fields)
        put(made, "__pydantic_fields_set__", set(fields))
        put(made, "__pydantic_extra__", {})
        put(made, "__pydantic_private__", None)
        return made

    return adopt


def _is_unchanged(data: bytes, record: Any, message: Any) -> bool:
    """Whether a validated message has exactly the fields of its record, byte for byte."""
    if not is_message_class(message.__class__):
        return False
    module, name, _, method = record
    try:
        fields = {**vars(message)}
        same = ormsgpack.packb([module, name, fields, method], option=_EXACTLY) == data
        return same and are_alike(adopter(message.__class__)(fields), message)
    except (ormsgpack.MsgpackEncodeError, RecursionError):  # it contains an object, or is nested too deeply
        return False
