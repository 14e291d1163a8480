"""Extensions of msgpack: the codes under which LangGraph writes what msgpack has no form for.

The payload of an extension is msgpack again:

    code  payload                                     for
    0     [module, name, argument]                    sets, deques, UUID, Decimal, IP, ZoneInfo, enums
    1     [module, name, [arguments]]                 Path, regex, timedelta, date, timezone, Send
    2     [module, name, {arguments}]                 named tuples, dataclasses, time
    3     [module, name, argument, method]            datetime
    4     [module, name, {fields}]                    objects with dict(): pydantic v1, store items
    5     [module, name, {fields}, method]            objects with model_dump(): pydantic v2
    6     [dtype, shape, order, bytes]                numpy arrays
    7     value                                       delta snapshots
"""

from __future__ import annotations

from typing import Final

SINGLE_ARGUMENT: Final = 0
POSITIONAL_ARGUMENTS: Final = 1
KEYWORD_ARGUMENTS: Final = 2
METHOD: Final = 3
PYDANTIC_V1: Final = 4
PYDANTIC_V2: Final = 5
NUMPY_ARRAY: Final = 6
DELTA_SNAPSHOT: Final = 7
