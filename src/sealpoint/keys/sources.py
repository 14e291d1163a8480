"""Where key material comes from: file, env, command, credential, inline. Each key has exactly one source.

A new kind needs one class here, listed in `Source` and `SOURCES`. No error or repr of a source shows the
material. The source of a wrapped key is in `sealpoint.keys.entry`, above the wrappers.

Commands that print key material or a signature run without a shell and within a time limit, and are killed
with all child processes. Their input and output pass through pipes, never through a file. Their environment
is that of the process, without the variables that hold key material or PINs of a ring that was read before.
Programs that the SDK of a service starts by itself get all variables.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from sealpoint.errors import RingFileError, SourceError, SourceTimeoutError, excerpt
from sealpoint.keys.files import read_private

# More than any text form of a key, and a limit for a command that prints endlessly.
MAX_BYTES: Final = 4096
TIMEOUT_SECONDS: Final = 10.0

# Variables with key material or a PIN. Commands that this process starts from now on do not get them, even
# if no ring names them any more.
_withheld: Final = {"LANGGRAPH_AES_KEY"}


def run_command(
    argv: Sequence[str], timeout_seconds: float = TIMEOUT_SECONDS, *, text: bytes | None = None
) -> bytes:
    """Run a command, return its output of at most 4096 bytes, and kill its remaining child processes."""
    try:
        process = subprocess.Popen(  # noqa: S603 -- the operator's own argument list, no shell
            argv,
            env={name: value for name, value in os.environ.items() if name not in _withheld},
            # A pipe and not a file: material in a temporary file could reach the disk.
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The stderr of an agent often ends up in a log, and the command may print a token there.
            stderr=subprocess.DEVNULL,
            bufsize=0,  # `_feed` writes as much as the pipe accepts
            # A new session is a process group that `_end` can kill, and has no terminal to prompt on.
            start_new_session=True,
        )
    # ValueError: TOML can write a NUL as \u0000, and no argument of a process can contain one.
    except (OSError, ValueError) as error:
        raise SourceError(f"command {excerpt(argv[0])} cannot be started: {type(error).__name__}") from None
    name, deadline = excerpt(argv[0]), time.monotonic() + timeout_seconds
    try:
        output = _exchange(process, text or b"", name, deadline)
        if len(output) > MAX_BYTES:
            hint = "the command must print the key and nothing else"
            raise SourceError(f"command {name} printed over {MAX_BYTES} bytes", hint=hint)
        # A command that closes its output just before the deadline still needs a moment to exit.
        code = process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        raise SourceTimeoutError(f"command {name} did not end in time") from None
    finally:
        _end(process)
    if code:
        raise SourceError(f"command {name} exited with {code}", hint="run the command by hand to see why")
    return output


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with its process group. A process of another account (sudo) cannot be killed."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _exchange(process: subprocess.Popen[bytes], text: bytes, name: str, deadline: float) -> bytes:
    """Write ``text`` to a command's input and read its output at the same time, until the output ends."""
    if process.stdout is None:
        raise SourceError(f"command {name} has no output")
    descriptor, output = process.stdout.fileno(), b""
    ready = select.poll()  # select() refuses descriptors from 1024 on
    ready.register(descriptor, select.POLLIN)
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        ready.register(process.stdin.fileno(), select.POLLOUT)
    while len(output) <= MAX_BYTES:
        left = deadline - time.monotonic()
        events = dict(ready.poll(left * 1000)) if left > 0 else {}
        if not events:
            raise SourceTimeoutError(f"command {name} did not end in time")
        if process.stdin is not None and process.stdin.fileno() in events:
            text = _feed(process.stdin, text)
            if not text:
                ready.unregister(process.stdin.fileno())
                process.stdin.close()
                process.stdin = None
        if descriptor in events:
            part = os.read(descriptor, MAX_BYTES + 1)
            if not part:
                break
            output += part
    return output


def _feed(pipe: IO[bytes], text: bytes) -> bytes:
    """Write as much as a pipe accepts; return the rest, or ``b""`` if the command has closed its input."""
    try:
        return text[os.write(pipe.fileno(), text) :]
    except BlockingIOError:
        return text
    except BrokenPipeError:
        return b""


@dataclass(frozen=True, slots=True)
class _NamedSource:
    kind: ClassVar[str]
    is_slow: ClassVar = False
    location: str


@dataclass(frozen=True, slots=True)
class FileSource(_NamedSource):
    """A private file with key material."""

    kind: ClassVar = "file"

    def read(self, folder: Path, /) -> bytes:
        """Return the contents of the file; a relative path is within ``folder``."""
        return read_private(folder / self.location, allow_links=True)


@dataclass(frozen=True, slots=True)
class EnvSource(_NamedSource):
    """An environment variable, withheld from the programs that sealpoint starts."""

    kind: ClassVar = "env"

    def __post_init__(self) -> None:
        _withheld.add(self.location)

    def read(self, _: Path, /) -> bytes:
        """Return the variable's value."""
        value = os.environ.get(self.location)
        if value is None:
            problem = f"environment variable {self.location} is not set"
            raise SourceError(problem, hint="set the variable for this process")
        # os.environ represents bytes that are not UTF-8 as surrogates: this returns the original bytes.
        return os.fsencode(value)


@dataclass(frozen=True, slots=True)
class CredentialSource(_NamedSource):
    """A credential that systemd provides to a service."""

    kind: ClassVar = "credential"

    def __post_init__(self) -> None:
        if self.location in {".", ".."} or "/" in self.location:
            raise RingFileError(f"credential {excerpt(self.location)} must be a name, not a path")

    def read(self, _: Path, /) -> bytes:
        """Return the contents of the file in ``$CREDENTIALS_DIRECTORY``."""
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        if folder is None:
            hint = "add LoadCredential= to the systemd unit"
            raise SourceError("$CREDENTIALS_DIRECTORY is not set", hint=hint)
        return read_private(Path(folder) / self.location, allow_links=True)


@dataclass(frozen=True, slots=True)
class CommandSource:
    """A command that prints key material."""

    kind: ClassVar = "command"
    is_slow: ClassVar = True
    argv: tuple[str, ...] = field(repr=False)

    @property
    def location(self) -> str:
        """The program, without its arguments, which may contain a token."""
        return self.argv[0]

    def read(self, _: Path, /) -> bytes:
        """Run the command, and return its output."""
        return run_command(self.argv)


@dataclass(frozen=True, slots=True, eq=False)
class InlineSource:
    """Key material as text in the ring file, for development. Compared by identity, not by material."""

    kind: ClassVar = "inline"
    is_slow: ClassVar = False
    location: ClassVar = None
    text: str = field(repr=False)

    def read(self, _: Path, /) -> bytes:
        """Return the text as bytes."""
        return self.text.encode()


# Where the material of a key is. Equal sources provide the same material. Reading from a slow source may wait
# for another program or a network: sealing and opening never do.
Source = FileSource | EnvSource | CommandSource | CredentialSource | InlineSource

SOURCES: Final[Mapping[str, Callable[[Any], Source]]] = {
    source.kind: source for source in (FileSource, EnvSource, CommandSource, CredentialSource, InlineSource)
}


def parse_source(source: object, others: Sequence[str] = ()) -> Source:
    """Parse the source of a key. No material is read. Errors also list ``others`` as kinds of sources."""
    known = ", ".join((*SOURCES, *others))
    if not isinstance(source, dict) or len(source) != 1:
        raise RingFileError(f"source must name exactly one of {known}")
    ((kind, value),) = source.items()
    if kind not in SOURCES:
        raise RingFileError(f"source {excerpt(kind)} is not one of {known}")
    if kind == CommandSource.kind:
        return CommandSource(require_words(value, "source 'command'"))
    if not isinstance(value, str) or not value:
        raise RingFileError(f"source {kind!r} must be a string that is not empty")
    if "\0" in value:  # TOML can write a NUL as \u0000, and no path can contain it
        raise RingFileError(f"source {kind!r} contains a NUL character")
    return SOURCES[kind](value)


def require_fields(
    table: Mapping[str, Any], known: Collection[str], needed: Collection[str], where: str
) -> None:
    """Raise if a table has an unknown field, or lacks a required field."""
    for name in table:
        if name not in known:
            from difflib import get_close_matches  # only for this error

            meant = "".join(get_close_matches(name, known, 1))
            hint = f"did you mean {meant!r}?" if meant else None
            raise RingFileError(f"{where} has an unknown field {excerpt(name)}", hint=hint)
    for name in sorted(set(needed) - table.keys()):
        raise RingFileError(f"{where} lacks the field '{name}'")


def get_tables(table: Mapping[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    """Return the tables ``[[name]]`` of a ring file."""
    entries = table.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RingFileError(f"{file}: '{name}' must be an array of tables, [[{name}]]")
    return entries


def get_text(table: Mapping[str, Any], field: str, where: str) -> str | None:
    """Return the value of a field if it is one line of text; ``None`` if the table lacks the field."""
    return require_text(table, field, where) if field in table else None


def require_text(table: Mapping[str, Any], field: str, where: str) -> str:
    """Return the value of a field; raise if it is missing, or is not one line of text."""
    require_fields(table, table, {field}, where)
    value = table[field]
    if not isinstance(value, str) or not value or not value.isprintable():
        raise RingFileError(f"{where}: '{field}' is not one line of text")
    return value


def require_words(value: object, what: str) -> tuple[str, ...]:
    """Return a value if it is a list of texts (a program and its arguments); otherwise raise."""
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise RingFileError(f"{what} must be a list of words: program and arguments, no shell")
    return tuple(value)


def get_seconds(table: Mapping[str, Any], field: str, where: str, default: float, maximum: float) -> float:
    """Return the value of a field that is a time limit in seconds, or ``default`` if it is missing."""
    value = table.get(field, default)
    # TOML's true is a bool, which is an int; its nan is equal to nothing and fails both comparisons.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= maximum:
        raise RingFileError(f"{where}: '{field}' is not a number of seconds up to {maximum:g}")
    return float(value)
