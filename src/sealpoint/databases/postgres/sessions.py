"""Other sessions on a Postgres server: the holder of a saver's schema, and those that may lock its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from sealpoint.databases.postgres.connection import translate_errors
from sealpoint.errors import HeldError, LockedError, StoppedError, excerpt

if TYPE_CHECKING:
    from psycopg import Connection

_HOLD: Final = 0x5EA1  # the upper half of our advisory locks' numbers; the schema is the lower one
_SESSIONS: Final = """
    SELECT DISTINCT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND granted AND pid <> pg_backend_pid() AND {} ORDER BY pid LIMIT 10"""
# pg_locks shows a bigint key as two halves, with objsubid 1; a key of two integers has objsubid 2.
_HOLDS: Final = "locktype = 'advisory' AND classid = %s::oid AND objid = %s::oid AND objsubid = 1"
_WRITES: Final = "relation = ANY(%s::oid[]) AND mode IN ('RowShareLock', 'RowExclusiveLock')"


@contextmanager
def holding(connection: Connection[Any], schema_oid: int, name: str) -> Iterator[None]:
    """Exclude other runs on a schema, by a lock of this session.

    Raises:
        HeldError: If another session holds it; the message names the session.
    """
    lock = (_HOLD << 32 | schema_oid,)
    with translate_errors():
        (taken,) = connection.execute("SELECT pg_try_advisory_lock(%s::bigint)", lock).fetchone() or (False,)
    if not taken:
        raise _held(connection, schema_oid, name)
    try:
        yield
    finally:
        with suppress(StoppedError), translate_errors():  # the lock ends with the session
            connection.execute("SELECT pg_advisory_unlock(%s::bigint)", lock)


def _held(connection: Connection[Any], schema_oid: int, name: str) -> HeldError:
    found = _sessions(connection, _HOLDS, (_HOLD, schema_oid))
    if not found:  # it has just ended
        return HeldError(f"another run holds {name}")
    return HeldError(
        f"another run holds {name}: {_shown(found)}",
        hint=f"wait until it has ended; pg_stat_activity shows, for pid {found[0][0]}, where it runs",
    )


def locked(connection: Connection[Any], oids: Sequence[int], rows: int) -> LockedError:
    """Return the error for rows that other sessions have locked; it names the sessions on these tables."""
    found = _sessions(connection, _WRITES, (list(oids),))
    who = f" (sessions on the tables: {_shown(found)})" if found else ""
    return LockedError(f"{rows} rows are locked by other sessions{who}")


def _sessions(
    connection: Connection[Any], which: str, parameters: tuple[Any, ...]
) -> list[tuple[int, str | None]]:
    with translate_errors():
        return connection.execute(_SESSIONS.format(which).encode(), parameters).fetchall()


def _shown(found: Sequence[tuple[int, str | None]]) -> str:
    """Return sessions for a message: number and application name, if there is one."""
    return ", ".join(f"session {pid}" + (f" of {excerpt(name)}" if name else "") for pid, name in found)
