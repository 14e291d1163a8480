"""Part 6 of the demo: reseal every value under a new key while agents run, and destroy the old key."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

from demo.attacks import OpenSaver, copied, read
from demo.claims import Claims
from demo.search import Database
from sealpoint import SealpointError
from sealpoint.admin.cli.app import run

RATE: Final = "20"  # rows a second: without a limit the run ends before the writer writes again


def show_rotation(database: Path, ring: Path, saver: OpenSaver, claims: Claims) -> None:
    """Rotate from k1 to k2 while a process writes, destroy k1, and continue the thread."""
    print("\n6. Rotation: all values to k2, while a third process writes")
    with copied(database) as backup:
        _rotate_while_writing(database, ring, claims)
        _destroy_old_key(database, ring, claims)
        error = _error_of(backup, saver)  # before the thread goes on: then the thread store would refuse it
        _check_after_destruction(database, ring, claims)
    print(f"   a backup    from before has rows under k1; reading them: {error}")
    claims.check("rows under the old key: KeyDestroyedError", error == "KeyDestroyedError")


def _rotate_while_writing(database: Path, ring: Path, claims: Claims) -> None:
    arguments = _process("writer", database, ring)
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:  # noqa: S603 -- ourselves
        before = _written(writer)
        _rotate(database, ring, claims)
        wrote = _written(writer, skip=before) > before
        writer.communicate()
    wrote = wrote and not writer.returncode
    claims.check("a process wrote during the rotation, without an error", wrote)
    print(f"   process 3   {'wrote during the rotation, without an error' if wrote else 'FAILED'}")
    keys = {kind.partition("@")[2] for _, kind, _ in Database.look(database).rows}
    claims.check("every row is under k2 now", keys == {"k2"})


def _process(module: str, database: Path, ring: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", f"demo.{module}", os.fspath(database), os.fspath(ring), *more]


def _written(writer: subprocess.Popen[str], skip: int = 0) -> int:
    """Return the first claim number above ``skip`` that the writer prints, or 0 if it has ended."""
    return next((int(line) for line in writer.stdout or () if int(line) > skip), 0)


def _rotate(database: Path, ring: Path, claims: Claims) -> None:
    code, done = command(ring, "rotate", database, "--apply", "--batch", "1", "--rate", RATE)
    moved, failed, left = (done.get(name, "?") for name in ("resealed", "failed", "left"))
    _show("rotate state.db --apply", f"{moved} values resealed, {failed} failed, {left} left under k1")
    claims.check("rotation leaves no value under the old key", (code, left) == (0, 0) and bool(moved))
    code, done = command(ring, "verify", database)
    _show("verify state.db", "every value opens" if code == 0 else f"{done.get('failed')} do not open")
    claims.check("every value opens under the new key", code == 0)


def _destroy_old_key(database: Path, ring: Path, claims: Claims) -> None:
    code, _ = command(ring, "keys", "destroy", "k1", "--db", database, "--yes")
    _show("keys destroy k1 --db state.db", "refused: the key is not disabled" if code else "DONE")
    claims.check("a key in use is not destroyed", code != 0 and ring.with_name("k1.key").exists())
    disabled, _ = command(ring, "keys", "disable", "k1", "--db", database)
    destroyed, _ = command(ring, "keys", "destroy", "k1", "--db", database, "--yes")
    gone = not (disabled or destroyed or ring.with_name("k1.key").exists())
    _show("keys disable k1; ... destroy k1", "the key file is removed" if gone else "FAILED")
    claims.check("the material of the old key is gone", gone)


def _check_after_destruction(database: Path, ring: Path, claims: Claims) -> None:
    arguments = _process("agent", database, ring, "ask")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603 -- ourselves
    claims.check("another process continues the thread", done.returncode == 0)
    said = f'asks: "{done.stdout.strip()}"' if done.returncode == 0 else f"FAILED\n{done.stderr}"
    print(f"   process 4   continues the thread of part 1, and {said}")


def _error_of(database: Path, saver: OpenSaver) -> str | None:
    """Read a thread, and return the name of the error that this raises."""
    try:
        read(database, saver)
    except SealpointError as error:
        return type(error).__name__
    return None


def command(ring: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    """Run a `sealpoint` command; return its exit code and its JSON object."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = run([*map(str, words), "--keys", os.fspath(ring), "--json"])
    return code, json.loads(out.getvalue() or "{}")


def _show(command: str, what: str) -> None:
    print(f"   sealpoint {command:34}{what}")
