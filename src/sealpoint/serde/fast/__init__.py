"""Shortcuts for speed. Each gives the same result as the general path, and can be switched off.

records       scan          checks a record without extensions in it in one call
costly        scan          searches the bytes for the names of costly types, before it reads any name
arguments     rebuild       skips the guard of common arguments that it would pass
addresses     rebuild, encode   reads and writes IP addresses by the functions of the system
constructors  rebuild       validates a message without the constructors of LangChain
adoption      decode        does not validate a sealed message that was validated before
lookup        decode        finds the builder of a record without a call
moments       encode        writes a datetime by msgpack
models        encode        packs the fields of a pydantic model without ``model_dump()``
memory        encode        keeps memory that was freed after a large value
json          jsontext      parses short text without looking at its integers
"""

from __future__ import annotations

from typing import Final

__all__ = ["SHORTCUTS", "is_on", "switched_off"]

SHORTCUTS: Final = frozenset(
    {
        *("records", "costly", "arguments", "addresses", "constructors", "adoption", "lookup"),
        *("moments", "models", "memory", "json"),
    }
)

switched_off: Final = set[str]()
"""Names of shortcuts that are switched off. Serializers created before may still use them."""


def is_on(shortcut: str) -> bool:
    """Whether a shortcut is switched on."""
    return shortcut not in switched_off
