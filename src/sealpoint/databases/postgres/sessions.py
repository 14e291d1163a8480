"""Other sessions at a Postgres server: who holds a saver's schema, and who may keep its rows locked."""

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
    """Keep other runs off a schema: a lock of this session, gone with it.

    Raises:
        HeldError: If another session has it; the message says which.
    """
    lock = (_HOLD << 32 | schema_oid,)
    with translate_errors():
        (taken,) = connection.execute("SELECT pg_try_advisory_lock(%s::bigint)", lock).fetchone() or (False,)
    if not taken:
        raise _held(connection, schema_oid, name)
    try:
        yield
    finally:
        with suppress(StoppedError), translate_errors():  # with the session the lock is gone too
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
    """Return the error for rows that others keep locked, with the sessions that work on their tables."""
    found = _sessions(connection, _WRITES, (list(oids),))
    who = f" (at work on the tables: {_shown(found)})" if found else ""
    return LockedError(f"{rows} rows are locked by other sessions{who}")


def _sessions(
    connection: Connection[Any], which: str, parameters: tuple[Any, ...]
) -> list[tuple[int, str | None]]:
    with translate_errors():
        return connection.execute(_SESSIONS.format(which).encode(), parameters).fetchall()


def _shown(found: Sequence[tuple[int, str | None]]) -> str:
    """Name sessions: by number, and by what their programs call themselves, if they do."""
    return ", ".join(f"session {pid}" + (f" of {excerpt(name)}" if name else "") for pid, name in found)
