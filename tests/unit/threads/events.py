"""Short ways to write events."""

from __future__ import annotations

from sealpoint.threads import Head, Kind, Spot

FAR = 1 << 40
"""A time after all events."""


def mac(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def spot(checkpoint_id: str, thread_id: str = "t", ns: str = "") -> Spot:
    return Spot(thread_id, ns, checkpoint_id)


def put(checkpoint_id: str, content: str = "a", thread_id: str = "t", ns: str = "") -> Head:
    return Head(spot(checkpoint_id, thread_id, ns), Kind.PUT, mac(content))


def leaving(checkpoint_id: str, content: str = "a") -> Head:
    return Head(spot(checkpoint_id), Kind.LEAVING, mac(content))


def deleted(checkpoint_id: str, thread_id: str = "t", ns: str = "") -> Head:
    return Head(spot(checkpoint_id, thread_id, ns), Kind.DELETED, b"")
