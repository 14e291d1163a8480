"""The agent of the other examples: it keeps a patient's notes in its state."""

from __future__ import annotations

from typing import TypedDict

from langgraph.graph import START, StateGraph


class Visit(TypedDict, total=False):
    """The state of a thread."""

    said: str
    notes: list[str]


def note(state: Visit) -> Visit:
    """Add what was said to the notes."""
    return {"notes": [*state.get("notes", []), state["said"]]}


builder = StateGraph(Visit).add_node("note", note).add_edge(START, "note")
graph = builder.compile()
