"""Fuzzes one target with atheris: ``python -m fuzz.one TARGET [libFuzzer's arguments]``.

Ends with an error at the first input that is not read or refused in 5 s and 1 GiB.
"""

from __future__ import annotations

import logging
import sys

import atheris  # type: ignore[import-untyped]  # in the group `fuzz` alone

with atheris.instrument_imports(include=["json", "sealpoint", "tomllib"]):
    from fuzz.targets import TARGETS
from fuzz.seeds import seeds
from fuzz.watch import load_allowed, watched


def main() -> None:
    """Warm up on the seeds, then fuzz until libFuzzer ends the process."""
    target = sys.argv.pop(1)
    run = TARGETS[target]
    logging.disable()
    load_allowed()
    for data in seeds(target):
        run(data)

    def try_one(data: bytes) -> None:
        with watched():
            run(data)

    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


main()
