"""What docs/keys.md shows for metrics passes a strict type checker, as a reader's own code would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "keys.md"
BEFORE = (
    'from sealpoint import EncryptedSerializer\n\nagent = EncryptedSerializer.from_key_file("keys.toml")\n'
)


def test_metrics_snippet_type_checks(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    section = PAGE.read_text(encoding="utf-8").partition("### Metrics\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert any("counts()" in block for block in found)
    script = tmp_path / "metrics.py"
    script.write_text(BEFORE + "\n".join(found))
    said, complaints, code = api.run(["--strict", f"--cache-dir={tmp_path}", "--config-file=", str(script)])
    assert code == 0, said + complaints
