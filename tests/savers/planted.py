"""Texts and numbers planted in everything that a saver is given, and the search for them in its database."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sealpoint.base import empty_checkpoint

OBJECTS: Final = "objects"
SCALARS: Final = "texts, numbers"
WRITES: Final = "writes"
METADATA: Final = "metadata"
NAMES: Final = "ids, names"
PLACES: Final = (OBJECTS, SCALARS, WRITES, METADATA, NAMES)
"""Where values are planted: the columns of the page's tables."""


def _text() -> str:
    return f"c{secrets.token_hex(16)}"


@dataclass(frozen=True)
class Planted:
    """One checkpoint and its writes, with a random value in each place."""

    thread_id: str = field(default_factory=_text)
    channel: str = field(default_factory=_text)
    task_path: str = field(default_factory=_text)
    element: str = field(default_factory=_text)
    text: str = field(default_factory=_text)
    number: int = field(default_factory=lambda: 1 << 61 | secrets.randbits(60))
    written: str = field(default_factory=_text)
    written_element: str = field(default_factory=_text)
    interrupt: str = field(default_factory=_text)
    tag: str = field(default_factory=_text)
    tenant: str = field(default_factory=_text)

    @property
    def places(self) -> dict[str, list[str | int]]:
        """What is planted in each place."""
        return {
            OBJECTS: [self.element],
            SCALARS: [self.text, self.number],
            WRITES: [self.written, self.written_element, self.interrupt],
            METADATA: [self.tag, self.tenant],
            NAMES: [self.thread_id, self.channel, self.task_path],
        }

    @property
    def thread(self) -> dict[str, Any]:
        """The config of the thread; LangGraph's savers copy ``tenant`` into the metadata."""
        return {
            "configurable": {"thread_id": self.thread_id, "checkpoint_ns": "", "tenant": self.tenant},
            "metadata": {"tenant": self.tenant},
        }

    @property
    def metadata(self) -> dict[str, Any]:
        return {"source": "input", "step": -1, "parents": {}, "tag": self.tag}

    @property
    def values(self) -> dict[str, Any]:
        return {self.channel: [{"key": self.element}], "text": self.text, "number": self.number}

    @property
    def writes(self) -> list[list[tuple[str, Any]]]:
        """For each call of ``put_writes``."""
        ordinary = [("text", self.written), (self.channel, [self.written_element])]
        return [ordinary, [("__interrupt__", [self.interrupt])]]

    def put_arguments(self, saver: Any) -> tuple[Any, ...]:
        """The arguments of ``put``."""
        versions = {channel: saver.get_next_version(None, None) for channel in self.values}
        checkpoint: Any = {
            **empty_checkpoint(),
            "v": 4,
            "channel_values": self.values,
            "channel_versions": versions,
        }
        return self.thread, checkpoint, self.metadata, versions

    def is_whole(self, found: Any) -> bool:
        """Whether a tuple that a saver returned has all values and writes."""
        expected = sorted(channel for call in self.writes for channel, _ in call)
        writes = {(channel, str(value)) for _, channel, value in found.pending_writes or ()}
        return found.checkpoint["channel_values"] == self.values and (
            sorted(channel for channel, _ in writes) == expected
        )

    def found_in(self, stored: bytes) -> dict[str, list[bool]]:
        """For each place, whether each value planted there is readable in the bytes of a database."""
        return {
            place: [any(form in stored for form in _forms(value)) for value in values]
            for place, values in self.places.items()
        }


def cell(found: list[bool], found_in_control: list[bool]) -> str:
    """What the page says of a place: what is not stored without sealing either does not count."""
    counted = [seen for seen, seen_in_control in zip(found, found_in_control, strict=True) if seen_in_control]
    return "readable" if all(counted) else "partly readable" if any(counted) else "sealed"


def flat(stored: Any) -> bytes:
    """All keys, texts, numbers and bytes in what a database returned, one after the other."""
    match stored:
        case bytes() | bytearray() | memoryview():
            return bytes(stored)
        case dict():
            return b"\n".join(flat(member) for pair in stored.items() for member in pair)
        case list() | tuple() | set():
            return b"\n".join(map(flat, stored))
        case _:
            return str(stored).encode()


def _forms(value: str | int) -> Iterator[bytes]:
    """The bytes that a value may be stored as: text, hex, base64; numbers also in binary."""
    texts = [str(value).encode()]
    if isinstance(value, int):
        texts += [value.to_bytes(8, "big"), value.to_bytes(8, "little")]
    for text in texts:
        yield text
        yield text.hex().encode()
        for before in range(3):  # base64 depends on the position in groups of three bytes
            encoded = base64.b64encode(bytes(before) + text)
            yield encoded[4 if before else 0 : (before + len(text)) // 3 * 4]
