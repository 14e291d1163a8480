"""The rows of a decrypted copy on Postgres, as LangGraph's plain saver stores them.

`SealedSaver` leaves three things of a checkpoint readable that the plain saver does not store so: a version
of its own channel, empty text in place of inline values, and pseudonyms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sealpoint.base.checkpoint import require_document
from sealpoint.base.frame import KEY, Frame, read_frame
from sealpoint.base.metadata import MAX_DEPTH, MAX_ELEMENTS
from sealpoint.crypto import Opened, RingCipher
from sealpoint.crypto.kinds import MSGPACK
from sealpoint.databases.cells import Cell, Column, SecretOf, Where
from sealpoint.databases.postgres.newschema import nullable_columns
from sealpoint.databases.postgres.snapshot import StoredRow
from sealpoint.databases.rows import Need
from sealpoint.errors import DecodeError, RowError, SealpointError, excerpt
from sealpoint.maintenance.bound import Parts, ThreadIds, is_sentinel, needs_of, require_same_row
from sealpoint.maintenance.decrypt import open_value, require_no_frame
from sealpoint.sealed.body import SENTINEL, Header
from sealpoint.sealed.tokens import Tokens
from sealpoint.serde.jsontext import parse
from sealpoint.serde.outline import read_outline

_NO_VALUE: Final = "empty"  # the type of a channel without a value
_QUOTED: Final = f'"{KEY}"'  # Postgres writes keys without escapes
_NO_JSON: Final = "Postgres stores neither NUL characters and lone surrogates nor NaN and infinity as JSON"


class Copied(NamedTuple):
    """What is copied of a row.

    Attributes:
        row: The row; ``None`` if the plain saver has none there.
        needs: The values in other rows that the checkpoint needs, by the key that it has in the copy.
    """

    row: StoredRow | None
    needs: tuple[Need, ...] = ()


class RowOpener:
    """Turns each stored row into the row of the copy."""

    def __init__(self, cipher: RingCipher, allow_plaintext: bool, secret_of: SecretOf | None) -> None:
        """Take what opens values; see `decrypt_schema`."""
        self._cipher = cipher
        self._allow_plaintext = allow_plaintext
        self._secret_of = secret_of
        self._threads = ThreadIds()
        self._tokens = Tokens(lambda: cipher.ring)

    def learn(self, cell: Cell) -> None:
        """Remember the thread that the sealed part of a checkpoint names.

        Call it with a cell of each thread with a pseudonym before `open`, which names those that do not open.
        """
        try:
            header = self._open(cell).header
        except SealpointError:
            return
        if header is not None:
            self._threads.learn(cell.where.names["thread_id"], header)

    def open(self, cell: Cell, row: StoredRow) -> Copied:
        """Return what to store in place of a row: nothing in it is sealed.

        Args:
            cell: Its value; see `cell_of`.
            row: All of its columns.

        Raises:
            SealpointError: If its value does not open, or LangGraph could not have stored the row.
        """
        column = cell.where.column
        for name, value in row.items():
            if value is None and name not in nullable_columns(column.table):
                raise RowError(f"column {name!r} of table {column.table!r} is NULL")
        row = row | {"thread_id": self._threads.require_id(row["thread_id"])}
        if column.in_json:
            return self._open_checkpoint(cell, row)
        if not holds_value(cell):
            return Copied(row)
        parts = self._open(cell)
        if parts.is_bound and is_sentinel(cell):
            return Copied(None)
        claims = parts.claims.columns if parts.claims else {}
        row |= {name: claim for name, claim in claims.items() if name in row}
        kind, data = parts.opened.typed
        return Copied(row | {"type": kind, column.name: data})

    def _open(self, cell: Cell) -> Parts:
        return open_value(
            self._cipher, cell, allow_plaintext=self._allow_plaintext, secret_of=self._secret_of
        )

    def _open_checkpoint(self, cell: Cell, row: StoredRow) -> Copied:
        if not holds_value(cell):
            _require_unsealed(row)
            return Copied(row)
        header, opened = self._open_header(cell, row)
        readable = _readable(row)
        document = _document_of(cell, opened)
        cell = _with_versions(cell, readable["channel_versions"])
        require_same_row(cell, header, self._tokens)
        key = tuple(row[name] for name in cell.where.column.key)
        needs = tuple(need._replace(checkpoint=key) for need in needs_of(cell, header, document))
        values = _snapshots(header, readable["channel_values"]) | dict(header.get("inline", {}))
        return Copied(
            row
            | {
                "checkpoint": _as_json("checkpoint", {**document, "channel_values": values}),
                "metadata": _as_json("metadata", header["metadata"]),
            },
            tuple(need for need in needs if need.channel != SENTINEL),
        )

    def _open_header(self, cell: Cell, row: StoredRow) -> tuple[Header, Opened]:
        """Open the sealed part of metadata, which another program may have sealed."""
        try:
            parts = self._open(cell)
        except DecodeError:
            require_no_frame(row["metadata"])
            raise
        if parts.header is None:
            require_no_frame(row["metadata"])
            raise RowError("the sealed part of the metadata is not that of a checkpoint")
        return parts.header, parts.opened


def cell_of(column: Column, row: StoredRow) -> Cell:
    """Return the value of a row; that of ``checkpoints`` is what is sealed in its metadata."""
    key = tuple(row[name] for name in column.key)
    if not column.in_json:
        return Cell(row[column.name], row["type"], Where(column, key))
    metadata = row[column.name]
    if metadata is None or _QUOTED not in metadata:
        return Cell(None, None, Where(column, key))
    frame = Frame(None, None)
    # Not by `find_frame`: with what is sealed, metadata may be larger than metadata alone may be.
    try:
        document = _parse(metadata)
    except DecodeError:
        document = None
    if isinstance(document, dict):
        if KEY not in document:
            return Cell(None, None, Where(column, key))
        frame = read_frame(document.pop(KEY))
    beside = {"metadata": json.dumps(document)}
    if "parent_checkpoint_id" in row:
        beside["parent_checkpoint_id"] = row["parent_checkpoint_id"]
    where = Where(replace(column, beside=(*beside,)), key, None, (*beside.values(),))
    return Cell(frame.value, frame.tag, where)


def holds_value(cell: Cell) -> bool:
    """Whether there is a value in a row. A channel without a value has a row too."""
    if cell.where.column.in_json:
        return bool(cell.where.others)
    return bool(cell.tag != _NO_VALUE or cell.value is not None)


def _parse(text: str) -> Any:
    return parse(text.encode(), MAX_DEPTH, MAX_ELEMENTS)


def _require_unsealed(row: StoredRow) -> None:
    """Refuse a row that has lost its sealed part."""
    if _QUOTED in row["checkpoint"]:
        checkpoint = _parse(row["checkpoint"])
        versions = checkpoint.get("channel_versions") if isinstance(checkpoint, dict) else None
        if isinstance(versions, dict) and SENTINEL in versions:
            raise RowError(f"checkpoint {excerpt(row.get('checkpoint_id'))} lacks its sealed part")


def _readable(row: StoredRow) -> dict[str, Any]:
    """Return what is readable of a bound checkpoint."""
    checkpoint = _parse(row["checkpoint"])
    for part in ("channel_values", "channel_versions"):
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(part), dict):
            raise RowError(f"checkpoint {excerpt(row['checkpoint_id'])} has no {part}")
    return checkpoint  # type: ignore[no-any-return]


def _with_versions(cell: Cell, versions: Mapping[str, Any]) -> Cell:
    """Return a cell with the readable versions of channels beside it."""
    beside = {**cell.where.beside, "channel_versions": json.dumps(versions)}
    column = replace(cell.where.column, beside=(*beside,))
    return cell._replace(where=cell.where._replace(column=column, others=(*beside.values(),)))


def _document_of(cell: Cell, opened: Opened) -> Any:
    """Return the sealed document, which lacks the values. Where it has an object, JSON has no form for it."""
    document = read_outline(opened.data, lambda *_: object()) if opened.inner == MSGPACK else None
    if isinstance(document, dict):
        document["channel_values"] = {}
    require_document(document, cell.where.names["checkpoint_id"])
    return document


def _snapshots(header: Header, readable: Mapping[str, Any]) -> dict[str, Any]:
    """Return the marks of delta snapshots, whose values are in rows of their own."""
    return {channel: True for channel in header.get("channels", ()) if readable.get(channel) is True}


def _as_json(what: str, value: Any) -> str:
    """Return the text of a JSON column.

    Raises:
        RowError: If Postgres does not store it.
    """
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
