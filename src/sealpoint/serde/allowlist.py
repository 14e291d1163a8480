"""Allowlist: which types stored bytes may name. Exact (module, name) pairs, never prefixes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

AllowedModules: TypeAlias = Iterable[tuple[str, ...] | type]

STRICT_VARIABLE: Final = "LANGGRAPH_STRICT_MSGPACK"

_SAFE_BY_MODULE: Final = {
    "builtins": "frozenset set",
    "collections": "deque",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "ipaddress": "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network",
    "langchain_core.documents.base": "Document",
    "langchain_core.messages.ai": "AIMessage AIMessageChunk",
    "langchain_core.messages.base": "BaseMessage BaseMessageChunk",
    "langchain_core.messages.chat": "ChatMessage ChatMessageChunk",
    "langchain_core.messages.function": "FunctionMessage FunctionMessageChunk",
    "langchain_core.messages.human": "HumanMessage HumanMessageChunk",
    "langchain_core.messages.modifier": "RemoveMessage",
    "langchain_core.messages.system": "SystemMessage SystemMessageChunk",
    "langchain_core.messages.tool": "ToolMessage ToolMessageChunk",
    "langgraph.store.base": "GetOp Item",
    "langgraph.types": "Command Interrupt Overwrite PregelTask Send StateSnapshot TimeoutPolicy",
    "pathlib": "Path PosixPath WindowsPath",
    "pathlib._local": "Path PosixPath WindowsPath",
    "re": "compile",
    "uuid": "UUID",
    "zoneinfo": "ZoneInfo",
}

SAFE_TYPES: Final = frozenset(
    (module, name) for module, names in _SAFE_BY_MODULE.items() for name in names.split()
)
"""What a strict serializer rebuilds without being told: the same types as LangGraph's."""


def pair(entry: tuple[str, ...] | type) -> tuple[str, str]:
    """Return the (module, name) of an entry: a type, or the parts of its dotted name.

    Raises:
        TypeError: If ``entry`` is neither.
    """
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
    """Whether ``LANGGRAPH_STRICT_MSGPACK`` asks for a strict serializer, now."""
    return os.environ.get(STRICT_VARIABLE, "").lower() in {"1", "true", "yes"}


@dataclass(frozen=True, slots=True)
class Allowlist:
    """What may be imported and called to rebuild a value.

    Attributes:
        types: The allowed (module, name) pairs.
        permissive: Whether types that are not in ``types`` are rebuilt too, with one
            warning per type.
    """

    types: frozenset[tuple[str, str]] = SAFE_TYPES
    permissive: bool = False

    @classmethod
    def of(cls, modules: AllowedModules | Literal[True] | None) -> Allowlist:
        """Make the policy of a constructor argument: ``True`` is permissive, ``None`` the safe types."""
        if modules is True:
            return cls(permissive=True)
        return cls().extended(modules or ())

    def extended(self, modules: AllowedModules) -> Allowlist:
        """Return a policy that also allows ``modules``; this one, if that adds nothing."""
        types = self.types.union(map(pair, modules))
        return self if types == self.types else Allowlist(types, self.permissive)
