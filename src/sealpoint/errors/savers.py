"""Errors of savers and of the databases that they read."""

from __future__ import annotations

from sealpoint.errors.root import SealpointError


class SaverError(SealpointError):
    """A checkpoint cannot be stored or loaded."""


class SchemaError(SaverError, ValueError):
    """A database lacks the tables that LangGraph creates, or they are altered."""

    hint = "open a copy in the sqlite3 shell and look at sqlite_master before you trust the file"


class DatabaseCorruptError(SaverError, OSError):
    """SQLite reports that a file is damaged or is not a database."""

    hint = "restore the file from backup; `.recover` in the sqlite3 shell saves what can be read"


class EndlessTreeError(DatabaseCorruptError):
    """The pages of a file lead to more rows than it can hold: they form a cycle or are shared."""


class RowError(SaverError, ValueError):
    """A row does not contain what its type or its primary key says."""

    hint = "the row was damaged or forged; restore it from backup"


class TextError(RowError):
    """A row contains text that is not UTF-8."""


class WritesLostError(RowError):
    """Pending writes of a task are missing, and others show that they were stored."""

    hint = (
        "restore the row from backup; for a saver that stores the writes of one call one by one,"
        " pass allow_partial_writes=True"
    )


class EarlierWriteError(RowError):
    """A pending write is an earlier one: the thread store remembers another that has replaced it."""


class MetadataError(SaverError, ValueError):
    """Metadata is not strict JSON: duplicate keys, NaN, infinity, or not an object."""


class ForkedError(SaverError, RuntimeError):
    """A saver is used in a child process, and its connection belongs to the parent.

    Attributes:
        saver: Name of its class.
    """

    hint = "create connections and savers in each worker process, after the fork; docs/deploy.md shows where"

    def __init__(self, saver: str, *, hint: str | None = None) -> None:
        super().__init__(saver, hint=hint)
        self.saver = saver

    def __str__(self) -> str:
        return f"this {self.saver} was created before the process forked, and its connection cannot be shared"


class SealingError(SaverError, TypeError):
    """A saver does not pass values to its serializer: they would be stored readable. Nothing was stored."""

    hint = "docs/savers.md lists the savers that can be sealed"


class SealingCheckError(SealingError):
    """`require_sealing` found that a saver does not seal every value, or could not check it.

    Attributes:
        saver: Class of the saver.
        reason: What the check found.
    """

    hint = (
        "pass the serializer to the saver when you create it (serde=...), not afterwards; "
        "docs/savers.md lists what each saver seals"
    )

    def __init__(self, saver: type, reason: str, *, hint: str | None = None) -> None:
        super().__init__(saver, reason, hint=hint)
        self.saver = saver
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.saver.__name__}: {self.reason}"


class ConfigError(SaverError, ValueError):
    """A config, filter, limit or ``before`` has a form that a saver does not accept."""


class ConfigKeyError(ConfigError, KeyError):
    """A config lacks a required key."""

    def __str__(self) -> str:
        return str(self.args[0])
