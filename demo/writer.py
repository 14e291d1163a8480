"""A process that writes one claim after another: `python -m demo.writer DATABASE RING`.

It prints the number of each claim, and ends at the end of its input.
"""

from __future__ import annotations

import select
import sqlite3
import sys
from contextlib import closing
from itertools import count

from demo import agent
from sealpoint.langgraph import EncryptedSerializer


def main(database: str, ring: str) -> None:
    """Write to ``database`` continuously, each claim to a new thread."""
    serde = EncryptedSerializer.from_key_file(ring)
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        for number in count(1):
            agent.ask(connection, serde, {"configurable": {"thread_id": f"claim-{number}"}})
            print(number, flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
