"""Extensions of msgpack: the codes under which LangGraph writes types that msgpack lacks.

The payload of an extension is msgpack again. A payload of codes 0 to 5 is a *record*: it names its type.
`EXTENSIONS` lists the contents of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sealpoint.errors import DecodeError

SINGLE_ARGUMENT: Final = 0
POSITIONAL_ARGUMENTS: Final = 1
KEYWORD_ARGUMENTS: Final = 2
METHOD: Final = 3
PYDANTIC_V1: Final = 4
PYDANTIC_V2: Final = 5
NUMPY_ARRAY: Final = 6
DELTA_SNAPSHOT: Final = 7


class Extension(NamedTuple):
    """The contents of the payload of one code.

    Attributes:
        label: Its name in inert values and inventories.
        payload: Its form, as documentation.
        method: The last element of a record, if LangGraph writes one.
        type_name: Module and name of its type, if the payload does not name one.
    """

    label: str
    payload: str
    method: str | None = None
    type_name: tuple[str, str] | None = None


EXTENSIONS: Final[Mapping[int, Extension]] = {
    # sets, deques, UUID, Decimal, IP addresses, ZoneInfo, enums
    SINGLE_ARGUMENT: Extension("single", "[module, name, argument]"),
    # paths, patterns, timedelta, date, timezone, Send
    POSITIONAL_ARGUMENTS: Extension("positional", "[module, name, [arguments]]"),
    # named tuples, dataclasses, time
    KEYWORD_ARGUMENTS: Extension("keyword", "[module, name, {arguments}]"),
    # datetime
    METHOD: Extension("method", "[module, name, argument, method]", "fromisoformat"),
    # objects with dict(): pydantic v1, items of a store
    PYDANTIC_V1: Extension("pydantic-v1", "[module, name, {fields}]"),
    # objects with model_dump(): pydantic v2
    PYDANTIC_V2: Extension("pydantic-v2", "[module, name, {fields}, method]", "model_validate_json"),
    NUMPY_ARRAY: Extension("numpy", "[dtype, shape, order, bytes]", type_name=("numpy", "ndarray")),
    DELTA_SNAPSHOT: Extension(
        "delta-snapshot", "value", type_name=("langgraph.checkpoint.serde.types", "_DeltaSnapshot")
    ),
}


def require_record(code: int, record: Any) -> tuple[str, str]:
    """Return the module and the name that a record names.

    Raises:
        DecodeError: If it does not have the form that LangGraph writes under its code.
    """
    is_unnamed = code not in EXTENSIONS or EXTENSIONS[code].type_name is not None
    if not isinstance(record, list) or len(record) < 3 or is_unnamed:
        raise malformed(code)
    module, name, _, *method = record
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or method not in ([], [EXTENSIONS[code].method])
    ):
        raise malformed(code)
    return module, name


def malformed(code: int) -> DecodeError:
    """Return the error for a malformed payload of an extension."""
    return DecodeError(f"extension {code} does not hold what LangGraph writes there")
