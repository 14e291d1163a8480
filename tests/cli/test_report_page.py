"""The page of a report in a real browser: it asks for nothing, says nothing, and fits."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from html import escape, unescape
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.evidence.report import render_page
from tests.cli.browser import CHROMIUM, MISSING, look, print_page
from tests.cli.conftest import Run
from tests.cli.test_report import HOSTILE
from tests.matrix import databases

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)


@pytest.fixture
def page(run: Run, tmp_path: Path) -> str:
    """The page of a database with all that is hostile, and of one with all kinds of values."""
    ring = databases.write_ring(tmp_path, "legacy")
    paths = [tmp_path / "hostile <img src=x onerror=alert(1)>.db", tmp_path / "mixed.db"]
    databases.good(paths[0])
    databases.mixed(paths[1])
    with closing(sqlite3.connect(paths[0])) as connection, connection:
        for name in ("direction", "checkpoint", "odd key", "key", "table"):
            connection.execute(*HOSTILE[name])
    out = tmp_path / "page.html"
    run("report", *paths, "--keys", ring, "--out", out, "--period", "2026-01-01..2026-12-31")
    return out.read_text(encoding="utf-8")


@pytest.mark.costly
@pytest.mark.parametrize("width", [1280, 400])
def test_it_asks_for_nothing_and_says_nothing(page: str, tmp_path: Path, width: int) -> None:
    seen = look(page, tmp_path / "browser", width)
    assert (seen.asked, seen.console) == (["/"], [])
    assert int.from_bytes(seen.image[16:20]) == width


def test_it_prints(page: str, tmp_path: Path) -> None:
    """A few pages and not a hundred."""
    data = print_page(page, tmp_path / "browser")
    assert data.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type /Page\b", data)) <= 12


@pytest.mark.costly
def test_a_page_that_loads_or_runs_is_noticed(tmp_path: Path) -> None:
    """The control: requests and messages are seen, and so is that the policy of the report forbids them."""
    body = (
        "<img src='http://sealpoint.invalid/x.png'><link rel=stylesheet href='y.css'>"
        "<script>console.log('ran'); fetch('http://sealpoint.invalid/f')</script>"
    )
    seen = look(f"<!DOCTYPE html><title>x</title>{body}", tmp_path / "open", 400)
    assert {"/y.css", "http://sealpoint.invalid/x.png", "http://sealpoint.invalid/f"} <= {*seen.asked}
    assert any("ran" in line for line in seen.console)
    template = resources.files("sealpoint.admin.evidence.report").joinpath("page.html.j2").read_text("utf-8")
    (policy,) = re.findall(r"<meta http-equiv=.*>", template)
    seen = look(f"<!DOCTYPE html>{policy}<title>x</title>{body}", tmp_path / "closed", 400)
    assert seen.asked == ["/"]
    assert len(seen.console) >= 3
    assert not any('"ran"' in line for line in seen.console)


MEASURE = """<script>addEventListener("load", () => {
  document.querySelectorAll("details").forEach(each => each.open = true)
  const wide = [...document.body.querySelectorAll("*")].filter(each =>
    each.getBoundingClientRect().right > innerWidth + 1 || each.scrollWidth > each.clientWidth + 1 &&
    getComputedStyle(each).display !== "inline")
  const broken = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walk.nextNode()) {
    const node = walk.currentNode
    if (node.parentElement.closest(".id, code, pre, script")) continue
    for (const found of node.data.matchAll(/[0-9]+([\\u202f.,:-][0-9]+)*/g)) {
      const range = document.createRange()
      range.setStart(node, found.index)
      range.setEnd(node, found.index + found[0].length)
      const tops = [...range.getClientRects()].map(each => each.top)
      if (tops.some(top => Math.abs(top - tops[0]) > 4)) broken.push(found[0])
    }
  }
  console.log("measured " + JSON.stringify({
    width: innerWidth, wide: wide.map(each => each.outerHTML.slice(0, 80)), broken }))
})</script>"""
ENTRY: dict[str, Any] = {
    "seq": 1_234_567,
    "at": "2026-01-31T12:34:56Z",
    "event": "rotate.begin",
    "outcome": "refused",
    "exit": 5,
    "actor": {"account": "maintenance-of-agents", "uid": 1000, "host": "a-host-with-a-long-name.example.org"},
    "subject": {"database": ["/srv/agents/production/state/checkpoints.db"], "key": "k26b"},
    "waived": ["database-check", "allow-plaintext"],
}


@pytest.fixture
def full(page: str) -> str:
    """The page with a ledger, and with long numbers."""
    (text,) = re.findall(r'<pre id="report">(.*?)</pre>', page, re.DOTALL)
    document = json.loads(unescape(text))
    document["changes"] = {"entries": [ENTRY] * 3, "others": 1_000, "head": "h" * 90, "verified": True}
    document["questions"] = (document["questions"] * 2)[:10]
    for part in document["databases"]:
        for row in part["coverage"]:
            row |= {"rows": 12_345_678, "opened": 12_345_678, "size_bytes": 123_456_789_012}
    return render_page(document)


def measure(page: str, folder: Path, width: int) -> tuple[int, list[str], list[str]]:
    """The width of a page, what is wider than it, and the numbers that are on two lines."""
    open_page = re.sub(r"<meta http-equiv=.*>", "", page)  # with its policy no script measures
    inner = escape(open_page.replace("</body>", f"{MEASURE}</body>"))
    # A frame: no window of Chromium is as narrow as a telephone.
    frame = f'<iframe style="border:0;width:{width}px;height:9000px" srcdoc="{inner}"></iframe>'
    seen = look(f"<!DOCTYPE html><title>x</title><body style='margin:0'>{frame}</body>", folder, 1280)
    (line,) = [line for line in seen.console if "measured " in line]
    found = json.loads(line[line.index("{") : line.rindex("}") + 1])
    return found["width"], found["wide"], found["broken"]


@pytest.mark.costly
@pytest.mark.parametrize("width", [1200, 800, 400])
def test_it_fits_and_breaks_no_number(full: str, tmp_path: Path, width: int) -> None:
    assert measure(full, tmp_path / "browser", width) == (width, [], [])


def test_what_does_not_fit_is_measured(tmp_path: Path) -> None:
    """The control: a wide element, and a number that is broken."""
    body = "<p style='width:900px'>x</p><p style='width:1ch;overflow-wrap:anywhere'>10</p>"
    page = f"<!DOCTYPE html><title>x</title><body>{body}</body>"
    _, wide, broken = measure(page, tmp_path / "browser", 400)
    assert (any("900px" in each for each in wide), broken) == (True, ["10"])


def test_none_refuted_is_not_red(full: str) -> None:
    document = json.loads(unescape(re.findall(r'<pre id="report">(.*?)</pre>', full, re.DOTALL)[0]))
    assert '<span class="refuted">' in full[: full.index("<nav")]
    for question in document["questions"]:
        question["verdict"] = "shown"
    head = render_page(document).partition("<nav")[0]
    assert "<span>0 refuted</span>" in head
    assert 'class="refuted"' not in head
