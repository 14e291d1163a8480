"""Checkpoints on Postgres, put together from their JSON column and the sealed part in the metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sealpoint.base.metadata import MAX_ELEMENTS
from sealpoint.errors import RowError, excerpt
from sealpoint.seal.jsontext import MAX_DEPTH
from sealpoint.seal.rows import SENTINEL, SENTINEL_VERSION, Header, require_document, require_parts
from sealpoint.serde.jsontext import parse

_NO_JSON: Final = "JSON in Postgres cannot contain NUL characters, lone surrogates, NaN or infinity"


def parse_json(text: str) -> Any:
    """Parse the text of a JSON column of Postgres."""
    return parse(text.encode(), MAX_DEPTH, MAX_ELEMENTS)


def restore(
    header: Header, document: Any, text: str, checkpoint_id: str
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Put a bound Postgres checkpoint together from its sealed part and its JSON column.

    Args:
        header: What `SealedSaver` sealed with the checkpoint, such as its metadata and inline values.
        document: The decoded checkpoint, a dict, which was sealed without its channel values.
        text: Text of the row's JSON column.
        checkpoint_id: Id of the checkpoint in the row.

    Returns:
        The checkpoint with the channel values of its row; (channel, version) of each value in another row.
    """
    if isinstance(document, dict):
        document = {**document, "channel_values": {}}
    require_document(document, checkpoint_id)
    readable, versions = require_parts(parse_json(text), checkpoint_id)
    apart = [*versions_apart(header, document, versions)]
    return {**document, "channel_values": restore_values(header, readable)}, apart


def as_json(what: str, value: Any) -> str:
    """Return a value as JSON text for a Postgres column; raise if Postgres cannot store it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        text = None
    # After escaped backslashes are removed, each remaining backslash begins another escape.
    if text is None or "\\u0000" in text.replace("\\\\", ""):
        hint = "delete the checkpoint, or store its thread without the value, and run the command again"
        raise RowError(f"the {what} cannot be stored as JSON in Postgres", hint=f"{_NO_JSON}; {hint}")
    return text


def channels_apart(header: Header) -> Iterator[str]:
    """Yield the channels of a bound checkpoint whose values are in rows of their own."""
    inline = header.get("inline", {})
    return (channel for channel in header.get("channels", ()) if channel not in inline)


def versions_apart(
    header: Header, document: Mapping[str, Any], readable: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield channel and version of each value that a bound checkpoint has in a row of its own."""
    versions = {**document["channel_versions"], SENTINEL: SENTINEL_VERSION}
    for channel in (SENTINEL, *channels_apart(header)):
        version = str(versions.get(channel))
        if str(readable.get(channel)) != version:
            raise RowError(f"the version of channel {excerpt(channel)} in the row is not the sealed version")
        yield channel, version


def restore_values(header: Header, readable: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``channel_values`` as a Postgres saver stores it in a row: inline values, marks for snapshots.

    A mark says that the snapshot of a delta channel is in a row of its own; marks are not sealed.
    """
    marks = {channel: True for channel in channels_apart(header) if readable.get(channel) is True}
    return {**header.get("inline", {}), **marks}
