"""Messages that were validated before: the fields of a record become those of the message, unchanged.

A conversation is read again at every turn, and a history contains most of its messages once per checkpoint.
Validation takes half of the time of reading a message. A sealed record that validation did not change is
adopted when it is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.serde.fast.messages import are_alike, is_message
from sealpoint.serde.limits import MAX_LEARNED_MESSAGES

Builder = Callable[[Any], Any]

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


class Adoption:
    """Builds the messages of one class, without validation if the same record was validated before.

    A record is identified by a hash of its bytes, which Python keys per process. Nothing else of it is kept.
    """

    __slots__ = ("_known", "_validate")

    def __init__(self, validate: Builder) -> None:
        """Create it from the builder that validates."""
        self._validate = validate
        # By hash, what makes the message; None after the first sight, False if it is validated each time.
        self._known: dict[int, Builder | Literal[False] | None] = {}

    def build(self, data: bytes, record: Any) -> Any:
        """Return the message of a record, whose bytes are ``data``."""
        mark = hash(data)
        adopt = self._known.get(mark)
        if adopt:
            return adopt(record[2])
        made = self._validate(record[2])
        if mark not in self._known:
            if len(self._known) >= MAX_LEARNED_MESSAGES:
                self._known.clear()
            self._known[mark] = None
        elif adopt is None:
            self._known[mark] = _is_unchanged(data, record, made) and adopter(made.__class__)
        return made


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
    if not is_message(message):
        return False
    module, name, _, method = record
    try:
        fields = {**vars(message)}
        same = ormsgpack.packb([module, name, fields, method], option=_EXACTLY) == data
        return same and are_alike(adopter(message.__class__)(fields), message)
    except (ormsgpack.MsgpackEncodeError, RecursionError):  # it contains an object, or is nested too deeply
        return False
