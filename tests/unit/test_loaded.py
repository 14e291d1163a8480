"""What is loaded: lines of sealpoint's own modules that an agent or a command imports.

Who reviews one of them reads these. A limit is raised in the commit that needs it, which says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from typing import Final

import pytest

from sealpoint.admin.cli.app import COMMANDS
from sealpoint.threads import SqliteThreadStore
from tests.support.databases.bound import INDEX, play, sealed_file
from tests.support.keys.rings import states_text, write

LARGEST: Final = 25_000

# Runs, in this order, and how many lines each may load. Commands that are not here are asked for their help.
RUNS: Final = {
    "--help": 5_000,
    "keys list": 10_000,
    "status app.db": LARGEST,
    "verify app.db --threads threads.db": LARGEST,
    "heads seal threads.db": LARGEST,
    "audit app.db": LARGEST,
    "types app.db": LARGEST,
    "trial app.db": LARGEST,
    "inspect app.db --thread t --last": LARGEST,
    "init app.db": LARGEST,
    "report app.db --threads threads.db --allow-unproven": LARGEST,
    "decrypt app.db --out copy.db": LARGEST,
    "keys promote k1": LARGEST,
    "rotate app.db --apply --scrub": LARGEST,
    "rebind app.db --apply --scrub": LARGEST,
    "scrub app.db --apply": LARGEST,
    "ledger init --keys ledger.toml": LARGEST,
    "verify app.db --threads threads.db --keys ledger.toml": LARGEST,
    "inspect app.db --thread t --last --keys ledger.toml": LARGEST,
    "init app.db --keys ledger.toml": LARGEST,
    "rotate app.db --apply --scrub --keys ledger.toml": LARGEST,
    "report app.db --threads threads.db --allow-unproven --keys ledger.toml": LARGEST,
    "rebind app.db --apply --scrub --keys ledger.toml": LARGEST,
    "erase app.db --threads threads.db --thread t --apply": LARGEST,
    "erase app.db --threads threads.db --thread t --apply --allow-missing --keys ledger.toml": LARGEST,
    "erasures --allow-unproven --keys ledger.toml": LARGEST,
}

# What a ring file has where runs are recorded.
LEDGER: Final = """
[ledger]
dir = "ledger"
origin = "example.org/agents"
signer = { file = "ledger.key" }
"""

# Each run has a process, forked from one that has imported none of sealpoint.
RUNNER: Final = """
import json, os, sys
import rich.console, typer
answers, empty = os.dup(1), os.open(os.devnull, os.O_RDWR)
for words in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    for number in range(3):
        os.dup2(empty, number)
    sys.argv = ["sealpoint", *words.split()]
    from sealpoint.admin.cli import main
    code = main()
    own = [module for name, module in [*sys.modules.items()] if name.partition(".")[0] == "sealpoint"]
    sources = {module.__file__ for module in own}
    lines = sum(len(open(source, encoding="utf-8").readlines()) for source in sources)
    os.write(answers, f"{json.dumps([words, code, lines])}\\n".encode())
    os._exit(0)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many lines each run loads, on a database with a thread store, some of them with a ledger."""
    folder = tmp_path_factory.mktemp("loaded")
    index = f"[[index]]\nid = 'index'\nsource = {{ inline = '{INDEX.hex()}' }}\n"
    keys = states_text(k2="active", k1="decrypt-only") + index
    write(folder / "keys.toml", keys)
    write(folder / "ledger.toml", keys + LEDGER)
    with (
        closing(SqliteThreadStore(str(folder / "threads.db"), create=True)) as store,
        sealed_file(folder / "app.db", threads=store) as saver,
    ):
        play(saver, "t")
    run = {name for line in RUNS for name in COMMANDS if line.startswith(name)}
    lines = [*RUNS, *(f"{name} --help" for name in sorted(COMMANDS - run))]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(lines)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "SEALPOINT_KEYS": str(folder / "keys.toml")},
        capture_output=True,
        text=True,
        check=True,
    )
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, _, _ in ended] == lines
    assert [(words, code) for words, code, _ in ended if code] == []
    return {words: number for words, _, number in ended}


def test_a_command_loads_what_it_uses(loaded: dict[str, int]) -> None:
    over = {words: number for words, number in loaded.items() if number > RUNS.get(words, LARGEST)}
    assert over == {}


# What an agent imports, and how many lines that may load.
AGENTS: Final = {
    "from sealpoint.langgraph import EncryptedSerializer": 8_500,
    "from sealpoint.langgraph import EncryptedSerializer, SealedSaver": 13_500,
    "from sealpoint.langgraph import SealedSaver; from sealpoint.threads import SqliteThreadStore": 15_500,
    "from sealpoint.langgraph import SealedSaver, SealedStore": 14_500,
}
IMPORTER: Final = """
import sys
{imports}
sources = {{module.__file__ for name, module in [*sys.modules.items()] if name.split(".")[0] == "sealpoint"}}
print(sum(len(open(source, encoding="utf-8").readlines()) for source in sources))
"""


@pytest.mark.parametrize(("imports", "most"), AGENTS.items())
def test_an_agent_loads_what_it_uses(imports: str, most: int) -> None:
    pytest.importorskip("langgraph.checkpoint.base")
    command = [sys.executable, "-c", IMPORTER.format(imports=imports)]
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) <= most
