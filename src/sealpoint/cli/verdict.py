"""The last line of a command's text: whether it is so, and if that is not shown, why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sealpoint.cli.output import put
from sealpoint.maintenance.result import REFUTING, Reason
from sealpoint.maintenance.sentences import SENTENCES


def show_verdict(document: Mapping[str, Any]) -> None:
    """Print the last line of a text: ``ok``, or what is not so, or why nothing is proven.

    A command that was not asked whether something is so has none.
    """
    line = verdict_line(document["ok"], document["reasons"])
    if line:
        put(line)


def verdict_line(ok: bool | None, reasons: list[Reason]) -> str:
    """Return the line for the members ``ok`` and ``reasons`` of an object; empty if nothing was asked."""
    if ok:
        return "ok"
    if Reason.NOT_ASKED in reasons and ok is None:
        return ""
    found = "; ".join(SENTENCES[reason] for reason in reasons if (reason in REFUTING) is (ok is False))
    return f"{'not ok' if ok is False else 'not proven'}: {found}"
