"""Root of a log: one hash over all events of a thread store, as of a Merkle tree of RFC 6962.

    leaf    SHA-256 over 00 and the line of an event
    node    SHA-256 over 01, the left and the right hash; the left subtree is the greatest full one
    line    JSON in ASCII without spaces: [seq, kind, MAC in hex, thread, namespace, checkpoint, time]

Source: RFC 6962, section 2.1.
"""

from __future__ import annotations

import json
from hashlib import sha256

from sealpoint.threads.store import Event


class Root:
    """The root over lines that are added one after the other; holds a hash for each bit of their number.

    Attributes:
        lines: How many were added.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.lines = 0
        self._subtrees = list[bytes]()  # of full subtrees, the greatest first

    def add(self, line: bytes) -> None:
        """Add a line."""
        node = sha256(b"\0" + line).digest()
        size = self.lines
        while size & 1:  # the last subtree has the size of this one
            node = _join(self._subtrees.pop(), node)
            size >>= 1
        self._subtrees.append(node)
        self.lines += 1

    def digest(self) -> bytes:
        """Return the 32 bytes of the root over the lines so far."""
        if not self._subtrees:
            return sha256().digest()
        *others, node = self._subtrees
        for left in reversed(others):
            node = _join(left, node)
        return node


def _join(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def line_of(event: Event) -> bytes:
    """Return the line of an event."""
    (spot, kind, mac), seq, at = event.head, event.seq, event.at
    return json.dumps([seq, int(kind), mac.hex(), *spot, at], separators=(",", ":")).encode()
