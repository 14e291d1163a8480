"""Where a config points: a plain one is read in one step, and means what any other mapping means."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import pytest

from sealpoint.base.place import Place, require_place
from sealpoint.errors import ConfigError

_ABSENT: Final = object()
_IDS: Final = ("t1", "", "ü", "\ud800", 7, True, None, UUID(int=1), b"t1", _ABSENT)
_TEXTS: Final = ("ns", "", "ü", "\ud800", 7, None, _ABSENT)
_NEEDS: Final = ((), ("checkpoint_ns",), ("checkpoint_ns", "checkpoint_id"))


def outcome(config: Any, needed: tuple[str, ...]) -> tuple[type, Any]:
    try:
        place = require_place(config, *needed)
    except ConfigError as error:
        return type(error), str(error)
    return type(place), place


@pytest.mark.parametrize("needed", _NEEDS)
def test_plain_config_means_what_any_mapping_means(needed: tuple[str, ...]) -> None:
    for thread_id, checkpoint_ns, checkpoint_id in product(_IDS, _TEXTS, _TEXTS):
        names = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
        found = {name: value for name, value in names.items() if value is not _ABSENT}
        plain: Any = {"configurable": found}
        assert outcome(plain, needed) == outcome(MappingProxyType(plain), needed), found


def test_place_of_a_plain_config_is_a_place() -> None:
    place = require_place({"configurable": {"thread_id": "t1", "checkpoint_ns": ""}})
    assert type(place) is Place
    assert place == Place("t1", "", None)
