"""Errors of keys, key rings and ring files."""

from __future__ import annotations

from typing import Any

from sealpoint.errors.root import SealpointError, excerpt


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

    hint = "its values cannot be opened, except with a kept copy of the key: see docs/key-errors.md"


class KeyTransitionError(KeyRingError, ValueError):
    """The state of a key does not allow the requested state."""

    hint = "see the table of transitions: docs/keys.md#states"


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

    hint = (
        "name one (--keys FILE or $SEALPOINT_KEYS);"
        " for a new database, create one: sealpoint keys init --keys FILE"
    )


class TestKeysError(RingFileError):
    """A ring contains the public keys of ``keys.example``."""

    __test__ = False  # the name begins with "Test": not a test class
    hint = "generate keys of your own; only tests and demos set SEALPOINT_ALLOW_TEST_KEYS=1"


class FilePermissionsError(KeyRingError, PermissionError):
    """Other accounts can read or write a key file, or write a ring file."""

    hint = "chmod 600 the file, and let the account that runs this own it"


class FileLinkError(KeyRingError, OSError):
    """A file is not regular, is a symbolic link that is not followed, or has links and is to be removed."""

    hint = "name the file itself; a link is followed only to a target within its own folder"


class SourceError(KeyRingError, OSError):
    """A source did not provide key material."""

    hint = "check that the source exists and that the account that runs this may read it"


class SourceTimeoutError(SourceError, TimeoutError):
    """A command that prints key material did not end in time."""

    hint = "run the command by hand; it must print the key and exit"


class KeyUnavailableError(SourceError):
    """The service that wraps a key does not answer, or refuses to unwrap it.

    Attributes:
        may_pass: Whether the same request may succeed a moment later: no answer, or a busy service.
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
