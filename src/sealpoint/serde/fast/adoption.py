"""Messages that were validated before: the fields of a record become the message's, as they are.

A conversation is read again at every turn, and a history holds most of its messages once a
checkpoint. To validate a message takes half of the time of reading it. A sealed record that was
validated once, and came out as it went in, is adopted when it is met again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.serde.fast.messages import are_alike, is_message
from sealpoint.serde.limits import MAX_LEARNED_MESSAGES

Builder = Callable[[Any], Any]

# Packs what unpacking gives, and nothing that only looks like it: no tuple for a list, no subclass.
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
    """Builds the messages of one class: from a record that was met before perhaps without validation.

    A record is known by a hash of its bytes, which Python keys for this process. Nothing else of it is kept.
    """

    __slots__ = ("_known", "_validate")

    def __init__(self, validate: Builder) -> None:
        """Make it from the builder that validates."""
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
    """Whether a validated message has the very fields that its record has, to the byte, and nothing else."""
    if not is_message(message):
        return False
    module, name, _, method = record
    try:
        fields = {**vars(message)}
        same = ormsgpack.packb([module, name, fields, method], option=_EXACTLY) == data
        return same and are_alike(adopter(message.__class__)(fields), message)
    except (ormsgpack.MsgpackEncodeError, RecursionError):  # an object is in it; or it is deep, and so are we
        return False
