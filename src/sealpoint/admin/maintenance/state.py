"""The state of a thread: one checkpoint with its values by channel. Nothing is imported or built.

On SQLite the values stand in the checkpoint, on Postgres partly in rows of their own. The value of a delta
channel is made of the writes to earlier checkpoints, by a function of the graph: only a snapshot is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sealpoint.admin.databases.cells import Cell, Column, Opener, Selection
from sealpoint.admin.databases.kinds import WholeRowStore
from sealpoint.admin.databases.rows import Failure, failure
from sealpoint.admin.maintenance.calls import cells_of
from sealpoint.admin.maintenance.decrypt import two_histories
from sealpoint.admin.maintenance.inspect import opener_of, stored_ids
from sealpoint.admin.maintenance.schemacopy import parse_json, restore
from sealpoint.base.checkpoint import require_document
from sealpoint.base.metadata import decode_metadata
from sealpoint.base.place import KEY, METADATA, VALUE, WRITE
from sealpoint.crypto import RingCipher
from sealpoint.errors import RowError, SealpointError
from sealpoint.sealed.entry import MARK
from sealpoint.sealed.rows import SENTINEL, is_bound, require_never_sealed, require_same_row, value_missing
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.tokens import Tokens


@dataclass(slots=True)
class State:
    """What was found of a thread.

    Attributes:
        checkpoint: The cell of the checkpoint; ``None`` if there is none.
        namespaces: All namespaces in which the thread has checkpoints.
        metadata: That of the checkpoint: what was sealed, if it is bound to its row.
        values: By channel, as `decode_inert` returns them.
        writes: What was written on top of the checkpoint: the cell of each, and its value.
        not_shown: Delta channels without a value in the checkpoint.
        failures: What did not open.
    """

    checkpoint: Cell | None = None
    namespaces: set[str] = field(default_factory=set)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    writes: list[tuple[Cell, Any]] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def read_state(
    store: WholeRowStore,
    cipher: RingCipher | None,
    thread_id: str,
    *,
    checkpoint_ns: str = "",
    checkpoint_id: str | None = None,
    channel: str | None = None,
    limit: int,
) -> State:
    """Return a checkpoint of a thread: the latest, or the one of this id.

    Of the writes on top of it, to ``channel`` if that is given, one more than ``limit`` is kept.

    Raises:
        RowError: If the thread has checkpoints under its id and under a pseudonym.
    """
    reader, state = _Reader(store, opener_of(cipher)), State()
    with store.one_state():
        for stored in stored_ids(reader.opener.cipher, thread_id):
            found = reader.find(state, stored, checkpoint_ns, checkpoint_id)
            if found is not None and state.checkpoint is not None:
                raise two_histories()
            state.checkpoint = state.checkpoint or found
        if state.checkpoint is not None:
            try:
                reader.read(state, state.checkpoint, channel, limit)
            except SealpointError as error:
                state.failures.append(failure(state.checkpoint, error))
    return state


class _Reader:
    def __init__(self, store: WholeRowStore, opener: Opener) -> None:
        self.opener = opener
        self._store, self._tokens = store, Tokens(lambda: opener.cipher.ring)

    def _cells(self, stored: str, wanted: Sequence[Column]) -> Iterator[Cell]:
        return cells_of(self._store, wanted, Selection(thread_id=stored))

    def find(self, state: State, stored: str, ns: str, checkpoint_id: str | None) -> Cell | None:
        """Return the latest checkpoint of a namespace, or the one of an id; ids sort as bytes."""
        best: Cell | None = None
        for cell in self._cells(stored, [each for each in self._store.columns if each.has_headers]):
            try:
                cell.where.require_key()
            except RowError as error:  # a saver may take it for the latest
                state.failures.append(failure(cell, error))
                continue
            _, found_ns, found_id = cell.where.key
            state.namespaces.add(found_ns)
            if found_ns != ns or checkpoint_id not in (None, found_id):
                continue
            if best is None or best.where.key[2].encode() < found_id.encode():
                best = cell
        return best

    def read(self, state: State, cell: Cell, channel: str | None, limit: int) -> None:
        """Open the checkpoint, its values, and what was written on top of it."""
        beside, (stored, ns, checkpoint_id) = cell.where.beside, cell.where.key
        is_apart, parts = cell.where.column.coordinates == METADATA, None
        readable = decode_metadata(beside["metadata"])
        if not is_apart or cell.tag is not None or KEY in readable:
            parts = self.opener.parts(cell)
        header = parts and parts.header
        if header:
            require_same_row(header, readable, beside["parent"], self._tokens)
        state.metadata = header["metadata"] if header else readable
        document = parse_json(beside["document"]) if parts is None else decode_inert(*parts.opened.typed)
        apart: list[tuple[str, str]] = []
        if is_apart and header:
            document, apart = restore(header, document, beside["document"], checkpoint_id)
        require_document(document, checkpoint_id, lambda value: isinstance(value, Inert))
        versions = document["channel_versions"]
        if is_apart and not header:
            require_never_sealed(checkpoint_id, document["channel_values"], versions)
            apart = [(channel, str(versions[channel])) for channel in beside["channels"]]
        found = document["channel_values"]
        if isinstance(found, Inert) or not all(isinstance(name, str) for name in found):
            raise RowError("the channel values are not a dict with names")
        state.values = {name: _snapshot(value) for name, value in document["channel_values"].items()}
        self._read_apart(state, cell, {name: version for name, version in apart if name != SENTINEL})
        if isinstance(counters := state.metadata.get(MARK), dict):
            state.not_shown = [name for name in counters if name not in state.values]
        for write in self._cells(stored, [each for each in self._store.columns if each.coordinates == WRITE]):
            is_kept = channel in (None, write.where.names["channel"]) and len(state.writes) <= limit
            is_on_top = write.where.key[1:3] == (ns, checkpoint_id)
            if is_on_top and (found := self._open(state, write)) and is_kept:
                state.writes.append((write, found[0]))

    def _read_apart(self, state: State, cell: Cell, wanted: dict[str, str]) -> None:
        stored, ns, _ = cell.where.key
        for name in wanted:  # what stands for it in the checkpoint
            state.values.pop(name, None)
        columns = [each for each in self._store.columns if each.coordinates == VALUE and wanted]
        for value in self._cells(stored, columns):
            _, value_ns, channel, version = value.where.key
            if value_ns == ns and wanted.get(channel) == version:
                del wanted[channel]
                if found := self._open(state, value, require_bound=cell.tag is not None):
                    state.values[channel] = _snapshot(found[0])
        state.failures += [failure(cell, value_missing(channel)) for channel in wanted]

    def _open(self, state: State, cell: Cell, *, require_bound: bool = False) -> tuple[Any] | None:
        """Return what is in a cell; ``None`` if it does not open, which is a failure."""
        try:
            parts = self.opener.parts(cell)
            if require_bound and not is_bound(cell.tag):  # only a bound checkpoint has a tag on Postgres
                raise RowError("the value is not bound to its row, and its checkpoint is")
            return (decode_inert(*parts.opened.typed),)
        except SealpointError as error:
            state.failures.append(failure(cell, error))
            return None


def _snapshot(value: Any) -> Any:
    """Return the value of a delta channel in place of its snapshot."""
    return value.payload if isinstance(value, Inert) and value.kind == "delta-snapshot" else value


def messages_of(value: Any) -> list[dict[str, Any]] | None:
    """Return the messages that a value consists of, each with what is in it; ``None`` if there is another."""
    found = [_message(each) for each in (value if isinstance(value, list) else [value])]
    messages = [each for each in found if each is not None]
    return messages if messages and len(messages) == len(found) else None


_MESSAGE: Final = {"role", "content", "name", "tool_calls", "tool_call_id", "type", "id"}  # of a dict


def _message(value: Any) -> dict[str, Any] | None:
    fields, role = value, "role"
    if isinstance(value, Inert):
        if not value.module.startswith("langchain_core.messages"):
            return None
        fields, role = value.payload, "type"
        if isinstance(fields, dict) and isinstance(fields.get("kwargs"), dict):  # of a json row
            fields = fields["kwargs"]
    if (
        not isinstance(fields, dict)
        or "content" not in fields
        or not (isinstance(value, Inert) or role in fields.keys() <= _MESSAGE)  # of others nothing is hidden
    ):
        return None
    shown = {"role": fields.get(role, value.name if isinstance(value, Inert) else None)}
    shown |= {"name": fields.get("name"), "text": _text_of(fields["content"])}
    return shown | {name: fields.get(name) or None for name in ("tool_calls", "tool_call_id")}


def _text_of(content: Any) -> Any:
    """Return the text of a message; of a part that is no text its type."""
    if not isinstance(content, list):
        return content
    parts = [
        part.get("text", f"[{part.get('type')}]") if isinstance(part, dict) else part for part in content
    ]
    return "\n".join(map(str, parts))
