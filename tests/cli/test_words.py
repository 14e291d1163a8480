"""No command and no saver accuses a value that LangGraph wrote, or claims what it did not look at."""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
from langgraph.checkpoint.sqlite import SqliteSaver

import sealpoint
from sealpoint import JsonPlusSerializer
from sealpoint.admin.results.exits import Exit
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.sqlite import SqliteSaver as OurSaver
from tests.cli import odd
from tests.cli.conftest import Run
from tests.cli.odd import MODULE, ODD, SECRET, THREAD, Odd
from tests.support.databases.foreign import insert
from tests.support.databases.sealed import VALUES, write

pytestmark = pytest.mark.usefixtures("keys")

ACCUSING: Final = re.compile(r"forge|damage|tamper|corrupt|restore (it|the row)", re.IGNORECASE)
ALLOWED: Final = ["--allow-plaintext", "--allow-legacy"]
BEFORE: Final = [
    ["types"],
    ["types", "--json"],
    ["types", "--emit"],
    ["trial", "--allow-plaintext"],
    ["trial", "--allow-plaintext", "--strict", "--allow", f"{MODULE}:Order", "--json"],
    ["inspect"],
    ["inspect", "--thread", THREAD],
    ["inspect", "--thread", THREAD, "--last"],
    ["inspect", "--thread", THREAD, "--last", "--json"],
    ["audit"],
    ["status"],
    ["verify"],
    ["verify", "--allow-plaintext"],
    ["report", "--allow-plaintext"],
    ["init", "--yes"],
    ["rotate", "--apply", *ALLOWED],
    ["rebind", *ALLOWED],
    ["rebind", "--apply", *ALLOWED],
]
AFTER: Final = [
    ["types"],
    ["trial"],
    ["inspect", "--thread", THREAD],
    ["inspect", "--thread", THREAD, "--last"],
    ["audit"],
    ["status"],
    ["verify", "--bound"],
    ["verify", "--bound", "--json"],
]
TYPES: Final = ("Order", "Ticket", "Color", "Pair", "Inner")
SEEING: Final = {"inspect"}  # which show values


def said_by(error: BaseException) -> Iterator[str]:
    """Yield the message, the hint and the notes of an error, and of those behind it."""
    yield f"{type(error).__name__}: {error}"
    yield from (getattr(error, "hint", ""), *getattr(error, "__notes__", ()))
    for behind in filter(None, (error.__cause__, error.__context__)):
        yield from said_by(behind)


def saver_says(path: Path, serde: EncryptedSerializer, unbound: Any) -> Iterator[str]:
    """Yield what SealedSaver and the saver of the package say of a thread."""
    at: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
    unsealed: Any = {"allow_write_with": Theirs()} if unbound == "allow" else {}
    makers: Any = (
        lambda on: SealedSaver(SqliteSaver(on), serde=serde, unbound=unbound, **unsealed),
        lambda on: OurSaver(on, serde=serde),
    )
    readers: Any = (lambda saver: saver.get_tuple(at), lambda saver: list(saver.list(at)))
    for make, read in product(makers, readers):
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            try:
                read(make(connection))
            except Exception as error:  # noqa: BLE001 -- what it says counts
                yield from said_by(error)


def transcript(run: Callable[..., Any], each: Odd, folder: Path, keys: Path) -> list[tuple[str, str]]:
    """Return what every command and the saver say of an odd value, before and after it is sealed."""
    path = folder / "odd.db"
    odd.install(MODULE, each.before)
    each.write(path)
    odd.install(MODULE, each.after)
    for package in each.hidden:
        sys.modules.pop(package, None)
    said = list[tuple[str, str]]()
    for commands in (BEFORE, AFTER):
        for words in commands:
            ended = run(words[0], path, *words[1:])
            said.append((" ".join(words), f"{ended.out}\n{ended.err}"))
        for pickles in (False, True):
            inner = JsonPlusSerializer(pickle_fallback=pickles)
            for policy in ("allow", "refuse"):
                serde: Any = EncryptedSerializer.from_key_file(keys, serde=inner, plaintext=policy)
                serde = serde.with_msgpack_allowlist([(MODULE, name) for name in TYPES])
                said += [("SealedSaver", text) for text in saver_says(path, serde, policy)]
    odd.install(MODULE, None)
    return said


def require_plain_words(said: list[tuple[str, str]]) -> None:
    """Fail for an accusing word, or for a value in what only `inspect` may show."""
    assert [each for each in said if ACCUSING.search(each[1])] == []
    shown = [each for each in said if each[0].split()[0] not in SEEING and SECRET in each[1]]
    assert shown == []


@pytest.mark.parametrize("name", [name for name, each in ODD.items() if not each.hidden])
def test_no_genuine_value_is_accused(name: str, run: Run, tmp_path: Path, keys: Path) -> None:
    """Whatever its reader lacks: what is said is what is known."""
    require_plain_words(transcript(run, ODD[name], tmp_path, keys))


HIDING: Final = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from tests.cli.odd import ODD
from tests.support.databases.foreign import insert
from tests.support.databases.sealed import VALUES, write
from tests.cli import test_words
from sealpoint.admin.cli.app import run as program

name, folder, keys = sys.argv[1:]

class Hidden:
    on = False
    def find_spec(self, module, *_):
        if self.on and module.partition(".")[0] in ODD[name].hidden:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

hidden = Hidden()
sys.meta_path.insert(0, hidden)

def run(*words):
    if not hidden.on:
        hidden.on = True
        for module in list(sys.modules):
            if module.partition(".")[0] in ODD[name].hidden:
                del sys.modules[module]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        program([str(word) for word in words])
    return SimpleNamespace(out=out.getvalue(), err=err.getvalue())

print(json.dumps(test_words.transcript(run, ODD[name], Path(folder), Path(keys))))
"""


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("name", [name for name, each in ODD.items() if each.hidden])
def test_a_missing_package_is_not_a_fault_of_the_value(name: str, tmp_path: Path, keys: Path) -> None:
    """The reader lacks the package: it is named, as what is to be installed."""
    command = [sys.executable, "-c", HIDING, name, str(tmp_path), str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    said = [(words, text) for words, text in json.loads(done.stdout.splitlines()[-1])]
    require_plain_words(said)


def test_the_search_finds_what_it_searches() -> None:
    for text in ("the row was damaged or forged", "TamperedError", f"refused: {SECRET}"):
        with pytest.raises(AssertionError):
            require_plain_words([("verify", text)])
    require_plain_words([("inspect --last", SECRET)])


def sentences(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module that are no documentation."""
    documentation = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in documentation:
            yield each.value


def test_few_sentences_accuse_at_all() -> None:
    """Where a signature or the database server has said so."""
    found = {
        (file.name, text)
        for file in Path(sealpoint.__file__).parent.rglob("*.py")
        for text in sentences(ast.parse(file.read_text(encoding="utf-8")))
        if " " in text and re.search(r"\bforge(?!t)|tamper|damage|corrupt", text, re.IGNORECASE)
    }
    assert found == {
        ("connection.py", "the server reports that a table or index of the saver is damaged"),
        ("rows.py", "restore the row from a backup; the server's log shows the place of the damage"),
    }


# --- what a constructor refuses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause", "advice"),
    [
        ("class renamed", "its module has no such name", "OLD = NEW"),
        ("class nested in another", "its module has no such name", "at the top of its module"),
        ("class moved", "ModuleNotFoundError", "make the module, and its imports, importable"),
        ("class made a function", "it is not a class", "compare the type"),
        ("member of an enum removed", "it has no member of this value", "compare the type"),
        ("field of a model added", "pydantic refuses field 'count'", "give new fields defaults"),
        ("type of a field changed", "pydantic refuses field 'item'", "compare the type"),
        ("validator of a model changed", "pydantic refuses field 'item'", "compare the type"),
        ("field of a model removed", "pydantic refuses other parts of it", "compare the type"),
        ("field of a dataclass added", "TypeError", "compare the type"),
    ],
)
def test_what_is_known_is_said(name: str, cause: str, advice: str, run: Run, tmp_path: Path) -> None:
    each, path = ODD[name], tmp_path / "odd.db"
    odd.install(MODULE, each.before)
    each.write(path)
    odd.install(MODULE, each.after)
    allowed = [word for name in TYPES for word in ("--allow", f"{MODULE}:{name}")]
    ended = run("trial", path, "--allow-plaintext", *allowed)
    odd.install(MODULE, None)
    assert f": {cause}" in ended.out
    assert advice in ended.err


# --- what was not looked at -----------------------------------------------------------------------------

UNKNOWN: Final = [("msgpack+mine", b"x")]


def mixed(path: Path, *kinds: str) -> Path:
    """Write a database with a thread of each kind, each with `VALUES` values."""
    for kind in kinds:
        write(path, kind, kind)
    return path


@pytest.mark.parametrize("option", [(), ("--json",), ("--emit",)], ids=str)
def test_types_does_not_speak_of_what_it_did_not_open(
    option: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEALPOINT_KEYS")
    path = mixed(tmp_path / "x.db", "eax", "gcm", "k9")
    insert(path, UNKNOWN)
    ended = run("types", path, *option)
    assert ended.code == Exit.KEYS
    assert "no value names" not in ended.out + ended.err
    total = 3 * VALUES + 1
    if option == ("--json",):
        found = ended.document
        assert (found["values"], found["not_opened"], found["failed"]) == (total, total, 0)
        assert found["not_shown"] == {"sealed": VALUES, "legacy": 2 * VALUES, "unknown": 1}
        return
    shown = ended.err if option else ended.out
    assert f"{VALUES} of {total} values are sealed and were not opened" in shown
    assert f"{2 * VALUES} of {total} values are under LANGGRAPH_AES_KEY and were not opened" in shown
    assert f"1 of {total} values have an unknown tag and were not opened" in shown


def test_types_speaks_of_those_that_it_read(run: Run, tmp_path: Path) -> None:
    """Here with a ring that lacks the keys of the others."""
    path = mixed(tmp_path / "x.db", "plain", "gcm", "k9")
    ended = run("types", path)
    assert f"no value names a type (of {VALUES} values that were read)\n" in ended.out
    assert f"not shown: {2 * VALUES} of {3 * VALUES} values could not be read\n" in ended.out


def test_types_lists_no_pickle_as_an_allowed_type(run: Run, tmp_path: Path) -> None:
    odd.put(tmp_path / "x.db", 1j)
    ended = run("types", tmp_path / "x.db", "--emit")
    assert ended.out == "[\n]\n"
    assert ended.err == "pickled values are not read: their types are not in the list\n"


def test_audit_says_what_is_not_sealed_by_sealpoint(run: Run, tmp_path: Path) -> None:
    path = mixed(tmp_path / "x.db", "gcm", "k1")
    insert(path, UNKNOWN)
    shown = run("audit", path).out
    assert (
        f"{VALUES} of {2 * VALUES + 1} values are sealed\n{VALUES} values are under LANGGRAPH_AES_KEY"
        in shown
    )
    assert "LANGGRAPH_AES_KEY" not in run("audit", mixed(tmp_path / "y.db", "k1")).out


def test_inspect_shows_a_json_row_as_it_shows_msgpack(run: Run, tmp_path: Path) -> None:
    """A conversation as one; other envelopes as records."""
    path = tmp_path / "old.db"
    ODD["json messages"].write(path)
    shown = run("inspect", path, "--thread", THREAD, "--last")
    assert (shown.code, "channel 'odd'" in shown.out) == (Exit.DONE, True)
    assert f'  "human"\n  | {SECRET}\n' in shown.out
    found = run("inspect", path, "--thread", THREAD, "--last", "--json").document
    assert {part["channel"] for part in found["channels"]} == {"odd", "text"}


def test_inspect_does_not_call_a_pickle_another_checkpoint(run: Run, tmp_path: Path) -> None:
    odd.put(tmp_path / "x.db", 1j)
    ended = run("inspect", tmp_path / "x.db", "--thread", THREAD, "--last")
    assert ended.code == Exit.UNOPENED
    assert "pickles are not decoded" in ended.err


def test_trial_decodes_nothing_that_raises(run: Run, tmp_path: Path) -> None:
    odd.put(tmp_path / "x.db", 1j)
    assert (
        "tried 2 values; values and rows that fail: 2"
        in run("trial", tmp_path / "x.db", "--allow-plaintext").out
    )
