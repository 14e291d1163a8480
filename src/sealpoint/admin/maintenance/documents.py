"""Documents of checkpoints: what of one stands in a JSON column of Postgres, and what was sealed of it."""

from __future__ import annotations

import json
from typing import Any, Final

from sealpoint.base.metadata import MAX_ELEMENTS
from sealpoint.errors import RowError
from sealpoint.seal.jsontext import MAX_DEPTH
from sealpoint.seal.rows import Header, require_document, require_parts, restore_values, versions_apart
from sealpoint.serde.jsontext import parse

_NO_JSON: Final = "Postgres stores neither NUL characters and lone surrogates nor NaN and infinity as JSON"


def parse_json(text: str) -> Any:
    """Return what a JSON column of Postgres holds."""
    return parse(text.encode(), MAX_DEPTH, MAX_ELEMENTS)


def restore(
    header: Header, document: Any, text: str, checkpoint_id: str
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Restore a checkpoint, of which ``document`` was sealed without the values.

    Args:
        header: What was sealed with it.
        document: The document, decoded.
        text: What is readable in the row, as JSON.
        checkpoint_id: The id of the row.

    Returns:
        The document with the values that are stored in it; channel and version of each of the others.
    """
    if isinstance(document, dict):
        document = {**document, "channel_values": {}}
    require_document(document, checkpoint_id)
    readable, versions = require_parts(parse_json(text), checkpoint_id)
    apart = [*versions_apart(header, document, versions)]
    return {**document, "channel_values": restore_values(header, readable)}, apart


def as_json(what: str, value: Any) -> str:
    """Return the text of a JSON column of Postgres."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        text = None
    # Without the escapes of backslashes, each backslash begins another escape.
    if text is None or "\\u0000" in text.replace("\\\\", ""):
        hint = "remove the checkpoint, or store its thread without the value, and run the command again"
        raise RowError(f"the {what} has no form in JSON that Postgres stores", hint=f"{_NO_JSON}; {hint}")
    return text
