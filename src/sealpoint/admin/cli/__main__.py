"""The command line without its script: ``python -m sealpoint.admin.cli``."""

from __future__ import annotations

import sys

from sealpoint.admin.cli import main

if __name__ == "__main__":
    sys.exit(main())
