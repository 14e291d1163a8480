"""What the Makefile's targets for a release run: ``python -m release dist``, ``sbom`` and ``check``."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from release.dist import ROOT, build, commit_id, digest


def main(words: Sequence[str]) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release")
    commands = parser.add_subparsers(dest="command", required=True)
    dist = commands.add_parser("dist", help="build the sdist and the wheel of a commit")
    dist.add_argument("--commit", default="HEAD")
    dist.add_argument("--out", type=Path, default=ROOT / "dist", help="a folder, which is emptied")
    dist.add_argument("--python", default=sys.executable, help="the interpreter that builds")
    commands.add_parser("sbom", help="write the SBOMs of what is in dist/ into sbom/")
    commands.add_parser("check", help="check whether this commit can be released; TAG is its tag")
    options = parser.parse_args(words)
    if options.command == "check":
        from release.check import check

        return 0 if check() else 1
    if options.command == "sbom":
        from release.sbom import write_sboms

        files = write_sboms(ROOT / "dist", ROOT / "sbom")
    else:
        shutil.rmtree(options.out, ignore_errors=True)
        files = build(options.commit, options.out, python=options.python)
        print(f"built from commit {commit_id(options.commit)}")
    for file in files:
        print(f"{digest(file)}  {file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
