"""Allowlist: the types that stored bytes may name, as exact (module, name) pairs, never prefixes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sealpoint.serde.catalogue import CATALOGUE

AllowedModules: TypeAlias = Iterable[tuple[str, ...] | type]

STRICT_VARIABLE: Final = "LANGGRAPH_STRICT_MSGPACK"

SAFE_TYPES: Final = frozenset(CATALOGUE)
"""The types that a strict serializer rebuilds by default: the same as LangGraph's."""


def pair(entry: tuple[str, ...] | type) -> tuple[str, str]:
    """Return the (module, name) of an entry: a type, or the parts of its dotted name."""
    if isinstance(entry, type):
        return entry.__module__, entry.__name__
    if (
        not isinstance(entry, tuple | list)
        or len(entry) < 2
        or not all(isinstance(part, str) for part in entry)
    ):
        raise TypeError("an allowlist holds types and tuples of strings like ('package.module', 'Name')")
    *module, name = entry
    return ".".join(module), name


def strict_from_environment() -> bool:
    """Whether ``LANGGRAPH_STRICT_MSGPACK`` currently requests a strict serializer."""
    return os.environ.get(STRICT_VARIABLE, "").lower() in {"1", "true", "yes"}


@dataclass(frozen=True, slots=True)
class Allowlist:
    """The types that may be imported and called to rebuild a value.

    Attributes:
        types: The allowed (module, name) pairs.
        permissive: Whether other types are rebuilt too, with one warning per type.
    """

    types: frozenset[tuple[str, str]] = SAFE_TYPES
    permissive: bool = False

    @classmethod
    def of(cls, modules: AllowedModules | Literal[True] | None) -> Allowlist:
        """Return the allowlist for an argument: ``True`` is permissive, ``None`` allows the safe types.

        Raises:
            TypeError: If ``modules`` contains anything but types and tuples of strings.
        """
        if modules is True:
            return cls(permissive=True)
        return cls().extended(modules or ())

    def extended(self, modules: AllowedModules) -> Allowlist:
        """Return an allowlist that also allows ``modules``, or this one if that adds nothing.

        Raises:
            TypeError: If ``modules`` contains anything but types and tuples of strings.
        """
        types = self.types.union(map(pair, modules))
        return self if types == self.types else Allowlist(types, self.permissive)
