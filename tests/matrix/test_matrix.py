"""Every command with every option that weakens it, on every database: ``ok`` is true only where it is so.

The oracle reads databases and rings by itself. Each run is also checked against the schema, the table of exit
codes below, and its own text. The tests are a sample, and all of it in `make matrix`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from itertools import count, product
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from psycopg.conninfo import make_conninfo

from sealpoint.admin.cli.app import COMMANDS as ALL
from sealpoint.admin.cli.app import program
from sealpoint.admin.cli.app import run as run_program
from sealpoint.keys import ringfile
from tests.matrix import databases, oracle
from tests.matrix.databases import SECRET, THREAD, TYPE
from tests.matrix.oracle import Facts, Ring, Value, open_value
from tests.postgres.test_commands import at
from tests.postgres.test_schema import alter, schema_of
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import schema, server

pytestmark = pytest.mark.timeout(600)

EVERY: Final = by_extent(101, 101, 1)
"""One in this many cells is a test; the number is a prime, so that each command meets other databases."""

EVERY_WITHOUT: Final = by_extent(13, 7, 1)
"""The same of commands that are run once, without a database."""

VARIABLE: Final = "SEALPOINT_MATRIX_URL"
ALLOWED_TYPE: Final = ":".join(TYPE)
KNOWN_METADATA: Final = frozenset(
    {"step", "source", "parents", "run_id", "counters_since_delta_snapshot", "delta_writes_versioned"}
)
SCHEMA: Final = Draft202012Validator(
    json.loads(resources.files("sealpoint.schemas").joinpath("result-1.json").read_text())
)


# --- what is run --------------------------------------------------------------------------------


def _options(*each: str) -> list[list[str]]:
    """All combinations of options, each given or not."""
    choices = [[[], option.split()] for option in each]
    return [sum(chosen, start=list[str]()) for chosen in product(*choices)]


_ROTATIONS = [
    *(["--verify", mode] for mode in ("all", "sample", "none")),
    *_options("--allow-plaintext", "--allow-legacy", "--no-key-check")[1:],
    ["--scrub"],
    ["--scrub", "--allow-plaintext", "--allow-legacy"],
    ["--allow-plaintext", "--allow-legacy", "--verify", "sample"],
    ["--no-key-check", "--verify", "none"],
]

COMMANDS: Final[dict[str, tuple[tuple[str | None, ...], list[list[str]]]]] = {
    "status": (
        ("own", "listing", None),
        [[*where, *more] for where in (["DB"], []) for more in ([], ["--only", "k2"], ["--only", "k1"])],
    ),
    "audit": (
        ("own", None),
        [["DB", *more] for more in _options("--strict", "--allow-metadata team", "--allow-unproven")],
    ),
    "verify": (
        ("own", "listing", "legacy", "short", "foreign", None),
        [
            [],
            ["DB", "--bound"],
            *(["DB", *more] for more in _options("--allow-plaintext", "--allow-unproven")),
        ],
    ),
    "rotate": (
        ("own", "listing", "legacy", "short", "foreign"),
        [
            ["--apply"],
            ["DB"],
            ["DB", "--allow-plaintext"],
            *(["DB", "--apply", *more] for more in _ROTATIONS),
        ],
    ),
    "types": (("own", "foreign", None), [["DB"], ["DB", "--allow", "a:b"], ["DB", "--allow", ALLOWED_TYPE]]),
    "trial": (
        ("own", "legacy", "foreign"),
        [["DB", *more] for more in _options("--allow-plaintext", "--strict", f"--allow {ALLOWED_TYPE}")],
    ),
    "inspect": (("own", "foreign", None), [["DB"], ["DB", "--thread", THREAD]]),
    "scrub": (("own",), [["DB"], ["DB", "--apply"]]),
    "decrypt": (
        ("own", "legacy", "foreign"),
        [["DB", "--out", "OUT"], ["DB", "--out", "OUT", "--allow-plaintext"]],
    ),
    "keys check": (("own", "legacy", "short", "foreign", "disabled", "wrapping", "failing"), [[]]),
    "keys list": (("own",), [[]]),
    "keys show": (("own",), [["k1"]]),
    "keys promote": (
        ("own", "listing"),
        [["k1"], ["k1", "ONDB"], ["k0", "ONDB"], ["k0"], ["k0", "--no-database-check"]],
    ),
    "keys disable": (
        ("own", "listing"),
        [
            ["k1", *where, *yes]
            for where in ([], ["ONDB"], ["--no-database-check"])
            for yes in (["--yes"], [])
        ],
    ),
    "keys enable": (("disabled",), [["k1"]]),
    "keys compromise": (("own",), [["k1"]]),
    "keys generate": (
        ("own", "failing"),
        [["k5"], *(["k5", "--wrap-with", wrapper] for wrapper in ("w", "none"))],
    ),
    "keys wrap": (
        ("own", "failing"),
        [[key, "--with", wrapper] for key in ("k1", "k2", "k3") for wrapper in ("w", "v", "none")],
    ),
    "keys rewrap": (
        ("own", "wrapping", "failing"),
        [[*keys, *to] for keys in ([], ["k3"], ["k1"]) for to in ([], ["--with", "v"], ["--with", "none"])],
    ),
    "keys init": ((None,), [["k5", "--keys", "new.toml"]]),
    "keys destroy": (
        ("own", "listing", "disabled"),
        [
            [key, "--yes", *where, *more]
            for key, where in product(("k0", "k1"), (["ONDB"], ["--no-database-check"], []))
            for more in _options("--allow-unrelated", "--allow-unproven")
        ],
    ),
}
WITHOUT_DATABASE: Final = {
    name
    for name, (_, words) in COMMANDS.items()
    if not {"DB", "ONDB"} & {word for each in words for word in each}
}


Cell = tuple[str | None, list[str]]
"""A ring, and the words after the command."""


def _cells(command: str) -> list[Cell]:
    rings, variants = COMMANDS[command]
    return list(product(rings, variants))


def _plan() -> list[Any]:
    """Return the tests: a command, a database, and which of the cells are run."""
    names = [*databases.SQLITE, *databases.POSTGRES]
    pairs = [
        (name, base) for base in names for name in COMMANDS if name not in WITHOUT_DATABASE or base == "good"
    ]
    numbers = count()
    every = {name: EVERY_WITHOUT if name in WITHOUT_DATABASE else EVERY for name in COMMANDS}
    planned = [
        (name, base, [cell for cell in _cells(name) if not next(numbers) % every[name]])
        for name, base in pairs
    ]
    return [pytest.param(*each, id=f"{each[0]}-{each[1]}") for each in planned if each[2]]


# --- what is so, after a run that says yes --------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A run and what was so before and after it."""

    words: list[str]
    before: Facts
    ring_before: Ring
    after: Facts
    ring: Ring
    out: Facts | None

    def has(self, option: str) -> bool:
        return option in self.words

    def after_word(self, option: str) -> str:
        return self.words[self.words.index(option) + 1]

    @property
    def is_examined(self) -> bool:
        """Whether the database is one that a command on keys examines."""
        return self.has("ONDB") or (self.ring_before.lists and not self.has("--no-database-check"))

    @cached_property
    def key(self) -> str:
        """The key of a command on keys."""
        return self.words[2]


def _typed(values: list[Value], ring: Ring) -> list[Any]:
    return [
        (value.tag, value.blob) if oracle.is_plain(value) else open_value(value, ring) for value in values
    ]


def _reads(seen: Seen) -> bool:
    return seen.before.documents_fit(seen.ring_before) and seen.before.rows_read


def _status(seen: Seen) -> bool:
    return seen.has("--only") and seen.before.is_whole and seen.before.all_under(seen.after_word("--only"))


def _audit(seen: Seen) -> bool:
    found = seen.before
    if not (found.is_whole and found.all_sealed and not found.readable_tables):
        return False
    if not seen.has("--strict"):
        return True
    known = {*KNOWN_METADATA, *(["team"] if seen.has("--allow-metadata") else [])}
    beside = found.has_metadata(known) or found.inline or found.has_addresses
    return not (beside or found.free_bytes or found.holds(SECRET))


def _verify(seen: Seen) -> bool:
    found = seen.before
    fits = found.bound_fit(seen.ring) and not found.is_mixed and (found.all_bound or not seen.has("--bound"))
    return found.is_whole and found.all_open(seen.ring) and _reads(seen) and found.parents_present and fits


def _rotate(seen: Seen) -> bool:
    found, ring = seen.after, seen.ring
    if not (seen.has("--apply") and found.is_whole and found.all_under(ring.active) and found.all_open(ring)):
        return False
    same = _typed(seen.before.values, ring) == _typed(found.values, ring)
    if not seen.has("--scrub"):
        return same
    old = [one.blob for one in seen.before.values if not one.is_under(ring.active or "")]
    return same and not found.holds(SECRET, *old)


def _types(seen: Seen) -> bool:
    found, ring = seen.before, seen.ring
    if not (seen.has("--allow") and found.is_whole and found.all_open(ring, plain=True)):
        return False
    names_type = any(TYPE[0].encode() in typed[1] for typed in _typed(found.values, ring))
    return not names_type or seen.has(ALLOWED_TYPE)


def _trial(seen: Seen) -> bool:
    found, ring = seen.before, seen.ring
    builds = not any(TYPE[0].encode() in typed[1] for typed in _typed(found.values, ring) if typed)
    return found.is_whole and found.all_open(ring) and _reads(seen) and builds


def _decrypt(seen: Seen) -> bool:
    found, ring, out = seen.before, seen.ring, seen.out
    if out is None or not (found.is_whole and found.all_open(ring)):
        return False
    values = [one for one in found.values if not (one.in_metadata or one.is_sentinel)]
    opened = [(one, *typed) for one in values if (typed := _typed([one], ring)[0])]
    content = [(one, inner, oracle.split(one, data)[1]) for one, inner, data in opened]
    # Where threads get their ids back, rows are in another order.
    rows = sorted((inner, data) for one, inner, data in content if not one.is_item)
    same = rows == sorted((one.tag, one.blob) for one in out.values if not one.is_item)
    items = [oracle.plain_item(inner, data) for one, inner, data in content if one.is_item]
    same = same and items == [oracle.plain_item(one.tag, one.blob) for one in out.values if one.is_item]
    records = sorted(out.records, key=repr) == sorted(found.restored(ring), key=repr)
    return out.is_whole and same and found.bound_fit(ring) and records


def _is_related(seen: Seen) -> bool:
    return any(seen.before.any_under(key.id) for key in seen.ring.keys)


def _promote(seen: Seen) -> bool:
    third = {key.id for key in seen.ring.keys} - {seen.key, seen.ring_before.active}
    return seen.ring.active == seen.key and not (
        seen.is_examined and any(seen.before.any_under(key) for key in third)
    )


def _disable(seen: Seen) -> bool:
    return _is_unused(seen) and seen.ring.get(seen.key).state == "disabled"


def _destroy(seen: Seen) -> bool:
    key = seen.ring.get(seen.key)
    gone = key.material is None and not Path(f"{seen.key}.key").exists()
    return _is_unused(seen) and key.state == "destroyed" and gone and not key.waived


def _is_unused(seen: Seen) -> bool:
    looked = seen.is_examined and not seen.before.missing and not seen.before.broken
    return looked and _is_related(seen) and not seen.before.any_under(seen.key)


def _generate(seen: Seen) -> bool:
    key = seen.ring.get(seen.key)
    by = seen.after_word("--wrap-with") if seen.has("--wrap-with") else None
    return key.state == "staged" and key.by == by and seen.ring.is_loadable


def _wrap(seen: Seen) -> bool:
    wrapped = {seen.key: seen.after_word("--with")}
    return _are_wrapped(seen, wrapped) and not Path(f"{seen.key}.key").exists()


def _rewrap(seen: Seen) -> bool:
    given = seen.after_word("--with") if seen.has("--with") else None
    named = [key for key in seen.ring_before.keys if seen.has(key.id)] or seen.ring_before.keys
    return _are_wrapped(seen, {key.id: given or key.by for key in named if key.by})


def _are_wrapped(seen: Seen, wrapped: Mapping[str, str | None]) -> bool:
    """Whether keys are wrapped so, and all others as before, and no material was changed."""
    then = [(key.id, key.state, wrapped.get(key.id, key.by), key.material) for key in seen.ring_before.keys]
    now = [(key.id, key.state, key.by, key.material) for key in seen.ring.keys]
    return bool(wrapped) and then == now and seen.ring.is_loadable


def _never(_: Seen) -> bool:
    return False


ANSWERS: Final[dict[str, Callable[[Seen], bool]]] = {
    "status": _status,
    "audit": _audit,
    "verify": _verify,
    "rotate": _rotate,
    "types": _types,
    "trial": _trial,
    "inspect": _never,
    "scrub": _never,
    "decrypt": _decrypt,
    "keys check": lambda seen: seen.ring.is_loadable,
    "keys list": _never,
    "keys show": _never,
    "keys promote": _promote,
    "keys disable": _disable,
    "keys enable": lambda seen: seen.ring.get("k1").state == "decrypt-only",
    "keys compromise": lambda seen: seen.ring.get("k1").state == "compromised",
    "keys generate": _generate,
    "keys wrap": _wrap,
    "keys rewrap": _rewrap,
    "keys init": lambda seen: oracle.read_ring(Path("new.toml")).active == "k5",
    "keys destroy": _destroy,
}


# --- how a run ends -------------------------------------------------------------------------------

REFUTING: Final = {  # what makes ok false, and the code that it ends in
    "damaged": 4,
    "values-failed": 4,
    "keys-missing": 5,
    "none-opens": 5,
    "wrappers-failing": 5,
    **dict.fromkeys(("values-left", "other-keys", "not-sealed", "readable-tables", "readable-beside"), 3),
    **dict.fromkeys(("types-not-allowed", "old-content-found", "not-bound"), 3),
    "heads-differ": 4,
}
ASKING: Final = {"verify", "heads seal", "audit", "keys destroy"}
"""Commands that are asked for a proof, and end with 3 without one."""


def _command_of(words: list[str]) -> str:
    return " ".join(words[: 1 + (words[0] in ("heads", "keys"))])


def expected_code(words: list[str], ok: bool | None, reasons: list[str]) -> int:
    """The exit code of a run that printed an object."""
    if ok:
        return 0
    for reason, code in REFUTING.items():
        if code != 3 and reason in reasons:
            return code
    if words[0] == "inspect" and "no-rows" in reasons:
        return 2 if "--thread" in words else 0
    if "ended-early" in reasons:
        return 7
    if ok is False:
        return 3
    if "not-opened" in reasons:
        return 5
    asking = _command_of(words) in ASKING
    return 3 if asking and "--allow-unproven" not in words else 0


@dataclass(frozen=True)
class Ended:
    """What a run printed, and its exit code."""

    code: int
    out: str
    err: str


def call(words: list[str], *, is_terminal: bool = False) -> Ended:
    """Run the program in this process."""
    out, err = io.StringIO(), io.StringIO()
    out.isatty = lambda: is_terminal  # type: ignore[method-assign]
    with redirect_stdout(out), redirect_stderr(err):
        code = run_program(words)
    return Ended(int(code), out.getvalue(), err.getvalue())


def require_refusal(ended: Ended) -> None:
    """Check that a run that was refused says why, and ends neither as one that is done nor as a bug."""
    assert ended.code in (2, 3, 4, 5), ended
    assert "error:" in ended.err
    assert "Traceback" not in ended.err


def require_document(words: list[str], ended: Ended) -> dict[str, Any]:
    """Check the object that a run printed, and return it."""
    document: dict[str, Any] = json.loads(ended.out)
    SCHEMA.validate(document)
    ok, reasons = document["ok"], document["reasons"]
    assert document["command"] == _command_of(words)
    if "error" in document:
        require_refusal(ended)
        assert (ok, reasons) == (None, ["not-completed"])
        assert f"error: {document['error']['message']}" in ended.err
        return document
    assert ok is (False if set(reasons) & REFUTING.keys() else None if reasons else True)
    code = expected_code(words, ok, reasons)
    if "ended-early" in reasons and "error: " in ended.err:
        assert ended.code in (code, 4)  # the error that ended it has a code of its own
    else:
        assert ended.code == code
    assert SECRET.decode() not in ended.out or words[0] == "inspect"
    return document


def require_jq(document: str, *, ok: bool) -> None:
    """Check what ``jq -e .ok`` ends with in a shell."""
    if jq := shutil.which("jq"):
        done = subprocess.run([jq, "-e", ".ok"], input=document, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if ok else 1)


def require_text(words: list[str], ended: Ended, document: dict[str, Any], code: int) -> None:
    """Check the last line of the text of the same run."""
    assert ended.code == code
    lines = ended.out.splitlines()
    last = lines[-1] if lines else ""
    ok, reasons = document["ok"], document["reasons"]
    if ok is None and "not-asked" in reasons:
        assert not last.startswith(("ok", "not ok", "not proven"))
    elif ok:
        assert last == "ok" or words[0] == "keys"
    else:
        head, causes = ("not ok: ", REFUTING.keys()) if ok is False else ("not proven: ", set(reasons))
        assert last.startswith(head)
        assert len(last.split("; ")) == len(causes & set(reasons))
    verdicts = [line for line in lines if line == "ok" or line.startswith(("not ok: ", "not proven: "))]
    assert verdicts in ([], [last])
    assert SECRET.decode() not in ended.out + ended.err or words[0] == "inspect"


# --- the matrix -----------------------------------------------------------------------------------


class Bench:
    """A folder with one database and one ring, each made anew when a run has changed it."""

    def __init__(self, folder: Path, database: str, template: Path | None, url: str | None) -> None:
        self.folder = folder
        self._name, self._template, self._url = database, template, url
        self._out_schema = None if url is None else f"{schema_of(url)}_out"
        self._before: Facts | None = None

    @property
    def before(self) -> Facts:
        return self._before or self.restore()

    def facts(self) -> Facts:
        return oracle.read_sqlite(Path("x.db")) if self._url is None else oracle.read_postgres(self._url)

    def out(self) -> Facts | None:
        """What is so in a copy, if a run has made one."""
        if self._url is None or self._out_schema is None:
            return oracle.read_sqlite(Path("out.db")) if Path("out.db").exists() else None
        path = make_conninfo(self._url, options=f"-c search_path={self._out_schema}")
        found = oracle.read_postgres(path)
        return found if found.tables else None

    def restore(self) -> Facts:
        """Put the database back as it was made: a graph makes other ids each time."""
        if self._template is not None:
            databases.copy_file(self._template, Path("x.db"))
        elif self._url is not None:
            databases.fill_postgres(self._url, self._name)
        self._before = self.facts()
        return self._before

    def words(self, command: str, words: list[str], ring: str | None) -> list[str]:
        """The words of a run, with the database and the ring."""
        places = {"DB": ["x.db"], "ONDB": ["--db", "x.db"]}
        if self._url is not None:
            places = {place: ["--db-env", VARIABLE] for place in places}
        named = [*command.split(), *(part for word in words for part in places.get(word, [word]))]
        if self._out_schema is None:
            named = ["out.db" if word == "OUT" else word for word in named]
        else:
            there = {"--out": "--out-schema", "OUT": self._out_schema}
            named = [there.get(word, word) for word in named]
        return named if ring is None else [*named, "--keys", "keys.toml"]

    def clear(self, ring: str | None) -> Ring:
        """Remove what a run has made, and write the ring anew."""
        for file in [
            *self.folder.glob("out.db*"),
            *self.folder.glob("new.toml*"),
            *self.folder.glob("*.key"),
        ]:
            file.unlink()
        shutil.rmtree("keys.d", ignore_errors=True)
        if self._url is not None:
            alter(self._url, f"DROP SCHEMA IF EXISTS {self._out_schema} CASCADE")
        if ring is None:
            return Ring()
        database = "x.db" if self._url is None else at(self._url)
        return oracle.read_ring(databases.write_ring(self.folder, ring, database))


_built: Final = cache(typer.main.get_command)
"""typer builds all commands for each run, which takes longer than most runs."""


@cache
def _template(folder: Path, name: str) -> Path:
    path = folder / f"{name}.db"
    databases.SQLITE[name](path)
    return path


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("templates")


@pytest.fixture(autouse=True)
def built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer.main, "get_command", _built)


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, templates: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    for name in ("SEALPOINT_KEYS", "CREDENTIALS_DIRECTORY", "FORCE_COLOR", "LANGGRAPH_STRICT_MSGPACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ringfile, "SYSTEM_PATH", tmp_path / "etc" / "keys.toml")
    monkeypatch.chdir(tmp_path)
    database = request.param
    if database in databases.SQLITE:
        yield Bench(tmp_path, database, _template(templates, database), None)
        return
    with schema(server(request.config)) as url:
        monkeypatch.setenv(VARIABLE, at(url))
        bench = Bench(tmp_path, database, None, url)
        yield bench
        bench.clear(None)


MUTATING: Final = {"rotate", "scrub"}


@pytest.mark.broad("command")
@pytest.mark.parametrize(("command", "bench", "cells"), _plan(), indirect=["bench"])
def test_ok_is_true_only_where_it_is_so(
    command: str, bench: Bench, cells: list[Cell], subtests: pytest.Subtests
) -> None:
    for ring, given in cells:
        with subtests.test(" ".join([command, *given, "with", str(ring)])):
            check_run(bench, command, given, ring)
        if command in MUTATING:
            bench.restore()


def check_run(bench: Bench, command: str, given: list[str], ring: str | None) -> None:
    """Run a command twice, for its object and for its text, and ask the oracle if it says yes."""
    words = bench.words(command, given, ring)
    before, ring_before = bench.before, bench.clear(ring)
    ended = call([*words, "--json"])
    document = require_document(words, ended)
    require_jq(ended.out, ok=document["ok"] is True)
    if document["ok"]:
        ring_after = Ring() if ring is None else oracle.read_ring(Path("keys.toml"))
        # The words as they are in the table say whether a database was named.
        seen = Seen([*command.split(), *given], before, ring_before, bench.facts(), ring_after, bench.out())
        assert ANSWERS[command](seen), "the command says yes, and the oracle says no"
    bench.clear(ring)
    if command in MUTATING:
        bench.restore()
    text = call(words)
    if "error" in document:
        require_refusal(text)
        assert (text.code, text.out) == (ended.code, "")
    else:
        require_text(words, text, document, ended.code)


# --- thread stores --------------------------------------------------------------------------------

INDEX: Final = "\n[[index]]\nsource = { inline = 'aW5kZXguLi4uLi4uLi4uLi4uLi4uLi4uLi4uLi4uLi4=' }\n"


@pytest.mark.broad(every=6)
@pytest.mark.parametrize("bench", [*databases.SQLITE, *databases.POSTGRES], indirect=True)
def test_what_is_adopted_is_as_it_was_adopted(bench: Bench) -> None:
    """Of any database: it is recorded only if all of it opens, and then nothing differs until a row goes."""
    found = bench.before
    ring = bench.clear("own")
    keys = Path("keys.toml")
    keys.write_text(keys.read_text() + INDEX)
    store = ["--threads", "threads.db", "--json"]
    adopt = bench.words("heads adopt", ["DB", "--reason", "x", "--create", *store], "own")
    adopted = require_document(adopt, call(adopt))
    again = require_document(adopt, call(adopt))
    assert (again["ok"], again["reasons"]) == (adopted["ok"], adopted["reasons"])
    assert again.get("stored") == (0 if adopted.get("adopted") else adopted.get("stored"))
    words = bench.words("verify", ["DB", *store], "own")
    verified = require_document(words, call(words))
    if "error" in verified:
        return
    assert "heads-differ" not in verified["reasons"]
    if adopted.get("adopted") and adopted["stored"]:
        assert verified["heads"]["recorded"] == adopted["stored"]
        assert verified["heads"]["not_recorded"] == adopted["unbound"]
    if verified["ok"]:
        assert adopted["stored"] == verified["heads"]["recorded"] > 0
        assert verified["heads"]["not_recorded"] == 0
        assert found.bound_fit(ring)


# --- words ----------------------------------------------------------------------------------------


def test_the_oracle_shares_no_code_with_the_commands() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not {module for module in modules if (module or "").startswith(("sealpoint", "tests"))}


_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
LOOKS: Final = [
    "status DB",
    "audit DB",
    "verify DB",
    "rotate DB",
    "rotate DB --apply",
    "types DB",
    "trial DB",
]


@pytest.mark.broad
@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("bench", ["mixed", "third", "moved_ids", "address"], indirect=True)
def test_tables_break_no_word(bench: Bench, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal of this width there are the same words as in a file, whose lines have no end."""
    monkeypatch.setenv("COLUMNS", columns)
    for look in [*LOOKS, "inspect DB", "scrub DB", "keys list", "keys check"]:
        bench.restore()
        bench.clear("own")
        words = bench.words("", look.split(), "own")
        in_file = _words(call(words).out)
        bench.restore()
        on_terminal = call(words, is_terminal=True).out
        plain = _COLOURS.sub("", on_terminal)
        assert _words(plain) == in_file, on_terminal
        if look not in ("verify DB", "trial DB"):  # a failure is a line of its own, as long as it is
            assert max(map(len, plain.splitlines()[:-1]), default=0) <= int(columns)


def _words(text: str) -> list[str]:
    """The words of a text, without numbers: a duration differs from run to run."""
    return sorted(word for word in text.split() if not re.fullmatch(r"[0-9.]+", word))


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", ["", "heads", "keys", "ledger", *sorted(ALL)])
def test_help_breaks_no_word(command: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*command.split(), "--help"]
    monkeypatch.setenv("COLUMNS", columns)
    narrow = call(words, is_terminal=True).out
    wide = io.StringIO()
    with redirect_stdout(wide):
        program()(args=words, prog_name="sealpoint", standalone_mode=False, terminal_width=2000)
    left_out = Counter(wide.getvalue().split()) - Counter(narrow.split())
    # A list of commands has as much of each sentence as fits into a line, and "..." behind its last word.
    cut = Counter(word.removesuffix("...") for word in narrow.split() if word.endswith("..."))
    assert not left_out or (words[0] in ("--help", "heads", "keys", "ledger") and cut)
    assert (
        not Counter(word.removesuffix("...") for word in narrow.split())
        - Counter(wide.getvalue().split())
        - cut
    )
    assert max(map(len, narrow.splitlines())) <= int(columns)
