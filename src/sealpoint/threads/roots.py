"""Lines of a log: over those of all events of a thread store there is one root, see `sealpoint.merkle`.

line    JSON in ASCII without spaces: [seq, kind, MAC in hex, thread, namespace, checkpoint, time]
"""

from __future__ import annotations

import json

from sealpoint.threads.store import Event


def line_of(event: Event) -> bytes:
    """Return the line of an event."""
    (spot, kind, mac), seq, at = event.head, event.seq, event.at
    return json.dumps([seq, int(kind), mac.hex(), *spot, at], separators=(",", ":")).encode()
