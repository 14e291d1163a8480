"""Dataclasses of the package: they never change once made, and are equal where their fields are."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from typing import Any

import pytest

from tests.unit.test_house import MODULES

FILLED = {  # while values are counted or read, by the function that made it
    "sealpoint.maintenance.job.Outcome",
    "sealpoint.evidence.report.database.Opening",
    "sealpoint.evidence.report.database.Part",
    "sealpoint.evidence.report.document.Report",
    "sealpoint.maintenance.adopt.Adoption",
    "sealpoint.maintenance.inventory.Constructor",
    "sealpoint.maintenance.inventory.Inventory",
    "sealpoint.databases.postgres.scan.Pass",
}
THEMSELVES = {  # equal to themselves alone: == would compare material in varying time
    "sealpoint.keys.key.Key",
    "sealpoint.keys.sources.InlineSource",
}
KNOWN = {
    "sealpoint.keys.key.Key",
    "sealpoint.keys.files.Origin",
    "sealpoint.crypto.tag.Tag",
    "sealpoint.databases.rows.Batch",
    "sealpoint.databases.cells.Selection",
    "sealpoint.databases.cells.Column",
    "sealpoint.serde.allowlist.Allowlist",
    "sealpoint.serde.limits.Limits",
}


def found() -> dict[str, Any]:
    """All dataclasses that the package defines, by their full names."""
    classes: dict[str, Any] = {}
    for name in MODULES:
        if not name.endswith("__main__"):
            for _, cls in inspect.getmembers(import_module(name), inspect.isclass):
                if dataclasses.is_dataclass(cls) and cls.__module__.startswith("sealpoint"):
                    home = inspect.getmodule(cls.__init__) or import_module(cls.__module__)
                    classes[f"{home.__name__}.{cls.__qualname__}"] = cls
    return classes


CLASSES = found()
FROZEN = sorted(CLASSES.keys() - FILLED)


def make(cls: Any, **changed: Any) -> Any:
    """An object with a text in each field, whatever the class checks."""
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(made, field.name, changed.get(field.name, f"a {field.name}"))
    return made


def test_the_search_finds_them() -> None:
    assert CLASSES.keys() >= KNOWN | FILLED


@pytest.mark.parametrize("name", FROZEN)
def test_no_field_changes(name: str) -> None:
    made = make(CLASSES[name])
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(made, field.name)
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):  # by its slots, on Python before 3.12
        made.another = None
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("name", [name for name in FROZEN if name not in THEMSELVES])
def test_equal_fields_are_equal_objects(name: str) -> None:
    """With equal hashes, so that one may stand in a set or be a key."""
    cls = CLASSES[name]
    one, other = make(cls), make(cls)
    assert one == other
    assert hash(one) == hash(other)
    for field in dataclasses.fields(cls):
        if field.compare:
            assert one != make(cls, **{field.name: "another"})


@pytest.mark.parametrize("name", sorted(THEMSELVES))
def test_what_holds_secrets_equals_itself_alone(name: str) -> None:
    one, other = make(CLASSES[name]), make(CLASSES[name])
    assert one == one  # noqa: PLR0124 -- that is the question
    assert one != other
    assert len({one, other}) == 2
