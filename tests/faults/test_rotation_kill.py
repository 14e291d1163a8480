"""``kill -9`` at any moment of a rotation, a first encryption and a decryption: the next run completes it.

SEALPOINT_KILLS says how many processes of each kind are killed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from time import perf_counter

import pytest

from sealpoint.maintenance.decrypt import decrypt
from tests.faults.rotations import Rotator, copy, make, rerun, rotator
from tests.faults.rotator import make_cipher
from tests.unit.maintenance.sealed import checked, opened, values_of

KILLS = int(os.environ.get("SEALPOINT_KILLS", "3"))


def seconds_of(running: Rotator, act: str) -> float:
    start = perf_counter()
    running.run(act)
    return perf_counter() - start


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_killed_rotation_is_run_again(tmp_path: Path, mode: str) -> None:
    """From one key to the next and the next, always in the same file."""
    path, moments = tmp_path / "x.db", random.Random(mode)
    make(path, "k1", mode)
    every = opened(path, make_cipher("k1"))
    halfway = 0
    with rotator() as running:
        whole = seconds_of(running, f"rotate {path} k2")
        for number in range(KILLS):
            key = ("k3", "k1", "k2")[number % 3]
            in_the_middle = running.kill("rotate", path, key, moments.uniform(0, whole))
            assert checked(path) == "ok"
            assert opened(path, make_cipher(key)) == every
            moved, failed = rerun(path, key, allow_plaintext=False)
            halfway += in_the_middle and 0 < moved < len(every)
            assert failed == 0
            assert opened(path, make_cipher(key)) == every
    assert checked(path) == "ok"
    assert halfway >= KILLS // 4  # with few kills each may come too early or too late


def test_a_killed_first_encryption_is_run_again(tmp_path: Path) -> None:
    plain, path, moments = tmp_path / "plain.db", tmp_path / "x.db", random.Random(1)
    make(plain, None)
    every = opened(plain, make_cipher("k1"))
    halfway = 0
    with rotator() as running:
        for number in range(KILLS + 1):
            copy(plain, path, "wal")
            if number == 0:
                whole = seconds_of(running, f"seal {path} k1")
                continue
            in_the_middle = running.kill("seal", path, "k1", moments.uniform(0, whole))
            assert checked(path) == "ok"
            assert opened(path, make_cipher("k1")) == every
            moved, failed = rerun(path, "k1", allow_plaintext=True)
            halfway += in_the_middle and 0 < moved < len(every)
            assert failed == 0
            assert opened(path, make_cipher("k1")) == every
            assert {value.tag.partition("+")[2] for value in values_of(path)} == {"cobblestone256:k1"}
    assert halfway >= KILLS // 4  # with few kills each may come too early or too late


def test_a_killed_decryption_is_run_again(tmp_path: Path) -> None:
    """The copy is there as a whole or not at all; what a killed run left of it, the next takes away."""
    path, out, moments = tmp_path / "x.db", tmp_path / "out.db", random.Random(1)
    make(path, "k1")
    every = opened(path, make_cipher("k1"))
    halfway = 0
    with rotator() as running:
        whole = seconds_of(running, f"decrypt {path} {out.name}")
        for _ in range(KILLS):
            out.unlink(missing_ok=True)
            running.kill("decrypt", path, out.name, moments.uniform(0, whole))
            if not out.exists():
                halfway += any("partial" in file.name for file in tmp_path.iterdir())
                list(decrypt(path, out, make_cipher("k1")))
            assert opened(out, make_cipher("k1")) == every
            assert all("+" not in value.tag for value in values_of(out))
            assert checked(out) == "ok"
            assert not any("partial" in file.name for file in tmp_path.iterdir())
            assert opened(path, make_cipher("k1")) == every
    assert halfway >= KILLS // 4  # with few kills each may come too early or too late
