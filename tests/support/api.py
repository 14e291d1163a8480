"""The public names: what the table of docs/api.md lists, with the public members of its classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "api.md"
INTERFACES: Final = {"RowStore", "ThreadStore"}  # they document the methods of the classes that have them all
_ROW: Final = re.compile(r"^\| `(sealpoint[\w.]*)` \| (.*?) \|", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A public name.

    Attributes:
        name: Its name within the module, such as ``KeyRing`` or ``KeyRing.load``.
        module: The first module of the table that has it.
        value: The class, function, or descriptor; of another name, its value.
        owner: The public class that it is a member of.
    """

    name: str
    module: str
    value: Any
    owner: type | None = None

    @property
    def path(self) -> str:
        """Its dotted name, as it is imported."""
        return f"{self.module}.{self.name}"

    @property
    def is_documented(self) -> bool:
        """Whether it has a docstring of ours: not so a constant, an alias, and a class of LangGraph."""
        if self.owner is not None:
            return True
        has_one = isinstance(self.value, type) or inspect.isfunction(self.value)
        return has_one and not inspect.isbuiltin(self.value) and self.value.__module__.startswith("sealpoint")


def public_names() -> dict[str, list[str]]:
    """The public names of each module of the table, in its order."""
    found = {}
    for module, cell in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        known = vars(import_module(module))
        names = list[str]()
        for pattern in re.findall(r"`([^`]+)`", cell):
            matching = [name for name in known if fnmatchcase(name, pattern) and name[0] != "_"]
            names += known["__all__"] if pattern == "__all__" else matching or [pattern]
        found[module] = names
    return found


def entries() -> list[Entry]:
    """Every public name once, in the order of the table."""
    homes = dict[int, Entry]()
    for module, names in public_names().items():
        for name in names:
            value = getattr(import_module(module), name)
            homes.setdefault(id(value), Entry(name, module, value))
    return list(homes.values())


def members(entry: Entry, public: set[type]) -> Iterator[Entry]:
    """The public methods and properties of a class, but for those that a public base class documents."""
    cls = entry.value
    if not isinstance(cls, type) or _has_interface(cls, public):
        return
    seen = {*getattr(cls, "__dataclass_fields__", ()), *getattr(cls, "_fields", ())}
    for base in cls.__mro__:
        if base is not cls and (base in public or not base.__module__.startswith("sealpoint")):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(value, property) or inspect.isfunction(getattr(value, "__func__", value)):
                yield Entry(f"{entry.name}.{name}", entry.module, value, cls)


def _has_interface(cls: type, public: set[type]) -> bool:
    """Whether a class has, and with its other methods serves, an interface with a page of its own."""
    interfaces = [found for found in public if found.__name__ in INTERFACES and found is not cls]
    return any(all(hasattr(cls, name) for name in _methods(found)) for found in interfaces)


def _methods(cls: type) -> set[str]:
    return {name for name, value in vars(cls).items() if name[0] != "_" and inspect.isfunction(value)}


def described_by(entry: Entry) -> str | None:
    """The method that describes the parameters of this one: its sync version, or that of a base class."""
    doc = inspect.getdoc(entry.value) or ""
    if isinstance(entry.value, property) or "\nArgs:\n" in doc:
        return None
    if twin := re.match(r"Async version of `(\w+)`", doc):
        return twin[1]
    name = entry.name.rpartition(".")[2]
    bases = entry.owner.__mro__[1:] if entry.owner else ()
    above = (cls for cls in bases if cls.__module__ == "sealpoint.base.saver" and name in vars(cls))
    return next((f"{cls.__name__}.{name}" for cls in above), None)


def everything() -> list[Entry]:
    """Every public name that has a docstring, with the members of each class after it."""
    found = [entry for entry in entries() if entry.is_documented]
    public = {entry.value for entry in found if isinstance(entry.value, type)}
    return [each for entry in found for each in (entry, *members(entry, public))]
