"""Members of enums, whose value is an attribute that is read without a Python call."""

from __future__ import annotations

from enum import Enum
from inspect import getattr_static
from typing import Any

from sealpoint.serde.fast import is_on


def value_attribute(cls: Any, answers_by_instance: bool) -> str:
    """Return the attribute to read the value of a member from.

    Args:
        cls: An enum.
        answers_by_instance: Whether its members override attribute access.
    """
    if not is_on("enums"):
        return "value"
    is_plain = getattr_static(cls, "value") is vars(Enum)["value"] and not answers_by_instance
    return "_value_" if is_plain else "value"
