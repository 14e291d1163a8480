"""How a report looks as text: its verdicts, and a sentence at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sealpoint.cli.output import put, show_table


def show_report(document: Mapping[str, Any]) -> None:
    """Print the verdicts of a report, and what it does not prove."""
    questions = document["questions"]
    rows = [
        (each["label"], each["verdict"], "; ".join(reason["sentence"] for reason in each["reasons"]) or None)
        for each in questions
    ]
    show_table(("question", "answer", "why"), rows)
    put("")
    for part in document["databases"]:
        opening = part["opening"]
        opened = sum(each["values"] for each in opening["opened"]) if opening else 0
        put(f"{part['database']['name']}: {opened} of {part['rows']} values opened")
    if document["exceptions"]:
        put(f"exceptions: {len(document['exceptions'])}")
    put(_last_line(document))


def _last_line(document: Mapping[str, Any]) -> str:
    counts = Counter(each["verdict"] for each in document["questions"])
    if document["ok"]:
        return "ok"
    found = [f"{counts[word]} {word}" for word in ("refuted", "not shown") if counts[word]]
    head = "not ok" if document["ok"] is False else "not proven"
    return f"{head}: of {len(document['questions'])} questions {', '.join(found)}"
