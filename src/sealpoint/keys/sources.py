"""Sources of key material: file, env, command, credential, inline. Each key has exactly one.

A source gives bytes; `parse_material` makes 32 of them. No error shows any of either.
"""

from __future__ import annotations

import base64
import errno
import os
import select
import signal
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import (
    FileLinkError,
    FilePermissionsError,
    KeyMaterialError,
    RingFileError,
    SourceError,
    SourceTimeoutError,
    excerpt,
)
from sealpoint.keys.ids import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MAX_BYTES: Final = 4096
MAX_FILE_BYTES: Final = 1 << 20
_NOT_NEEDED: Final = "; a key that nothing needs any more can be disabled, and is not asked for"
_UNSET: Final = f"set it for this process{_NOT_NEEDED}"
_GONE: Final = f"put its copy back in this place{_NOT_NEEDED}"
COMMAND_TIMEOUT_SECONDS: Final = 10.0


def parse_material(text: bytes, what: str) -> bytes:
    """Return 32 bytes from 32 raw ones, or from base64 or hex of them with one optional newline.

    Raises:
        KeyMaterialError: If ``text`` is none of these. ``what`` names it in the message.
    """
    if len(text) == KEY_BYTES:
        return text
    line = text.removesuffix(b"\n").removesuffix(b"\r")
    if line != line.strip():
        hint = "remove the white space; one newline at the end is all that may follow the key"
        raise KeyMaterialError(f"{what}: key material has white space at its ends", hint=hint)
    with suppress(ValueError):
        data = bytes.fromhex(line.decode("ascii", "replace")) if len(line) == 2 * KEY_BYTES else None
        data = base64.b64decode(line, validate=True) if data is None else data
        if len(data) == KEY_BYTES:
            return data
    raise KeyMaterialError(f"{what}: {len(text)} bytes that are not a key")


def read_private(path: Path, *, forbidden: int = 0o077, allow_links: bool = False) -> bytes:
    """Read a file that is private to this process.

    That is the rule for every file with key material, whichever source names it: it belongs to root or
    to the account of the process, and no other account may read or write it. One thing more is allowed: a
    file of root's may be readable by its group if that is root's group or one of the process's own. So
    Kubernetes shows a Secret to a pod with ``fsGroup``, and systemd a credential, whose access list stands
    in the bits of the group.

    Args:
        path: The file; relative to the current directory, as ever.
        forbidden: Bits that its mode must not have: by default whatever lets others in.
        allow_links: Whether it may be a symbolic link that ends within the folder of ``path``.

    Raises:
        FileLinkError: If it is a symbolic link that is not allowed, or no regular file.
        FilePermissionsError: If its mode has a forbidden bit, or it belongs to another
            account that is not root.
        SourceError: If it cannot be read or has over 1 MiB.
    """
    is_link = allow_links and os.path.islink(path)  # noqa: PTH114 -- of a path too long it is no link
    target = _require_within(path) if is_link else path
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileLinkError(f"{path} is a symbolic link") from None
        hint = _GONE if error.errno == errno.ENOENT else None
        raise SourceError(f"{path} cannot be read: {os.strerror(error.errno or 0)}", hint=hint) from None
    except ValueError:
        raise SourceError(f"{excerpt(str(path))} is not a path") from None
    try:
        _require_private(path, os.fstat(descriptor), forbidden)
        data = _read(path, descriptor)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise SourceError(f"{path} has over {MAX_FILE_BYTES} bytes", hint="name the right file")
    return data


def _read(path: Path, descriptor: int) -> bytes:
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None


def _require_within(path: Path) -> Path:
    """Return where a link ends, which is in its own folder: Kubernetes mounts ``k1 -> ..data/k1`` so."""
    target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    if not target.is_relative_to(folder):
        raise FileLinkError(f"{path} is a symbolic link that leads out of its folder")
    return target


def _require_private(path: Path, status: os.stat_result, forbidden: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileLinkError(f"{path} is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise FilePermissionsError(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}", hint=_hint_for(status.st_uid)
        )
    mode = stat.S_IMODE(status.st_mode)
    open_bits = mode & forbidden
    if status.st_uid == 0 and status.st_gid in {0, os.getegid(), *os.getgroups()}:
        open_bits &= ~0o040
    if open_bits:
        others = "read" if open_bits & 0o044 else "write"
        raise FilePermissionsError(f"{path} has mode {mode:04o}: others can {others} it")


def _hint_for(owner: int) -> str | None:
    """Return what root is to do about a file of another account: not to take the file from that account."""
    if os.geteuid() != 0:
        return None
    try:
        name = getpwuid(owner).pw_name
    except KeyError:
        name = f"'#{owner}'"
    return f"run this as the account that the file belongs to: sudo -u {name} sealpoint ..."


def _from_file(name: str, folder: Path) -> bytes:
    return read_private(folder / name, allow_links=True)


def _from_env(name: str, folder: Path) -> bytes:
    del folder
    value = os.environ.get(name)
    if value is None:
        raise SourceError(f"environment variable {name} is not set", hint=_UNSET)
    return os.fsencode(value)


def _from_credential(name: str, folder: Path) -> bytes:
    del folder
    place = os.environ.get("CREDENTIALS_DIRECTORY")
    if place is None:
        raise SourceError("$CREDENTIALS_DIRECTORY is not set", hint="add LoadCredential= to the systemd unit")
    return read_private(Path(place) / name, allow_links=True)


def _from_inline(text: str, folder: Path) -> bytes:
    del folder
    return text.encode()


def _from_command(argv: list[str], folder: Path) -> bytes:
    del folder
    return run_command(argv)


_READERS: Final[Mapping[str, Callable[[Any, Path], bytes]]] = {
    "file": _from_file,
    "env": _from_env,
    "command": _from_command,
    "credential": _from_credential,
    "inline": _from_inline,
}


def require_source(source: object) -> tuple[str, Any]:
    """Return the kind of a key's source and what it takes, and ask it for nothing.

    Raises:
        RingFileError: If ``source`` is not a table with exactly one known kind, and after
            it what that kind takes.
    """
    if not isinstance(source, dict) or len(source) != 1:
        raise RingFileError(f"source names exactly one of {', '.join(_READERS)}")
    ((kind, value),) = source.items()
    if kind not in _READERS:
        raise RingFileError(f"source {excerpt(kind)} is none of {', '.join(_READERS)}")
    if kind == "command":
        if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
            raise RingFileError("source 'command' is a list of words: program and arguments, no shell")
    elif not isinstance(value, str) or not value:
        raise RingFileError(f"source {kind!r} is a string that is not empty")
    elif kind == "credential" and (value in {".", ".."} or "/" in value):
        raise RingFileError(f"credential {excerpt(value)} is not a plain name")
    return kind, value


def read_source(source: object, folder: Path) -> bytes:
    """Return the bytes of a key's source; a relative file stands in ``folder``.

    Raises:
        RingFileError: If ``source`` is none.
        KeyRingError: Another of its subclasses, if the source gives nothing.
    """
    kind, value = require_source(source)
    return _READERS[kind](value, folder)


def run_command(argv: Sequence[str], timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> bytes:
    """Return what a command prints, at most 4096 bytes, and end it with all it started.

    Raises:
        SourceError: If it cannot be started, prints more, or exits with another code than 0.
        SourceTimeoutError: If it does not end in time.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 -- the operator's own argument list, no shell
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SourceError(f"command {excerpt(argv[0])} cannot be started: {type(error).__name__}") from None
    try:
        return _collect(process, excerpt(argv[0]), time.monotonic() + timeout_seconds)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with all it started; what runs as another account (sudo) is left to itself."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _collect(process: subprocess.Popen[bytes], name: str, deadline: float) -> bytes:
    if process.stdout is None:
        raise SourceError(f"command {name} has no output")
    descriptor, output = process.stdout.fileno(), b""
    ready = select.poll()  # select() refuses descriptors from 1024 on
    ready.register(descriptor, select.POLLIN)
    while len(output) <= MAX_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            raise SourceTimeoutError(f"command {name} did not end in time")
        part = os.read(descriptor, MAX_BYTES + 1)
        if not part:
            break
        output += part
    else:
        raise SourceError(f"command {name} printed over {MAX_BYTES} bytes", hint="it must print a key alone")
    try:
        code = process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        raise SourceTimeoutError(f"command {name} did not end in time") from None
    if code:
        raise SourceError(f"command {name} exited with {code}", hint="run the command by hand to see why")
    return output
