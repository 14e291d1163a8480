"""Fuzzes every target for its share of the time, two at once: ``python -m fuzz --seconds 600``.

Keeps what it learns in ``.fuzz/<target>/corpus`` and what it finds in
``.fuzz/<target>/found``. A finding belongs into ``tests/corpus/<target>`` with its fix;
``python -m fuzz --try FILE --target NAME`` shows what one does.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from fuzz.seeds import ROOT, words, write_seeds
from fuzz.targets import FORGED, TARGETS, try_one

QUOTE: Final = '"'
BACKSLASH: Final = "\\"

FOLDER: Final = ROOT / ".fuzz"
MEMORY_FOLDER: Final = Path("/dev/shm")  # noqa: S108 -- only where a target makes folders of its own
JOBS: Final = 2
MAX_FOUND: Final = 20
SECONDS_EACH: Final = 5
MEMORY_MIB: Final = 1024
MAX_INPUT_BYTES: Final = 32 * 1024
SCRIPT_OPTIONS: Final = ("-max_len=64", "-len_control=0")
"""For inputs that are scripts of edits: each byte counts, and one edit alone is seldom all."""


class Outcome(NamedTuple):
    """What came of a target."""

    target: str
    inputs: int
    found: int
    seconds: float


def fuzz(target: str, seconds: float, folder: Path) -> Outcome:
    """Fuzz one target; begin anew after a finding, until the time is up."""
    started, inputs = time.monotonic(), 0
    corpus, seeds, found = folder / "corpus", folder / "seeds", folder / "found"
    for place in (corpus, seeds, found):
        place.mkdir(parents=True, exist_ok=True)
    write_seeds(target, seeds)
    lines = [
        "# one word a line",
        *(f'"{word.replace(QUOTE, BACKSLASH + QUOTE)}"' for word in words(target)),
        "",
    ]
    (folder / "words").write_text("\n".join(lines), encoding="ascii")
    before = len(list(found.iterdir()))
    log = (folder / "log").open("w", encoding="utf-8")
    while (left := int(seconds - (time.monotonic() - started))) > 0:
        command = [
            *(sys.executable, "-m", "fuzz.one", target, str(corpus), str(seeds)),
            f"-max_total_time={left}",
            f"-timeout={SECONDS_EACH}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-max_len={MAX_INPUT_BYTES}",
            *(SCRIPT_OPTIONS if target in FORGED else ()),
            f"-dict={folder / 'words'}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
            check=False,
        )
        log.write(done.stdout)
        log.flush()
        counted = re.findall(r"number_of_executed_units: (\d+)", done.stdout)
        inputs += int(counted[-1]) if counted else 0
        if not counted or len(list(found.iterdir())) - before >= MAX_FOUND:
            break
    log.close()
    return Outcome(target, inputs, len(list(found.iterdir())) - before, time.monotonic() - started)


def main() -> int:
    """Fuzz; return 1 if anything was found, or a target did not run."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one")
    parser.add_argument("--try", dest="file", type=Path, help="hand one file to one target instead")
    arguments = parser.parse_args()
    logging.disable()  # a warning for each type of a seed that may not be rebuilt
    targets = arguments.target or list(TARGETS)
    if arguments.file:
        try_one(targets[0], arguments.file.read_bytes())
        return 0
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n", encoding="ascii")
    share = arguments.seconds * min(JOBS, len(targets)) / len(targets)
    with ThreadPoolExecutor(JOBS) as pool:
        outcomes = list(pool.map(lambda target: fuzz(target, share, FOLDER / target), targets))
    print(f"{'target':<12}{'inputs':>12}{'seconds':>9}{'found':>7}")
    for outcome in outcomes:
        print(f"{outcome.target:<12}{outcome.inputs:>12,}{outcome.seconds:>9.0f}{outcome.found:>7}")
    print(f"{'all':<12}{sum(outcome.inputs for outcome in outcomes):>12,}")
    failed = [outcome.target for outcome in outcomes if outcome.found or not outcome.inputs]
    if failed:
        print(f"error: see {', '.join(f'.fuzz/{target}/found and its log' for target in failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
