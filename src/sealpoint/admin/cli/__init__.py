"""The command line `sealpoint`, for the extra ``cli``. The work is done in `sealpoint.admin.maintenance`."""

from __future__ import annotations

import sys
from resource import RLIMIT_CORE, getrlimit, setrlimit

from sealpoint.admin.results.exits import Exit
from sealpoint.errors import MissingExtraError

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process, and return the exit code."""
    # A core file would contain keys. The hard limit stays: a child process may be debugged on purpose.
    setrlimit(RLIMIT_CORE, (0, getrlimit(RLIMIT_CORE)[1]))
    try:
        from sealpoint.admin.cli.app import run
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"rich", "typer"}:
            raise
        missing = MissingExtraError(package, "cli")
        print(f"error: {missing}\nhint: {missing.hint}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:  # Ctrl-C while modules were being imported
        print("ended by Ctrl-C; the same command can be run again", file=sys.stderr)
        return Exit.STOPPED
    return run()
