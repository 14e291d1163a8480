"""``make savers``: measures savers of others, and compares the result with docs/savers.md.

Prints the rows of the page's table as measured. Ends with 1 if the page shows something else.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from tests.savers.measure import COLUMNS, measure, page_rows
from tests.savers.thirdparty import ROWS

HEADING = "Savers of others"


def main() -> int:
    """Measure the savers whose name contains one of the arguments; all without arguments."""
    logging.disable()
    wanted = sys.argv[1:]
    shown = page_rows(HEADING)
    wrong = [*(ROWS.keys() ^ shown.keys())]
    for name, row in ROWS.items():
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            cells = asyncio.run(measure(row))
        except FileNotFoundError as error:
            print(f"{name}: not measured: {error}")  # noqa: T201 -- it reports to a terminal
            continue
        print(f"{name} | {' | '.join(cells[column] for column in COLUMNS)}")  # noqa: T201
        if cells != shown.get(name):
            wrong.append(name)
    for name in wrong:
        print(f"docs/savers.md shows something else for {name}: {shown.get(name)}", file=sys.stderr)  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
