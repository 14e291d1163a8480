"""Everything sealpoint raises: one root, one class per cause.

A message says what was met and what was wanted; ``hint`` says what to do and is
shown under the traceback. Neither ever holds key material or decrypted bytes.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

EXCERPT_CHARS: Final = 200


def excerpt(text: object) -> str:
    """Quote foreign text for a message: escaped, and at most ``EXCERPT_CHARS`` characters of it."""
    shown = ascii(text if isinstance(text, str) else type(text).__name__)
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."


class SealpointError(Exception):
    """The root of the tree.

    Attributes:
        hint: What to do about it, in one sentence.
    """

    hint: str = ""

    def __init__(self, *args: Any, hint: str | None = None) -> None:
        super().__init__(*args)
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(f"hint: {self.hint}")


class OmittedAttributeError(SealpointError, AttributeError):
    """An attribute of LangGraph's class is left out of sealpoint's on purpose."""


class Omitted:
    """Stands in a class for an attribute that LangGraph's has: reading it raises `OmittedAttributeError`.

    To ``hasattr``, and to ``getattr`` with a default, the attribute is missing.
    """

    def __init__(self, hint: str) -> None:
        """Make a stand-in whose error says with ``hint`` what to use instead."""
        self._hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise OmittedAttributeError(f"sealpoint has no {self._name}", hint=self._hint)


# --- keys and key rings -----------------------------------------------------------------------


class KeyRingError(SealpointError):
    """A key ring, a ring file, a key file or a key is not usable."""


class KeyIdError(KeyRingError, ValueError):
    """A key id does not have the form ``[a-z0-9][a-z0-9.-]{0,23}``."""

    hint = "use 1 to 24 of a-z, 0-9, '.' and '-', beginning with a letter or a digit"


class DuplicateKeyError(KeyRingError, ValueError):
    """Two entries of a ring have the same id."""

    hint = "give every key an id of its own; ids are never reused"


class ActiveKeyError(KeyRingError, ValueError):
    """A ring has two active keys, or names one that is not active."""

    hint = "exactly one key has state = \"active\", and 'active' names it"


class NoActiveKeyError(KeyRingError, LookupError):
    """A value was to be sealed with a ring that has no active key."""

    hint = "make one active: sealpoint keys promote ID; in code, give one the state KeyState.ACTIVE"


class UnknownKeyError(KeyRingError, LookupError):
    """A value names a key that the ring does not hold.

    Attributes:
        key_id: The id in the value's tag.
        held: The ids the ring holds, in ring order.
    """

    hint = "bring this host's ring and key files up to date, or restore the key from its backup"

    def __init__(self, key_id: str, held: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__(key_id, held, hint=hint)
        self.key_id = key_id
        self.held = held

    def __str__(self) -> str:
        return f"no key {excerpt(self.key_id)} in the ring (held: {', '.join(self.held) or 'none'})"


class KeyDisabledError(KeyRingError, PermissionError):
    """A value is under a key that is disabled."""

    hint = "if values under it may be read again: sealpoint keys enable ID"


class KeyDestroyedError(KeyRingError, LookupError):
    """A value is under a key that was destroyed; the message says when, if the ring knows."""

    hint = "values under a destroyed key cannot be opened; restore a backup made before it, if there is one"


class KeyTransitionError(KeyRingError, ValueError):
    """A key was to change to a state that its present state does not allow."""

    hint = "see the table of transitions in docs/keys.md"


class KeyInUseError(KeyTransitionError):
    """A key was to change its state while a database has rows under it, or under an older key."""

    hint = "seal the rows anew first: sealpoint rotate DB --apply"


class WrongRingError(KeyRingError):
    """The rows of a database were sealed with other keys than those that the ring has."""

    hint = (
        "use the ring of this database: --keys FILE; if this is it, `sealpoint verify DB` shows which rows"
        " do not open, and --no-key-check (check_keys=False) goes on without this check"
    )


class RingRollbackError(KeyRingError, ValueError):
    """A ring file is older than the ring in use, or is the file of another ring."""

    hint = "restore the latest ring file; to use another ring, restart the process"


class KeyMaterialError(KeyRingError, ValueError):
    """Key material does not have the right length or form."""

    hint = "material is 32 raw bytes, or base64 or hex of them, with at most one newline at the end"


class CheckValueError(KeyRingError, ValueError):
    """Key material does not match the check value in the ring: it is swapped or damaged."""

    hint = "restore the material that belongs to this id, or correct 'check' if the ring is what is wrong"


class KeyPickleError(KeyRingError, TypeError):
    """A key or a ring was to be pickled or copied."""

    hint = "load the ring again in the other process; key material is never pickled"


class RingFileError(KeyRingError, ValueError):
    """A ring file is not TOML, has another version, or has a field missing, unknown or of a wrong type."""

    hint = "compare it with keys.example"


class RingFileMissingError(RingFileError, FileNotFoundError):
    """There is no ring file where one was named or looked for."""

    hint = "name it (--keys FILE, or $SEALPOINT_KEYS), or make one there: sealpoint keys init --keys FILE"


class TestKeysError(RingFileError):
    """A ring holds the public keys of ``keys.example``."""

    __test__ = False  # the name begins with "Test": not a test class
    hint = "generate keys of your own; only a test or a demo sets SEALPOINT_ALLOW_TEST_KEYS=1"


class FilePermissionsError(KeyRingError, PermissionError):
    """A file with key material can be read or written by others than its owner."""

    hint = "chmod 600 the file, and let the account that runs this own it"


class FileLinkError(KeyRingError, OSError):
    """A key file is no regular file, or a symbolic link where none is followed."""

    hint = "name the file itself; links are followed only for key files, and not out of their folder"


class SourceError(KeyRingError, OSError):
    """A source of key material gave none."""

    hint = "see that the source is there, and that the account that runs this may use it"


class SourceTimeoutError(SourceError, TimeoutError):
    """A command that should print key material did not end in time."""

    hint = "run the command by hand; it must print the key and end"


# --- sealed values ----------------------------------------------------------------------------


class SealedValueError(SealpointError):
    """A value cannot be opened or sealed."""


class TagError(SealedValueError, ValueError):
    """A type tag is not of the form ``<inner>+<suite>[.flags]:<key id>``."""

    hint = "the row was damaged, forged, or written by something else than sealpoint"


class UnknownSuiteError(TagError, NotImplementedError):
    """A tag names a sealing suite that this release does not know."""

    hint = "the row was forged, or written by a newer release"


class PlaintextError(SealedValueError, ValueError):
    """A value is not sealed, and plaintext is not accepted."""

    hint = 'seal existing rows first, or pass plaintext="allow" while you migrate'


class BlobError(SealedValueError, ValueError):
    """A blob is not bytes, or too short to be a sealed value."""

    hint = "the row was damaged or forged; restore it from backup"


class IntegrityError(SealedValueError, ValueError):
    """Authentication failed: bytes, tag, key or row are not those that were sealed."""

    hint = "the row was changed, moved or relabelled, or the ring holds another key under this id"


class RowMissingError(SealedValueError, ValueError):
    """A value is bound to its row, and no row was given."""

    hint = "read it through the saver that wrote it"


class UnboundValueError(SealedValueError, ValueError):
    """A row was given, and the value is not bound to any."""

    hint = "the value was written before rows were bound, or put in its place by somebody else"


class SecretMissingError(SealedValueError, ValueError):
    """A per-thread secret is mixed into the value's key, and none was given."""

    hint = "read it through the saver that wrote it"


class UnexpectedSecretError(SealedValueError, ValueError):
    """A per-thread secret was given, and none is mixed into the value's key."""

    hint = "the value was written before threads had secrets, or put in its place by somebody else"


class LegacyTypeError(SealedValueError, ValueError):
    """A row under LANGGRAPH_AES_KEY names an inner type that such a row may not have."""

    hint = "such rows do not authenticate their type: only null, bytes, bytearray, msgpack and json are read"


class CipherSurfaceError(SealedValueError, TypeError):
    """A cipher with only ``encrypt`` and ``decrypt`` was asked to bind a row or to mix a secret."""

    hint = "use RingCipher"


# --- serialization ----------------------------------------------------------------------------


class SerdeError(SealpointError):
    """A value cannot be serialized or rebuilt."""


class UnsupportedTypeError(SerdeError, TypeError):
    """A value of a type that the serializer does not know was to be written."""

    hint = "convert it to a supported type; see docs/serializer.md"


class UnreadableTypeError(SerdeError, TypeError):
    """A value of a class that a reader would not find by its module and name was to be written.

    Attributes:
        module: Module of the class.
        name: Name of the class, as it would have been written.
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
    """Bytes are labelled with a serialization type that is not known or not switched on."""


class DecodeError(SerdeError, ValueError):
    """Bytes are not what their label says."""

    hint = "the row was damaged or forged; restore it from backup"


class LimitError(DecodeError):
    """Unsealed bytes are larger, deeper or have more elements than is read from a stranger."""

    hint = "if the value is really yours, pass limits= with more room"


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
    """A type, given as ``module`` and ``name``, refuses the arguments that the bytes hold for it."""

    hint = (
        "the type has changed since the value was written, or the bytes were forged; "
        'JsonPlusSerializer(on_blocked="raw") gives the bare arguments'
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
    """A database does not have the two tables that LangGraph writes, or has them altered."""

    hint = "open a copy with the sqlite3 shell and look at sqlite_master before you trust it"


class DatabaseCorruptError(SaverError, OSError):
    """SQLite finds that a file is damaged, or no database at all."""

    hint = "restore it from backup; `.recover` in the sqlite3 shell saves what can be read"


class EndlessTreeError(DatabaseCorruptError):
    """The pages of a file lead to more rows than it can hold: some are reached again and again."""


class RowError(SaverError, ValueError):
    """A row does not hold what its column or its key says."""

    hint = "the row was damaged or forged; restore it from backup"


class TextError(RowError):
    """A row holds text that is not UTF-8."""


class MetadataError(SaverError, ValueError):
    """Metadata is not strict JSON: duplicate keys, NaN, infinity, or not an object."""


class ConfigError(SaverError, ValueError):
    """A config, filter, limit or ``before`` does not have the form that a saver needs."""


class ConfigKeyError(ConfigError, KeyError):
    """A config lacks a key that a saver needs."""

    def __str__(self) -> str:
        return str(self.args[0])


# --- maintenance -----------------------------------------------------------------------------------


class MaintenanceError(SealpointError):
    """A run over a whole database cannot begin or go on."""


class DatabaseMissingError(MaintenanceError, FileNotFoundError):
    """There is no database under the name that was given."""

    hint = "name a SQLite file that LangGraph or sealpoint wrote, or a postgresql:// URL"


class UnreachableError(DatabaseMissingError):
    """A database server does not answer, or takes no connection now; a later run may meet another answer."""

    hint = "see that the server runs, and that psql connects with the same URL"


class HeldError(MaintenanceError, BlockingIOError):
    """Another run holds the database."""

    hint = "wait until the other run has ended; if none runs any more, just start again"


class OutputExistsError(MaintenanceError, FileExistsError):
    """A file that was to be made is there already."""

    hint = "name a file that does not exist; nothing is overwritten"


class OutputNameError(MaintenanceError, ValueError):
    """A file cannot have the name that was given."""

    hint = "name a shorter one: the files that stand beside it for a while have longer names"


class StoppedError(MaintenanceError, OSError):
    """A run had to end early; what it did stands, and it can be run again."""

    hint = "make room or end what is in the way, then run the same command again: it goes on where it stopped"


class HaltedError(StoppedError):
    """A statement was ended before its end, because the run was to stop."""

    hint = "run the same command again: it goes on where it stopped"


class LockedError(StoppedError):
    """Other sessions kept rows locked for as long as a run lasted; it did all the others."""

    hint = (
        "end their transactions (pg_stat_activity and pg_prepared_xacts show them),"
        " then run the same command again"
    )


class UnrelatedDatabaseError(MaintenanceError, ValueError):
    """A database shows nothing about a key: no value in it is under any key of the ring."""

    hint = (
        "name the databases that were sealed under this ring; `sealpoint status DB` shows the keys of one."
        " To count it all the same: --allow-unrelated"
    )


class PasswordError(MaintenanceError, ValueError):
    """A password stands where everybody on the machine can read it: in the arguments of a program."""

    hint = "leave it out; libpq takes it from ~/.pgpass, $PGPASSFILE or $PGSERVICEFILE"


class ScrubError(MaintenanceError, BlockingIOError):
    """Old contents of a database cannot be cleared away now.

    Attributes:
        lock_seconds: How long writers were kept waiting all the same.
    """

    lock_seconds: float = 0.0

    hint = "end the processes that read the database, or let them close it, then scrub again"


class ServerError(MaintenanceError, OSError):
    """A database server refuses a statement, for a reason that does not pass.

    Attributes:
        kind: Name of the refusal.
        sqlstate: Its number, empty if the server gave none.
    """

    hint = "let the account SELECT and UPDATE the tables; the server's log says more"

    def __init__(self, kind: str, sqlstate: str) -> None:
        super().__init__(kind, sqlstate)
        self.kind = kind
        self.sqlstate = sqlstate

    def __str__(self) -> str:
        return f"the server refuses a statement: {self.kind} (SQLSTATE {self.sqlstate or 'none'})"


class SuperuserError(MaintenanceError, PermissionError):
    """A superuser looks at the standby of a server, where the owner of the tables cannot be held off."""

    hint = "connect to the primary, or as a role that may only SELECT from the tables: docs/rotation.md"

    def __str__(self) -> str:
        return "a superuser's commands are not run on a standby: there no lock keeps the tables unchanged"


class MissingExtraError(MaintenanceError, ImportError):
    """A package is missing that an extra brings."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra, hint=f"pip install 'sealpoint[{extra}]'")
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f"package {self.package!r} is not installed; the extra {self.extra!r} brings it"
