"""Type tags: which suite and which key sealed a value, as text in the `type` column.

    msgpack + cobblestone256 .row @ k26b
    inner     suite          flags  key id

A tag can be read without a key. It is authenticated with the value, so a value with an edited tag does not
open. Rows under LANGGRAPH_AES_KEY end in a bare ``+aes`` and name no key.

Kinds: the names that a serializer gives to the formats of its bytes, as in LangGraph.

null       no bytes               None
bytes      the bytes
bytearray  the bytes
msgpack    see `sealpoint.serde.codes`
json       UTF-8                  rows from before msgpack, see `sealpoint.serde.legacy_json`
pickle                            runs code that its writer chose
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeGuard

from sealpoint.errors import TagError, excerpt
from sealpoint.seal.keys import KEY_ID, LEGACY
from sealpoint.seal.suites import SUITES

MAX_CHARS: Final = 64
# In the order that a tag has them: `BOUND_MARK` relies on ``row`` as the last.
COMPRESSED: Final = "zst"  # the value was compressed, see `sealpoint.seal.compression`
FLAGS: Final = (COMPRESSED, "row")

# Part of the tag of every sealed value, in earlier and later releases too, and of no other type.
SEALED_MARK: Final = "+"

# The end of each tag under LANGGRAPH_AES_KEY.
LEGACY_END: Final = f"{SEALED_MARK}{LEGACY}"

# What a tag contains after `SEALED_MARK` if, and only if, the value is bound to its row.
BOUND_MARK: Final = ".row@"

# Printable ASCII without '+', which separates the type from the suite.
_INNER = re.compile(r"[!-*,-~]+")


@dataclass(frozen=True, slots=True)
class Tag:
    """A parsed type tag.

    Attributes:
        inner: The name that the wrapped serializer gave to the format of its bytes, e.g. ``msgpack``. Empty
            only in the name that `RingCipher.encrypt` returns.
        suite: Name of the sealing suite, e.g. ``cobblestone256``.
        flags: ``zst`` if the value was compressed, ``row`` if it is bound to its row; in this order.
        key_id: Public name of the key, safe to log; ``None`` for LangGraph's own rows.

    Example:
        >>> from sealpoint import Tag
        >>> tag = Tag.parse("msgpack+cobblestone256.row@k1")
        >>> tag.flags, tag.key_id
        (('row',), 'k1')
    """

    inner: str
    suite: str
    flags: tuple[str, ...] = ()
    key_id: str | None = None

    @classmethod
    def parse(cls, text: str) -> Tag:
        """Read a tag from a `type` column.

        Args:
            text: The content of the column.

        Raises:
            TagError: If ``text`` is not a string of at most 64 ASCII characters in the form above, or its
                suite is not known, or a flag is not known, given twice or out of order.
        """
        if not isinstance(text, str) or len(text) > MAX_CHARS or text.count("+") != 1:
            raise TagError(f"{excerpt(text)} is not text of at most {MAX_CHARS} characters with one '+'")
        inner, _, name = text.partition("+")
        if inner and not _INNER.fullmatch(inner):
            raise TagError(f"{excerpt(text)} names no type before its '+'")
        if name == LEGACY:
            return cls(inner, LEGACY)
        front, separator, key_id = name.partition("@")
        suite, *flags = front.split(".")
        if suite not in SUITES:
            hint = "another program or a newer release of sealpoint may have written the row"
            raise TagError(f"{excerpt(text)} names no known suite", hint=hint)
        if not separator or not KEY_ID.fullmatch(key_id):
            raise TagError(f"{excerpt(text)} names no key after '@'")
        if [flag for flag in FLAGS if flag in flags] != flags:
            raise TagError(f"{excerpt(text)} has flags that are not known or not in order")
        return cls(inner, suite, tuple(flags), key_id)

    def format(self) -> str:
        """Return the text of the tag for the `type` column.

        Raises:
            TagError: If `parse` of the text would not return this tag.
        """
        mode = "".join(f".{flag}" for flag in self.flags)
        key = "" if self.key_id is None else f"@{self.key_id}"
        text = f"{self.inner}+{self.suite}{mode}{key}"
        if Tag.parse(text) != self:
            raise TagError(f"{excerpt(text)} is not the text of a valid type tag")
        return text


# These two do not parse: they also accept tags that `Tag.parse` refuses.


def is_sealed(tag: object) -> TypeGuard[str]:
    """Whether the text of a `type` column belongs to a sealed value."""
    return isinstance(tag, str) and SEALED_MARK in tag


def is_legacy(tag: object) -> bool:
    """Whether a value is under LANGGRAPH_AES_KEY."""
    return isinstance(tag, str) and tag.endswith(LEGACY_END)


NULL: Final = "null"
BYTES: Final = "bytes"
BYTEARRAY: Final = "bytearray"
MSGPACK: Final = "msgpack"
JSON: Final = "json"
PICKLE: Final = "pickle"

# The kinds that can be read without running code of the writer.
READABLE: Final = frozenset((NULL, BYTES, BYTEARRAY, MSGPACK, JSON))

# Pickles and messages name the class by its former module.
Tag.__module__ = "sealpoint.crypto.tag"
