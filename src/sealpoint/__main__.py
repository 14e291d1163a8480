"""Runs the command `sealpoint` as ``python -m sealpoint``, for environments without its script."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Only here: an import of this module, as by a tool that lists modules, loads nothing of operators.
    from sealpoint.admin.cli import main

    sys.exit(main())
