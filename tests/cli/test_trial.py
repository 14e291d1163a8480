"""`sealpoint trial`: which threads an agent could not read, before it is switched over."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.cli import inspect as module
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run
from tests.support.databases import foreign
from tests.support.databases.harm import flip
from tests.support.databases.sealed import VALUES, values_of, write
from tests.support.keys.rings import states_text

pytestmark = pytest.mark.usefixtures("keys")

MODELS = """
from dataclasses import dataclass
from pathlib import Path

@dataclass
class Ticket:
    number: int

Path(__file__).with_name("imported").touch()
"""
AS_AGENTS_DO = ["--allow-plaintext", "--strict"]


@dataclass
class Ticket:
    """A type that no serializer knows by itself."""

    number: int


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current folder, which is not on the path of imports."""
    folder = tmp_path / "app"
    folder.mkdir()
    folder.joinpath("trial_models.py").write_text(MODELS)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(folder))])
    yield "trial_models"
    sys.modules.pop("trial_models", None)


@pytest.fixture
def tickets(tmp_path: Path, models: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database, not sealed, in which thread ``t`` names a type of that module and ``u`` names none."""
    monkeypatch.setattr(Ticket, "__module__", models)
    values: dict[str, Any] = {"t": {"ticket": Ticket(7)}, "u": {"text": "x"}}
    return foreign.write(tmp_path / "tickets.db", values)


def test_all_that_decodes_is_ok(run: Run, path: Path) -> None:
    ended = run("trial", path, "--json")
    found = ended.document
    assert (ended.code, found["ok"], found["rows"], found["failed"]) == (Exit.DONE, True, VALUES, 0)
    assert (found["threads"], found["other_failures"], found["strict"]) == ([], 0, False)
    assert run("trial", path).out.splitlines() == [
        f"decoded {VALUES} values; values and rows that fail: 0",
        "ok",
    ]


def test_threads_that_raise_are_named(run: Run, path: Path) -> None:
    """With how many values raise, and the first error of each; nothing is written."""
    for thread in ("b", "c"):
        write(path, "k1", thread)
    with_damage = [value for value in values_of(path) if "b" in map(str, value.where.key)][:2]
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in with_damage:
            flip(connection, value)
    foreign.insert(path, [("msgpack+cobblestone256@k9", b"x" * 40)], thread="c")
    before = path.read_bytes()
    ended = run("trial", path, "--json")
    threads = {part["thread"]: (part["values"], part["error"]) for part in ended.document["threads"]}
    assert threads == {"b": (2, "IntegrityError"), "c": (1, "UnknownKeyError")}
    assert (ended.code, ended.document["ok"], ended.document["failed"]) == (Exit.UNOPENED, False, 3)
    assert path.read_bytes() == before
    text = run("trial", path)
    head, *rows, decoded, verdict = text.out.splitlines()
    assert head.split("  ")[0] == "thread"
    assert [row.split()[:2] for row in rows] == [["b", "2"], ["c", "1"]]
    assert (decoded, verdict) == (
        "tried 37 values; values and rows that fail: 3",
        "not ok: values do not open",
    )


def test_keys_that_are_missing_end_with_5(run: Run, path: Path, keys: Path) -> None:
    keys.write_text(states_text(k2="active"))
    ended = run("trial", path, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.KEYS, ["keys-missing"])
    assert [part["thread"] for part in ended.document["threads"]] == ["a"]


def test_many_threads_are_counted(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_THREADS", 2)
    for thread in ("x", "y", "z"):
        foreign.insert(path, [("null", b""), ("null", b"")], thread=thread)
    ended = run("trial", path, "--json")
    assert (len(ended.document["threads"]), ended.document["other_failures"]) == (2, 2)
    assert "2 more values or rows fail in other threads" in run("trial", path).out


def test_plaintext_is_refused_unless_it_is_allowed(run: Run, path: Path) -> None:
    """Also beside sealed values; what was allowed is not proven."""
    write(path, "plain", "p")
    refused = run("trial", path, "--json")
    assert (refused.code, refused.document["ok"]) == (Exit.UNOPENED, False)
    (thread,) = refused.document["threads"]
    assert (thread["thread"], thread["values"], thread["error"]) == ("p", VALUES, "PlaintextError")
    allowed = run("trial", path, "--allow-plaintext", "--json")
    assert (allowed.code, allowed.document["ok"]) == (Exit.DONE, None)
    assert allowed.document["reasons"] == ["plaintext-allowed"]
    assert allowed.document["options"]["allow_plaintext"] is True


def test_a_type_that_is_not_allowed_raises_in_a_strict_agent(run: Run, tickets: Path, models: str) -> None:
    words = ["trial", tickets, "--import", models, *AS_AGENTS_DO]
    refused = run(*words, "--json")
    assert (refused.code, refused.document["strict"]) == (Exit.UNOPENED, True)
    assert [part["thread"] for part in refused.document["threads"]] == ["t"]
    allowed = run(*words, "--allow", f"{models}:Ticket", "--json")
    assert (allowed.code, allowed.document["threads"]) == (Exit.DONE, [])


def test_a_module_of_the_current_folder_is_imported(run: Run, tickets: Path, models: str) -> None:
    assert not Path("imported").exists()
    ended = run("trial", tickets, "--import", models, *AS_AGENTS_DO, "--allow", f"{models}:Ticket")
    assert (ended.code, Path("imported").exists()) == (Exit.DONE, True)


def test_a_type_that_cannot_be_imported_raises(run: Run, tickets: Path, models: str) -> None:
    """An agent that does not have the module either gets plain data, or an error, in that thread."""
    Path(f"{models}.py").unlink()
    ended = run("trial", tickets, *AS_AGENTS_DO, "--allow", f"{models}:Ticket", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.UNOPENED, False)
    assert [part["thread"] for part in ended.document["threads"]] == ["t"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nosuch", None),
        ("broken", "x ="),
        ("lacking", "import nosuch_module"),
        ("raising", "1 / 0"),
        ("ending", "import sys; sys.exit(0)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused(
    run: Run, path: Path, models: str, name: str, text: str | None
) -> None:
    """Before anything is read."""
    if text is not None:
        Path(f"{name}.py").write_text(text)
    ended = run("trial", path, "--import", name)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert f"'{name}' cannot be imported: " in " ".join(ended.err.split())
    assert models not in sys.modules


def test_a_class_that_ends_the_program_is_a_failure(run: Run, tickets: Path, models: str) -> None:
    """Its exit code would else be that of the run: 0, before anything was tried."""
    Path(f"{models}.py").write_text(f"{MODELS}Ticket.__init__ = lambda self, **_: exit(0)\n")
    ended = run("trial", tickets, "--import", models, *AS_AGENTS_DO, "--allow", f"{models}:Ticket", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.UNOPENED, False)
    assert [part["thread"] for part in ended.document["threads"]] == ["t"]


def test_the_current_folder_stands_in_for_no_installed_module(run: Run, path: Path, models: str) -> None:
    """It is searched last, and only if a module is to be imported."""
    Path("wave.py").write_text(MODELS)
    sys.modules.pop("wave", None)
    assert run("trial", path).code == Exit.DONE
    assert str(Path.cwd()) not in sys.path
    assert run("trial", path, "--import", "wave").code == Exit.DONE
    assert (sys.path[-1], Path("imported").exists()) == (str(Path.cwd()), False)


def test_a_module_that_was_not_imported_is_named_as_the_cause(run: Run, tickets: Path, models: str) -> None:
    """The values are as they were: neither damaged nor of a type that has changed."""
    allowed = ["--allow", f"{models}:Ticket", "--allow-plaintext"]
    ended = run("trial", tickets, *allowed)
    assert ended.code == Exit.UNOPENED
    assert run("trial", tickets, *allowed, "--import", models).code == Exit.DONE
    assert "--import MODULE" in ended.err
    assert "has changed" not in ended.err


def test_a_type_that_is_not_allowed_is_answered_with_the_option(run: Run, tickets: Path, models: str) -> None:
    """The serializer's hint is a line of Python, and this is a command."""
    ended = run("trial", tickets, "--allow-plaintext", "--import", models)
    assert ended.code == Exit.UNOPENED
    assert "--allow MODULE:NAME" in ended.err
    assert f"serde.with_msgpack_allowlist([('{models}', 'Ticket')])" in ended.err


def test_what_is_not_sealed_needs_no_ring(
    run: Run, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To try before there are keys; what is sealed needs it, and plaintext is still refused first."""
    monkeypatch.delenv("SEALPOINT_KEYS")
    plain = foreign.write(tmp_path / "plain.db")
    ended = run("trial", plain, *AS_AGENTS_DO, "--json")
    found = ended.document
    assert (ended.code, found["ok"], found["ring"]) == (Exit.DONE, None, None)
    assert (found["reasons"], found["rows"], found["failed"]) == (["plaintext-allowed"], 2, 0)
    refused = run("trial", plain, "--strict")
    assert refused.code == Exit.UNOPENED
    assert "hint: no value is sealed, and there is no ring: --allow-plaintext decodes" in refused.err
    sealed = run("trial", path, *AS_AGENTS_DO)
    assert (sealed.code, sealed.out) == (Exit.KEYS, "")
    assert "error: no ring file" in sealed.err
    named = run("trial", plain, *AS_AGENTS_DO, "--keys", tmp_path / "missing.toml")
    assert named.code == Exit.KEYS
