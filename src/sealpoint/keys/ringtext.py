"""Changes to the text of a ring file: comments, order and spaces are preserved.

A change is made twice, on the text and on the parsed tree, and is accepted only if the new text parses to
exactly the changed tree.
"""

from __future__ import annotations

import json
import re
import tomllib
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from sealpoint.errors import MissingExtraError, RingFileError
from sealpoint.utc import format_utc

Change = Callable[[Any, Callable[[str], Any]], None]
"""Changes a ring, given as nested mappings and lists. The second argument parses TOML."""

NEW_RING: Final = """\
# A sealpoint key ring. It contains no secrets: only ids, states, dates, check values
# and where the material is. Change it with `sealpoint keys`, or by hand.

version = 1
{active} # the only key that seals; every other usable key only opens

# state     seals  opens   meaning
# staged      no    yes    generate: copy it to every host before one host seals with it
# active      yes   yes    promote a staged (or decrypt-only) key
# decrypt-only no   yes    was active until another key was promoted
# disabled    no    no     disable: should no longer be needed; enable undoes it
# compromised no    yes    compromise: may be known to an attacker; never seals again
# destroyed   no    no     destroy: no longer usable; the entry reserves the id

"""


_VERSION: Final = re.compile(r"^version[ \t]*=.*\n", re.MULTILINE)


def entry_text(
    key_id: str,
    state: str,
    dates: Mapping[str, datetime | None],
    owner: str | None,
    check: str,
    source: str | None = None,
) -> str:
    """Return the text of the entry of a key.

    Args:
        key_id: Its id.
        state: Its state.
        dates: Times by field; ``None`` omits a field.
        owner: Who is responsible for it, one printable line, or ``None``.
        check: Its check value.
        source: The line of its source; by default that of its file in ``keys.d``.
    """
    lines = ["[[key]]", f'id = "{key_id}"', f'state = "{state}"']
    lines += [f"{field} = {format_utc(time)}" for field, time in dates.items() if time is not None]
    if owner is not None:
        lines.append(f"owner = {_quote(owner)}")
    return "\n".join([*lines, f'check = "{check}"', source or file_text(key_id), ""])


def index_text(key_id: str, created: datetime, check: str, source: str | None = None) -> str:
    """Return the text of the entry of an index key; its source is as in `entry_text`."""
    lines = ["[[index]]", f'id = "{key_id}"', f"created = {format_utc(created)}", f'check = "{check}"']
    return "\n".join([*lines, source or file_text(key_id), ""])


def file_text(key_id: str) -> str:
    """Return the line of a source that is a file in ``keys.d``."""
    return f'source = {{ file = "keys.d/{key_id}.key" }}'


def wrapped_text(blob: bytes, by: str, version: str | None, left: str | None = None) -> str:
    """Return the line of a source that is a wrapped key.

    Args:
        blob: The wrapped key.
        by: Id of the wrapper.
        version: Of the wrapping key; not written if it is empty or not printable.
        left: A file with the same material that is still to be removed.
    """
    fields = {"wrapped": b64encode(blob).decode(), "by": by, "version": version, "left": left}
    shown = (f"{field} = {_quote(text)}" for field, text in fields.items() if text and text.isprintable())
    return f"source = {{ {', '.join(shown)} }}"


def removed_text(by: str) -> str:
    """Return the line of the source of a destroyed key that was wrapped."""
    return f'source = {{ wrapped = "", by = {_quote(by)} }}'


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # for printable text JSON is valid TOML


def changed(text: str, change: Change, name: str) -> str:
    """Return the text of a ring after a change.

    Args:
        text: A valid ring.
        change: Makes the change; called once with the tree of the text and once with plain dicts.
        name: Name of the file, for messages.

    Raises:
        MissingExtraError: If tomlkit is not installed.
        RingFileError: If the text is written in a way that cannot be changed without loss.
    """
    text = text if text.endswith("\n") else f"{text}\n"
    wanted = tomllib.loads(text)
    known = set(wanted)
    change(wanted, tomllib.loads)
    fresh = {field: value for field, value in wanted.items() if field not in known and isinstance(value, str)}
    new = _rewritten(_with_fields(text, fresh), change)
    if new is None or tomllib.loads(new) != wanted:
        raise RingFileError(
            f"{name} is written in a way that cannot be changed without loss",
            hint="write its keys as [[key]] entries, one after another, or change it by hand",
        )
    return new


def _with_fields(text: str, fields: Mapping[str, str]) -> str:
    """Add fields of the ring below its version; tomlkit would add them below the comment about states."""
    lines = "".join(f"{field} = {_quote(value)}\n" for field, value in fields.items())
    return _VERSION.sub(lambda found: found[0] + lines, text, count=1)


def _rewritten(text: str, change: Change) -> str | None:
    """Return the changed text, or ``None`` if tomlkit does not preserve the original."""
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
        from tomlkit.items import AoT
    except ModuleNotFoundError:
        raise MissingExtraError("tomlkit", "cli") from None
    with suppress(TOMLKitError):  # its message may quote an inline key
        ring = tomlkit.parse(text)
        if tomlkit.dumps(ring) == text and isinstance(ring.get("key", AoT([])), AoT):
            _change_tree(ring, change)
            return tomlkit.dumps(ring)
    return None


def _change_tree(ring: Any, change: Change) -> None:
    import tomlkit

    keys = ring.get("key", [])
    # Comments after an entry belong to the next entry or to the file: they are not moved with the entry.
    tails = [_take_tail(entry) for entry in keys]
    last = keys[-1] if tails else None
    change(ring, tomlkit.parse)
    if last is not None and len(keys) > len(tails):
        last.add(tomlkit.nl())
        tails[-1:] = [[], tails[-1]]
    for entry, tail in zip(keys, tails, strict=True):
        entry.value.body.extend(tail)


def _take_tail(entry: Any) -> list[Any]:
    """Remove the comments and blank lines after the last field of an entry, and return them."""
    body = entry.value.body
    while body and hasattr(body[-1][1], "is_table") and body[-1][1].is_table():
        body = body[-1][1].value.body
    tail: list[Any] = []
    while body and body[-1][0] is None:
        tail.insert(0, body.pop())
    return tail
