"""The command line, for the extra ``cli``: thin over maintenance and crypto."""

from __future__ import annotations

import sys
from resource import RLIMIT_CORE, getrlimit, setrlimit

from sealpoint.admin.results.exits import Exit
from sealpoint.errors import MissingExtraError

__all__ = ["main"]


def main() -> int:
    """Run the program on its arguments and return its exit code."""
    # A core file would contain the keys. The hard limit is kept: a child may be debugged on purpose.
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
    except KeyboardInterrupt:  # the program itself was not loaded yet
        print("ended by Ctrl-C; the same command can be run again", file=sys.stderr)
        return Exit.STOPPED
    return run()
