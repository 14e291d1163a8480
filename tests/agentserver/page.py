"""What docs/agent-server.md tells a user to create, in a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sealpoint.admin.cli.app import run

PAGE = Path(__file__).parents[2] / "docs" / "agent-server.md"


def create(folder: Path) -> None:
    """Create the ring, the files of the page, and its langgraph.json."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in re.findall(r"^```python\n# ([\w.]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(content, encoding="utf-8")
    (config,) = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert json.loads(json.loads(config)["env"]["LANGGRAPH_ENCRYPTION"]) == json.loads(config)["encryption"]
    (folder / "langgraph.json").write_text(config, encoding="utf-8")
    assert run(["keys", "init", "k1", "--keys", str(folder / "keys.toml")]) == 0
