"""Exit codes of all commands, and the errors and reasons that lead to them."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.result import Result
from sealpoint.errors import PERMANENT_ERRNOS, SealpointError, excerpt


class Exit(IntEnum):
    """The exit codes of the program."""

    DONE = 0
    BUG = 1
    USAGE = 2
    FOUND = 3
    UNOPENED = 4
    KEYS = 5
    HELD = 6
    STOPPED = 7


_ERRNOS: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE), Exit.STOPPED),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM), Exit.STOPPED),
    **dict.fromkeys(PERMANENT_ERRNOS, Exit.USAGE),
}
_SQLITE: Final = {  # names of SQLite's primary result codes
    Exit.STOPPED: (
        "SQLITE_FULL",
        "SQLITE_IOERR",
        "SQLITE_NOMEM",
        "SQLITE_BUSY",
        "SQLITE_LOCKED",
        "SQLITE_INTERRUPT",
    ),
    Exit.USAGE: ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM"),
    Exit.UNOPENED: ("SQLITE_NOTADB", "SQLITE_CORRUPT"),
}
_POSTGRES: Final = {  # by class of SQLSTATE; empty: the server was unreachable, or the connection was lost
    # 08 connection, 40 rollback, 53 resources, 55 not in the required state, 57 operator, 58 system
    **dict.fromkeys(("", "08", "40", "53", "55", "57", "58"), Exit.STOPPED),
    # 28 authorization, 3D no such database, 3F no such schema, 42 no such table or no right to it
    **dict.fromkeys(("28", "3D", "3F", "42"), Exit.USAGE),
    "XX": Exit.UNOPENED,
}


# The first reason of a result decides. Other refuting reasons lead to FOUND.
_REASONS: Final = {
    Reason.DAMAGED: Exit.UNOPENED,
    Reason.VALUES_FAILED: Exit.UNOPENED,
    Reason.HEADS_DIFFER: Exit.UNOPENED,
    Reason.PIN_DIFFERS: Exit.UNOPENED,
    Reason.KEYS_MISSING: Exit.KEYS,
    Reason.NONE_OPENS: Exit.KEYS,
    Reason.WRAPPERS_FAILING: Exit.KEYS,
    Reason.ENDED_EARLY: Exit.STOPPED,
    Reason.NOT_OPENED: Exit.KEYS,
}


def result_code(result: Result, *, unproven: Exit = Exit.DONE) -> Exit:
    """Return the exit code of a result; ``unproven`` if ``ok`` is ``None`` and no reason has a code."""
    for reason, code in _REASONS.items():
        if reason in result.reasons:
            return code
    if result.ok is None:
        return unproven
    return Exit.DONE if result.ok else Exit.FOUND


# Worst first, for several databases: a bug, findings, errors to correct, runs to repeat.
_WORST_FIRST: Final = (1, 4, 5, 3, 2, 6, 7, 0)


def worst(codes: Iterable[Exit]) -> Exit:
    """Return the worst exit code, for a run over several databases."""
    return min(codes, key=_WORST_FIRST.index, default=Exit.DONE)


def exit_code(error: BaseException) -> Exit:
    """Return the exit code of a command that ends with this error; ``BUG`` for an unexpected error."""
    if isinstance(error, SealpointError):
        return Exit[error.category.upper()]
    if isinstance(error, KeyboardInterrupt | MemoryError):
        return Exit.STOPPED
    import sqlite3

    if isinstance(error, sqlite3.Error):
        codes = {getattr(sqlite3, name): code for code, names in _SQLITE.items() for name in names}
        # The low byte of an extended code is the primary code: SQLITE_IOERR_READ is SQLITE_IOERR | 1 << 8.
        return codes.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, Exit.BUG)
    if _is_postgres(error):
        return _POSTGRES.get((getattr(error, "sqlstate", None) or "")[:2], Exit.BUG)
    if isinstance(error, OSError):
        return _ERRNOS.get(error.errno or 0, Exit.BUG)
    return Exit.BUG


def message(error: BaseException) -> str:
    """Return the text to print for an expected error."""
    if _is_postgres(error):  # the rest of the server's message may quote a row
        return excerpt(str(error).strip().partition("\n")[0])[1:-1]
    if isinstance(error, MemoryError):
        return "not enough memory for a value, or for the output"
    if isinstance(error, OSError) and not isinstance(error, SealpointError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _is_postgres(error: BaseException) -> bool:
    """Return whether an error is of a class of psycopg; does not import psycopg."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(kinds & {"psycopg.errors.OperationalError", "psycopg.errors.DatabaseError", "psycopg.Error"})
