"""The site: its pages lead somewhere, ask no other host for anything, and fit a narrow window."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

from tests.cli import browser
from tests.support.site import INDEX, ROOT, project_links, sidebar

SVG: Final = {"svg": "http://www.w3.org/2000/svg"}
# What the picture on docs/concepts.md leaves out: other savers and servers, and what the others stand on.
NOT_SHOWN: Final = {
    *("__main__", "memory", "agentserver", "metrics", "sqlite", "replay", "guards", "base", "seal"),
    *("merkle", "threadpool", "postgres", "errors", "forks", "locks", "ondemand", "urls", "utc"),
}
OUTWARD: Final = re.compile(
    r"url\(\s*['\"]?(?:https?:)?//|@import|\bimport\(|importScripts|sendBeacon|WebSocket"
)
LOADING: Final = {"src", "srcset", "poster", "data", "action", "background", "manifest"}

MEASURE: Final = """\
<!doctype html><meta charset="utf-8"><title>measure</title><link rel="icon" href="data:,">
<body>{frames}<script>
const scrolls = (part) => part.localName !== "article" &&
  (/auto|scroll/.test(getComputedStyle(part).overflowX) || scrolls(part.parentElement))
onload = () => {{
  for (const frame of document.querySelectorAll("iframe")) {{
    const parts = [...frame.contentDocument.querySelectorAll("article *")]
    const wide = parts.filter((part) => part.getBoundingClientRect().right > 400 && !scrolls(part))
    const found = wide.map((part) => part.outerHTML)
    console.log(`PAGE ${{frame.getAttribute("src")}} ${{parts.length > 0}} ${{found}}`)
  }}
}}
</script>
"""


class Page(HTMLParser):
    """What a page of HTML links to, loads, and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links = list[str]()
        self.loads = list[str]()
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in LOADING or name == "href":
                self.loads.append(value or "")
            elif name == "style" and OUTWARD.search(value or ""):
                self.loads.append("//")


def outward(page: Page) -> list[str]:
    """The addresses on other hosts that a page loads as it is opened."""
    return [each for each in page.loads if re.match(r"(?:\w+:)?//|\w+:(?!,)", each) and each[:5] != "data:"]


def dead(path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """The local links and files of a page that lead nowhere."""
    for link in [*pages[path].links, *pages[path].loads]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file() or (target in pages and unquote(parts.fragment) not in pages[target].anchors):
            yield link


def searched(page: Path) -> list[str]:
    """The words that a comment of a page says it is searched for."""
    return [
        words for comment in INDEX.findall(page.read_text(encoding="utf-8")) for words in comment.split(", ")
    ]


def first_results(file: Path) -> Iterator[tuple[str, str]]:
    """The pages that Sphinx's search puts first for some words, each with the words."""
    index = json.loads(file.read_text(encoding="utf-8").removeprefix("Search.setIndex(").removesuffix(")"))
    for words, places in index["indexentries"].items():
        for at, _, is_main in places:
            if is_main:
                yield Path(index["docnames"][at]).name, words


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder: its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.costly
def test_site_is_whole_asks_no_other_host_and_fits_a_narrow_window(tmp_path: Path) -> None:
    """One test, because it builds the site: without a warning, since Sphinx then fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.site", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    site = tmp_path / "site"
    pages = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 50
    assert {path.name: found for path, page in pages.items() if (found := outward(page))} == {}
    assert {path.name: found for path in pages if (found := list(dead(path, pages)))} == {}
    reference = "".join(path.read_text(encoding="utf-8") for path in pages if path.parent.name == "api")
    assert not re.search(r'\.list"[^>]*><span class="pre">list</span>', reference)  # no method, but the type
    assert re.search(r"See <a [^>]*serializer\.html", reference)  # the page that a hint names
    assert sum(len(page.links) for page in pages.values()) > 5000
    linked = {*project_links().values()}
    assert len(linked) == 3
    assert [path.name for path, page in pages.items() if not linked <= {*page.links}] == []
    wanted = {(file.stem, words) for file in ROOT.glob("docs/*.md") for words in searched(file)}
    assert wanted
    assert wanted <= set(first_results(site / "searchindex.js"))
    styles = [*site.rglob("*.css"), *site.rglob("*.js")]
    assert len(styles) > 5
    assert [path.name for path in styles if OUTWARD.search(path.read_text(encoding="utf-8"))] == []
    if browser.CHROMIUM is None:
        pytest.skip(browser.MISSING)
    names = [str(path.relative_to(site)) for path in pages]
    frames = "".join(f'<iframe src="{name}" width="400" height="800"></iframe>' for name in names)
    (site / "measure.html").write_text(MEASURE.format(frames=frames), encoding="utf-8")
    with serving(site) as address:
        seen = browser.visit(f"{address}/measure.html", tmp_path / "browser", 1280)
    assert seen.asked == []
    wide = dict(re.findall(r'PAGE (\S+) true (.*)", source', "\n".join(seen.console)))
    assert wide == dict.fromkeys(names, "")


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://example.org/x.js"></script>',
        '<link rel="stylesheet" href="//example.org/x.css">',
        '<img src="http://example.org/badge.svg">',
        '<p style="background: url(https://example.org/x.png)">',
    ],
)
def test_page_that_asks_another_host_is_noticed(tmp_path: Path, tag: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(f'<a href="https://example.org/">a link is no request</a>{tag}', encoding="utf-8")
    assert len(outward(Page(page))) == 1


def test_link_to_a_missing_page_or_anchor_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<p id="there"><a href="#there"><a href="#not"><a href="not.html"><img src="not.png">')
    assert list(dead(page, {page: Page(page)})) == ["#not", "not.html", "not.png"]


def test_sidebar_has_every_page_once() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    groups = list(sidebar(readme))
    pages = [page for _, listed in groups for page in listed]
    written = {str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.glob("docs/*.md")}
    others = {path.stem for path in ROOT.glob("*.md")} - {"README"}
    assert len(groups) > 3
    assert sorted(pages) == sorted(written | others)


# --- the picture of the layers on docs/concepts.md ------------------------------------------------


def picture() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "docs" / "layers.svg").getroot()  # noqa: S314 - our own file


def layers() -> list[set[str]]:
    """The layers that import-linter checks, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [set(line.split(" | ")) for line in settings["tool"]["importlinter"]["contracts"][0]["layers"]]


def test_picture_has_the_layers() -> None:
    shown = [box.get("data-layer") for box in picture().iterfind("svg:rect[@data-layer]", SVG)]
    assert len(shown) == len(set(shown)) > 5
    assert set(shown) | NOT_SHOWN == set().union(*layers())
    assert not set(shown) & NOT_SHOWN


def test_arrows_of_the_picture_are_imports_and_go_down() -> None:
    arrows = [path.get("data-uses", "").split() for path in picture().iterfind("svg:path[@data-uses]", SVG)]
    assert len(arrows) > 5
    height = {name: number for number, line in enumerate(layers()) for name in line}
    for above, below in arrows:
        assert height[above] < height[below]
        sources = (ROOT / "src" / "sealpoint" / above).rglob("*.py")
        assert any(f"from sealpoint.{below}" in path.read_text(encoding="utf-8") for path in sources)


def test_picture_is_told_by_a_screen_reader() -> None:
    svg = picture()
    told = [svg.find(f"svg:{name}", SVG) for name in ("title", "desc")]
    assert svg.get("role") == "img"
    assert svg.get("aria-labelledby", "").split() == [found.get("id") for found in told if found is not None]
    desc = told[1].text if told[1] is not None else None
    names = [text.text or "" for text in svg.iterfind("svg:text", SVG) if text.get("class") is None]
    assert len(names) > 8
    plain = (desc or "").replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower()
    for name in names:
        words = name.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower().removeprefix("your ")
        assert all(part in plain for part in words.split(", ")), name
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert re.search(r"!\[[^\]]{40,}\]\(layers\.svg\)", page)
