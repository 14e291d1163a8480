"""Errors of maintenance and of the command line."""

from __future__ import annotations

import errno
import os
from typing import Final

from sealpoint.errors.root import SealpointError

PERMANENT_ERRNOS: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTSUP, errno.EXDEV),
    }
)
"""What the system refuses for a reason that stays until names, rights or mounts are changed."""


class MaintenanceError(SealpointError):
    """Maintenance of a database cannot start or continue."""


class DatabaseMissingError(MaintenanceError, FileNotFoundError):
    """The named database does not exist."""

    hint = "name a SQLite file that LangGraph or sealpoint wrote, or a postgresql:// URL"


class UnreachableError(DatabaseMissingError):
    """A database server does not answer or accepts no connection now; a later run may succeed."""

    hint = "check that the server runs and that psql connects with the same URL"


class PinError(MaintenanceError, ValueError):
    """A file is not a pin of a thread store."""

    hint = "name a file that `sealpoint heads seal --pin FILE` wrote"


class HeldError(MaintenanceError, BlockingIOError):
    """Another run holds the database."""

    hint = "wait until the other run has ended, then run the command again; a lock ends with its process"


class OutputExistsError(MaintenanceError, FileExistsError):
    """The output file already exists."""

    hint = "name a file that does not exist; existing files are not overwritten"


class OutputNameError(MaintenanceError, ValueError):
    """The output file cannot have the given name."""

    hint = "choose a shorter name: temporary files beside the output have longer ones"


class StoppedError(MaintenanceError, OSError):
    """A run ended early; its changes are complete, and it can be run again."""

    hint = (
        "make room or end the blocking process, then run the same command again:"
        " it continues where it stopped"
    )


class AccessError(StoppedError):
    """A run ended early because a file or a server may not be written; it will end so again."""

    hint = "let the account that runs this write to the folder, then run the same command again"


def stopped_by(error: OSError, message: str, hint: str | None = None) -> StoppedError:
    """Return the error for what the system refused: `AccessError` if it will refuse that again.

    Args:
        error: What the system raised.
        message: What could not be done; the system's reason is added.
        hint: What to do, if it is more than the class says.
    """
    kind = AccessError if error.errno in PERMANENT_ERRNOS else StoppedError
    return kind(f"{message}: {os.strerror(error.errno or 0)}", hint=hint)


class HaltedError(StoppedError):
    """A statement was interrupted because the run was stopped."""

    hint = "run the same command again: it continues where it stopped"


class LockedError(StoppedError):
    """Other sessions held locks on rows until the end of a run; all other rows are done."""

    hint = (
        "end their transactions (pg_stat_activity and pg_prepared_xacts show them),"
        " then run the same command again"
    )


class UnrelatedDatabaseError(MaintenanceError, ValueError):
    """A database contains no value under any key of the ring, so it shows nothing about a key."""

    hint = (
        "name the databases that were sealed under this ring; `sealpoint status DB` shows the keys of one."
        " To accept this one: --allow-unrelated"
    )


class PasswordError(MaintenanceError, ValueError):
    """A password is in the arguments of a program, which every user of the machine can read."""

    hint = "remove it from the URL; libpq reads it from ~/.pgpass, $PGPASSFILE or $PGSERVICEFILE"


class ScrubError(MaintenanceError, BlockingIOError):
    """Old contents of a database cannot be removed now.

    Attributes:
        lock_seconds: How long writers waited for the attempt.
    """

    lock_seconds: float = 0.0

    hint = "end the processes that read the database, or close it there, then scrub again"


class ServerError(MaintenanceError, OSError):
    """A database server refuses a statement permanently.

    Attributes:
        kind: Name of the error.
        sqlstate: Its SQLSTATE code, empty if the server gave none.
    """

    hint = "grant the account SELECT and UPDATE on the tables; see the server's log"

    def __init__(self, kind: str, sqlstate: str) -> None:
        super().__init__(kind, sqlstate)
        self.kind = kind
        self.sqlstate = sqlstate

    def __str__(self) -> str:
        return f"the server refuses a statement: {self.kind} (SQLSTATE {self.sqlstate or 'none'})"


class SuperuserError(MaintenanceError, PermissionError):
    """A superuser reads a standby, where no lock keeps the owner from changing the tables."""

    hint = "connect to the primary, or as a role that may only SELECT from the tables: docs/postgres.md"

    def __str__(self) -> str:
        return "commands of a superuser are refused on a standby: no lock there keeps the tables unchanged"


class MissingExtraError(MaintenanceError, ImportError):
    """A package of an extra is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra, hint=f"pip install 'sealpoint[{extra}]'")
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f"package {self.package!r} is not installed; it is part of the extra {self.extra!r}"
