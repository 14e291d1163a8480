"""``kill -9`` at any moment of a rotation, a first encryption and a decryption: the next run completes it.

SEALPOINT_KILLS says how many processes of each kind are killed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from sealpoint.admin.maintenance.decrypt import decrypt
from tests.faults.rotations import BATCHES, Rotator, copy, make, rerun, rotator
from tests.faults.rotator import make_cipher
from tests.support.databases.sealed import checked, opened, values_of

KILLS = int(os.environ.get("SEALPOINT_KILLS", "3"))
BATCH_SECONDS = 0.005  # about; nothing depends on it


def kill_halfway(running: Rotator, act: str, path: Path, argument: str, moments: random.Random) -> None:
    """Kill an act when one batch is stored at least and one is left, at any moment of a batch between."""
    batches = moments.randrange(2, BATCHES - 1)
    assert running.kill(act, path, argument, batches, moments.uniform(0, BATCH_SECONDS))


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_killed_rotation_is_run_again(tmp_path: Path, mode: str) -> None:
    """From one key to the next and the next, always in the same file."""
    path, moments = tmp_path / "x.db", random.Random(mode)
    make(path, "k1", mode)
    every = opened(path, make_cipher("k1"))
    with rotator() as running:
        for number in range(KILLS):
            key = ("k2", "k3", "k1")[number % 3]
            kill_halfway(running, "rotate", path, key, moments)
            assert checked(path) == "ok"
            assert opened(path, make_cipher(key)) == every
            moved, failed = rerun(path, key, allow_plaintext=False)
            assert (0 < moved < len(every), failed) == (True, 0)
            assert opened(path, make_cipher(key)) == every
    assert checked(path) == "ok"


def test_a_killed_first_encryption_is_run_again(tmp_path: Path) -> None:
    plain, path, moments = tmp_path / "plain.db", tmp_path / "x.db", random.Random(1)
    make(plain, None)
    every = opened(plain, make_cipher("k1"))
    with rotator() as running:
        for _ in range(KILLS):
            copy(plain, path, "wal")
            kill_halfway(running, "seal", path, "k1", moments)
            assert checked(path) == "ok"
            assert opened(path, make_cipher("k1")) == every
            moved, failed = rerun(path, "k1", allow_plaintext=True)
            assert (0 < moved < len(every), failed) == (True, 0)
            assert opened(path, make_cipher("k1")) == every
            assert {value.tag.partition("+")[2] for value in values_of(path)} == {"cobblestone256@k1"}


@pytest.mark.costly
def test_a_killed_decryption_is_run_again(tmp_path: Path) -> None:
    """The copy is there as a whole or not at all; what a killed run left of it, the next takes away."""
    path, out, moments = tmp_path / "x.db", tmp_path / "out.db", random.Random(1)
    make(path, "k1")
    every = opened(path, make_cipher("k1"))
    with rotator() as running:
        for number in range(KILLS):
            out.unlink(missing_ok=True)
            if number == 0:  # in the last batch, or while the copy gets its name, or afterwards
                running.kill("decrypt", path, out.name, BATCHES - 1, moments.uniform(0, 2 * BATCH_SECONDS))
            else:
                kill_halfway(running, "decrypt", path, out.name, moments)
                assert not out.exists()
                assert any(file.name.startswith(f".{out.name}.partial-") for file in tmp_path.iterdir())
            if not out.exists():
                list(decrypt(path, out, make_cipher("k1")))
            assert opened(out, make_cipher("k1")) == every
            assert all("+" not in value.tag for value in values_of(out))
            assert checked(out) == "ok"
            assert not any("partial" in file.name for file in tmp_path.iterdir())
            assert opened(path, make_cipher("k1")) == every
