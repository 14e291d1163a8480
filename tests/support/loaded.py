"""What is loaded: lines of our modules that an agent or a command imports, and how large the package is.

``make loaded`` prints the table. Who reviews an agent or a command reads these lines. A limit is raised in
the commit that needs it, which says why.
"""

# ruff: noqa: T201 -- it is a program

from __future__ import annotations

import ast
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from sealpoint.admin.cli.app import COMMANDS, TABLE
from sealpoint.threads import SqliteThreadStore
from tests.support.databases.bound import INDEX, play, sealed_file
from tests.support.databases.erasing import TABLES
from tests.support.keys.rings import states_text, write

SOURCES: Final = Path(__file__).parents[2] / "src"
MOST_LINES: Final = 41_400
MOST_STATEMENTS: Final = 22_950
LARGEST: Final = 25_000

# Commands, in the order in which they run, and how many lines each may load: the most with a ledger.
RUNS: Final = {
    "--help": 5_000,
    "keys list": 10_000,
    "status app.db": LARGEST,
    "heads seal threads.db": LARGEST,
    "audit app.db": LARGEST,
    "types app.db": LARGEST,
    "trial app.db": LARGEST,
    "decrypt app.db --out copy.db": LARGEST,
    "keys promote k1": LARGEST,
    "scrub app.db --apply": LARGEST,
    "ledger init --keys ledger.toml": LARGEST,
    "verify app.db --threads threads.db --keys ledger.toml": LARGEST,
    "inspect app.db --thread t --last --keys ledger.toml": LARGEST,
    "init app.db --keys ledger.toml": LARGEST,
    "rotate app.db --apply --scrub --keys ledger.toml": LARGEST,
    "report app.db --threads threads.db --allow-unproven --keys ledger.toml": LARGEST,
    "rebind app.db --apply --scrub --keys ledger.toml": LARGEST,
    "erase app.db --threads threads.db --thread t --apply --keys ledger.toml": LARGEST,
    "erasures --allow-unproven --keys ledger.toml": LARGEST,
}
# What an agent imports, and how many lines that may load.
AGENTS: Final = {
    "from sealpoint.langgraph import EncryptedSerializer": 8_500,
    "from sealpoint.langgraph import EncryptedSerializer, SealedSaver": 13_500,
    "from sealpoint.langgraph import SealedSaver; from sealpoint.threads import SqliteThreadStore": 15_500,
    "from sealpoint.langgraph import SealedSaver, SealedStore": 14_500,
}

_COUNT: Final = """
own = [module for name, module in [*sys.modules.items()] if name.partition(".")[0] == "sealpoint"]
sources = {module.__file__ for module in own}
lines = sum(len(open(source, encoding="utf-8").readlines()) for source in sources)
"""
# Each run has a process, forked from one that has imported none of sealpoint.
_RUNNER: Final = """
import json, os, sys
import rich.console, typer
runs, count = sys.argv[1:]
answers, empty = os.dup(1), os.open(os.devnull, os.O_RDWR)
for words in json.loads(runs):
    if os.fork():
        os.wait()
        continue
    for number in range(3):
        os.dup2(empty, number)
    sys.argv = ["sealpoint", *words.split()]
    from sealpoint.admin.cli import main
    code = main()
    exec(count)
    os.write(answers, f"{json.dumps([words, code, lines])}\\n".encode())
    os._exit(0)
"""


def lines_of_commands(folder: Path) -> dict[str, int]:
    """Return how many lines each command of `RUNS` loads, on a database with a thread store in ``folder``.

    Of modules with commands that are not in `RUNS`, the first one is asked for its help.
    """
    write_rings(folder)
    with (
        closing(SqliteThreadStore(str(folder / "threads.db"), create=True)) as store,
        sealed_file(folder / "app.db", threads=store) as saver,
    ):
        play(saver, "t")
    runs = {module_of(name) for name in COMMANDS if any(line.startswith(name) for line in RUNS)}
    others = {module_of(name): name for name in sorted(COMMANDS, reverse=True) if module_of(name) not in runs}
    return lines_of(folder, [*RUNS, *(f"{name} --help" for name in others.values())])


def write_rings(folder: Path) -> Path:
    """Write a ring file, ``ledger.toml`` with a ledger as well, and return the first."""
    index = f"[[index]]\nid = 'index'\nsource = {{ inline = '{INDEX.hex()}' }}\n"
    keys = states_text(k2="active", k1="decrypt-only") + index
    write(folder / "ledger.toml", keys + TABLES)
    return write(folder / "keys.toml", keys)


def lines_of(folder: Path, lines: Sequence[str]) -> dict[str, int]:
    """Return how many lines each command loads, run in ``folder`` one after the other: each must succeed."""
    found = _run(folder, _RUNNER, json.dumps(lines), _COUNT)
    ended = [json.loads(line) for line in found.splitlines()]
    if [words for words, code, _ in ended if code == 0] != [*lines]:
        raise RuntimeError(f"not all commands have ended with 0: {ended}")
    return {words: number for words, _, number in ended}


def module_of(name: str) -> str:
    """Return the module of a command."""
    return TABLE[name].function.partition(":")[0]


def lines_of_agent(imports: str) -> int:
    """Return how many lines an agent with these imports loads."""
    return int(_run(SOURCES, f"import sys\n{imports}\n{_COUNT}\nprint(lines)"))


def size() -> tuple[int, int]:
    """Return how many lines and statements the package has."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py"))]
    statements = sum(isinstance(node, ast.stmt) for text in texts for node in ast.walk(ast.parse(text)))
    return sum(len(text.splitlines()) for text in texts), statements


def milliseconds(words: Sequence[str]) -> float:
    """Return the processor time of a command, the least of some runs."""
    times = list[float]()
    for _ in range(9):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1000


def _run(folder: Path, code: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "SEALPOINT_KEYS": "keys.toml"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def main() -> None:
    """Print the table."""
    rows = [(imports, lines_of_agent(imports), most) for imports, most in AGENTS.items()]
    with tempfile.TemporaryDirectory() as folder:
        for words, number in lines_of_commands(Path(folder)).items():
            rows.append((f"sealpoint {words}", number, RUNS.get(words, LARGEST)))
    lines, statements = size()
    rows += [("src: lines", lines, MOST_LINES), ("src: statements", statements, MOST_STATEMENTS)]
    width = max(len(what) for what, _, _ in rows)
    print(f"{'lines loaded':{width}}  {'now':>6}  {'limit':>6}")
    for what, number, most in rows:
        print(f"{what:{width}}  {number:>6,}  {most:>6,}{'  OVER' * (number > most)}")
    print(f"processor time of sealpoint --help: {milliseconds(['sealpoint', '--help']):.0f} ms")


if __name__ == "__main__":
    main()
