"""The program as a shell meets it: as a module, with short help, completed by bash, and with a bar."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.databases.sealed import write

PROGRAM = Path(sys.executable).with_name("sealpoint")


def test_module_is_the_program(tmp_path: Path) -> None:
    (module, script) = (
        subprocess.run([*each, "status", "no.db"], capture_output=True, text=True, check=False, cwd=tmp_path)
        for each in ([sys.executable, "-m", "sealpoint"], [PROGRAM])
    )
    assert (script.returncode, "no.db" in script.stderr) == (2, True)
    assert (module.returncode, module.stdout, module.stderr) == (2, script.stdout, script.stderr)


def test_module_that_is_only_imported_loads_no_commands() -> None:
    code = (
        "import sys, sealpoint.__main__; print([name for name in sys.modules if 'sealpoint.admin' in name])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_module_without_the_extra_names_it() -> None:
    code = (
        "import sys, runpy; sys.modules['typer'] = None; runpy.run_module('sealpoint', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'sealpoint[cli]'" in done.stderr


def test_commands_are_in_the_order_of_a_beginner(run: Run) -> None:
    listed = re.findall(r"^  ([a-z]+) ", run("-h").out.partition("Commands:\n")[2], re.MULTILINE)
    assert listed[0] == "keys"
    assert listed.index("status") < listed.index("rotate") < listed.index("ledger")


@pytest.mark.costly
@pytest.mark.broad(every=2)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ver", {"verify"}),
        ("keys d", {"disable", "destroy"}),
        ("rebind --allow-p", {"--allow-plaintext"}),
        ("keys destroy --leave", {"--leave-material"}),
    ],
)
def test_bash_completes_commands_and_options(tmp_path: Path, typed: str, offered: set[str]) -> None:
    """By what --install-completion installs, in a shell that has read its start file."""
    environment = {"HOME": str(tmp_path), "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    script = f"""
        sealpoint --install-completion bash > /dev/null
        . ~/.bashrc
        COMP_WORDS=(sealpoint {typed}) COMP_CWORD={len(typed.split())}
        $(complete -p sealpoint | sed 's/.*-F \\([^ ]*\\).*/\\1/') sealpoint
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    shown = subprocess.check_output(
        ["bash", "--norc", "-c", script], env=environment, text=True, cwd=tmp_path
    )
    assert set(shown.split()) == offered


def on_terminal(program: Path, *words: object) -> str:
    """What a command prints on a terminal, of both streams."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        shown += part
    os.close(ours)
    process.wait()
    return shown.decode()


BARS = {
    "status": ["status"],
    "audit": ["audit"],
    "verify": ["verify"],
    "types": ["types"],
    "rotate": ["rotate", "check", "verify"],
    "rebind": ["rebind", "check", "verify"],
    "scrub": ["scrub"],
    "trial": ["trial"],
}


@pytest.mark.parametrize("command", BARS)
def test_every_long_command_has_a_bar_of_its_own(
    tmp_path: Path, forked: Path, keys: Path, command: str
) -> None:
    """It says what is done: the command, or a part of it."""
    write(tmp_path / "x.db", "k1", "a")
    more = ["--apply"] if command in ("rotate", "rebind", "scrub") else []
    shown = on_terminal(forked, command, tmp_path / "x.db", *more)
    titles = set(re.findall(r"(\w+) ━", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)))
    assert titles == set(BARS[command])


LONG = "a-folder-of-databases/that-has-a-rather-long-name/customers-in-the-west-of-europe"
THREAD = "customer-0001/conversation-2026-11-25T10:00:00+00:00/an-id-that-nobody-chose-to-be-short"


@pytest.mark.broad("line")
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "line",
    [
        "status DB PLAIN",
        "audit DB PLAIN",
        "types DB PLAIN",
        "trial PLAIN",
        "rotate DB PLAIN",
        "rebind DB PLAIN",
        "scrub DB PLAIN",
        "report DB PLAIN",
        "inspect DB",
        "keys list",
        "keys show k1",
        "keys check",
        "ledger show",
    ],
)
def test_no_line_of_a_table_is_wider_than_the_terminal(
    run: Run, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, columns: int
) -> None:
    """And only what has no room is folded: no name of a column, a table, a kind, a suite or a key."""
    places = {"DB": tmp_path / LONG / "sealed.db", "PLAIN": tmp_path / LONG / "plain.db"}
    places["DB"].parent.mkdir(parents=True)
    write(places["DB"], "k1", THREAD)
    write(places["PLAIN"], "plain", THREAD)
    table = "[ledger]\ndir = 'ledger'\norigin = 'example.org/agents'\nsigner = { file = 'ledger.key' }\n"
    keys.write_text(f"{keys.read_text()}\n{table}")
    assert run("ledger", "init").code == 0
    assert run("verify", *places.values()).code == 4
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = run(*(places.get(word, word) for word in line.split())).out
    texts = [re.sub(r"\x1b\[[\d;]*m", "", each) for each in shown.splitlines()]
    wide = [each for each in texts if len(each) > columns]
    assert [each for each in wide if not re.search(r"\.db:($| \d+ of \d+ values opened$)", each)] == []
    words = {word for each in texts for word in each.split()}
    found = {"status": {"checkpoints", "plaintext", "cobblestone256"}, "ledger": {"ledger.init", "exit"}}
    assert found.get(line.split(maxsplit=1)[0], set()) <= words
    whole = [word for word in words if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}Z", word)]
    assert whole or line != "ledger show"
