"""A process as in a container: mounts of its own, an account without a name, and a root that is read-only.

Needs root and mount namespaces; `MISSING` says what is not there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
TOP: Final = ("/etc", "/var/lib")
"""What is empty in a container, but for what is mounted there."""

KEEP: Final = "/mnt"


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "only root can mount and become another account"
    for program in ("unshare", "mount", "setpriv"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/etc"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip() or None


MISSING: Final = _missing()


@dataclass(frozen=True)
class Container:
    """What a process sees.

    Attributes:
        uid: Its account, which no file names.
        groups: Its groups, the first of which is its own.
        mounts: Folders and files of this machine, by the path where they are mounted.
        writable: Those of them that are not read-only.
    """

    uid: int
    groups: Sequence[int]
    mounts: Mapping[str, Path] = field(default_factory=dict)
    writable: frozenset[str] = frozenset()

    def words(self, argv: Sequence[str], *, folder: str = "/", env: Mapping[str, str]) -> list[str]:
        """Return the command that runs ``argv`` in the container, with nothing but ``env``."""
        lines = ["set -e", "umask 022", f"mount -t tmpfs none {KEEP}", *_opened()]
        for number, path in enumerate(self.mounts.values()):  # before the folders above them are covered
            lines += _bound(path, f"{KEEP}/{number}", is_folder=path.is_dir())
        lines += [f"mount -t tmpfs -o mode=755 none {top}" for top in TOP]
        for number, (at, path) in enumerate(self.mounts.items()):
            lines += _bound(Path(KEEP, str(number)), at, is_folder=path.is_dir())
            if at not in self.writable:
                lines.append(f"mount -o remount,ro,bind {at}")
        lines += [f"mount -o remount,ro,bind {top}" for top in (*TOP, "/")]
        account = [f"--reuid={self.uid}", f"--regid={self.groups[0]}", "--no-new-privs", "--inh-caps=-all"]
        account.append(f"--groups={','.join(map(str, self.groups))}")
        search = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        given = {"HOME": "/nonexistent", "PATH": search, "PYTHONDONTWRITEBYTECODE": "1", **env}
        run = ["setpriv", *account, "env", "-i", *(f"{name}={value}" for name, value in given.items())]
        lines += [f"cd {shlex.quote(folder)}", f"exec {shlex.join([*run, *argv])}"]
        return ["unshare", "--mount", "sh", "-c", "\n".join(lines)]

    def run(
        self, *argv: str, folder: str = "/", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        words = self.words(argv, folder=folder, env=env or {})
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)


def _bound(path: Path, at: str, *, is_folder: bool) -> list[str]:
    """The commands that mount ``path`` at a place, which is made."""
    make = f"mkdir -p {at}" if is_folder else f"mkdir -p {Path(at).parent}; : > {at}"
    return [make, f"mount --bind {shlex.quote(str(path))} {at}"]


def _opened() -> list[str]:
    """The commands that let other accounts reach the Python of these tests, such as one below /root."""
    needed = [Path(sys.base_prefix), Path(sys.prefix), ROOT]
    needed += [Path(entry) for entry in sys.path if Path(entry).is_dir()]
    shut: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(map(Path.resolve, needed)):
        above = next((one for one in reversed(path.parents) if not one.stat().st_mode & 0o001), None)
        if above is not None:
            shut.setdefault(above, []).append(path)
    lines = []
    for number, (above, paths) in enumerate(shut.items()):
        places = {path: f"{KEEP}/python-{number}-{place}" for place, path in enumerate(paths)}
        lines += [line for path, place in places.items() for line in _bound(path, place, is_folder=True)]
        lines.append(f"mount -t tmpfs -o mode=755 none {above}")
        for path, place in places.items():
            lines += _bound(Path(place), str(path), is_folder=True)
    return lines
