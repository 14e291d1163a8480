"""What the core makes once is shared by threads, and never changes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, is_dataclass
from typing import Any, Final

import pytest

from sealpoint.seal.tag import Tag
from tests.seal.test_alone import MODULES

TAG: Final = Tag.parse("msgpack+cobblestone256.row@k1")


def dataclasses() -> Iterator[Any]:
    for path in MODULES:
        module = importlib.import_module(f"sealpoint.seal.{path.stem}")
        for found in vars(module).values():
            if isinstance(found, type) and is_dataclass(found):
                yield found


@pytest.mark.parametrize("cls", dict.fromkeys(dataclasses()), ids=lambda cls: cls.__name__)
def test_a_dataclass_is_frozen(cls: Any) -> None:
    assert cls.__dataclass_params__.frozen


def test_a_tag_that_was_read_is_shared() -> None:
    with pytest.raises(FrozenInstanceError):
        TAG.suite = "xaes256gcm"  # type: ignore[misc]
    assert {TAG: 1}[Tag.parse(TAG.format())] == 1
