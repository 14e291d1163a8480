"""All exceptions of sealpoint: one base class, and a subclass for each cause that a caller may handle.

A message says what was found and what was expected. ``hint`` says what to do and is
shown under the traceback. Neither contains key material or decrypted bytes. Untrusted
text in a message is escaped and cut by `excerpt`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn, TypeVar, cast

EXCERPT_CHARS: Final = 200
# Errors of the operating system that a retry cannot resolve: wrong paths, missing rights, read-only mounts.
PERMANENT_ERRNOS: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTSUP, errno.EXDEV),
    }
)


def excerpt(text: object) -> str:
    """Quote untrusted text for a message: escaped and cut to ``EXCERPT_CHARS`` characters."""
    # Cut before escaping, too: a text may have many megabytes.
    shown = ascii(text[: EXCERPT_CHARS + 1] if isinstance(text, str) else type(text).__name__)
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."


Category = Literal["usage", "found", "unopened", "keys", "held", "stopped"]

# The names that identify a row, in the order in which messages show them.
_NAMES: Final = (
    *("table", "thread_id", "checkpoint_ns", "checkpoint_id", "channel", "version", "task_id"),
    *("namespace", "key"),
)


class SealpointError(Exception):
    """Base class of all exceptions of sealpoint.

    Attributes:
        hint: What to do, in one sentence; empty if there is no advice.
        category: Name, in lower case, of the exit code with which a command ends after this error.
        is_counted: Whether a `RingCipher` has counted this error in its statistics of refused values.
        place: Names of the row, value or item, as the database stores these names; shown in the message.
        table: ``checkpoints``, ``values``, ``writes``, ``store`` or ``cache``. This and the names below
            are ``None`` if unknown. If the database stores pseudonyms, the names below are the real
            names, if these are known. Only items and cached values have ``namespace`` and ``key``.
        thread_id, checkpoint_ns, checkpoint_id, channel, version, task_id, namespace, key: See ``table``.
    """

    hint: str = ""
    category: Category = "unopened"  # by default, an error is about a value or a row
    is_counted: bool = False
    place: Mapping[str, Any] = MappingProxyType({})
    table = thread_id = checkpoint_ns = checkpoint_id = channel = version = task_id = key = cast(
        "str | None", None
    )
    namespace: tuple[str, ...] | None = None

    def __init__(self, *args: Any, hint: str | None = None) -> None:
        super().__init__(*args)
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(f"hint: {self.hint}")

    def __str__(self) -> str:
        found = [(name, part) for name in _NAMES if (part := self.place.get(name))]
        place = [f"{name.removesuffix('_id')} {_shown(part)}" for name, part in found]
        return f"{self._message()} ({', '.join(place)})" if place else self._message()

    def _message(self) -> str:
        return super().__str__()


def _shown(name: Any) -> str:
    return excerpt(".".join(map(str, name)) if isinstance(name, tuple) else name)


E = TypeVar("E", bound=SealpointError)


def located(
    error: E, table: str, spot: Sequence[Any] = (), own: Mapping[str, Any] | None = None, **names: Any
) -> E:
    """Add the names of a row to an error, and return the error. Names that the error already has are kept.

    ``spot`` holds the thread, namespace and id of a checkpoint, or only the first of these. ``own`` holds the
    real names behind pseudonyms: the error's attributes get the real names, its message the pseudonyms.
    """
    names |= {"table": table, **dict(zip(_NAMES[1:], spot, strict=False))}
    new = {name: part for name, part in names.items() if part is not None and getattr(error, name) is None}
    error.place = {**error.place, **new}
    vars(error).update(new, **own or {})
    return error


class OmittedAttributeError(SealpointError, AttributeError):
    """The program read an attribute of LangGraph's class that sealpoint's class deliberately lacks."""


class Omitted:
    """Stands for an attribute that only LangGraph's class has: reading it raises `OmittedAttributeError`.

    ``hasattr`` returns False for such an attribute, and ``getattr`` returns the default that it was given.
    """

    def __init__(self, hint: str) -> None:
        """Create the attribute; ``hint`` names what to use instead."""
        self._hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise OmittedAttributeError(f"sealpoint has no {self._name}", hint=self._hint)


# Errors of keys, key rings and ring files.
class KeyRingError(SealpointError):
    """A key ring, a ring file, a key file or a key cannot be used."""

    category: Category = "keys"


class KeyIdError(KeyRingError, ValueError):
    """A key id does not have the form ``[a-z0-9][a-z0-9.-]{0,23}``, or is already in use."""

    category: Category = "usage"
    hint = (
        "use 1 to 24 characters from a-z, 0-9, '.' and '-', starting with a letter or a digit;"
        " give every key its own id; ids are never reused"
    )


class NoActiveKeyError(KeyRingError, LookupError):
    """A value cannot be sealed: the ring has no active key."""

    hint = "activate a key: sealpoint keys promote ID; in code, give a key the state KeyState.ACTIVE"


class UnknownKeyError(KeyRingError, LookupError):
    """A value was sealed under key `key_id`, which is not in the ring; `held` lists the ring's key ids."""

    hint = "update the ring file and the key files of this host, or restore the key from its backup"

    def __init__(self, key_id: str, held: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__(key_id, held, hint=hint)
        self.key_id, self.held = key_id, held

    def _message(self) -> str:
        return f"no key {excerpt(self.key_id)} in the ring (held: {', '.join(self.held) or 'none'})"


class KeyDisabledError(KeyRingError, PermissionError):
    """A value is sealed under a disabled key."""

    hint = "to read these values again, enable the key: sealpoint keys enable ID"


class KeyDestroyedError(KeyRingError, LookupError):
    """A value is sealed under a destroyed key; the message gives the date if the ring file records it."""

    hint = "only a copy of the key that was kept can open values under this key: see docs/key-errors.md"


class KeyTransitionError(KeyRingError, ValueError):
    """A key cannot change from its present state to the requested one."""

    category: Category = "usage"
    hint = "see the table of transitions: docs/keys.md#states"


class KeyInUseError(KeyTransitionError):
    """A key cannot change its state: a database still has rows under this key or an older key."""

    category: Category = "found"
    hint = "reseal the rows first: sealpoint rotate DB --apply"


class WrongRingError(KeyRingError):
    """The rows of a database were sealed with keys that are not in the ring."""

    hint = (
        "use the ring of this database: --keys FILE; if this is the right ring, `sealpoint verify DB` shows"
        " which rows do not open, and --no-key-check (check_keys=False) skips this check"
    )


class RingRollbackError(KeyRingError, ValueError):
    """A ring file is older than the ring in use, or belongs to another ring."""

    hint = "restore the latest ring file; to use another ring, restart the process"


class KeyMaterialError(KeyRingError, ValueError):
    """Key material has a wrong length or encoding, or does not match its check value."""

    hint = "use 32 raw bytes, or base64 or hex of them, with at most one newline at the end"


class RingFileError(KeyRingError, ValueError):
    """A ring file is not TOML, has a wrong field or several active keys, or has the public test keys."""

    category: Category = "usage"
    hint = "compare the file with keys.example"


class RingFileMissingError(RingFileError, FileNotFoundError):
    """There is no ring file at the given path or at the default locations."""

    category: Category = "keys"
    hint = (
        "name a ring file (--keys FILE, from_key_file(PATH) or $SEALPOINT_KEYS);"
        " for a new database, create one: sealpoint keys init --keys keys.toml"
    )


class FilePermissionsError(KeyRingError, PermissionError):
    """Other accounts can read a key file, or can write a key or ring file; or the path is no regular file."""

    hint = "run chmod 600 on the file; its owner must be the account of this process"


class SourceError(KeyRingError, OSError):
    """The file, command or variable that holds the material of a key did not provide this material."""

    hint = "check that the source exists and that the account of this process may read it"


class SourceTimeoutError(SourceError, TimeoutError):
    """A command that prints key material did not end in time."""

    hint = "run the command by hand; it must print the key and exit"


class KeyUnavailableError(SourceError):
    """The service that wraps a key does not answer, or refuses to unwrap the key.

    If `may_pass` is true, a retry may succeed: the service gave no answer, or was busy.
    """

    hint = "`sealpoint keys check` tests each wrapper; the key works again as soon as its service answers"

    def __init__(self, *args: Any, hint: str | None = None, may_pass: bool = False) -> None:
        super().__init__(*args, hint=hint)
        self.may_pass = may_pass


class WrappedKeyError(KeyRingError, ValueError):
    """A wrapped key was made by another wrapper, for another ring or key, or is damaged."""

    hint = (
        "if the ring's 'name' or the key's id was changed, change it back; otherwise restore the entry"
        " of the key from a copy of the ring file"
    )


# Errors of sealed values and their tags.
class SealedValueError(SealpointError, ValueError):
    """A value cannot be opened or sealed: it is not bytes, or is too short."""

    hint = "no saver stores a value in this form: compare the row with a backup"


class TagError(SealedValueError):
    """A type tag does not have the form ``<inner>+<suite>[.flags]@<key id>``, or its suite is unknown."""

    hint = "this release of sealpoint does not write such a type: find the program or release that wrote it"


class PlaintextError(SealedValueError):
    """A value is not sealed, and plaintext is not allowed."""

    hint = 'seal existing rows first, or pass plaintext="allow" while you migrate'


class IntegrityError(SealedValueError):
    """Authentication failed: a value's bytes, type tag, key or row differ from those when it was sealed."""

    hint = "the row was changed, moved or relabelled, or the ring holds another key under this id"


class ContextMissingError(SealedValueError):
    """A value is bound to its row, but was opened without naming a row."""

    hint = "read the value through the saver that wrote it"


class UnboundValueError(SealedValueError):
    """A value is not bound to a row, but was opened as the value of a row."""

    hint = "the value was sealed without its row, and may be of another row or thread: see docs/migration.md"


# Errors of serialization.
class SerdeError(SealpointError):
    """A value cannot be serialized or rebuilt."""


class UnsupportedTypeError(SerdeError, TypeError):
    """A value cannot be written: the serializer does not support its type."""

    hint = "convert the value to a supported type; see docs/serializer.md"


class NestingError(UnsupportedTypeError):
    """A value cannot be written: it is nested so deeply that writing or reading it may exhaust the stack."""

    hint = "store a long chain of objects as a list"


class _NamedTypeError(SerdeError):
    def __init__(self, module: str, name: str, cause: str, *, hint: str | None = None) -> None:
        super().__init__(module, name, cause, hint=hint)
        self.module, self.name, self.cause = module, name, cause


class UnreadableTypeError(_NamedTypeError, TypeError):
    """A value cannot be written: a reader could not find its class `name` in `module`; `cause` says why."""

    hint = "define the class at the top level of a module, under its own name"

    def _message(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} cannot be read back: {self.cause}"


class UnknownTypeError(SerdeError, NotImplementedError):
    """A value's serialization type is unknown, or is refused, such as ``pickle`` unless it is enabled."""


class DecodeError(SerdeError, ValueError):
    """The bytes of a value do not have the format that its serialization type names."""

    hint = "find the program that wrote the row, or compare the row with a backup: see docs/untrusted.md"


class LimitError(DecodeError):
    """Unauthenticated bytes exceed a limit: size, depth or number of elements.

    Attributes:
        limit: Name of the field of `sealpoint.serde.limits.Limits`; empty if the limit is fixed.
    """

    hint = "this limit is fixed: if the value is yours, read it with LangGraph and write the value again"

    def __init__(self, message: str, limit: str = "", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit


class BlockedTypeError(SerdeError, TypeError):
    """A value names type `name` of `module`, which is not on the allowlist. Nothing was imported."""

    _advice: str = "{argument}"

    def __init__(self, module: str, name: str, parameter: str = "allowed_msgpack_modules") -> None:
        allowlist = f"[({excerpt(module)}, {excerpt(name)})]"
        argument = f"{parameter}={allowlist}"
        if parameter != "allowed_msgpack_modules":  # other parameters are JsonPlusSerializer's
            argument = f"serde=JsonPlusSerializer({argument})"
        advice = self._advice.format(argument=argument, allowlist=allowlist)
        super().__init__(module, name, parameter, hint=f"if the type is yours, allow it: {advice}")
        self.module, self.name = module, name

    def _message(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} is not on the allowlist"


class UnauthenticatedTypeError(BlockedTypeError):
    """A value that no key has authenticated names a type that is not on the allowlist."""

    _advice = (
        "serde = serde.with_msgpack_allowlist({allowlist});"
        " 'sealpoint types DB --emit' prints the allowlist for all stored values"
    )

    def _message(self) -> str:
        return f"{super()._message()}, and no key has authenticated the value"


class UnbuildableValueError(_NamedTypeError, ValueError):
    """Type `name` of `module` refuses the arguments that a value has stored for it; `cause` says why."""

    hint = (
        "compare the type with its version in the program that wrote the value: keep fields that values have,"
        ' give new fields defaults; serde=JsonPlusSerializer(on_blocked="raw") returns the bare arguments'
    )

    def _message(self) -> str:
        return f"cannot rebuild {excerpt(f'{self.module}.{self.name}')}: {self.cause}"


# Errors of savers, and of the databases that they read.
class SchemaError(SealpointError, ValueError):
    """A database lacks tables that LangGraph creates, or has altered ones."""

    category: Category = "usage"
    hint = "open a copy in the sqlite3 shell and look at sqlite_master before you trust the file"


class TablesMissingError(SchemaError):
    """A Postgres database has no tables of LangGraph yet: LangGraph's saver creates them in `setup`."""

    hint = "is it the right database, and the right search path? the saver's setup() creates the tables"


class OldTablesError(SchemaError):
    """A database has the tables of LangGraph before 0.2, which savers no longer read."""

    hint = (
        "LangGraph since 0.2 (August 2024) cannot read these tables, and sealpoint cannot seal them: give the"
        " agents a new database, and delete this one, which is readable, when its threads are not needed"
    )

    def _message(self) -> str:
        found = "the tables are of LangGraph before 0.2: they have a column 'thread_ts'"
        return "; ".join((found, *self.args))


class DatabaseCorruptError(SealpointError, OSError):
    """SQLite reports that a file is damaged or is not a database."""

    hint = "restore the file from backup; `.recover` in the sqlite3 shell saves what can be read"


class EndlessTreeError(DatabaseCorruptError):
    """Pages of a SQLite file form a cycle or are shared, so reads yield more rows than the file can hold."""


class RowError(SealpointError, ValueError):
    """The contents of a row contradict its type or its primary key."""

    hint = "compare the row with a backup; a row over a limit may be genuine: see docs/untrusted.md#limits"


class TextError(RowError):
    """A row contains text that is not UTF-8."""


class WritesLostError(RowError):
    """Pending writes of a task are missing, although other writes prove that they were stored."""

    hint = (
        "restore the row from backup; for a saver that stores the writes of one call one by one,"
        " pass allow_partial_writes=True"
    )


class ParentLostError(RowError):
    """The row of a checkpoint names no parent, but its sealed header does, and the parent was not deleted."""

    hint = (
        "restore the row; if a process without threads= pruned its parent, accept the change:"
        " `sealpoint heads adopt DB --reason TEXT`"
    )


class EarlierWriteError(RowError):
    """A pending write is outdated: the thread store remembers a later write that replaced it."""


class MetadataError(SealpointError, ValueError):
    """Metadata is not a JSON object, cannot be written as JSON, or exceeds a limit."""


class ForkedError(SealpointError, RuntimeError):
    """A saver (of class `saver`) is used in a child process, but its connection belongs to the parent."""

    hint = "create connections and savers in each worker process, after the fork; docs/deploy.md shows where"

    def __init__(self, saver: str, *, hint: str | None = None) -> None:
        super().__init__(saver, hint=hint)
        self.saver = saver

    def _message(self) -> str:
        return f"this {self.saver} was created before the process forked, and its connection cannot be shared"


class SealingError(SealpointError, TypeError):
    """A saver or cipher cannot seal its values, and would store them as plaintext. Nothing was stored."""

    hint = "docs/savers.md lists the savers that can be sealed"


class SealingCheckError(SealingError):
    """`require_sealing` found that a saver does not seal every value, or could not check the saver.

    `saver` is the class of the saver, and `reason` says why the check failed.
    """

    hint = (
        "pass the serializer to the saver when you create it (serde=...), not afterwards; "
        "docs/savers.md lists what each saver seals"
    )

    def __init__(self, saver: type, reason: str, *, hint: str | None = None) -> None:
        super().__init__(saver, reason, hint=hint)
        self.saver, self.reason = saver, reason

    def _message(self) -> str:
        return f"{self.saver.__name__}: {self.reason}"


class ConfigError(SealpointError, ValueError):
    """An argument of a saver or a function is invalid, such as a config, a filter or a limit."""

    category: Category = "usage"


def require_is(value: object, kind: type, name: str, hint: str) -> None:
    """Raise `ConfigError` unless an argument is an instance of ``kind``; ``hint`` says what to pass."""
    if isinstance(value, type) or not isinstance(value, kind):
        met = type(value)
        shown = f"{met.__module__}.{met.__name__}" if met.__name__ == kind.__name__ else met.__name__
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ConfigError(f"{name} is {shown}, not {article} {kind.__name__}", hint=hint)


class ConfigKeyError(ConfigError, KeyError):
    """A config lacks a required key."""

    def _message(self) -> str:
        return str(self.args[0])


# Errors of thread stores, and of databases that lack what a store remembers.
class RolledBackError(SealpointError, LookupError):
    """A database lacks a checkpoint that its thread store remembers, or has an earlier state of it.

    In thread `thread_id`, the thread store remembers the checkpoint with the id `want`. The database has the
    checkpoint with the id `have` in its place, or no checkpoint if `have` is ``None``.
    """

    table = "checkpoints"

    hint = (
        "check the whole database: `sealpoint verify DB`; if a backup was restored on purpose, or a process"
        " without threads= wrote or deleted rows (correct it first), accept the rows as they are:"
        " `sealpoint heads adopt DB --reason TEXT`"
    )

    def __init__(self, thread_id: str, have: str | None, want: str, *, hint: str | None = None) -> None:
        super().__init__(thread_id, have, want, hint=hint)
        self.thread_id, self.have, self.want = thread_id, have, want
        self.checkpoint_id = want

    def _message(self) -> str:
        thread, want = excerpt(self.args[0]), excerpt(self.want)  # the database may have a pseudonym
        if self.have == self.want:
            return f"thread {thread}: checkpoint {want} is in an earlier state than the last that was stored"
        instead = "" if self.have is None else f"; the database has {excerpt(self.have)}"
        return f"thread {thread}: checkpoint {want} is missing{instead}"


class DeletedCheckpointError(SealpointError, LookupError):
    """Checkpoint `checkpoint_id` of thread `thread_id` was deleted, but is in the database again."""

    hint = (
        "SealedSaver does not return this checkpoint: delete the thread again, which also completes an"
        " interrupted deletion; to accept a restored backup: `sealpoint heads adopt DB --reason TEXT`"
    )

    def __init__(self, thread_id: str, checkpoint_id: str, *, hint: str | None = None) -> None:
        super().__init__(thread_id, checkpoint_id, hint=hint)
        self.thread_id, self.checkpoint_id = thread_id, checkpoint_id

    def _message(self) -> str:
        thread, checkpoint = excerpt(self.thread_id), excerpt(self.checkpoint_id)
        return f"thread {thread}: checkpoint {checkpoint} was deleted, and put back"


class ThreadStoreError(SealpointError):
    """A thread store cannot be read or written."""

    category: Category = "usage"


class ThreadStoreDownError(ThreadStoreError, ConnectionError):
    """A thread store cannot be reached or opened, or is damaged."""

    category: Category = "stopped"
    hint = "make the thread store available again; meanwhile no checkpoint is written or returned as current"


class ThreadStoreMissingError(ThreadStoreDownError):
    """The path or server of a thread store can be reached, but no thread store was created there."""

    category: Category = "usage"
    hint = (
        "name the path or URL of the thread store, or create one: create=True, or"
        " `sealpoint heads adopt DB --create --reason TEXT`"
    )


class ThreadStoreTimeoutError(ThreadStoreError, TimeoutError):
    """A thread store did not answer in time."""

    category: Category = "stopped"
    hint = "find out what slows down or locks the thread store, or raise the time limit: timeout=SECONDS"


class SharedRoleError(ThreadStoreError, PermissionError):
    """A saver's session has or can assume `role`, which may write the thread store; `right` says why."""

    def __init__(self, role: str, right: str, *, hint: str | None = None) -> None:
        super().__init__(role, right, hint=hint)
        self.role, self.right = role, right

    def _message(self) -> str:
        return f"the saver's session may write the thread store: role {excerpt(self.role)} {self.right}"


class ThreadStoreFullError(ThreadStoreError, OSError):
    """A thread store cannot grow: no space is left on its device."""

    category: Category = "stopped"
    hint = "make space; a checkpoint stored without its head can be read, but its deletion is not detected"


class ThreadStoreBehindError(ThreadStoreError, LookupError):
    """A thread store has fewer events than the database has recorded of it: an older copy was restored."""

    category: Category = "unopened"
    hint = "if the thread store was restored from a backup, update it with `sealpoint heads adopt`"


class WrongThreadStoreError(ThreadStoreError, ValueError):
    """A thread store belongs to another database."""

    hint = "name the thread store of this database, or assign this one to it with `sealpoint heads adopt`"


# Errors of ledgers, and of the signed notes and proofs that belong to them.
class LedgerMissingError(SealpointError, FileNotFoundError):
    """The ring file names no ledger, or there is no ledger in the folder that it names."""

    category: Category = "usage"
    hint = "restore the folder of the ledger from a copy, or create a new ledger: `sealpoint ledger init`"


class LedgerTamperedError(SealpointError, ValueError):
    """A line of a ledger is not a valid entry, or the entries do not match the signed head of the ledger."""

    category: Category = "found"
    hint = (
        "keep the folder as it is, and compare it with a copy: commands that record in the ledger do not run"
        " until its files are restored"
    )


class LedgerSignerError(SealpointError):
    """This account cannot sign for a ledger: the signing key is missing, or belongs to another ledger."""

    category: Category = "keys"
    hint = (
        "run this as the account that holds the ledger's signing key; a new signing key needs a new ledger:"
        " sealpoint ledger init --previous DIR"
    )


class NoteError(SealpointError, ValueError):
    """The signed head of a ledger, or a pin, proof or verifier key, does not have the required format."""

    category: Category = "usage"
    hint = "copy the file as a whole, with its last newline"


class SignatureError(NoteError):
    """The signature of a ledger's head does not verify with the given verifier key."""

    category: Category = "found"
    hint = "compare the verifier key with the one that was noted when the ledger was created"


# Errors of maintenance and of the command line.


class MaintenanceError(SealpointError):
    """Maintenance of a database cannot start or continue, or was given an invalid argument."""

    category: Category = "usage"


class DatabaseMissingError(MaintenanceError, FileNotFoundError):
    """The named database does not exist."""

    hint = "name a SQLite file that LangGraph or sealpoint wrote, or a postgresql:// URL"


class UnreachableError(DatabaseMissingError):
    """A database server does not answer or accepts no connection now; a later run may succeed."""

    category: Category = "stopped"
    hint = "check that the server runs and that psql connects with the same URL"


class HeldError(MaintenanceError, BlockingIOError):
    """Another command holds the lock on the database."""

    category: Category = "held"
    hint = "wait until the other run has ended, then run the command again; a lock ends with its process"


class OutputError(MaintenanceError, FileExistsError):
    """The output file already exists, or cannot have the given name."""

    hint = "name a file that does not exist; existing files are not overwritten"


class StoppedError(MaintenanceError, OSError):
    """A run ended early; every change it made is complete, and a second run continues where it stopped."""

    category: Category = "stopped"
    hint = (
        "make room or end the blocking process, then run the same command again:"
        " it continues where it stopped"
    )


class AccessError(StoppedError):
    """A run ended early because it has no right to write to a file or server; a retry fails, too."""

    category: Category = "usage"
    hint = "give the account of this process write access to the folder, then run the same command again"


def stopped_by(error: OSError, message: str, hint: str | None = None) -> StoppedError:
    """Return a `StoppedError` for an ``OSError``, or an `AccessError` if a retry cannot succeed.

    ``message`` says which action failed; the operating system's text for the error is appended.
    """
    kind = AccessError if error.errno in PERMANENT_ERRNOS else StoppedError
    return kind(f"{message}: {os.strerror(error.errno or 0)}", hint=hint)


@contextmanager
def stopping(message: str, hint: str | None = None) -> Iterator[None]:
    """Replace an ``OSError`` of the ``with`` block by `stopped_by`, unless it is a `SealpointError`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SealpointError):
            raise
        raise stopped_by(error, message, hint) from None


class HaltedError(StoppedError):
    """A SQL statement was interrupted because the run was stopped."""

    hint = "run the same command again: it continues where it stopped"


class LockedError(StoppedError):
    """Other sessions kept rows locked until a run ended; the run has processed all other rows."""

    hint = (
        "end their transactions (pg_stat_activity and pg_prepared_xacts show them),"
        " then run the same command again"
    )


class ScrubError(MaintenanceError, BlockingIOError):
    """Deleted or replaced data cannot be cleared from a database file now."""

    category: Category = "stopped"
    lock_seconds: float = 0.0  # how long the attempt made writers wait
    hint = "end the processes that read the database, or close the database in them, then scrub again"


class MissingExtraError(MaintenanceError, ImportError):
    """A package is not installed that one of sealpoint's extras, such as ``cli``, would install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra, hint=f"pip install 'sealpoint[{extra}]'")
        self.package, self.extra = package, extra

    def _message(self) -> str:
        return f"package {self.package!r} is not installed; it is part of the extra {self.extra!r}"
