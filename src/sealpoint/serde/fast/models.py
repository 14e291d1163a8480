"""Models of pydantic whose ``model_dump()`` is no more than the fields they hold.

Asked of a class once, by its core schema (``__pydantic_core_schema__``, documented at
https://docs.pydantic.dev/latest/api/base_model/). What is not known to be plain is not: a serializer of
its own, a computed or excluded field, an alias, a dataclass, anything that a later pydantic brings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

# Values of these are dumped as they are, whatever they hold: what is of another type than the schema says
# is dumped by its own, and the plain types of msgpack have no other form than themselves.
_LEAVES: Final = {
    *("any", "none", "bool", "int", "float", "str", "bytes", "literal"),
    *("date", "time", "datetime", "timedelta", "decimal", "uuid"),
}
# Where the schemas stand that are within a schema.
_INSIDE: Final = {
    "default": ("schema",),
    "nullable": ("schema",),
    "function-before": ("schema",),
    "function-after": ("schema",),
    "function-wrap": ("schema",),
    "list": ("items_schema",),
    "dict": ("keys_schema", "values_schema"),
    "union": ("choices",),
    "typed-dict": ("fields",),
    "typed-dict-field": ("schema",),
    "model-fields": ("fields",),
    "model-field": ("schema",),
}


def plain_fields(cls: Any) -> list[str] | None:
    """Return the fields of a model whose ``model_dump()`` is its ``vars()``.

    That holds of an instance of the class itself, and not of a subclass, whose ``vars()`` are
    its fields and which has no extra ones, if their values are of msgpack's plain types, or
    of those that are dumped as they are.

    Returns:
        ``None`` if that is not known. It is not of a model that has models in it: whether
        they are dumped or left as they are depends on where they stand.
    """
    schema = getattr(cls, "__pydantic_core_schema__", None)
    pydantic = sys.modules.get("pydantic")
    if (
        pydantic is None
        or type(schema) is not dict
        or schema["type"] != "model"
        or cls.model_dump is not pydantic.BaseModel.model_dump
        or issubclass(cls, pydantic.RootModel)
        or "serialization" in schema
        or not _is_plain(schema["schema"])
    ):
        return None
    return list(cls.model_fields)


def _is_plain(schema: Any) -> bool:
    kind = schema["type"]
    if (
        "serialization" in schema
        or schema.get("computed_fields")
        or any(key.startswith("serialization_") for key in schema)
        or (kind == "typed-dict" and schema.get("extra_behavior") != "allow")
    ):
        return False
    return kind in _LEAVES or (kind in _INSIDE and all(map(_is_plain, _inside(schema))))


def _inside(schema: Any) -> Iterator[Any]:
    for place in _INSIDE[schema["type"]]:
        found = schema.get(place, [])  # a dict of anything does not say of what
        if place == "fields":
            yield from found.values()
        elif place == "choices":
            yield from (choice[0] if isinstance(choice, tuple) else choice for choice in found)
        elif found:
            yield found
