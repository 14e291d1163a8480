"""Fuzzes one target with atheris: ``python -m fuzz.one TARGET [libFuzzer's arguments]``.

Ends with an error at the first input that is not read or refused in 5 s and 1 GiB.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

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

    given = (part.partition("=")[2] for part in sys.argv if part.startswith("-artifact_prefix="))
    prefix = next(given, "")

    def try_one(data: bytes) -> None:
        try:
            with watched():
                run(data)
        except BaseException:
            # Here, because the process may end before libFuzzer writes what it was about.
            Path(f"{prefix}raised-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


main()
