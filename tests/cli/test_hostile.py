"""Hostile databases and careless words: a code and a hint; nothing is run, replaced or hung."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
import typer

from sealpoint.admin.cli.options import require_number
from sealpoint.admin.keys.lock import SUFFIX
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import CODE, Run
from tests.support.databases.foreign import insert
from tests.support.databases.sealed import tags_of
from tests.support.keys.rings import states_text

NAMES: Final = "\x1b]0;t\x07\x1b[2J\x9b31m\u202e\u2028\r\n\u200b"
"""A thread's name that would set a terminal's title, clear it, and turn its lines round."""

pytestmark = pytest.mark.usefixtures("keys")

CONTROLS: Final = {sign for sign in NAMES if not sign.isprintable()} - {"\n"}

LAID: Final[dict[str, Callable[[Path, Path], object]]] = {
    "link": lambda place, victim: place.symlink_to(victim),
    "dangling link": lambda place, victim: place.symlink_to(victim.with_name("nothing")),
    "folder": lambda place, _: place.mkdir(),
    "pipe": lambda place, _: os.mkfifo(place),
    "hard link": lambda place, victim: place.hardlink_to(victim),
}


def change(path: Path, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, parameters)


@pytest.mark.parametrize(
    "words", [["status"], ["verify"], ["rotate"], ["keys", "destroy", "k1", "--yes", "--db"]]
)
@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling link"])
def test_database_that_is_no_file(
    run: Run, tmp_path: Path, victim: Path, keys: Path, words: list[str], kind: str
) -> None:
    keys.write_text(states_text(k2="active", k1="disabled"))
    place = tmp_path / "place"
    LAID[kind](place, victim)
    ended = run(*words, place)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "hint: " in ended.err


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_ring_that_is_no_file(run: Run, tmp_path: Path, path: Path, keys: Path, kind: str) -> None:
    place = tmp_path / "folder" / "place"
    place.parent.mkdir()
    LAID[kind](place, keys)  # a link leads out of the folder
    ended = run("rotate", path, "--apply", "--keys", place)
    assert (ended.code, ended.out) == (Exit.KEYS, "")
    assert tags_of(path) == {f"{kind}+cobblestone256@k1" for kind in ("msgpack", "bytes", "null")}


@pytest.mark.parametrize("kind", LAID)
def test_what_is_laid_in_place_of_the_lock_is_not_written_to(
    run: Run, path: Path, victim: Path, kind: str
) -> None:
    """A rotation is refused, or goes on; either way it touches nothing that is not its own."""
    LAID[kind](path.with_name(path.name + SUFFIX), victim)
    ended = run("rotate", path, "--apply")
    assert ended.code in {Exit.DONE, Exit.USAGE}
    assert (victim.read_text(), victim.with_name("nothing").exists()) == ("as it was", False)


@pytest.mark.parametrize("kind", LAID)
def test_what_is_laid_in_place_of_the_copy_is_left_alone(
    run: Run, tmp_path: Path, path: Path, victim: Path, kind: str
) -> None:
    place = tmp_path / "copy.db"
    LAID[kind](place, victim)
    before = place.lstat()
    assert run("decrypt", path, "--out", place).code == Exit.USAGE
    after = place.lstat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)
    assert (victim.read_text(), victim.with_name("nothing").exists()) == ("as it was", False)


@pytest.mark.parametrize(
    "words",
    [["inspect", "--thread", "forged"], ["types"], ["rotate", "--apply", "--allow-plaintext"], ["audit"]],
)
@pytest.mark.parametrize("tag", ["pickle", "pickle+aes", "pickle+cobblestone256@k1"])
def test_no_pickle_is_loaded(run: Run, tmp_path: Path, path: Path, words: list[str], tag: str) -> None:
    mark = tmp_path / "loaded"
    insert(path, [(tag, f'cos\nsystem\n(S"touch {mark}"\ntR.'.encode())])
    run(words[0], path, *words[1:])
    assert not mark.exists()


def test_sealed_pickles_stay_what_they_are(run: Run, path: Path) -> None:
    """A pickle that nobody sealed is left by a first sealing, and named."""
    insert(path, [("pickle", b"cos\nsystem\n(S'true'\ntR.")])
    ended = run("rotate", path, "--apply", "--allow-plaintext")
    assert ended.code == Exit.UNOPENED
    assert "UnknownTypeError" in ended.err
    assert "pickle" in tags_of(path)


def test_value_relabelled_to_the_active_key_is_found_out(run: Run, path: Path) -> None:
    """Rotation takes it for done, by its tag; the values are opened once more at the end for that."""
    change(path, "UPDATE checkpoints SET type = 'msgpack+cobblestone256@k2' WHERE checkpoint_id = '000001'")
    ended = run("rotate", path, "--apply")
    assert ended.code == Exit.UNOPENED
    assert "'000001'" in ended.err
    assert "IntegrityError" in ended.err


@pytest.mark.parametrize("words", [["status"], ["rotate", "--apply"], ["verify"], ["audit"], ["types"]])
@pytest.mark.parametrize("as_json", [False, True])
def test_names_move_no_cursor(run: Run, path: Path, words: list[str], as_json: bool) -> None:
    insert(path, [(NAMES, b"x"), (f"{NAMES}+aes", b"x")], thread=NAMES)
    ended = run(words[0], path, *words[1:], *["--json"][:as_json])
    assert ended.code in set(Exit) - {Exit.BUG}
    assert not set(ended.out + ended.err) & CONTROLS


def test_a_missing_file_is_named_without_its_escapes(run: Run, tmp_path: Path) -> None:
    ended = run("status", f"{tmp_path}/{NAMES}")
    assert ended.code == Exit.USAGE
    assert not set(ended.err) & CONTROLS


def test_long_names_are_cut(run: Run, path: Path) -> None:
    """A megabyte of name is a line of text in a message."""
    insert(path, [("msgpack+cobblestone256@k1", b"x" * 100)], thread="n" * 1_000_000)
    ended = run("verify", path)
    assert ended.code == Exit.UNOPENED
    assert len(ended.out + ended.err) < 2_000


def test_many_tags_are_summed_up(run: Run, path: Path) -> None:
    insert(path, [(f"msgpack+cobblestone256@z{number}", b"x" * 100) for number in range(5_000)])
    ended = run("status", path)
    assert ended.code == Exit.DONE
    assert len(ended.out.splitlines()) < 200
    assert "others" in ended.out


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("words", [["status"], ["audit"], ["rotate"], ["inspect", "--thread", "a"]])
def test_full_stdout(path: Path, words: list[str]) -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        command = [*CODE, words[0], str(path), *words[1:]]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered
        )
    assert done.returncode == Exit.STOPPED
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--rate", "nan"],
        ["--rate", "-1"],
        ["--rate", "inf"],
        ["--rate", "1e400"],
        ["--max-seconds", "nan"],
        ["--max-seconds", "inf"],
        ["--max-lock-ms", "nan"],
        ["--max-lock-ms", "1e308"],
        ["--batch", "0"],
        ["--batch", "9" * 30],
        ["--workers", "65"],
    ],
)
def test_numbers_that_are_none(run: Run, path: Path, words: list[str]) -> None:
    ended = run("rotate", path, "--apply", *words)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "hint: " in ended.err


def test_not_a_number() -> None:
    """Refused without the bounds too: not every version of typer takes it to be beyond them."""
    with pytest.raises(typer.BadParameter):
        require_number(float("nan"))
    assert (require_number(None), require_number(0.5)) == (None, 0.5)


def test_limit_that_is_none(run: Run, path: Path) -> None:
    ended = run("inspect", path, "--thread", "a", "--limit", 2**63 - 1)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "hint: " in ended.err


def shell(*words: object, to: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program with redirections of a shell."""
    command = shlex.join([*CODE, *map(str, words)])
    return subprocess.run(
        ["sh", "-c", f"exec {command} {to}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("to", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_streams_that_cannot_be_written(path: Path, to: str) -> None:
    """A rotation does its work, and what it would say gets into no file, nor among the data."""
    plan = shell("rotate", path, to=to)
    assert plan.returncode == Exit.DONE
    assert "--apply carries it out" not in plan.stdout
    done = shell("rotate", path, "--apply", "--verify", "sample", to=to)
    assert (done.returncode, done.stderr) == (Exit.DONE, "")
    assert tags_of(path) == {f"{kind}+cobblestone256@k2" for kind in ("msgpack", "bytes", "null")}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_question_without_stdin(path: Path, keys: Path) -> None:
    keys.write_text(states_text(k2="active", k1="disabled"))
    done = shell("keys", "destroy", "k1", "--no-database-check", to="<&-")
    assert done.returncode == Exit.USAGE
    assert "no terminal to ask for confirmation" in done.stderr


def test_ascii_streams(path: Path) -> None:
    """What an encoding lacks is shown escaped, on both of them."""
    named = path.rename(path.with_name("caf\u00e9.db"))
    found = shell("status", named, to="", PYTHONIOENCODING="ascii")
    assert (found.returncode, found.stderr) == (Exit.DONE, "")
    found = shell("status", named, named.parent, to="", PYTHONIOENCODING="ascii")
    assert "caf\\xe9.db" in found.stdout
    missing = shell("status", path.with_name("th\u00e9.db"), to="", PYTHONIOENCODING="ascii")
    assert missing.returncode == Exit.USAGE
    assert "th\\xe9.db" in missing.stderr


def test_words_that_are_no_text(run: Run, path: Path) -> None:
    for words in (["inspect", path, "--thread", "a\udcff"], ["status", "postgresql:///a\udcff"]):
        ended = run(*words)
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert r"a\udcff' is not UTF-8" in ended.err
