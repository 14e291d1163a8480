"""Entries: one line of ASCII JSON each, with sorted members. The line without its newline is the leaf.

Readers hash the line as it is stored, so that the form of JSON does not matter to them. No entry contains a
value of a database or key material; a thread is named only by its HMAC under the index key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from sealpoint.errors import EntryError

VERSION: Final = 1
MAX_BYTES: Final = 65_535

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "actor": (dict,),
    "at": (str,),
    "counts": (dict,),
    "documents": (list,),
    "event": (str,),
    "exit": (int, type(None)),
    "outcome": (str,),
    "ring": (dict, type(None)),
    "run": (str,),
    "seq": (int,),
    "subject": (dict,),
    "tool": (str,),
    "v": (int,),
    "waived": (list,),
}
_NAMES: Final = list(_KINDS)
_SHAPES: Final = frozenset(product(*_KINDS.values()))
_decode: Final = json.JSONDecoder().raw_decode  # without a search for white space: half the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event.

    Attributes:
        seq: Its number in the ledger, from 0.
        at: When it was recorded: UTC, ISO 8601.
        run: UUID of the run of a command; its other entries and its JSON object have the same.
        event: What happened, e.g. ``key.promote``.
        outcome: ``begun``, or how it ended: ``done``, ``found``, ``refused``, ``stopped`` or ``failed``.
        exit: Exit code of the command; ``None`` for one that has only begun.
        actor: ``account``, ``uid`` and ``host``, as the operating system names them.
        tool: Name and version of the program.
        ring: ``digest`` over the ring's keys, and id of the ``active`` one; ``None`` if it cannot be read.
        subject: What it happened to.
        counts: Numbers that the command found.
        waived: Checks that options waived.
        documents: Files in ``documents``, each as ``sha256:`` and 64 hexadecimal digits.
        v: Version of the form.
    """

    seq: int = 0
    at: str
    run: str
    event: str
    outcome: str
    exit: int | None = None
    actor: Mapping[str, Any]
    tool: str
    ring: Mapping[str, Any] | None
    subject: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    waived: Sequence[str] = ()
    documents: Sequence[str] = ()
    v: int = VERSION

    def line(self) -> bytes:
        """Return its line, without a newline.

        Raises:
            EntryError: If it has over 65,535 bytes.
        """
        members = {name: getattr(self, name) for name in _NAMES}
        text = json.dumps(members, sort_keys=True, separators=(",", ":"), allow_nan=False)
        if len(text) > MAX_BYTES:
            raise EntryError(
                f"an entry has at most {MAX_BYTES} bytes, and this would have {len(text)}",
                hint="name fewer databases in one command",
            )
        return text.encode("ascii")

    @classmethod
    def parse(cls, line: bytes, seq: int) -> Entry:
        """Parse the line of an entry.

        Args:
            line: Without its newline.
            seq: The number that it must have.

        Raises:
            EntryError: If it is no entry of this version, or has another number.
        """
        return cls(**read_members(line, seq))


def read_members(line: bytes, seq: int) -> dict[str, Any]:
    """Return the members of the line of an entry, as `Entry.parse` checks them."""
    if len(line) > MAX_BYTES:
        raise EntryError(f"line {seq} has over {MAX_BYTES} bytes")
    try:
        members, end = _decode(line.decode("ascii"))
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        members, end = None, -1
    if end != len(line):
        raise EntryError(f"line {seq} is not JSON in ASCII")
    if not isinstance(members, dict) or type(members.get("v")) is not int or members["v"] != VERSION:
        raise EntryError(f"line {seq} is not an object of version {VERSION}, which this release reads")
    # Compared as a whole, types too: a ledger has many lines.
    if list(members) != _NAMES or tuple(map(type, members.values())) not in _SHAPES:
        raise EntryError(f"line {seq} does not have the members of an entry, sorted, and of their types")
    if members["seq"] != seq:
        raise EntryError(f"line {seq} says that it is entry {members['seq']}")
    return members
