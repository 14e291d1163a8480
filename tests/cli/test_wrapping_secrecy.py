"""Where the material of a wrapped key is while commands make, wrap and unwrap it: in memory and in pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.keys.edit import create_ring

SERVICE = """
import json, os, sys
from pathlib import Path

act, folder = sys.argv[1:]
data = sys.stdin.buffer.read()
command = Path(f"/proc/{os.getppid()}")
seen = {
    "data": data.hex(),
    "stdin": os.readlink("/proc/self/fd/0"),
    "stdout": os.readlink("/proc/self/fd/1"),
    "limits": (command / "limits").read_text(),
    "shown": [
        (process / file).read_bytes().hex()
        for process in (command, Path("/proc/self"))
        for file in ("cmdline", "environ")
    ],
    "files": [os.readlink(one) for one in (command / "fd").iterdir() if one.is_symlink()],
}
with open(f"{folder}/seen", "a") as file:
    print(json.dumps(seen), file=file)
sys.stdout.buffer.write(bytes(byte ^ 85 for byte in data))
"""

COMMANDS = (
    ["generate", "k2", "--wrap-with", "w"],
    ["wrap", "k1", "--with", "w"],
    ["rewrap", "--with", "v"],
    ["check"],
    ["generate", "--index", "--wrap-with", "w"],
)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A ring with wrappers whose program notes what any process can see of the command that runs it."""
    folder = tmp_path / "ring"
    folder.mkdir()
    (tmp_path / "service.py").write_text(SERVICE)
    file = folder / "keys.toml"
    create_ring(file, "k1")
    for wrapper_id in ("w", "v"):
        argv = [[sys.executable, f"{tmp_path}/service.py", act, str(tmp_path)] for act in ("wrap", "unwrap")]
        table = {"id": wrapper_id, "kind": "command", "wrap": argv[0], "unwrap": argv[1]}
        lines = "\n".join(f"{field} = {json.dumps(value)}" for field, value in table.items())
        file.write_text(f"{file.read_text()}\n[[wrapper]]\n{lines}\n")
    return file


def forms(material: bytes) -> list[bytes]:
    """What to look for: raw, in hex, and in base64 at each offset, without ends that depend on neighbours."""
    shifted = [b64encode(bytes(offset) + material)[4:40] for offset in range(3)]
    return [material, material.hex().encode(), material.hex().upper().encode(), *shifted]


def found_in(data: bytes, materials: set[bytes]) -> bool:
    return any(form in data for material in materials for form in forms(material))


@pytest.mark.costly
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_material_is_in_memory_and_in_pipes_alone(ring: Path, tmp_path: Path) -> None:
    """Not in a file, argument, variable, log or message; and no core file would contain it."""
    said = b""
    start = "import logging, sys\nlogging.basicConfig(level=1)\n"
    start += "from sealpoint.admin.cli import main\nsys.exit(main())"
    for words in COMMANDS:
        environment = {**os.environ, "SEALPOINT_KEYS": str(ring)}
        done = subprocess.run(
            [sys.executable, "-c", start, "keys", *words], capture_output=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout + done.stderr
    seen: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    lines = [bytes.fromhex(each["data"]) for each in seen]
    materials = {b64decode(json.loads(line)["material"]) for line in lines if line.startswith(b"{")}
    assert len(materials) == 5  # three keys, and what `check` made up for two wrappers
    assert not found_in(said, materials)
    for each in seen:
        assert each["stdin"].startswith("pipe:")
        assert each["stdout"].startswith("pipe:")
        assert "Max core file size        0 " in each["limits"]
        assert not any(found_in(bytes.fromhex(shown), materials) for shown in each["shown"])
        assert not [name for name in each["files"] if "deleted" in name or "memfd" in name]
    left = [path for path in ring.parent.rglob("*") if path.is_file()]
    assert {*left} == {ring, ring.parent / "keys.d" / ".gitignore"}
    assert not found_in(ring.read_bytes(), materials)


def test_core_file_limit_is_set_for_the_command_alone() -> None:
    """A program that runs a command in its own process keeps its limits; children may raise theirs again."""
    code = (
        "import resource, sys; from sealpoint.admin.cli import main; hard = resource.getrlimit(4)[1];"
        " sys.argv[1:] = ['--version']; main(); assert resource.getrlimit(4) == (0, hard)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
