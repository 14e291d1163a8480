"""All exceptions of sealpoint: one root, and a class for each cause that a caller tells apart.

A message says what was found and what was expected. ``hint`` says what to do and is
shown under the traceback. Neither contains key material or decrypted bytes; what a
message quotes of untrusted data goes through `excerpt`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn, TypeVar, cast

EXCERPT_CHARS: Final = 200
# What the system refuses for a reason that stays until names, rights or mounts are changed.
PERMANENT_ERRNOS: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTSUP, errno.EXDEV),
    }
)


def excerpt(text: object) -> str:
    """Quote untrusted text for a message: escaped and cut to ``EXCERPT_CHARS`` characters."""
    # Cut before, too: a text may have many megabytes.
    shown = ascii(text[: EXCERPT_CHARS + 1] if isinstance(text, str) else type(text).__name__)
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."


Category = Literal["usage", "found", "unopened", "keys", "held", "stopped"]

# What names a row, in the order of messages
_NAMES: Final = (
    *("table", "thread_id", "checkpoint_ns", "checkpoint_id", "channel", "version", "task_id"),
    *("namespace", "key"),
)


class SealpointError(Exception):
    """Base class of all exceptions of sealpoint.

    Attributes:
        hint: What to do, in one sentence; empty if there is no advice.
        category: What a command ends in, by the name of its exit code.
        is_counted: Whether it is one of the refusals that a cipher counts.
        place: The names of the row, value or item, as the database has them: the message gives these.
        table: ``checkpoints``, ``values``, ``writes``, ``store`` or ``cache``. This and the following are
            ``None`` if not known. Where pseudonyms stand for names, these are the names themselves, as far
            as they are known: asked for, or opened. ``namespace`` and ``key`` are of an item or a cache.
        thread_id, checkpoint_ns, checkpoint_id, channel, version, task_id, namespace, key: See ``table``.
    """

    hint: str = ""
    category: Category = "unopened"  # what is no other is about a value or a row
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
    """Add to an error which row it is about, and return it; what it names already stays.

    ``spot`` are thread, namespace and id of a checkpoint, or the first of them. ``own`` are names for which
    pseudonyms stand in the database: only attributes have them.
    """
    names |= {"table": table, **dict(zip(_NAMES[1:], spot, strict=False))}
    new = {name: part for name, part in names.items() if part is not None and getattr(error, name) is None}
    error.place = {**error.place, **new}
    vars(error).update(new, **own or {})
    return error


class OmittedAttributeError(SealpointError, AttributeError):
    """An attribute of LangGraph's class is deliberately missing from sealpoint's."""


class Omitted:
    """Class attribute in place of one of LangGraph's: reading it raises `OmittedAttributeError`.

    ``hasattr`` returns False for it, and ``getattr`` returns its default.
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
    """A key id does not have the form ``[a-z0-9][a-z0-9.-]{0,23}``, or is used already."""

    category: Category = "usage"
    hint = (
        "use 1 to 24 of a-z, 0-9, '.' and '-', starting with a letter or a digit;"
        " give every key its own id; ids are never reused"
    )


class NoActiveKeyError(KeyRingError, LookupError):
    """A value cannot be sealed: the ring has no active key."""

    hint = "activate a key: sealpoint keys promote ID; in code, give one the state KeyState.ACTIVE"


class UnknownKeyError(KeyRingError, LookupError):
    """A value names a key, `key_id`, that is not in the ring; `held` are the ids in it, in ring order."""

    hint = "update the ring file and the key files of this host, or restore the key from its backup"

    def __init__(self, key_id: str, held: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__(key_id, held, hint=hint)
        self.key_id, self.held = key_id, held

    def _message(self) -> str:
        return f"no key {excerpt(self.key_id)} in the ring (held: {', '.join(self.held) or 'none'})"


class KeyDisabledError(KeyRingError, PermissionError):
    """A value is sealed under a disabled key."""

    hint = "if values under it may be read again: sealpoint keys enable ID"


class KeyDestroyedError(KeyRingError, LookupError):
    """A value is sealed under a destroyed key; the message gives the date, if the ring has it."""

    hint = "its values cannot be opened, except with a kept copy of the key: see docs/key-errors.md"


class KeyTransitionError(KeyRingError, ValueError):
    """The state of a key does not allow the requested state."""

    category: Category = "usage"
    hint = "see the table of transitions: docs/keys.md#states"


class KeyInUseError(KeyTransitionError):
    """A key cannot change its state: a database has rows under it, or under an older key."""

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
    """Key material has a wrong length or encoding, or is not what its check value was made from."""

    hint = "use 32 raw bytes, or base64 or hex of them, with at most one newline at the end"


class RingFileError(KeyRingError, ValueError):
    """A ring is not valid: not TOML, a wrong field, no single active key, or the public test keys."""

    category: Category = "usage"
    hint = "compare the file with keys.example"


class RingFileMissingError(RingFileError, FileNotFoundError):
    """There is no ring file at the given path or at the default locations."""

    category: Category = "keys"
    hint = (
        "name one (--keys FILE, from_key_file(PATH) or $SEALPOINT_KEYS);"
        " for a new database, create one: sealpoint keys init --keys keys.toml"
    )


class FilePermissionsError(KeyRingError, PermissionError):
    """Others can read or write a key file, or write a ring file; or it is a link, or no regular file."""

    hint = "chmod 600 the file, and let the account that runs this own it"


class SourceError(KeyRingError, OSError):
    """A source did not provide key material."""

    hint = "check that the source exists and that the account that runs this may read it"


class SourceTimeoutError(SourceError, TimeoutError):
    """A command that prints key material did not end in time."""

    hint = "run the command by hand; it must print the key and exit"


class KeyUnavailableError(SourceError):
    """The service that wraps a key does not answer, or refuses to unwrap it.

    With `may_pass`, the same request may succeed a moment later: no answer, or a busy service.
    """

    hint = "sealpoint keys check asks each wrapper; the key is used as soon as its service answers again"

    def __init__(self, *args: Any, hint: str | None = None, may_pass: bool = False) -> None:
        super().__init__(*args, hint=hint)
        self.may_pass = may_pass


class WrappedKeyError(KeyRingError, ValueError):
    """A wrapped key was made by another wrapper, for another ring or key, or is damaged."""

    hint = (
        "if the ring's 'name' or the key's id was changed, change it back; otherwise restore the entry from a"
        " copy of the ring file"
    )


# Errors of sealed values and their tags.
class SealedValueError(SealpointError, ValueError):
    """A value cannot be opened or sealed: it is not bytes, or is too short."""

    hint = "no saver stores a value in this form: compare the row with a backup"


class TagError(SealedValueError):
    """A type tag is not of the form ``<inner>+<suite>[.flags]@<key id>``, or its suite is not known."""

    hint = "this release of sealpoint writes no such type: look for another program or release that does"


class PlaintextError(SealedValueError):
    """A value is not sealed, and plaintext is not allowed."""

    hint = 'seal existing rows first, or pass plaintext="allow" while you migrate'


class IntegrityError(SealedValueError):
    """Authentication failed: bytes, tag, key or row differ from those that were sealed."""

    hint = "the row was changed, moved or relabelled, or the ring holds another key under this id"


class ContextMissingError(SealedValueError):
    """A value is bound to its row, and no row was given."""

    hint = "read it through the saver that wrote it"


class UnboundValueError(SealedValueError):
    """A row was given, but the value is not bound to a row."""

    hint = "it was sealed without its row or thread, and may come from another place: see docs/migration.md"


# Errors of serialization.
class SerdeError(SealpointError):
    """A value cannot be serialized or rebuilt."""


class UnsupportedTypeError(SerdeError, TypeError):
    """A value cannot be written: the serializer does not support its type."""

    hint = "convert it to a supported type; see docs/serializer.md"


class NestingError(UnsupportedTypeError):
    """A value cannot be written: it is nested so deeply that writing or reading it may exhaust the stack."""

    hint = "store a long chain of objects as a list"


class _NamedTypeError(SerdeError):
    def __init__(self, module: str, name: str, cause: str, *, hint: str | None = None) -> None:
        super().__init__(module, name, cause, hint=hint)
        self.module, self.name, self.cause = module, name, cause


class UnreadableTypeError(_NamedTypeError, TypeError):
    """A value cannot be written: a reader would not find its class, `module` and `name`, for `cause`."""

    hint = "define the class at the top level of a module, under its own name"

    def _message(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} cannot be read back: {self.cause}"


class UnknownTypeError(SerdeError, NotImplementedError):
    """Bytes have a serialization type that is unknown, not enabled, or not allowed for their key."""


class DecodeError(SerdeError, ValueError):
    """Bytes do not have the format that their type names."""

    hint = "look for the program that wrote the row, or compare it with a backup: see docs/untrusted.md"


class LimitError(DecodeError):
    """Unauthenticated bytes exceed a limit: size, depth or number of elements.

    Attributes:
        limit: The field of `sealpoint.serde.limits.Limits`; empty for a bound that cannot be raised.
    """

    hint = "this bound cannot be raised: if the value is yours, read it with LangGraph and put it again"

    def __init__(self, message: str, limit: str = "", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit


class BlockedTypeError(SerdeError, TypeError):
    """Bytes name a type, by `module` and `name`, that is not on the allowlist. Nothing was imported."""

    _advice: str = "{argument}"

    def __init__(self, module: str, name: str, parameter: str = "allowed_msgpack_modules") -> None:
        allowlist = f"[({excerpt(module)}, {excerpt(name)})]"
        argument = f"{parameter}={allowlist}"
        if parameter != "allowed_msgpack_modules":  # which every constructor has
            argument = f"serde=JsonPlusSerializer({argument})"
        advice = self._advice.format(argument=argument, allowlist=allowlist)
        super().__init__(module, name, parameter, hint=f"if the type is yours, allow it: {advice}")
        self.module, self.name = module, name

    def _message(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} is not on the allowlist"


class UnauthenticatedTypeError(BlockedTypeError):
    """Bytes that no key has authenticated name a type that is not on the allowlist."""

    _advice = (
        "serde = serde.with_msgpack_allowlist({allowlist});"
        " 'sealpoint types DB --emit' prints a list of all that need it"
    )

    def _message(self) -> str:
        return f"{super()._message()}, and no key has authenticated the value"


class UnbuildableValueError(_NamedTypeError, ValueError):
    """A type, of `module` and `name`, refuses the arguments that bytes contain for it; `cause` says why."""

    hint = (
        "compare the type with the release that wrote the value: keep what stored values name, and give new"
        ' fields defaults; serde=JsonPlusSerializer(on_blocked="raw") returns the bare arguments'
    )

    def _message(self) -> str:
        return f"cannot rebuild {excerpt(f'{self.module}.{self.name}')}: {self.cause}"


# Errors of savers, and of the databases that they read.
class SchemaError(SealpointError, ValueError):
    """A database lacks the tables that LangGraph creates, or they are altered."""

    category: Category = "usage"
    hint = "open a copy in the sqlite3 shell and look at sqlite_master before you trust the file"


class TablesMissingError(SchemaError):
    """A Postgres database has none of the tables yet: LangGraph's saver creates them in `setup`."""

    hint = "is it the right database, and the right search path? the saver's setup() creates the tables"


class OldTablesError(SchemaError):
    """The tables are those of LangGraph before 0.2, which no saver reads any more."""

    hint = (
        "nothing since LangGraph 0.2 (August 2024) reads or seals them, and all in them is readable: give the"
        " agents a new database, and delete this one as soon as its threads are not needed"
    )

    def _message(self) -> str:
        return "; ".join(("the tables are of LangGraph before 0.2, by their column 'thread_ts'", *self.args))


class DatabaseCorruptError(SealpointError, OSError):
    """SQLite reports that a file is damaged or is not a database."""

    hint = "restore the file from backup; `.recover` in the sqlite3 shell saves what can be read"


class EndlessTreeError(DatabaseCorruptError):
    """The pages of a file lead to more rows than it can hold: they form a cycle or are shared."""


class RowError(SealpointError, ValueError):
    """A row does not contain what its type or its primary key says."""

    hint = "compare it with a backup; what is over a limit may be genuine: see docs/untrusted.md#limits"


class TextError(RowError):
    """A row contains text that is not UTF-8."""


class WritesLostError(RowError):
    """Pending writes of a task are missing, and others show that they were stored."""

    hint = (
        "restore the row from backup; for a saver that stores the writes of one call one by one,"
        " pass allow_partial_writes=True"
    )


class ParentLostError(RowError):
    """The row of a checkpoint has lost its parent, which the thread store remembers as not deleted."""

    hint = (
        "restore the row; if its parent was pruned without threads=: `sealpoint heads adopt DB --reason TEXT`"
    )


class EarlierWriteError(RowError):
    """A pending write is an earlier one: the thread store remembers another that has replaced it."""


class MetadataError(SealpointError, ValueError):
    """Metadata is not an object in JSON, has no form in it, or is over a limit."""


class ForkedError(SealpointError, RuntimeError):
    """A saver, of class `saver`, is used in a child process, and its connection belongs to the parent."""

    hint = "create connections and savers in each worker process, after the fork; docs/deploy.md shows where"

    def __init__(self, saver: str, *, hint: str | None = None) -> None:
        super().__init__(saver, hint=hint)
        self.saver = saver

    def _message(self) -> str:
        return f"this {self.saver} was created before the process forked, and its connection cannot be shared"


class SealingError(SealpointError, TypeError):
    """A saver or cipher cannot seal what it is given: values would be stored readable. Nothing was stored."""

    hint = "docs/savers.md lists the savers that can be sealed"


class SealingCheckError(SealingError):
    """`require_sealing` found that a saver does not seal every value, or could not check it.

    `saver` is the class of the saver, and `reason` what the check found.
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
    """A config, filter, limit or ``before`` has a form that a saver does not accept."""

    category: Category = "usage"


def require_is(value: object, kind: type, name: str, hint: str) -> None:
    """Refuse an argument of another type, or a class; ``hint`` says what to write."""
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

    In `thread_id`, the store remembers checkpoint `want`; the database has `have` instead, or it is ``None``.
    """

    table = "checkpoints"

    hint = (
        "compare all of it with `sealpoint verify DB`; if a backup was restored on purpose, or a process"
        " without threads= wrote or deleted (correct it first), take what is there:"
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
    """Checkpoint `checkpoint_id` of `thread_id` was deleted, and is in the database again."""

    hint = (
        "SealedSaver does not return it: delete the thread again, which also ends a deletion that was"
        " interrupted; if a backup was restored on purpose, `sealpoint heads adopt DB --reason TEXT` takes it"
    )

    def __init__(self, thread_id: str, checkpoint_id: str, *, hint: str | None = None) -> None:
        super().__init__(thread_id, checkpoint_id, hint=hint)
        self.thread_id, self.checkpoint_id = thread_id, checkpoint_id

    def _message(self) -> str:
        thread, checkpoint = excerpt(self.thread_id), excerpt(self.checkpoint_id)
        return f"thread {thread}: checkpoint {checkpoint} was deleted, and put back"


class ThreadStoreError(SealpointError):
    """A thread store cannot be used, or not be written to."""

    category: Category = "usage"


class ThreadStoreDownError(ThreadStoreError, ConnectionError):
    """A thread store cannot be reached or opened, or is damaged."""

    category: Category = "stopped"
    hint = "make it available again; nothing was read as current or written meanwhile"


class ThreadStoreMissingError(ThreadStoreDownError):
    """There is no thread store at a place that can be reached: nothing is there, or something else."""

    category: Category = "usage"
    hint = (
        "name the place of the store, or create one: create=True, or"
        " `sealpoint heads adopt DB --create --reason TEXT`"
    )


class ThreadStoreTimeoutError(ThreadStoreError, TimeoutError):
    """A thread store did not answer in time."""

    category: Category = "stopped"
    hint = "find out what slows it down or locks it, or raise the time limit: timeout=SECONDS"


class SharedRoleError(ThreadStoreError, PermissionError):
    """A saver's session is or may become `role`, which by `right` could write its thread store."""

    def __init__(self, role: str, right: str, *, hint: str | None = None) -> None:
        super().__init__(role, right, hint=hint)
        self.role, self.right = role, right

    def _message(self) -> str:
        return f"the saver's session may write the thread store: role {excerpt(self.role)} {self.right}"


class ThreadStoreFullError(ThreadStoreError, OSError):
    """There is no space for a thread store."""

    category: Category = "stopped"
    hint = "make space; a checkpoint that was stored without its head is read, but its loss is not noticed"


class ThreadStoreBehindError(ThreadStoreError, LookupError):
    """A thread store was put back to an earlier state: the database names a later one."""

    category: Category = "unopened"
    hint = "a store that was restored from backup is brought up to date with `sealpoint heads adopt`"


class WrongThreadStoreError(ThreadStoreError, ValueError):
    """A thread store belongs to another database."""

    hint = "name the store that belongs to the database, or take this one over with `sealpoint heads adopt`"


# Errors of ledgers, and of the signed notes and proofs that belong to them.
class LedgerMissingError(SealpointError, FileNotFoundError):
    """There is no ledger where the ring file says, or the ring file names none."""

    category: Category = "usage"
    hint = "if there was one, restore its folder from a copy; a new one is created by `sealpoint ledger init`"


class LedgerTamperedError(SealpointError, ValueError):
    """A line of a ledger is not an entry, or the entries do not belong to the signed checkpoint."""

    category: Category = "found"
    hint = (
        "keep the folder as it is, and compare it with a copy: nothing is recorded in it until its files are"
        " restored, and no recorded command runs"
    )


class LedgerSignerError(SealpointError):
    """This account cannot sign for a ledger: the signing key is missing, or is not the ledger's."""

    category: Category = "keys"
    hint = (
        "run this as the account that holds the ledger's signing key; a new signer has a new ledger:"
        " sealpoint ledger init --previous DIR"
    )


class NoteError(SealpointError, ValueError):
    """Text is not a signed note, a checkpoint, a proof or a verifier key."""

    category: Category = "usage"
    hint = "copy the file as a whole, with its last newline"


class SignatureError(NoteError):
    """A note has no valid signature of the given verifier key."""

    category: Category = "found"
    hint = "compare the verifier key with the one that was noted when the ledger was created"


# Errors of maintenance and of the command line.


class MaintenanceError(SealpointError):
    """Maintenance of a database cannot start or continue, or an argument names what it cannot use."""

    category: Category = "usage"


class DatabaseMissingError(MaintenanceError, FileNotFoundError):
    """The named database does not exist."""

    hint = "name a SQLite file that LangGraph or sealpoint wrote, or a postgresql:// URL"


class UnreachableError(DatabaseMissingError):
    """A database server does not answer or accepts no connection now; a later run may succeed."""

    category: Category = "stopped"
    hint = "check that the server runs and that psql connects with the same URL"


class HeldError(MaintenanceError, BlockingIOError):
    """Another run holds the database."""

    category: Category = "held"
    hint = "wait until the other run has ended, then run the command again; a lock ends with its process"


class OutputError(MaintenanceError, FileExistsError):
    """The output file already exists, or cannot have the given name."""

    hint = "name a file that does not exist; existing files are not overwritten"


class StoppedError(MaintenanceError, OSError):
    """A run ended early; its changes are complete, and it can be run again."""

    category: Category = "stopped"
    hint = (
        "make room or end the blocking process, then run the same command again:"
        " it continues where it stopped"
    )


class AccessError(StoppedError):
    """A run ended early because a file or a server may not be written; it will end so again."""

    category: Category = "usage"
    hint = "let the account that runs this write to the folder, then run the same command again"


def stopped_by(error: OSError, message: str, hint: str | None = None) -> StoppedError:
    """Return the error for what the system refused: `AccessError` if it will refuse that again.

    ``message`` says what could not be done; the reason of the system is added.
    """
    kind = AccessError if error.errno in PERMANENT_ERRNOS else StoppedError
    return kind(f"{message}: {os.strerror(error.errno or 0)}", hint=hint)


@contextmanager
def stopping(message: str, hint: str | None = None) -> Iterator[None]:
    """Raise `stopped_by` for what the system refuses in the block. An error of sealpoint passes."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SealpointError):
            raise
        raise stopped_by(error, message, hint) from None


class HaltedError(StoppedError):
    """A statement was interrupted because the run was stopped."""

    hint = "run the same command again: it continues where it stopped"


class LockedError(StoppedError):
    """Other sessions held locks on rows until the end of a run; all other rows are done."""

    hint = (
        "end their transactions (pg_stat_activity and pg_prepared_xacts show them),"
        " then run the same command again"
    )


class ScrubError(MaintenanceError, BlockingIOError):
    """Old contents of a database cannot be removed now."""

    category: Category = "stopped"
    lock_seconds: float = 0.0  # how long writers waited for the attempt
    hint = "end the processes that read the database, or close it there, then scrub again"


class MissingExtraError(MaintenanceError, ImportError):
    """A package of an extra is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra, hint=f"pip install 'sealpoint[{extra}]'")
        self.package, self.extra = package, extra

    def _message(self) -> str:
        return f"package {self.package!r} is not installed; it is part of the extra {self.extra!r}"
