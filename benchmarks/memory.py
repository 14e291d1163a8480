"""Memory that a listing takes which holds nothing of what it yields, each time in a fresh process."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.chains import fill
from benchmarks.harness import Case, Options
from benchmarks.payloads import payload
from benchmarks.peers import SEALED, savers

LENGTHS: Final = (100, 10_000)
QUICK_LENGTHS: Final = (100, 1_000)
ALL: Final = "all, as stored"

_SCRIPT: Final = """
import sys
import tracemalloc
from pathlib import Path
from benchmarks.chains import config
from benchmarks.peers import SEALED, savers

with savers(Path(sys.argv[1]), [SEALED]) as opened:
    opened[SEALED].get_tuple(config(sys.argv[2]))
    tracemalloc.start()
    for found in opened[SEALED].list(config(sys.argv[2])):
        assert found.checkpoint["channel_values"]["messages"]
    print(tracemalloc.get_traced_memory()[1])
"""


def cases(options: Options) -> Iterator[Case]:
    """The peak of what Python allocates for it. Each checkpoint has 50 messages, which are 40 KB."""
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    state = payload("50 messages")
    with savers(options.folder, [SEALED]) as opened:
        for length in lengths:
            fill(opened[SEALED], str(length), length, state, state["messages"][0], writes=1)
        query = "SELECT sum(length(checkpoint)) FROM checkpoints WHERE thread_id = ?"
        connection = sqlite3.connect(options.folder / f"{SEALED}.sqlite")
        (stored,) = connection.execute(query, (str(lengths[-1]),)).fetchone()
        connection.close()
    peers = {f"{length:,}": partial(_peak, options.folder, length) for length in lengths}
    peers[ALL] = partial(float, stored)
    yield Case(f"memory of list, to {lengths[-1]:,} checkpoints", peers, ALL, rounds=1, unit="bytes")


def _peak(folder: Path, length: int) -> float:
    command = [sys.executable, "-c", _SCRIPT, str(folder), str(length)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
