"""``make site``: builds the documentation into build/site. docs/conf.py has the settings of Sphinx.

The pages are Markdown that also reads well where the repository is hosted. This copies them to build/pages,
README.md as the start page, with the groups of its table "Documentation" and links to the project as the
sidebar, and adds a page for each module of docs/api.md. Words that readers search a page for, and that it
does not say, are in a comment of the page: ``<!-- index: WORDS, WORDS -->``.
"""

from __future__ import annotations

import builtins
import re
import shutil
import sys
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sealpoint.langgraph import SealedSaver, SealedStore
from tests.support.api import described_by, entries, everything, public_names

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build"
_LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]+)")
_PAGE: Final = re.compile(r"(?<!`)\bdocs/([\w-]+)\.md(?:#[\w-]+)?")
INDEX: Final = re.compile(r"^<!-- index: (.*) -->$", re.MULTILINE)
_GROUP: Final = re.compile(r"^\| \*\*(.*?)\*\* \| \|$", re.MULTILINE)


def sidebar(readme: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of the table that leads to every page: title and pages, each page once."""
    table = readme.partition("\n## Documentation\n")[2].partition("\n## ")[0]
    groups = _GROUP.split(table)[1:]
    seen = set[str]()
    for title, rows in zip(groups[::2], groups[1::2], strict=True):
        pages = dict.fromkeys(page for page in _LINK.findall(rows) if page.endswith(".md"))
        yield title, [page.removesuffix(".md") for page in pages if page not in seen]
        seen |= pages.keys()


def project_links() -> dict[str, str]:
    """Return what the package's metadata links to and the site does not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {name: url for name, url in project["urls"].items() if name not in {"Documentation", "Changes"}}


def index(comment: re.Match[str]) -> str:
    """Return Sphinx's directive for the words of a comment; the exclamation marks put the page first."""
    return "```{index} " + ", ".join(f"! {words}" for words in comment[1].split(", ")) + "\n```"


def toctree(pages: list[str], *options: str) -> str:
    lines = ["```{toctree}", ":hidden:", *options, "", *pages, "```"]
    return "\n".join(["", *lines, ""])


def module_page(module: str, names: list[str]) -> str:
    """Return the page of a module, in reStructuredText: what autodoc writes from the docstrings."""
    homes = {id(entry.value): entry for entry in entries()}
    here = [entry for entry in homes.values() if entry.module == module]
    documented = [entry for entry in everything() if entry.module == module]
    lines = [module, "=" * len(module), "", f".. automodule:: {module}", "   :no-index:", ""]
    for entry in documented:
        if entry.owner is None:
            own = [each.name.rpartition(".")[2] for each in documented if each.owner is entry.value]
            lines += [f".. auto{kind_of(entry.value)}:: {entry.path}"]
            lines += [f"   :members: {', '.join(own)}"] if own else []
            lines += ["   :show-inheritance:"] if has_base(entry.value) else []
            lines += [""]
    values = [f"``{entry.name}``" for entry in here if not entry.is_documented]
    elsewhere = [name for name in names if f"{module}.{name}" not in {entry.path for entry in here}]
    if values:
        lines += [f"Constants and types: {', '.join(values)}.", ""]
    if elsewhere:
        lines += [f"Also here: {', '.join(f'`{name}`' for name in elsewhere)}.", ""]
    return "\n".join(lines)


def kind_of(value: Any) -> str:
    if not isinstance(value, type):
        return "function"
    return "exception" if issubclass(value, BaseException) else "class"


def has_base(value: Any) -> bool:
    """Whether a class has a base class that a reader needs to know."""
    bases: tuple[Any, ...] = getattr(value, "__orig_bases__", ()) or getattr(value, "__bases__", ())
    packages = {getattr(base, "__module__", "").partition(".")[0] for base in bases}
    return bool(packages & {"sealpoint", "langgraph"})


def stage(folder: Path) -> None:
    """Write all pages, and the files that they link to, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        text = page.read_text(encoding="utf-8")
        for target in _LINK.findall(text):
            linked = (page.parent / target).resolve()
            if linked.suffix != ".md":
                copy = folder / linked.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, copy)
        text = INDEX.sub(index, text)
        write(folder / page.relative_to(ROOT), re.sub(r"(\]\((?:\.\./)?)README\.md", r"\1index.md", text))
    readme = (folder / "README.md").rename(folder / "index.md")
    text = readme.read_text(encoding="utf-8")
    links = [f"{name} <{url}>" for name, url in project_links().items()]
    groups = [*sidebar(text), ("Project", links)]
    write(readme, text + "".join(toctree(pages, f":caption: {title}") for title, pages in groups))
    names = public_names()
    for module, public in names.items():
        write(folder / "docs" / "api" / f"{module}.rst", module_page(module, public))
    page = folder / "docs" / "api.md"
    linked = re.sub(
        r"^\| `(sealpoint[\w.]*)`", r"| [`\1`](api/\1.rst)", page.read_text(encoding="utf-8"), flags=re.M
    )
    write(page, linked + toctree([f"api/{module}" for module in names]))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def build(build: Path = BUILD) -> int:
    """Build the site, and return Sphinx's exit code; a warning is an error."""
    from sphinx.cmd.build import main

    stage(build / "pages")
    shutil.rmtree(build / "site", ignore_errors=True)
    folders = [str(build / name) for name in ("pages", "site")]
    return main(
        [
            "-q",
            "-W",
            "--keep-going",
            "-j",
            "auto",
            "-c",
            str(ROOT / "docs"),
            "-d",
            str(build / "doctrees"),
            *folders,
        ]
    )


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    for wrapper in (SealedSaver, SealedStore):
        new: Any = wrapper.__new__
        new.__wrapped__ = wrapper.__init__  # it has that signature; this leads to its source
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", complete)
    app.connect("autodoc-process-signature", name_defaults)
    app.connect("autodoc-process-bases", show_bases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def complete(_app: Any, what: str, name: str, value: Any, _options: Any, lines: list[str]) -> None:
    """Link to pages, add the hint of an error and which method has the parameters; show a module's code."""
    kept = (line for line in lines if not line.startswith("Create new instance of "))  # of each named tuple
    lines[:] = [_PAGE.sub(r":doc:`docs/\1.md </docs/\1>`", line) for line in kept]
    hint: str | None = getattr(value, "hint", None)
    if what == "exception" and hint:
        pages = [f"See :doc:`docs/{page}.md </docs/{page}>`." for page in _PAGE.findall(hint)]
        lines += ["", f"Hint: ``{hint}``", *pages, ""]
    if twin := _twins().get(name):
        lines += ["", f"Parameters are those of `{twin}`.", ""]
    if what == "module":
        lines[:] = ["    " + line if line.startswith("|") else line for line in lines]  # a table in Markdown
        lines[:] = re.sub(r"\n\n(?= {4})", "\n\n::\n\n", "\n".join(lines)).split("\n")


def show_bases(_app: Any, _name: str, _value: Any, _options: Any, bases: list[Any]) -> None:
    """Show in place of a private base class what it is based on."""
    private = [base for base in bases if getattr(base, "__name__", "").startswith("_")]
    for base in private:
        at = bases.index(base)
        bases[at : at + 1] = base.__bases__


@cache
def _twins() -> dict[str, str]:
    return {entry.path: twin for entry in everything() if (twin := described_by(entry)) and "." in twin}


def name_defaults(
    _app: Any, what: str, _name: str, value: Any, _options: Any, signature: str, result: str
) -> tuple[str, str] | None:
    """Show a long default of a dataclass by the name that it has in the code, and a protocol without one."""
    from sphinx.util.inspect import object_description

    if getattr(value, "_is_protocol", False):
        return "", ""
    if what != "class" or not is_dataclass(value):
        return None
    for name, constant in vars(import_module(value.__module__)).items():
        if any(field.default is constant for field in fields(value)) and isinstance(constant, Collection):
            signature = signature.replace(f"= {object_description(constant)}", f"= {name}")
    return signature, result


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a name of the API however it is written; what is not public becomes code without a link."""
    if node.get("refdomain") != "py":
        return None
    if node.get("reftype") in ("class", "obj") and hasattr(builtins, node["reftarget"]):
        return content  # `list` of an annotation is no method
    domain = env.domains["py"]
    last = node["reftarget"].lstrip("~.")
    found = [name for name in domain.objects if name == last or name.endswith(f".{last}")]
    if not found and last.startswith("sealpoint."):
        last = last.rpartition(".")[2]
        found = [name for name in domain.objects if name.endswith(f".{last}")]
    if not found:
        owner, dot, _ = last.partition(".")
        has_owner = dot and owner[0].isupper() and any(name.endswith(f".{owner}") for name in domain.objects)
        return None if has_owner else content  # a member that a public class does not have: a warning
    name = min(found, key=len)
    from sphinx.util.nodes import make_refnode

    target = domain.objects[name]
    return make_refnode(app.builder, node["refdoc"], target.docname, target.node_id, content, name)


if __name__ == "__main__":
    sys.exit(build(*map(Path, sys.argv[1:])))
