"""The program as such: help, streams, codes, and what it says when it cannot go on."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from sealpoint.admin.cli import app as program_app
from sealpoint.admin.cli import options, output
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import DatabaseMissingError, MaintenanceError
from sealpoint.keys import ringfile
from tests.cli.conftest import CODE, Ended, Run


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, as it is typed."""
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


ALL = list(commands(typer.main.get_command(program_app.app)))


def test_lists_of_commands_show_whole_sentences() -> None:
    """A group lists the first sentence of each command, and cuts off what does not fit."""
    group: Any = typer.main.get_command(program_app.app)
    for words in ALL:
        command = group
        for word in words:
            command = command.commands[word]
        summary = command.get_short_help_str(limit=66)
        assert re.search(r"(?<!e\.g)(?<!\.)\.$", summary), (words, summary)


def test_lists_are_those_of_the_commands() -> None:
    """The table says of each command what its help begins with: a list loads none of them."""
    program: Any = typer.main.get_command(program_app.app)
    assert {" ".join(words) for words in ALL} == program_app.TABLE.keys()
    for name, row in program_app.TABLE.items():
        command = program
        for word in name.split():
            command = command.commands[word]
        assert command.help.splitlines()[0] == row.line, name


@pytest.mark.parametrize("words", [(), *ALL], ids=" ".join)
def test_help(run: Run, words: tuple[str, ...]) -> None:
    """It says what the command is for, and what each of its arguments and options is."""
    ended = run(*words, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert run(*words, "-h") == ended
    about, _, options = ended.out.partition("\nOptions:\n")
    usage, _, first, *_ = about.splitlines()
    assert usage.startswith(" ".join(["Usage: sealpoint", *words]))
    assert first.strip()
    lines = options.splitlines()
    assert any(line.split() == ["-h,", "--help", "Show", "this", "message", "and", "exit."] for line in lines)
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("  --", "  -h")):  # a name, and beside or below it what it is
            assert "  " in line[4:].strip() or after.startswith("     "), line


@pytest.mark.parametrize("words", [(), ("keys",), ("ledger",)], ids=" ".join)
def test_no_line_of_help_is_cut(run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """Each command is a whole sentence on an ordinary terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*words, "--help").out.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) == sum(each[:-1] == words for each in ALL)
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("words", [(), ("keys",)], ids=" ".join)
def test_help_for_who_names_no_command(run: Run, words: tuple[str, ...]) -> None:
    ended = run(*words)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert ended.err.startswith("Usage: sealpoint")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["nosuch"], "see `sealpoint --help`"),
        (["--nosuch"], "see `sealpoint --help`"),
        (["keys", "promote"], "see `sealpoint keys promote --help`"),
        (["keys", "list", "extra"], "see `sealpoint keys list --help`"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], hint: str) -> None:
    ended = run(*words)
    error, said = ended.err.splitlines()
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert error.startswith("error: ")
    assert said == f"hint: {hint}"


def test_streams_of_a_process(program: Run, ring: Path) -> None:
    """Data on stdout, errors on stderr, the code for the shell."""
    listed = program("keys", "list", "--json")
    assert (listed.code, listed.err) == (0, "")
    assert [key["id"] for key in json.loads(listed.out)["keys"]] == ["k1"]
    missing = program("keys", "list", "--keys", ring / "no.toml")
    assert (missing.code, missing.out) == (Exit.KEYS, "")
    assert [line.partition(":")[0] for line in missing.err.splitlines()] == ["error", "hint"]


def test_version(program: Run) -> None:
    ended = program("--version")
    assert (ended.code, ended.out.split()[0]) == (0, "sealpoint")


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_missing_extra_is_named(package: str) -> None:
    """Without the packages of the extra the program still says how to get them."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from sealpoint.admin.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert "pip install 'sealpoint[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_bug_shows_no_values(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """The traceback names lines of code, and never what stood in their variables."""

    def fail(*_: object) -> None:
        secret = "0123456789abcdef" * 2
        raise ZeroDivisionError(len(secret))

    monkeypatch.setattr(options, "read_ring_entries", fail)
    monkeypatch.setattr(ringfile, "find_ring_file", lambda path: path)
    ended = run("keys", "list")
    assert (ended.code, ended.out) == (Exit.BUG, "")
    assert "ZeroDivisionError: 32" in ended.err
    assert "abcdef0123" not in ended.err


def test_interrupt(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Ctrl-C where no command sees to it: an early end like others."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ringfile, "find_ring_file", interrupt)
    said = "ended by Ctrl-C; the same command can be run again\n"
    assert run("keys", "list") == Ended(Exit.STOPPED, "", said)


def test_reader_that_goes_away(ring: Path) -> None:
    """`sealpoint ... | head -0`: neither a traceback nor a word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [*CODE, "keys", "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (Exit.STOPPED, "")


# --- the screen -------------------------------------------------------------------------------


def test_table_shows_foreign_text_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """What a database holds moves no cursor, colours nothing, and is no markup."""
    output.show_table(("thread", "rows"), [("\x1b[31mred\r\n[bold]x\u202e\udc80", 3), (None, 12)])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["thread", "rows"]
    assert first.split() == [r"\x1b[31mred\r\n[bold]x\u202e\udc80", "3"]
    assert second.split() == ["-", "12"]
    assert len(first) == len(second)


def test_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(("x",), [("y" * 500,)])
    assert "y" * 500 in capsys.readouterr().out.splitlines()


def test_json_is_one_object_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_object(json.dumps({"x": "\x1bé"}))
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out)["x"] == "\x1bé"


def test_words_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.complain("no \x1b[2J", "try\nagain")
    assert capsys.readouterr().err == "error: no \\x1b[2J\nhint: try\\nagain\n"


BAR = """
from sealpoint.admin.cli.output import watching
with watching('rotate') as watch:
    for number in range(3):
        watch.move(number, 2)
        print('data')
"""


def test_no_bar_without_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", BAR], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"data\n" * 3, b"")


def test_bar_on_a_terminal() -> None:
    """On stderr: data may go elsewhere meanwhile."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", BAR], stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    assert done.stdout == b"data\n" * 3
    assert b"rotate" in os.read(ours, 10_000)
    os.close(ours)


@pytest.mark.parametrize("columns", [0, 1, 5])
def test_narrow_terminal(columns: int) -> None:
    """Names are broken over lines of 40 columns, and no column of the table is lost."""
    code = "from sealpoint.admin.cli.output import *; show_table(('table', 'rows'), [('x' * 20, 7)])"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    head, row = re.sub(r"\x1b\[\d*m", "", os.read(ours, 10_000).decode()).splitlines()
    os.close(ours)
    assert (head.split(), row.split()) == (["table", "rows"], ["x" * 20, "7"])


# --- databases --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://user:hunter2@host/db",
        "postgres://user:@hunter2@host/db",
        "postgresql://user:hun/ter2@host/db?password=x",
        "postgresql://user:h?nter2@host/db",
        "postgresql://user:h#nter2@host/db",
        "postgresql://host/db?password=hunter2",
        "postgresql://host/db?sslmode=require&pass%77ord=hunter2",
        "postgresql://host/db?sslpassword=hunter2",
        "host=db password=hunter2",
    ],
)
def test_password_is_refused(database: str) -> None:
    """Arguments are seen by everybody on the machine; the message does not repeat it."""
    with pytest.raises(MaintenanceError) as met:
        options.all_databases([database], None)
    assert "hunter2" not in str(met.value)
    assert "PGPASSFILE" in met.value.hint


@pytest.mark.parametrize("database", ["mysql://host/db", "POSTGRESQL://host/db"])
def test_other_servers_are_refused(database: str) -> None:
    with pytest.raises(DatabaseMissingError, match="neither a path nor a URL of Postgres"):
        options.all_databases([database], None)


def test_every_database_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those before the one that could not be opened."""
    closed: list[str] = []

    class Store:
        def __init__(self, name: str) -> None:
            self.name = name
            self.kind, self.identity = "sqlite", {"path": name}

        def close(self) -> None:
            closed.append(self.name)

    def open_store(name: str) -> Any:
        if name == "no":
            raise DatabaseMissingError(name)
        return Store(name)

    monkeypatch.setattr(options, "open_store", open_store)
    with pytest.raises(DatabaseMissingError), options.opened(["a", "b", "no"]):
        pass
    assert closed == ["b", "a"]
