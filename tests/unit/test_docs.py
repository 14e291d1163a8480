"""Every page of the documentation is run, top to bottom, and what it shows is compared.

- ```python blocks run in order, in one namespace a page, as a script of the reader's would;
  a ```text or ```output block right below one is what it prints.
- ```console blocks: lines with ``$ `` are commands for a shell, the others what they print.
  Each has a shell of its own; what ``export`` sets is there for all that follow, and what Python sets is not.
  One that is nothing but `sealpoint` with words is run within this process, and `sealpoint` in other
  commands is a fork of a process that has imported it (tests/support/runs/forked.py).
- ```toml, ```python and ```sh blocks that begin with ``# NAME.toml``, ``# NAME.py`` or ``# NAME.sh``
  are put into that file.

In what is shown ``...`` stands for anything. All happens in one empty folder a page.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

from sealpoint import KeyState, errors
from sealpoint.admin.cli.app import run as program
from sealpoint.admin.evidence.report.document import QUESTIONS
from sealpoint.admin.evidence.report.sources import Why
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import Reason
from sealpoint.keys.ringfile import read_ring_entries
from tests.support.commands import PAGE, render
from tests.support.keys.rings import states_text, write
from tests.support.pages import FENCE, Block, blocks, commands, require_shown

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE_NAME = re.compile(r"# ([\w.-]+\.(?:toml|py|sh))\n")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
NAMED_PAGE = re.compile(r"(docs/[\w-]+\.md)(?:#([\w-]+))?")
PLAIN = re.compile(r"sealpoint (?:[\w./: -]|'[^']*')+")
EXPORT = re.compile(r"export (\w+)=")
EXTRA = re.compile(r"(?:sealpoint|'\.)\[([a-z][\w,]*)\]")

# These make environments of their own, or need a cluster; test_demo.py and tests/deploy run what they show.
NOT_HERE = ("make ", "pip install ", "kubectl ", "sudo ")
ELSEWHERE = {"verify-a-release.md"}  # tests/release/test_verify.py


def run_python(page: Path, block: Block, namespace: dict[str, object]) -> None:
    """Run a block as part of its page's script."""
    where = f"{page.name}:{block.line}"
    padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(padded, str(page), "exec", dont_inherit=True), namespace)  # noqa: S102 -- our own pages
    if block.shown is not None:
        require_shown(block.shown, printed.getvalue(), where)


def run_console(page: Path, block: Block, exported: dict[str, str]) -> None:
    """Run the commands of a block, and compare what they print."""
    for command, shown in commands(block.text):
        if command.startswith(NOT_HERE) or ("| jq " in command and not shutil.which("jq")):
            continue
        if name := EXPORT.match(command):
            _, exported[name[1]] = run_shell(f'{command} && printf %s "${name[1]}"', exported)
            continue
        run_command = run_sealpoint if PLAIN.fullmatch(command) else run_shell
        code, printed = run_command(command, exported)
        assert code == 0, f"{page.name}: {command}\n{printed}"
        require_shown(shown, printed, f"{page.name}: {command}")


def run_shell(command: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run a command in a shell of its own: its exit code, and all that it prints."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout


def run_sealpoint(command: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run our own program within this process, which takes a tenth of the time."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        code = program(shlex.split(command)[1:])
    return code, printed.getvalue()


def put_file(block: Block) -> bool:
    """Put a block into the file that its first line names, if it names one."""
    name = FILE_NAME.match(block.text)
    if name:
        Path(name[1]).write_text(block.text, encoding="utf-8")
    return name is not None


def run_page(page: Path) -> None:
    """Run a page in the current folder."""
    namespace = vars(sys.modules["__main__"])
    exported = dict(os.environ)
    for block in blocks(page):
        if block.kind == "console":
            run_console(page, block, exported)
        elif block.kind in {"python", "sh", "toml"} and put_file(block):
            continue
        elif block.kind == "python":
            run_python(page, block, namespace)


@pytest.fixture
def as_a_script(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    script_path: str,
) -> None:
    """An empty folder and an empty main module, as a reader has them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", script_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    for name in ("LANGGRAPH_STRICT_MSGPACK", "LANGGRAPH_AES_KEY", "SEALPOINT_KEYS"):
        monkeypatch.setenv(name, "")  # so that what a page sets does not outlive it
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))  # where Postgres keeps a lock


@pytest.mark.broad(every=2)
@pytest.mark.usefixtures("as_a_script")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE], ids=lambda page: page.name
)
def test_page_runs_and_shows_what_it_prints(page: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    if "service=agents" in text:
        request.getfixturevalue("postgres_service")
    if " sh examples/" in text:
        Path("examples").symlink_to(ROOT / "examples")
    if "parallel.sh" in text and not shutil.which("parallel"):
        pytest.skip("no program parallel (Debian: parallel)")
    run_page(page)


@pytest.mark.usefixtures("as_a_script")
@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nprint(missing)\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ echo unexpected\n```\n",
    ],
)
def test_page_that_is_wrong_is_noticed(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises((AssertionError, NameError)):
        run_page(page)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings; lines in fenced blocks are not headings."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


def dead_links(page: Path, pattern: re.Pattern[str] = LINK, folder: Path | None = None) -> list[str]:
    """The links of a file, relative to a folder, to a file or a heading that does not exist."""
    dead = []
    for target, heading in pattern.findall(page.read_text(encoding="utf-8")):
        file = ((folder or page.parent) / target).resolve() if target else page
        if not file.is_file() or (heading and heading not in anchors(file)):
            dead.append(f"{target}#{heading}")
    return dead


def test_links_lead_somewhere() -> None:
    pages = [*PAGES, *(ROOT / name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
    assert {page.name: dead for page in pages if (dead := dead_links(page))} == {}


def test_messages_name_pages_that_exist() -> None:
    """Hints and comments of programs, examples and Makefile name pages by their path in the repository."""
    sources = (
        file for name in ("src", "examples", "demo", "benchmarks") for file in (ROOT / name).rglob("*.py")
    )
    files = [*sources, ROOT / "keys.example", ROOT / "Makefile"]
    dead = {file.name: found for file in files if (found := dead_links(file, NAMED_PAGE, ROOT))}
    assert dead == {}
    assert sum(len(NAMED_PAGE.findall(file.read_text(encoding="utf-8"))) for file in files) > 10


def test_readme_leads_to_every_page() -> None:
    """Its list by task is the index of the documentation."""
    index = PAGES[0].read_text(encoding="utf-8").partition("\n## Documentation\n")[2]
    linked = {ROOT / target for target, _ in LINK.findall(index)}
    assert {page.name for page in PAGES[1:] if page not in linked} == set()


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {extras for page in PAGES for extras in EXTRA.findall(page.read_text(encoding="utf-8"))}
    assert {name for extras in named for name in extras.split(",")} <= project["optional-dependencies"].keys()


def test_install_page_has_every_extra_and_what_it_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = rows_below((ROOT / "docs" / "install.md").read_text(encoding="utf-8"), "Extras")
    named = {extra: rest for cell, rest in rows.items() for extra in re.findall(r"\w+", cell)}
    extras = project["optional-dependencies"]
    assert named.keys() - {"extra"} == extras.keys()
    for extra in extras.keys() - {"all"}:
        brought = {re.split(r"[^\w.-]", need)[0] for need in extras[extra]}
        assert [name for name in brought if f"`{name}`" not in named[extra]] == []


def test_support_page_has_the_versions_that_are_declared_and_tested() -> None:
    row = rows_below((ROOT / "docs" / "support.md").read_text(encoding="utf-8"), "What is supported")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = re.findall(r":: (3\.\d+)", "\n".join(project["classifiers"]))
    assert row["Python"].startswith(f"{pythons[0]} to {pythons[-1]};")
    assert re.findall(r"\((?:.*?)\)", row["Python"])[0].count(": October") == len(pythons)
    oldest = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8")
    tested = re.findall(r"^(langgraph(?:-checkpoint[a-z-]*)?)==(\S+)$", oldest, re.MULTILINE)
    assert re.findall(r"`([\w-]+)` ([\d.]+)", row["LangGraph"]) == tested


def test_command_page_is_what_help_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: make commands"


def test_threat_model_has_each_flow_and_element_of_its_picture() -> None:
    """A reader without the picture finds all of it: in its description, and in the page."""
    page = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    picture = (ROOT / "docs" / "threat-model.svg").read_text(encoding="utf-8")
    assert re.search(r"!\[.{100,}\]\(threat-model\.svg\)", page)
    assert 'role="img" aria-labelledby="title desc"' in picture
    assert not re.search(r"href|url\((?!#)|<script|@import", picture)
    numbers = {*re.findall(r'class="number"[^>]*>(\d+)<', picture)}
    assert {name for name in rows_below(page, "What crosses a boundary") if name.isdecimal()} == numbers
    (described,) = re.findall(r'<desc id="desc">(.*)</desc>', picture)
    assert {*re.findall(r"\((\d+)\)", described)} == numbers


def test_page_shows_entries_that_a_ring_takes(tmp_path: Path) -> None:
    entries = [
        block.text
        for block in blocks(ROOT / "docs" / "ring-file.md")
        if block.text.startswith("[[database]]")
    ]
    assert entries
    for entry in entries:
        ring = write(tmp_path / "keys.toml", states_text(k1="active") + entry)
        assert read_ring_entries(ring)


def test_page_names_every_error_of_keys() -> None:
    page = (ROOT / "docs" / "key-errors.md").read_text(encoding="utf-8")
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    names = {found.__name__ for found in classes if issubclass(found, errors.KeyRingError)}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_keys_page_has_every_move_of_a_key() -> None:
    """The table of states says what `KeyState.transitions` allows."""
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    states = page.partition("## States\n")[2].splitlines()
    for state in KeyState:
        row = next(line for line in states if line.startswith(f"| `{state.value}` | "))
        named = set(re.findall(r"`([\w-]+)`", row.split("|")[4]))
        assert named == {to.value for to in state.transitions}


def rows_below(page: str, heading: str) -> dict[str, str]:
    """The first cells of the table rows of a section, without backquotes, and what stands behind each."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").partition(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {first.strip("`"): rest for first, _, rest in rows}


def test_results_page_has_every_reason_member_command_and_exit_code() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    schema = json.loads(files("sealpoint.schemas").joinpath("result-1.json").read_text(encoding="utf-8"))
    reasons = [name for name in rows_below(page, "Reasons") if name != "reason"]
    assert reasons == [reason.value for reason in Reason]
    members = " ".join(rows_below(page, "Members of every object"))
    assert {name for name in schema["required"] if name not in members} == set()
    questions = " ".join(rows_below(page, "The question of each command"))
    commands = {*schema["properties"]["command"]["enum"]} - {
        "sealpoint"
    }  # of a run that did not know its own
    assert {name for name in commands if name not in questions} == set()
    assert [int(code) for code in rows_below(page, "Exit codes") if code != "code"] == list(Exit)


def test_report_page_has_every_question_reason_and_member() -> None:
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    reasons = [name for name in rows_below(page, "Reasons") if name != "reason"]
    assert reasons == [why.value for why in Why]
    labels = [question.label for question in QUESTIONS]
    assert [name for name in rows_below(page, "What the answers mean") if name != "question"] == labels
    assert all(label in page.partition("## Make one")[2] for label in labels)
    schema = json.loads(files("sealpoint.schemas").joinpath("report-1.json").read_text(encoding="utf-8"))
    result = json.loads(files("sealpoint.schemas").joinpath("result-1.json").read_text(encoding="utf-8"))
    members = {name.strip("`") for name in rows_below(page, "The object")} - {"member"}
    assert members == set(schema["required"]) - set(result["required"])
