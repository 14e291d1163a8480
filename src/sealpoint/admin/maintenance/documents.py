"""Documents of checkpoints on Postgres: the JSON column, and the sealed part next to it."""

from __future__ import annotations

import json
from typing import Any, Final

from sealpoint.base.checkpoint import require_document
from sealpoint.base.metadata import MAX_DEPTH, MAX_ELEMENTS
from sealpoint.errors import RowError
from sealpoint.sealed.rows import Header, require_parts, restore_values, versions_apart
from sealpoint.serde.jsontext import parse

_NO_JSON: Final = "JSON in Postgres cannot contain NUL characters, lone surrogates, NaN or infinity"


def parse_json(text: str) -> Any:
    """Parse the text of a JSON column of Postgres."""
    return parse(text.encode(), MAX_DEPTH, MAX_ELEMENTS)


def restore(
    header: Header, document: Any, text: str, checkpoint_id: str
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Restore a checkpoint from its sealed document and the values in its JSON column.

    Args:
        header: Header that was sealed with the document.
        document: Decoded document, which was sealed without the values.
        text: Text of the row's JSON column.
        checkpoint_id: Id of the checkpoint in the row.

    Returns:
        The document with the values stored in the row; channel and version of each value in another row.
    """
    if isinstance(document, dict):
        document = {**document, "channel_values": {}}
    require_document(document, checkpoint_id)
    readable, versions = require_parts(parse_json(text), checkpoint_id)
    apart = [*versions_apart(header, document, versions)]
    return {**document, "channel_values": restore_values(header, readable)}, apart


def as_json(what: str, value: Any) -> str:
    """Return a value as text for a JSON column of Postgres."""
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
