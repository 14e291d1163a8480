"""The reference of the API: every public name says what it is, what it takes, and what it raises."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sealpoint
from sealpoint import EncryptedSerializer, errors
from sealpoint.base import empty_checkpoint
from sealpoint.sqlite import SqliteSaver
from tests.support.api import Entry, described_by, everything, public_names
from tests.support.keys.rings import material_of, states_text, write

PACKAGE = Path(sealpoint.__file__).parent
EVERYTHING = everything()
SECTION = re.compile(r"^([A-Z][a-z]+):\n((?:(?: .*)?\n)*)", re.MULTILINE)
AS_ANOTHER = re.compile(r"Async version of `|Raises as `")


def docstring(value: Any) -> str:
    """The own docstring of a class with that of its constructor, of a function, or of a property."""
    value = getattr(value, "__func__", value)
    parts = [value, vars(value).get("__init__")] if isinstance(value, type) else [value]
    return "\n\n".join(inspect.cleandoc(part.__doc__) for part in parts if part and part.__doc__)


def sections(doc: str) -> dict[str, set[str]]:
    """The names that each section of a docstring in Google's style describes."""
    return {
        title: set(re.findall(r"^ {4}\*{0,2}(\w+): ", body, re.MULTILINE))
        for title, body in SECTION.findall(f"{doc}\n")
    }


def function_of(value: Any) -> Callable[..., Any] | None:
    """The function whose signature a reader calls; none of an exception, which no caller creates."""
    value = getattr(value, "__func__", getattr(value, "fget", value))
    if isinstance(value, type):
        if issubclass(value, BaseException) or getattr(value, "_is_protocol", False):
            return None
        value = vars(value).get("__init__")
    value = inspect.unwrap(value) if inspect.isfunction(value) else None
    return value if value is not None and value.__code__.co_filename != "<string>" else None  # of a dataclass


def test_signatures_of_classes_name_the_arguments() -> None:
    """What `help` and the site show: `__new__` may take any."""
    values = {entry.path: entry.value for entry in everything() if isinstance(entry.value, type)}
    both = {
        path: vars(value) for path, value in values.items() if {"__new__", "__init__"} <= vars(value).keys()
    }
    assert len(both) > 1
    hidden = [path for path in both if parameters(values[path]) != parameters(both[path]["__init__"])]
    assert hidden == []


def parameters(function: Callable[..., Any]) -> set[str]:
    return {name for name in inspect.signature(function).parameters if name not in {"self", "cls"}}


def fields(value: Any) -> set[str]:
    """The fields of a dataclass or a named tuple, which its constructor takes."""
    own = getattr(value, "__dataclass_fields__", ()) if isinstance(value, type) else ()
    return {name for name in (*own, *getattr(value, "_fields", ())) if not name.startswith("_")}


def raised(function: Callable[..., Any]) -> set[type]:
    """The classes that the statements of a function raise by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            names.add(ast.unparse(called).rpartition(".")[2])
    found = {known(name, function.__module__) for name in names}
    return {cls for cls in found if cls is not None}


def known(name: str, module: str) -> type | None:
    """The exception of this name."""
    places = (vars(sys.modules[module]), vars(errors), vars(builtins))
    found = next((place[name] for place in places if name in place), None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def faults(entry: Entry) -> Iterator[str]:
    """What the docstring of a public name leaves unsaid, or says wrongly."""
    doc = docstring(entry.value)
    says = sections(doc)
    if not re.fullmatch(r"[A-Z`].*[.:]", doc.partition("\n\n")[0].replace("\n", " ")):
        yield f"its summary is no sentence: {doc.partition(chr(10))[0]!r}"
    if unsaid := fields(entry.value) - says.get("Attributes", set()):
        yield f"attributes without a description: {sorted(unsaid)}"
    function = function_of(entry.value)
    if function is not None:
        yield from faults_of_parameters(entry, doc, parameters(function))
        yield from faults_of_errors(doc, function)


def faults_of_parameters(entry: Entry, doc: str, takes: set[str]) -> Iterator[str]:
    """Each is in the section, or named in the sentences of a docstring without one."""
    said = sections(doc).get("Args")
    twin = described_by(entry) if takes else None
    if said is not None:
        if said != takes:
            yield f"it describes {sorted(said)} and takes {sorted(takes)}"
    elif twin is not None:
        other = import_module(entry.module) if entry.owner is None else entry.owner
        if takes != parameters(getattr(other, twin.rpartition(".")[2])):
            yield f"its parameters are not those of {twin}"
    elif unnamed := {name for name in takes if f"``{name}``" not in doc}:
        yield f"parameters without a description: {sorted(unnamed)}"


def faults_of_errors(doc: str, function: Callable[..., Any]) -> Iterator[str]:
    """The section names exceptions, and among them each that the function raises, or its base class."""
    said = {name: known(name, function.__module__) for name in sections(doc).get("Raises", ())}
    if wrong := {name for name, cls in said.items() if cls is None}:
        yield f"no exceptions: {sorted(wrong)}"
    described = (NotImplementedError, *filter(None, said.values()))
    silent = {cls.__name__ for cls in raised(function) if not issubclass(cls, described)}
    if silent and not AS_ANOTHER.search(doc):
        yield f"it raises what it does not describe: {sorted(silent)}"


# Where programs begin: each shows how.
SHOWN = {
    *(
        "sealpoint.Allowlist",
        "sealpoint.EncryptedSerializer",
        "sealpoint.JsonPlusSerializer",
        "sealpoint.Key",
    ),
    *("sealpoint.KeyRing", "sealpoint.KeyState", "sealpoint.RingCipher", "sealpoint.Tag"),
    *(
        "sealpoint.langgraph.SealedCache",
        "sealpoint.langgraph.SealedSaver",
        "sealpoint.langgraph.SealedStore",
    ),
    *(
        "sealpoint.langgraph.encryption",
        "sealpoint.langgraph.require_sealing",
        "sealpoint.sealed.SealedSaver",
    ),
    *(
        "sealpoint.sqlite.SqliteSaver",
        "sealpoint.sqlite.aio.AsyncSqliteSaver",
        "sealpoint.memory.InMemorySaver",
    ),
    *("sealpoint.threads.MemoryThreadStore", "sealpoint.threads.PostgresThreadStore"),
    *("sealpoint.threads.SqliteThreadStore", "sealpoint.threads.open_thread_store"),
    *("sealpoint.metrics.opentelemetry", "sealpoint.metrics.prometheus", "sealpoint.keys.stats.source_stats"),
    *("sealpoint.keys.ringfile.find_ring_file", "sealpoint.keys.ringfile.read_ring_entries"),
    *(
        f"sealpoint.admin.maintenance.{name}.{name}"
        for name in ("audit", "inspect", "rotate", "status", "verify")
    ),
}


def examples_of(doc: str, name: str) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(doc, {}, name, None, None)


def failures(example: doctest.DocTest) -> str:
    """What the examples of a docstring print, where it is not what they show."""
    printed = list[str]()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    return "".join(printed) if runner.run(example, out=printed.append).failed else ""


EXAMPLES = [
    each for entry in EVERYTHING if (each := examples_of(docstring(entry.value), entry.path)).examples
]


def test_public_names_say_what_they_are_what_they_take_and_what_they_raise() -> None:
    assert {entry.path: found for entry in EVERYTHING if (found := list(faults(entry)))} == {}


def test_programs_begin_with_names_that_show_how() -> None:
    assert SHOWN - {example.name for example in EXAMPLES} == set()


@pytest.fixture
def ring_and_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder but for a ring, and a database with one checkpoint under its key."""
    monkeypatch.chdir(tmp_path)
    index = f"[[index]]\nid = 'index'\nsource = {{ inline = '{material_of('index').hex()}' }}\n"
    write(tmp_path / "keys.toml", states_text(k1="active") + index)
    serde = EncryptedSerializer.from_key_file("keys.toml")
    with SqliteSaver.from_conn_string("agent.db", serde=serde) as saver:
        config = saver.put(
            {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {}
        )
        saver.put_writes(config, [("answer", 42)], "task")


@pytest.mark.filterwarnings("ignore:The Encryption API is in beta")
@pytest.mark.usefixtures("ring_and_database")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_shows_what_it_prints(example: doctest.DocTest) -> None:
    """Each imports what it uses, by public names."""
    assert failures(example) == ""


def test_example_that_shows_something_else_is_noticed() -> None:
    assert failures(examples_of(">>> 1 + 1\n3", "wrong"))
    assert failures(examples_of(">>> KeyRing", "not imported"))


def test_entries_are_all_public_names() -> None:
    """The table of docs/api.md misses no name that a module with public names lists."""
    assert len(EVERYTHING) > 350
    listed = public_names()
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    folders = {path.parent for path, text in sources.items() if "\n__all__ = [" in text}
    packages = {".".join(folder.relative_to(PACKAGE.parent).parts) for folder in folders}
    assert packages - listed.keys() == {"sealpoint.admin.cli", "sealpoint.admin.evidence.report"}
    assert len(packages) > 10
    assert all(names for names in listed.values())


class Bad:
    """Take anything,"""  # noqa: D415 - what the law finds

    def unnamed(self, value: int) -> None:
        """Take a value."""

    def misnamed(self, value: int) -> None:  # noqa: D417 - the same
        """Take a value.

        Args:
            values: A value.
        """

    def silent(self, value: int) -> None:
        """Take ``value``."""
        raise errors.ConfigError(str(value))

    def imagined(self) -> None:
        """Raise nothing.

        Raises:
            ConfigErrors: Never.
        """

    async def astray(self, other: int) -> None:
        """Async version of `unnamed`."""

    def untold(self) -> None: ...


@pytest.mark.parametrize("name", [name for name in vars(Bad) if name[0] != "_"])
def test_docstring_that_leaves_something_unsaid_is_noticed(name: str) -> None:
    entry = Entry(f"Bad.{name}", __name__, vars(Bad)[name], Bad)
    assert len(list(faults(entry))) == 1
    assert len(list(faults(Entry("Bad", __name__, Bad)))) == 1
