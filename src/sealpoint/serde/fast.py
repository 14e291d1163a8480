"""Shortcuts for speed. Each shortcut gives the same result as the general code, and can be switched off.

records       scan          checks a record without extensions in it in one call
costly        scan          searches the bytes for the names of costly types, before it reads any name
arguments     catalogue     skips the guard for common arguments that the guard would accept
addresses     catalogue     reads and writes IP addresses by the functions of the system
constructors  messages      validates a message without the constructors of LangChain
adoption      messages      does not validate a sealed message that was validated before
lookup        decode        finds the builder of a record without a function call
moments       catalogue      writes a datetime by msgpack
models        encode        packs the fields of a pydantic model without ``model_dump()``
memory        encode        keeps memory that was freed after a large value
json          jsontext      parses short text without looking at its integers
"""

from __future__ import annotations

from typing import Final

SHORTCUTS: Final = frozenset(
    {
        *("records", "costly", "arguments", "addresses", "constructors", "adoption", "lookup"),
        *("moments", "models", "memory", "json"),
    }
)

# Names of shortcuts that are switched off. Serializers created before may still use them.
switched_off: Final = set[str]()


def is_on(shortcut: str) -> bool:
    """Whether a shortcut is switched on."""
    return shortcut not in switched_off
