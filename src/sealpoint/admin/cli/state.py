"""`sealpoint inspect --last`: the state of a thread, by channel, with messages as a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.output import (
    Document,
    complain,
    count,
    failure_line,
    failure_object,
    place_line,
    put,
    quoted,
    say,
)
from sealpoint.admin.databases.rows import Failures
from sealpoint.admin.maintenance.inspect import plain
from sealpoint.admin.maintenance.result import Reason, failure_reasons
from sealpoint.admin.maintenance.state import State, messages_of
from sealpoint.crypto.tag import is_marked_bound, is_sealed
from sealpoint.errors import excerpt


def end_state(
    run: Run, thread: str, namespace: str, state: State, channel: str | None, *, limit: int, full: bool
) -> None:
    """Print the state of a thread, or what does not open of it, and set the exit code."""
    failures, cell = Failures(), state.checkpoint
    for failed in state.failures:
        failures.add(failed)
        if not run.as_json:
            complain(failure_line(failed))
    run.result.add(*failure_reasons(failures))
    run.result.add(Reason.NO_ROWS, when=cell is None)
    names = [name for name in state.values if channel in (None, name)]
    channels = [_channel(name, state.values[name], limit, full=full) for name in islice(names, limit)]
    members = {
        "thread": thread,
        "namespace": namespace,
        "checkpoint": cell and cell.where.names,
        "tag": cell and plain(cell.tag),
        "metadata": plain(state.metadata, full=full),
        "channels": channels,
        "writes": [
            {"place": plain(write.where.names), "tag": plain(write.tag), "value": plain(value, full=full)}
            for write, value in islice(state.writes, limit)
        ],
        "not_shown": state.not_shown[:limit],
        "failures": [failure_object(failed) for failed in failures.kept],
        "more": any(part.get("left_out") for part in channels)
        or max(len(names), len(state.writes), len(state.not_shown)) > limit,
    }
    run.end(members, _show)
    if members["more"]:
        say(f"shown are {limit} channels, writes and messages of each; there are more (--limit)")
    if failures.count:
        return
    if cell is None:
        found = ", ".join(quoted(each) for each in islice(sorted(state.namespaces), limit))
        where = f"; --namespace can be {found}" if found else ": without --thread the ids of all are listed"
        say(f"no such checkpoint of {quoted(thread)} in namespace {quoted(namespace)}{where}")
        run.code = Exit.USAGE
    elif channel is not None and not names:
        why = "is made of writes, and cannot be shown" if channel in state.not_shown else "has no value there"
        say(f"channel {quoted(channel)} {why}")
        run.code = Exit.USAGE


def _channel(name: str, value: Any, limit: int, *, full: bool) -> dict[str, Any]:
    messages = messages_of(value)
    if messages is None:
        return {"channel": name, "value": plain(value, full=full)}
    shown = [plain(message, full=full) for message in messages[-limit:]]
    return {"channel": name, "messages": shown, "left_out": len(messages) - len(shown)}


def _show(document: Document) -> None:
    if (place := document["checkpoint"]) is None:
        return
    put(" ".join(f"{name}={quoted(text)}" for name, text in place.items()))
    put(f"  {_protection(document['tag'])}")
    for name in ("source", "step"):
        if name in document["metadata"]:
            put(f"  {name} {json.dumps(document['metadata'][name])}")
    for part in document["channels"]:
        put(f"channel {quoted(part['channel'])}")
        if "value" in part:
            _show_value(part["value"])
        else:
            count(part["left_out"], "  {} earlier messages are left out (--limit)")
            for message in part["messages"]:
                _show_message(message)
    for write in document["writes"]:
        put(f"written on top: {place_line(write['place'])} {_protection(write['tag'])}")
        _show_value(write["value"])
    for name in document["not_shown"]:
        put(f"channel {quoted(name)}")
        put("  not shown: it is made of the writes since its last snapshot; without --last they are listed")


def _protection(tag: Any) -> str:
    """Return a tag, and whether the value may be of another place, or of anybody."""
    if is_marked_bound(tag):
        return str(tag)
    return f"{tag}, not bound to its row" if is_sealed(tag) else ", ".join(filter(None, (tag, "not sealed")))


def _word(text: Any) -> str:
    return excerpt(text if isinstance(text, str) else json.dumps(text))


def _json_lines(value: Any) -> list[str]:
    return json.dumps(value, indent=2, ensure_ascii=False).splitlines()


def _text_lines(value: Any) -> list[str]:
    """Return the lines of a text; the last one says how much is left out. What is no text is JSON."""
    if isinstance(value, str):
        return value.split("\n")
    if isinstance(value, Mapping) and value.keys() == {"$text", "start"}:
        left = value["$text"] - len(value["start"])
        return [*value["start"].split("\n"), f"... ({left:,} characters left out; --full shows all)"]
    return _json_lines(value)


def _show_value(value: Any) -> None:
    for line in _json_lines(value) if isinstance(value, str) else _text_lines(value):
        put(f"  {line}")


def _show_message(message: Mapping[str, Any]) -> None:
    about = (_word(message[name]) for name in ("name", "tool_call_id") if message[name])
    put(f"  {' '.join([_word(message['role'])[1:-1], *about])}")
    for line in _text_lines(message["text"]):
        put(f"  | {line}")  # so that no text looks like another message
    calls = message["tool_calls"]
    for call in calls if isinstance(calls, list) else [calls] if calls else ():
        named = call
        if isinstance(call, Mapping) and {"name", "args", "id"} <= call.keys():
            named = [call["name"], call["args"], call["id"]]
        put(f"    calls {json.dumps(named, ensure_ascii=False)}")
