"""LangChain's messages, validated without their four Python constructors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sealpoint.serde.fast import is_on

Builder = Callable[[Any], Any]

MESSAGES: Final = "langchain_core.messages"
"""The package of LangChain's own messages."""


def is_message(made: Any) -> bool:
    """Whether an object is one of LangChain's own message types of conversations."""
    return is_message_class(made.__class__)


def is_message_class(cls: Any) -> bool:
    """Whether a class is that of such messages."""
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
    if not is_on("constructors"):
        return lambda payload: cls(**_require_dict(payload))
    # Looked up once, and not for every message.
    validate, make = cls.__pydantic_validator__.validate_python, cls.__new__
    is_enough: bool | None = None

    def build(payload: Any) -> Any:
        if is_enough and type(payload) is dict and _has_content(payload):
            return validate(payload, self_instance=make(cls))
        return build_and_compare(payload)

    def build_and_compare(payload: Any) -> Any:
        nonlocal is_enough
        long = cls(**_require_dict(payload))
        if is_enough is None and _has_content(payload):
            is_enough = are_alike(validate(payload, self_instance=make(cls)), long)
        return long

    return build


def _has_content(payload: dict[str, Any]) -> bool:
    return payload.get("content") is not None and "content_blocks" not in payload


def _require_dict(payload: Any) -> Any:
    if not isinstance(payload, dict):
        raise TypeError
    return payload


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
