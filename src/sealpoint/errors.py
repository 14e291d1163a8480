"""All exceptions of sealpoint: one root, one class per cause.

A message says what was met and what was wanted. ``hint`` says what to do and is
shown under the traceback. Neither contains key material or decrypted bytes.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

EXCERPT_CHARS: Final = 200


def excerpt(text: object) -> str:
    """Quote untrusted text for a message: escaped and cut to ``EXCERPT_CHARS`` characters."""
    shown = ascii(text if isinstance(text, str) else type(text).__name__)
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."


class SealpointError(Exception):
    """Base class of all exceptions of sealpoint.

    Attributes:
        hint: What to do, in one sentence; empty if there is no advice.
    """

    hint: str = ""

    def __init__(self, *args: Any, hint: str | None = None) -> None:
        super().__init__(*args)
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(f"hint: {self.hint}")


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


# --- keys and key rings -----------------------------------------------------------------------


class KeyRingError(SealpointError):
    """A key ring, a ring file, a key file or a key cannot be used."""


class KeyIdError(KeyRingError, ValueError):
    """A key id does not have the form ``[a-z0-9][a-z0-9.-]{0,23}``."""

    hint = "use 1 to 24 of a-z, 0-9, '.' and '-', starting with a letter or a digit"


class DuplicateKeyError(KeyRingError, ValueError):
    """Two entries of a ring have the same id."""

    hint = "give every key its own id; ids are never reused"


class ActiveKeyError(KeyRingError, ValueError):
    """A ring has two active keys, or ``active`` names a key that is not active."""

    hint = "exactly one key has state = \"active\", and 'active' names it"


class NoActiveKeyError(KeyRingError, LookupError):
    """A value cannot be sealed: the ring has no active key."""

    hint = "activate a key: sealpoint keys promote ID; in code, give one the state KeyState.ACTIVE"


class UnknownKeyError(KeyRingError, LookupError):
    """A value names a key that is not in the ring.

    Attributes:
        key_id: The id in the value's tag.
        held: The ids in the ring, in ring order.
    """

    hint = "update the ring file and the key files of this host, or restore the key from its backup"

    def __init__(self, key_id: str, held: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__(key_id, held, hint=hint)
        self.key_id = key_id
        self.held = held

    def __str__(self) -> str:
        return f"no key {excerpt(self.key_id)} in the ring (held: {', '.join(self.held) or 'none'})"


class KeyDisabledError(KeyRingError, PermissionError):
    """A value is sealed under a disabled key."""

    hint = "if values under it may be read again: sealpoint keys enable ID"


class KeyDestroyedError(KeyRingError, LookupError):
    """A value is sealed under a destroyed key; the message gives the date, if the ring has it."""

    hint = "values under a destroyed key cannot be opened; restore a backup from before, if there is one"


class KeyTransitionError(KeyRingError, ValueError):
    """The state of a key does not allow the requested state."""

    hint = "see the table of transitions in docs/keys.md"


class KeyInUseError(KeyTransitionError):
    """A key cannot change its state: a database has rows under it, or under an older key."""

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
    """Key material has a wrong length or encoding."""

    hint = "use 32 raw bytes, or base64 or hex of them, with at most one newline at the end"


class CheckValueError(KeyRingError, ValueError):
    """Key material does not match the check value in the ring file: it was swapped or damaged."""

    hint = "restore the material of this id; if the ring file is wrong, correct 'check'"


class KeyPickleError(KeyRingError, TypeError):
    """A key or a ring cannot be pickled or copied."""

    hint = "load the ring in the other process; key material is never pickled"


class RingFileError(KeyRingError, ValueError):
    """A ring file is not TOML, has another version, or has a missing, unknown or mistyped field."""

    hint = "compare the file with keys.example"


class RingFileMissingError(RingFileError, FileNotFoundError):
    """There is no ring file at the given path or at the default locations."""

    hint = "name one (--keys FILE or $SEALPOINT_KEYS), or create it: sealpoint keys init --keys FILE"


class TestKeysError(RingFileError):
    """A ring contains the public keys of ``keys.example``."""

    __test__ = False  # the name begins with "Test": not a test class
    hint = "generate keys of your own; only tests and demos set SEALPOINT_ALLOW_TEST_KEYS=1"


class FilePermissionsError(KeyRingError, PermissionError):
    """Other accounts can read or write a key file, or write a ring file."""

    hint = "chmod 600 the file, and let the account that runs this own it"


class FileLinkError(KeyRingError, OSError):
    """A file is not a regular file, or is a symbolic link that is not followed."""

    hint = "name the file itself; links are followed only for key files, and not out of their folder"


class SourceError(KeyRingError, OSError):
    """A source did not provide key material."""

    hint = "check that the source exists and that the account that runs this may read it"


class SourceTimeoutError(SourceError, TimeoutError):
    """A command that prints key material did not end in time."""

    hint = "run the command by hand; it must print the key and exit"


# --- sealed values ----------------------------------------------------------------------------


class SealedValueError(SealpointError):
    """A value cannot be opened or sealed."""


class TagError(SealedValueError, ValueError):
    """A type tag is not of the form ``<inner>+<suite>[.flags]@<key id>``."""

    hint = "the row was damaged, forged, or not written by sealpoint"


class UnknownSuiteError(TagError, NotImplementedError):
    """A tag names a sealing suite that this release does not know."""

    hint = "the row was forged, or written by a newer release"


class PlaintextError(SealedValueError, ValueError):
    """A value is not sealed, and plaintext is not allowed."""

    hint = 'seal existing rows first, or pass plaintext="allow" while you migrate'


class BlobError(SealedValueError, ValueError):
    """A blob is not bytes, or is too short for a sealed value."""

    hint = "the row was damaged or forged; restore it from backup"


class IntegrityError(SealedValueError, ValueError):
    """Authentication failed: bytes, tag, key or row differ from those that were sealed."""

    hint = "the row was changed, moved or relabelled, or the ring holds another key under this id"


class RowMissingError(SealedValueError, ValueError):
    """A value is bound to its row, but no row was given."""

    hint = "read it through the saver that wrote it"


class UnboundValueError(SealedValueError, ValueError):
    """A row was given, but the value is not bound to a row."""

    hint = "the value was written before rows were bound, or was forged"


class SecretMissingError(SealedValueError, ValueError):
    """The value's key is derived with a per-thread secret, but none was given."""

    hint = "read it through the saver that wrote it"


class UnexpectedSecretError(SealedValueError, ValueError):
    """A per-thread secret was given, but the value's key is derived without one."""

    hint = "the value was written before threads had secrets, or was forged"


class LegacyTypeError(SealedValueError, ValueError):
    """A row under LANGGRAPH_AES_KEY names an inner type that is not allowed there."""

    hint = "such rows do not authenticate their type: only null, bytes, bytearray, msgpack and json are read"


class CipherSurfaceError(SealedValueError, TypeError):
    """A cipher with only ``encrypt`` and ``decrypt`` cannot bind a row or use a secret."""

    hint = "use RingCipher"


# --- serialization ----------------------------------------------------------------------------


class SerdeError(SealpointError):
    """A value cannot be serialized or rebuilt."""


class UnsupportedTypeError(SerdeError, TypeError):
    """A value cannot be written: the serializer does not support its type."""

    hint = "convert it to a supported type; see docs/serializer.md"


class UnreadableTypeError(SerdeError, TypeError):
    """A value cannot be written: a reader would not find its class by module and name.

    Attributes:
        module: Module of the class.
        name: Name of the class, as it would be written.
        cause: Why it would not be found.
    """

    hint = "define the class at the top level of a module, under its own name"

    def __init__(self, module: str, name: str, cause: str) -> None:
        super().__init__(module, name, cause)
        self.module = module
        self.name = name
        self.cause = cause

    def __str__(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} cannot be read back: {self.cause}"


class UnknownTypeError(SerdeError, NotImplementedError):
    """Bytes have a serialization type that is unknown or not enabled."""


class DecodeError(SerdeError, ValueError):
    """Bytes do not have the format that their type names."""

    hint = "the row was damaged or forged; restore it from backup"


class LimitError(DecodeError):
    """Unauthenticated bytes exceed a limit: size, depth or number of elements."""

    hint = "if the value is really yours, pass higher limits="


class BlockedTypeError(SerdeError, TypeError):
    """Bytes name a type that is not on the allowlist. Nothing was imported.

    Attributes:
        module: Module of the type, as the bytes name it.
        name: Name of the type in that module, as the bytes name it.
    """

    _more_advice: str = ""

    def __init__(self, module: str, name: str, parameter: str = "allowed_msgpack_modules") -> None:
        line = f"{parameter}=[({excerpt(module)}, {excerpt(name)})]"
        super().__init__(
            module, name, parameter, hint=f"if the type is yours, allow it: {line}{self._more_advice}"
        )
        self.module = module
        self.name = name

    def __str__(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} is not on the allowlist"


class UnauthenticatedTypeError(BlockedTypeError):
    """Bytes that no key has authenticated name a type that is not on the allowlist."""

    _more_advice = "; 'sealpoint types DB --emit' prints a list of all that need it"

    def __str__(self) -> str:
        return f"{super().__str__()}, and no key has authenticated the value"


class UnbuildableValueError(SerdeError, ValueError):
    """A type refuses the arguments that the bytes contain for it.

    Attributes:
        module: Module of the type, as the bytes name it.
        name: Name of the type in that module, as the bytes name it.
        cause: Why it refuses them.
    """

    hint = (
        "the type has changed since the value was written, or the bytes were forged; "
        'JsonPlusSerializer(on_blocked="raw") returns the bare arguments'
    )

    def __init__(self, module: str, name: str, cause: str) -> None:
        super().__init__(module, name, cause)
        self.module = module
        self.name = name
        self.cause = cause

    def __str__(self) -> str:
        return f"cannot rebuild {excerpt(f'{self.module}.{self.name}')}: {self.cause}"


# --- savers -----------------------------------------------------------------------------------


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


class MetadataError(SaverError, ValueError):
    """Metadata is not strict JSON: duplicate keys, NaN, infinity, or not an object."""


class ConfigError(SaverError, ValueError):
    """A config, filter, limit or ``before`` has a form that a saver does not accept."""


class ConfigKeyError(ConfigError, KeyError):
    """A config lacks a required key."""

    def __str__(self) -> str:
        return str(self.args[0])


# --- maintenance -----------------------------------------------------------------------------------


class MaintenanceError(SealpointError):
    """Maintenance of a database cannot start or continue."""


class DatabaseMissingError(MaintenanceError, FileNotFoundError):
    """The named database does not exist."""

    hint = "name a SQLite file that LangGraph or sealpoint wrote, or a postgresql:// URL"


class UnreachableError(DatabaseMissingError):
    """A database server does not answer or accepts no connection now; a later run may succeed."""

    hint = "check that the server runs and that psql connects with the same URL"


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

    hint = "connect to the primary, or as a role that may only SELECT from the tables: docs/rotation.md"

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
