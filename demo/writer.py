"""A process that writes one claim after another: `python -m demo.writer DATABASE RING`.

It prints the number of each claim, and ends at the end of its input.
"""

from __future__ import annotations

import select
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

from langgraph.checkpoint.sqlite import SqliteSaver

from demo import agent


def main(database: str, ring: str) -> None:
    """Write to ``database`` continuously, each claim to a new thread."""
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        saver = agent.seal(SqliteSaver(connection), Path(ring))
        for number in count(1):
            agent.ask(saver, {"configurable": {"thread_id": f"claim-{number}"}})
            print(number, flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
