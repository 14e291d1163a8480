"""The page of a report in a real browser: it asks for nothing, says nothing, and fits."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

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
