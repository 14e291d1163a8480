"""Times in UTC, in which sealpoint prints and stores all times, as ``2026-01-31T09:30:00Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def as_utc(time: datetime) -> datetime:
    """Convert a time to UTC; a time without a zone is taken as UTC."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def format_utc(time: datetime) -> str:
    """Return a time in UTC as text of RFC 3339, in whole seconds."""
    return f"{as_utc(time).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def now() -> str:
    """Return the current time as text, formatted by `format_utc`."""
    return format_utc(datetime.now(UTC))
