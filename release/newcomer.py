"""The README's first five minutes, as they are typed into the shell of a new account on a new machine.

The account has an empty home, an empty environment, and Python; no checkout is in its reach. The command that
installs the package gets the built wheel in place of the package's name. Commands of a clone are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.pages import Block, blocks, commands, require_shown

# How pip reaches the registry from here; nothing else of this environment is handed on.
NETWORK: Final = re.compile(r"PIP_\w+|SSL_CERT_\w+|https?_proxy|no_proxy", re.IGNORECASE)
PROJECT: Final = re.compile(r"'sealpoint(\[[\w,]+\])'")
OF_A_CLONE: Final = ("make ",)


def follow(page: Path, wheel: Path) -> list[str]:
    """Run the blocks of a page, and compare what they print with what it shows.

    Returns:
        The commands that were run, and those that were left out.

    Raises:
        AssertionError: If a command fails, or prints something else.
    """
    with TemporaryDirectory() as scratch:
        home = Path(scratch, "home")
        home.mkdir()
        venv.create(home / "venv", with_pip=True)
        environment = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
        environment |= {"HOME": str(home), "LANG": "C.UTF-8", "PATH": f"{home}/venv/bin:{os.defpath}"}
        ran = []
        for block in blocks(page):
            ran += run(block, home, environment, wheel.resolve())
        code = "import sealpoint; print(sealpoint.__file__)"
        origin = shell(f"python -c {shlex.quote(code)}", home, environment)
        if not origin.startswith(f"{home}/venv/"):
            raise AssertionError(f"what ran was not the wheel, but {origin.strip()}")
    return ran


def run(block: Block, home: Path, environment: dict[str, str], wheel: Path) -> list[str]:
    """Run one block; what was run. An ``export`` changes the environment for all that follow."""
    if block.kind == "python":
        printed = shell(f"python - <<'END'\n{block.text}END\n", home, environment)
        require_shown(block.shown or "...", printed, f"line {block.line}")
        return [f"ran      the Python code of line {block.line}"]
    ran = []
    for command, shown in commands(block.text) if block.kind == "console" else ():
        if command.startswith(OF_A_CLONE):
            ran.append(f"left out {command}")
            continue
        ran.append(f"ran      {command}")
        if command.startswith("export "):
            name = command.split()[1].partition("=")[0]
            environment[name] = shell(f'{command} && printf %s "${name}"', home, environment)
            continue
        typed = PROJECT.sub(lambda found: shlex.quote(f"{wheel}{found[1]}"), command)
        printed = shell(typed, home, environment)
        if not command.startswith("pip "):
            require_shown(shown, printed, command)
    return ran


def shell(command: str, home: Path, environment: dict[str, str]) -> str:
    """Type a command; what it prints."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{command}\nends with {done.returncode}:\n{done.stdout}")
    return done.stdout
