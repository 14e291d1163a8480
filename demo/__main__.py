"""The command: `python -m demo [--keep DIR]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 if every claim held, 1 if one did not, 2 if it could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Run an agent with a sealed state, search its database, attack it, and rotate its key.",
    )
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="keep the database and the keys in this new or empty folder"
    )
    options = parser.parse_args(arguments)
    try:
        from demo.story import run_demo
    except ImportError as error:
        print(f"error: the demo needs LangGraph and the command line ({error})", file=sys.stderr)
        print("hint: in the clone, pip install '.[cli,langgraph]'", file=sys.stderr)
        return 2
    if options.keep is None:
        with TemporaryDirectory(prefix="sealpoint-demo-") as folder:
            return 0 if run_demo(Path(folder)) else 1
    folder = options.keep.resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        parser.error(f"{folder} is not empty")
    held = run_demo(folder)
    print(f"Kept: {folder}/state.db with its ring keys.toml. Delete them when you no longer need them.")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
