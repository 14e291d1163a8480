"""The command `sealpoint` for shell scripts, without the second that Python and its imports take.

A process imports the whole package once. The `sealpoint` that scripts find on their path passes its words,
environment, folder and streams to that process, which forks: the fork runs the program, and its exit code is
passed back.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).parents[3]
SOCKET: Final = "socket"
STREAMS: Final = 3

CLIENT: Final = """#!{python} -IS
import json, os, socket, sys
umask = os.umask(0)
os.umask(umask)
given = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "umask": umask}}
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps(given).encode())
    server.shutdown(socket.SHUT_WR)
    code = server.recv(1)
sys.exit(code[0] if code else 70)
"""


@contextmanager
def forked_program() -> Iterator[Path]:
    """Give a folder in which `sealpoint` is one that is forked."""
    with TemporaryDirectory(prefix="forked-") as folder:
        place = Path(folder)
        command = place / "sealpoint"
        command.write_text(CLIENT.format(python=sys.executable, socket=str(place / SOCKET)))
        command.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.runs.forked", str(place / SOCKET)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        with server:
            assert server.stdout is not None
            try:
                assert server.stdout.readline() == b"ready\n"
                yield place
            finally:
                server.kill()


def serve(path: str) -> NoReturn:
    """Fork for each connection to a socket, until this process is killed."""
    import sealpoint
    from sealpoint.admin.cli.app import run

    for module in walk_packages(sealpoint.__path__, "sealpoint."):  # which a command imports when it runs
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of a package that is not installed
                import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whose forks are then not waited for
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                _handle(connection, run)
            connection.close()


def _handle(connection: socket.socket, run: Any) -> NoReturn:
    """Run the program in a fork, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, STREAMS)
    with connection.makefile("rb") as reader:
        given = json.load(reader)
    child = os.fork()
    if not child:
        connection.close()
        _become(given, streams, run)
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _become(given: dict[str, Any], streams: list[int], run: Any) -> NoReturn:
    """Be the process that a shell would have started, and end as it would."""
    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace")  # noqa: SIM115
        os.environ.clear()
        os.environ.update(given["environment"])
        os.chdir(given["folder"])
        os.umask(given["umask"])
        sys.argv = ["sealpoint", *given["words"]]
        code = int(run())
    except BaseException:  # noqa: BLE001 - the end of a process, which shows it
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
