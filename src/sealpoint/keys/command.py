"""Commands that print key material or a signature: no shell, a time limit, ended with all child processes.

What a command reads and prints passes through pipes alone, never through a file. Its environment is that of
the process, without the variables that hold key material or PINs of a ring that was read before. Programs
that the SDK of a service starts by itself get all variables.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from sealpoint.errors import SourceError, SourceTimeoutError, excerpt

if TYPE_CHECKING:
    from collections.abc import Sequence

# More than any text form of a key, and a limit for a command that prints endlessly.
MAX_BYTES: Final = 4096
TIMEOUT_SECONDS: Final = 10.0

_withheld: Final = {"LANGGRAPH_AES_KEY"}


def withhold(variable: str) -> None:
    """Keep a variable with key material or a PIN from all commands that this process starts from now on.

    It stays withheld, also if no ring names it any more.
    """
    _withheld.add(variable)


def run_command(
    argv: Sequence[str], timeout_seconds: float = TIMEOUT_SECONDS, *, text: bytes | None = None
) -> bytes:
    """Return the output of a command, at most 4096 bytes, and end it with all its child processes.

    Args:
        argv: Program and arguments.
        timeout_seconds: How long it may run.
        text: What it reads from its standard input; by default nothing.

    Raises:
        SourceError: If it cannot be started, prints more, or exits with another code than 0.
        SourceTimeoutError: If it does not end in time.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 -- the operator's own argument list, no shell
            argv,
            env={name: value for name, value in os.environ.items() if name not in _withheld},
            # A pipe and not a file: material in a temporary file could reach the disk.
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The stderr of an agent often ends up in a log, and the command may print a token there.
            stderr=subprocess.DEVNULL,
            bufsize=0,  # `_feed` writes what the pipe takes
            # A new session is a process group that `_end` can kill, and has no terminal to prompt on.
            start_new_session=True,
        )
    # ValueError: TOML can write a NUL as \u0000, and no argument of a process can contain one.
    except (OSError, ValueError) as error:
        raise SourceError(f"command {excerpt(argv[0])} cannot be started: {type(error).__name__}") from None
    try:
        return _collect(process, text or b"", excerpt(argv[0]), time.monotonic() + timeout_seconds)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with its process group. What runs as another account (sudo) cannot be killed."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _collect(process: subprocess.Popen[bytes], text: bytes, name: str, deadline: float) -> bytes:
    output = _exchange(process, text, name, deadline)
    if len(output) > MAX_BYTES:
        raise SourceError(f"command {name} printed over {MAX_BYTES} bytes", hint="it must print a key alone")
    try:
        # A command that closes its output just before the deadline still needs a moment to exit.
        code = process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        raise SourceTimeoutError(f"command {name} did not end in time") from None
    if code:
        raise SourceError(f"command {name} exited with {code}", hint="run the command by hand to see why")
    return output


def _exchange(process: subprocess.Popen[bytes], text: bytes, name: str, deadline: float) -> bytes:
    """Write a command's input and read its output, each as far as its pipe is ready for it."""
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
    """Write what a pipe takes, and return the rest; nothing if the command has closed its input."""
    try:
        return text[os.write(pipe.fileno(), text) :]
    except BlockingIOError:
        return text
    except BrokenPipeError:
        return b""
