"""Go's readers of signed notes and Merkle trees accept our ledgers, and refuse changed ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sealpoint.admin.evidence.verify import make_proof
from tests.support.keys.ledgers import make_ledger

PROGRAM = Path(__file__).with_name("check.go")
LIBRARIES = Path("/usr/share/gocode")  # of Debian
MISSING = shutil.which("go") is None or not (LIBRARIES / "src/golang.org/x/mod/sumdb/tlog").is_dir()

pytestmark = pytest.mark.skipif(
    MISSING, reason="Go does not check our ledgers: apt-get install golang-go golang-golang-x-mod-dev"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled once."""
    folder = tmp_path_factory.mktemp("go")
    environment = os.environ | {
        "GO111MODULE": "off",
        "GOPATH": str(LIBRARIES),
        "GOCACHE": str(folder / "cache"),
    }
    subprocess.run(["go", "build", "-o", folder / "check", PROGRAM], env=environment, check=True)
    return folder / "check"


def run(program: Path, folder: Path, *proofs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, folder, *proofs], capture_output=True, text=True, check=False)


def prove(folder: Path, seq: int) -> Path:
    file = folder.parent / f"{seq}.tlog-proof"
    file.write_bytes(bytes(make_proof(folder, seq)[1]))
    return file


def test_go_accepts_a_ledger_and_all_of_its_proofs(program: Path, tmp_path: Path) -> None:
    for size in (1, 2, 7, 8):
        folder = tmp_path / str(size) / "ledger"
        make_ledger(folder, size)
        done = run(program, folder, *(prove(folder, seq) for seq in range(size)))
        assert (done.returncode, done.stdout) == (0, f"accepted {size} {size}\n"), done


def test_go_refuses_a_changed_ledger_and_a_changed_proof(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    make_ledger(folder, 3)
    proof = prove(folder, 1)
    proof.write_bytes(proof.read_bytes().replace(b"index 1", b"index 2"))
    assert run(program, folder, proof).returncode == 1
    file = folder / "entries.jsonl"
    file.write_bytes(file.read_bytes().replace(b"event.1", b"event.9"))
    assert "root" in run(program, folder).stdout
