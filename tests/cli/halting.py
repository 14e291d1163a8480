"""The program, whose `decrypt` says on a pipe that a batch is done, and waits until another one is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from sealpoint.admin.cli import decrypt as command
from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.decrypt import decrypt


def halting(*args: Any, **options: Any) -> Iterator[Any]:
    """Decrypt in small batches."""
    with closing(decrypt(*args, **options, batch=Batch(rows=2))) as events:
        for event in events:
            yield event
            os.write(told, b".")
            os.read(go, 1)


told, go = int(sys.argv[1]), int(sys.argv[2])
setattr(command, "decrypt_file", halting)  # noqa: B010 -- it is imported there
sys.exit(run(sys.argv[3:]))
