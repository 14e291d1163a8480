"""What docs/monitoring.md shows for metrics passes a strict type checker, as a reader's own code would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"


@pytest.mark.costly
def test_metrics_snippet_type_checks(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    section = PAGE.read_text(encoding="utf-8").partition("## Set up\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert any("stats()" in block for block in found)
    script = tmp_path / "metrics.py"
    script.write_text("\n".join(found))
    # In a process of its own: mypy raises the recursion limit, and later tests rely on Python's.
    options = ["--strict", f"--cache-dir={tmp_path}", "--config-file="]
    command = [sys.executable, "-m", "mypy", *options, os.fspath(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
