"""Where key material comes from: file, env, command, credential, inline. Each key has exactly one source.

A new kind is one class here and one line in `SOURCES`. No source shows what it reads, in an error or a repr.
The source of a wrapped key stands in `sealpoint.keys.wrapped`, above the wrappers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol, Self

from sealpoint.errors import RingFileError, SourceError, excerpt
from sealpoint.keys.command import run_command, withhold
from sealpoint.keys.files import read_private


class Source(Protocol):
    """Where the material of a key is. Equal sources provide the same material."""

    kind: ClassVar[str]
    """The name of the kind in a ring file."""

    is_slow: ClassVar[bool]
    """Whether reading may wait for another program or a network. Sealing and opening never do."""

    @property
    def location(self) -> str | None:
        """Where the material is, for messages; ``None`` if it is in the ring itself."""

    def read(self, folder: Path, /) -> bytes:
        """Return the bytes that the source has.

        Args:
            folder: The folder of the ring file, for relative paths.

        Raises:
            KeyRingError: One of its subclasses, if they are not available or not private.
        """


@dataclass(frozen=True, slots=True)
class _NamedSource:
    """A source that is described by one string."""

    kind: ClassVar[str]
    is_slow: ClassVar = False
    location: str

    @classmethod
    def parse(cls, value: object) -> Self:
        """Check the value that stands in a ring file.

        Raises:
            RingFileError: If ``value`` is not a string, is empty, or contains a NUL character.
        """
        return cls(_require_text(cls.kind, value))


@dataclass(frozen=True, slots=True)
class FileSource(_NamedSource):
    """A private file."""

    kind: ClassVar = "file"

    def read(self, folder: Path, /) -> bytes:
        """Return the contents of the file.

        Raises:
            FileLinkError: If it is not a regular file, or is a link out of its folder.
            FilePermissionsError: If another account can read or change it, or owns it (except root).
            SourceError: If it cannot be read or has over 1 MiB.
        """
        return read_private(folder / self.location, allow_links=True)


@dataclass(frozen=True, slots=True)
class EnvSource(_NamedSource):
    """An environment variable, which no program of sealpoint gets."""

    kind: ClassVar = "env"

    def __post_init__(self) -> None:
        """Withhold the variable."""
        withhold(self.location)

    def read(self, _: Path, /) -> bytes:
        """Return the variable's value.

        Raises:
            SourceError: If the variable is not set.
        """
        value = os.environ.get(self.location)
        if value is None:
            problem = f"environment variable {self.location} is not set"
            raise SourceError(problem, hint="set it for this process")
        # os.environ represents bytes that are not UTF-8 as surrogates: this returns the original bytes.
        return os.fsencode(value)


@dataclass(frozen=True, slots=True)
class CredentialSource(_NamedSource):
    """A credential of systemd."""

    kind: ClassVar = "credential"

    @classmethod
    def parse(cls, value: object) -> Self:
        """Check the value that stands in a ring file.

        Raises:
            RingFileError: If ``value`` is not a string, is empty, contains a NUL character, or is a path
                instead of a name.
        """
        name = _require_text(cls.kind, value)
        if name in {".", ".."} or "/" in name:
            raise RingFileError(f"credential {excerpt(name)} is not a plain name")
        return cls(name)

    def read(self, _: Path, /) -> bytes:
        """Return the contents of the file in ``$CREDENTIALS_DIRECTORY``.

        Raises:
            SourceError: If ``$CREDENTIALS_DIRECTORY`` is not set, or the file cannot be read or has over 1
                MiB.
            FileLinkError: If it is no regular file, or a link that leads out of its folder.
            FilePermissionsError: If another account can read or change it, or owns it and is not root.
        """
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        if folder is None:
            hint = "add LoadCredential= to the systemd unit"
            raise SourceError("$CREDENTIALS_DIRECTORY is not set", hint=hint)
        return read_private(Path(folder) / self.location, allow_links=True)


@dataclass(frozen=True, slots=True)
class CommandSource:
    """The output of a command."""

    kind: ClassVar = "command"
    is_slow: ClassVar = True
    argv: tuple[str, ...] = field(repr=False)

    @classmethod
    def parse(cls, value: object) -> CommandSource:
        """Check the value in a ring file.

        Raises:
            RingFileError: If ``value`` is not a list of strings, or is empty.
        """
        if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
            raise RingFileError("source 'command' is a list of words: program and arguments, no shell")
        return cls(tuple(value))

    @property
    def location(self) -> str:
        """The program, without its arguments, which may contain a token."""
        return self.argv[0]

    def read(self, _: Path, /) -> bytes:
        """Run the command, and return what it prints.

        Raises:
            SourceError: If it cannot be started, prints over 4096 bytes, or exits with another code than 0.
            SourceTimeoutError: If it does not end in time.
        """
        return run_command(self.argv)


@dataclass(frozen=True, slots=True, eq=False)
class InlineSource:
    """The ring file itself, for development. Never equal to another: that would compare material."""

    kind: ClassVar = "inline"
    is_slow: ClassVar = False
    location: ClassVar = None
    text: str = field(repr=False)

    @classmethod
    def parse(cls, value: object) -> InlineSource:
        """Check the value in a ring file.

        Raises:
            RingFileError: If ``value`` is not a string, is empty, or contains a NUL character.
        """
        return cls(_require_text(cls.kind, value))

    def read(self, _: Path, /) -> bytes:
        """Return the text."""
        return self.text.encode()


SOURCES: Final[Mapping[str, Callable[[object], Source]]] = {
    FileSource.kind: FileSource.parse,
    EnvSource.kind: EnvSource.parse,
    CommandSource.kind: CommandSource.parse,
    CredentialSource.kind: CredentialSource.parse,
    InlineSource.kind: InlineSource.parse,
}
"""The parser of each kind of source."""


def _require_text(kind: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise RingFileError(f"source {kind!r} is a string that is not empty")
    if "\0" in value:  # TOML can write one as \u0000, and no path can contain it
        raise RingFileError(f"source {kind!r} contains a NUL character")
    return value


def parse_source(source: object, others: Sequence[str] = ()) -> Source:
    """Parse the source of a key in a ring file. No material is read.

    Args:
        source: What stands in the file.
        others: Further kinds that the caller parses, for messages.

    Raises:
        RingFileError: If ``source`` is not a table with exactly one known kind and a valid value.
    """
    known = ", ".join((*SOURCES, *others))
    if not isinstance(source, dict) or len(source) != 1:
        raise RingFileError(f"source names exactly one of {known}")
    ((kind, value),) = source.items()
    if kind not in SOURCES:
        raise RingFileError(f"source {excerpt(kind)} is not one of {known}")
    return SOURCES[kind](value)
