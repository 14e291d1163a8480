"""Hints on the way of a newcomer, pasted: the commands that messages name run as they are printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import metadata
from pathlib import Path

import pytest

from sealpoint.admin.cli import options, output
from sealpoint.admin.cli.frame import Run as Frame
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Ended
from tests.support.databases.foreign import insert
from tests.support.databases.sealed import bind, make_cipher, write
from tests.support.keys.rings import states_text

Shell = Callable[[str], Ended]

NAME = "it's my app.db"
COMMAND = re.compile(r"`(sealpoint [^`]+)`|: (sealpoint [^`;\n]+)")


@pytest.fixture
def shell(tmp_path: Path, script_path: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a line in a shell, in a folder with a database under k1 that has a name to be quoted."""
    monkeypatch.setenv("PATH", script_path)
    write(tmp_path / NAME, "k1", "a")

    def call(line: str) -> Ended:
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call


def ring(folder: Path, monkeypatch: pytest.MonkeyPatch, **states: str) -> None:
    file = folder / "ring.toml"
    file.write_text(states_text(**states))
    file.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))


def plain(path: Path) -> None:
    insert(path, [("msgpack", b"\x07")])


def mixed(path: Path) -> None:
    bind(path, make_cipher("k1"), "a")
    write(path, "k1", "b")


WAYS: dict[str, tuple[str, Callable[[Path], object] | None, dict[str, str], list[str]]] = {
    # What is typed, what is done to the database before, the ring, and the commands that are offered.
    "no ring": ("sealpoint verify DB", None, {}, ["sealpoint keys init --keys keys.toml"]),
    "no database": ("sealpoint verify", None, {"k1": "active"}, ["sealpoint verify --help"]),
    "no databases": ("sealpoint status", None, {"k1": "active"}, ["sealpoint status --help"]),
    "no command": ("sealpoint verfy", None, {}, ["sealpoint --help"]),
    "no option": ("sealpoint verify --fast DB", None, {}, ["sealpoint verify --help"]),
    "plaintext rows": (
        "sealpoint verify DB",
        plain,
        {"k1": "active"},
        ["sealpoint rebind DB --allow-plaintext --apply", "sealpoint rotate DB --allow-plaintext --apply"],
    ),
    "unbound rows": ("sealpoint verify DB", mixed, {"k1": "active"}, ["sealpoint rebind DB"]),
    "wrong key": ("sealpoint rotate DB --allow-plaintext", None, {"k7": "active"}, ["sealpoint verify DB"]),
    "key in use": (
        "sealpoint keys disable k1 --db DB",
        None,
        {"k2": "active", "k1": "decrypt-only"},
        ["sealpoint rotate DB --apply"],
    ),
    "no thread": (
        "sealpoint rebind DB --thread x",
        None,
        {"k1": "active"},
        ["sealpoint inspect DB", "sealpoint rebind --help"],
    ),
    "no index key": (
        "sealpoint verify DB --threads t.db",
        None,
        {"k1": "active"},
        ["sealpoint keys generate --index"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_commands_in_messages_can_be_pasted(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    line, prepare, states, offered = WAYS[way]
    if prepare is not None:
        prepare(tmp_path / NAME)
    if states:
        ring(tmp_path, monkeypatch, **states)
    quoted = shlex.quote(NAME)
    ended = shell(line.replace("DB", quoted))
    assert ended.code not in (Exit.DONE, Exit.BUG) or way == "unbound rows"
    found = [(quoted_one or last).strip() for quoted_one, last in COMMAND.findall(ended.err)]
    assert found == [each.replace("DB", quoted).replace("FOLDER", str(tmp_path)) for each in offered]
    for each in found:
        pasted = shell(each)
        assert pasted.code not in (Exit.BUG, Exit.USAGE), (each, pasted.err)


@pytest.mark.parametrize("command", ["rotate", "rebind", "scrub"])
def test_options_in_messages_do_what_they_say(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """To be added to the command that was typed."""
    plain(tmp_path / NAME)
    ring(tmp_path, monkeypatch, k1="active")
    line = f"sealpoint {command} {shlex.quote(NAME)}"
    assert "--apply carries it out" in shell(line).err
    applied = shell(f"{line} --apply")
    if command != "scrub":
        assert "--allow-plaintext seals" in applied.err
        assert (
            shell(f"{line} --apply --allow-plaintext")
            .out.splitlines()[-1]
            .startswith("not proven: unsealed values")
        )
        assert shell(f"{line} --apply").code == Exit.DONE


def test_extra_that_is_missing(tmp_path: Path) -> None:
    """The extra of the hint exists, and the package is one of those that it installs."""
    code = "import sys; sys.modules['typer'] = None; from sealpoint.admin.cli import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (extra,) = re.findall(r"^hint: pip install 'sealpoint\[(\w+)\]'$", ended.stderr, re.MULTILINE)
    needs = metadata("sealpoint").get_all("Requires-Dist") or []
    assert any(each.startswith("typer") and f"extra == '{extra}'" in each for each in needs)


def test_variable_and_ring_of_the_command_line_are_in_what_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable stands for the URL, which may have a password."""
    monkeypatch.setenv("AGENTS", "postgresql://u:hunter2@host/db")
    run = Frame("verify")
    run.keys = Path("my ring.toml")
    options.one_database(run, None, "AGENTS")
    output.say("`sealpoint rebind DB --apply`")
    assert capsys.readouterr().err == "`sealpoint rebind --db-env AGENTS --keys 'my ring.toml' --apply`\n"
    Frame("verify")
    output.say("`sealpoint rebind DB`")
    assert capsys.readouterr().err == "`sealpoint rebind DB`\n"
