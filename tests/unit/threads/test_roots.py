"""Lines of logs: each event has its own."""

from __future__ import annotations

import pytest

from sealpoint.threads.store import Event, Head, Kind, Spot, line_of

EVENT = Event(7, Head(Spot("t", "", "1"), Kind.PUT, b"m" * 16), 9)


def test_line_of_an_event() -> None:
    assert line_of(EVENT) == b'[7,0,"6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d","t","","1",9]'


@pytest.mark.parametrize(
    "other",
    [
        EVENT._replace(seq=8),
        EVENT._replace(at=8),
        EVENT._replace(head=EVENT.head._replace(kind=Kind.LEAVING)),
        EVENT._replace(head=EVENT.head._replace(mac=b"n" * 16)),
        EVENT._replace(head=EVENT.head._replace(spot=Spot('t","', "", "1"))),
        EVENT._replace(head=EVENT.head._replace(spot=Spot("t", "1", ""))),
        EVENT._replace(head=EVENT.head._replace(spot=Spot("é\n\0", "", "1"))),
    ],
)
def test_another_event_has_another_line(other: Event) -> None:
    line = line_of(other)
    assert line != line_of(EVENT)
    assert line.isascii()
    assert b"\n" not in line
