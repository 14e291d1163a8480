"""The period that a report is about: what changed in it is listed."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from sealpoint.utc import as_utc, format_utc


class Period(NamedTuple):
    """A period, in UTC.

    Attributes:
        start: When it begins.
        end: When it has ended.
    """

    start: datetime
    end: datetime

    def object(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"from": format_utc(self.start), "until": format_utc(self.end)}

    def has(self, moment: datetime) -> bool:
        """Whether a moment is in it. A time without a zone is in UTC."""
        return self.start <= as_utc(moment) < self.end


def parse_period(text: str) -> Period:
    """Read a period: two dates, or times of ISO 8601, with ``..`` between them.

    The second date is part of the period. A time without a zone is in UTC.

    Raises:
        ValueError: If it is not one, or ends before it begins.
    """
    first, separator, last = text.partition("..")
    if not separator:
        raise ValueError(f"{text!r} has no '..'")
    start, end = _moment(first, timedelta()), _moment(last, timedelta(days=1))
    if end <= start:
        raise ValueError(f"{text!r} ends before it begins")
    return Period(start, end)


def _moment(text: str, more: timedelta) -> datetime:
    """Return a time; of a date the first moment, and ``more``."""
    try:
        if len(text) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(text), time(), UTC) + more
        return as_utc(datetime.fromisoformat(text))
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None
