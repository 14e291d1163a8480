"""Times, which are printed and stored in UTC wherever a process runs, as ``2026-01-31T09:30:00Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def as_utc(time: datetime) -> datetime:
    """Return a time in UTC; a time without a zone is taken as UTC."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def format_utc(time: datetime) -> str:
    """Return a time in whole seconds, in the form of RFC 3339."""
    return f"{as_utc(time).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def now() -> str:
    """Return the current time, formatted by `format_utc`."""
    return format_utc(datetime.now(UTC))
