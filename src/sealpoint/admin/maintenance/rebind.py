"""Rebinding: binds rows to their places, as SealedSaver writes them, or unbinds them, while agents run.

Each row is changed separately, by compare-and-swap over all columns that were read, and `SealedSaver` with
``unbound="allow"`` reads any mix of bound and unbound rows. So a run may end at any point and be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.cells import ITEMS, Cell, Opener, Selection, require_readable
from sealpoint.admin.databases.kinds import WholeRowStore, kind_of
from sealpoint.admin.databases.parts import Parts
from sealpoint.admin.databases.rows import UNSEALED_ROW, Replacement, RowStore
from sealpoint.admin.maintenance.calls import cells_of, parts_of
from sealpoint.admin.maintenance.documents import as_json, channels_apart, parse_json, restore
from sealpoint.admin.maintenance.items import format_item, in_json, name_of, read_item
from sealpoint.admin.maintenance.job import Action, Job, action_of
from sealpoint.admin.maintenance.rotate import BeforeChange, Run
from sealpoint.admin.maintenance.status import Share
from sealpoint.admin.maintenance.verify import require_beside
from sealpoint.admin.maintenance.workers import Assignment
from sealpoint.admin.results.events import Events
from sealpoint.admin.results.jobs import Options
from sealpoint.admin.results.tags import Kind
from sealpoint.base.metadata import decode_metadata, encode_metadata
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import ConfigError, MetadataError, RowError, excerpt
from sealpoint.seal.calls import Claims, pack_claims, require_same_kind
from sealpoint.seal.cipher import Opened
from sealpoint.seal.items import Items, require_unframed
from sealpoint.seal.layouts import Inline, Whole, seal_sentinel
from sealpoint.seal.places import CHECKPOINT, ITEM, KEY, METADATA, WRITE, Spot
from sealpoint.seal.rows import (
    PLAIN,
    SENTINEL,
    SENTINEL_VERSION,
    Header,
    require_document,
    require_never_sealed,
    value_missing,
)
from sealpoint.seal.tokens import PSEUDONYM, Tokens
from sealpoint.sealed.layout import CODEC
from sealpoint.serde.encode import refusing_surrogates
from sealpoint.serde.encrypted import EncryptedSerializer
from sealpoint.serde.jsontext import parse_item
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

_REMEMBERED: Final = (
    "savers with a thread store refuse unbound rows: start every agent without threads=, then pass"
    " --allow-thread-store; or keep the store, and run `sealpoint heads adopt` at the end"
)


_INDEXES: Final = range(-(2**31), 2**31)


class Visible(NamedTuple):
    """The metadata that stays readable in a bound row, in addition to the keys that savers need."""

    plain: frozenset[str] = frozenset()
    indexed: frozenset[str] = frozenset()  # replaced by search tokens


NOTHING_MORE: Final = Visible()


class Binder:
    """Converts unbound rows to bound rows, and back.

    Values are not decoded, except for JSON. The checkpoint in the JSON column of an unbound Postgres row is
    sealed, and the column then keeps only what SQL statements of savers need.
    """

    def __init__(
        self,
        cipher: RingCipher,
        visible: Visible = NOTHING_MORE,
        fields: Visible = NOTHING_MORE,
        *,
        allow_plaintext: bool = False,
        allow_nul: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Set the options. Unsealed values are refused unless ``allow_plaintext``.

        ``allow_nul``: whether the database can store NUL characters in the JSON of items.
        """
        plain = visible.plain | frozenset(PLAIN)
        if plain & visible.indexed or KEY in plain | visible.indexed:
            raise ConfigError("a key of metadata is both plain and indexed, or is reserved")
        if visible.indexed | fields.indexed:
            cipher.ring.index_key("metadata")  # raise here, not at the first row
        self._cipher = cipher
        self._opener = Opener(cipher, allow_plaintext, limits=limits)
        serde, tokens = EncryptedSerializer(cipher), Tokens(lambda: cipher.ring)
        options: Any = {"plain": plain, "indexed": visible.indexed, "tokens": tokens, "allow_unbound": True}
        self._rows = Inline(serde, **CODEC, **options)
        self._whole = Whole(serde, **CODEC, **options)  # on SQLite
        self._items = Items(serde, *fields, tokens)
        self._format = partial(format_item, allow_nul=allow_nul)

    def bind(self, cell: Cell) -> Replacement:
        """Return the new columns of an unbound row, sealed and bound to its place."""
        coordinates, beside = cell.where.column.coordinates, cell.where.beside
        if coordinates is METADATA:
            return self._bind_row(cell, beside)
        opened = self._opener.open(cell)
        if coordinates == ITEM:
            return self._bind_item(cell, opened)
        head, metadata = b"", None
        if coordinates is WRITE:
            head = pack_claims(_require_claims(cell.where.names, beside))
        elif coordinates is CHECKPOINT:
            header = _make_header(cell, beside)
            head, metadata = self._whole.head_of(header), self._whole.readable(header["metadata"])
        tag, blob = self._opener.seal(cell, opened.inner, head + opened.data, cell.where.row)
        self._opener.require_decodable(cell, opened)
        stored = None if metadata is None else _as_stored(metadata, beside)
        return Replacement(tag, blob, beside.get("parent") or None, stored)

    def _bind_item(self, cell: Cell, opened: Opened) -> Replacement:
        if any(map(PSEUDONYM.match, (*name_of(cell)[0], cell.where.names["key"]))):
            raise RowError("the item has a pseudonym, but is not sealed")
        with refusing_surrogates():
            stored = self._items.seal(name_of(cell), parse_item(opened.data))
        return Replacement(None, None, document=self._format(stored))

    def _bind_row(self, cell: Cell, beside: Mapping[str, Any]) -> Replacement:
        """Bind a Postgres checkpoint: seal all columns of its row, and a list of its values in other rows."""
        require_readable(cell)
        header = _make_header(cell, beside)
        document = parse_json(beside["document"])
        if not isinstance(document, dict):
            raise RowError("the JSON column of a checkpoint does not contain an object")
        found = document.pop("channel_values", None) or {}
        require_document({**document, "channel_values": found}, cell.where.names["checkpoint_id"])
        versions = document["channel_versions"]
        require_never_sealed(document["id"], versions, found)
        inline = {name: value for name, value in found.items() if name not in beside["channels"]}
        header["channels"] = [*inline, *sorted(beside["channels"])]
        header["inline"] = inline
        frame = self._rows.seal_frame(Spot(**cell.where.names), header, document, header["metadata"])
        # A saver compares versions, so they must be all text or all numbers.
        are_text = all(isinstance(version, str) for version in versions.values())
        seen = {**versions, SENTINEL: SENTINEL_VERSION if are_text else int(SENTINEL_VERSION)}
        kept = {name: document[name] for name in ("v", "id") if name in document}
        marks = {name: True for name in sorted(beside["channels"]) if found.get(name) is True}
        row = {**kept, "channel_values": dict.fromkeys(inline, "") | marks, "channel_versions": seen}
        metadata = _to_json("metadata", frame)
        return Replacement(None, None, header["parent"], metadata, _to_json("checkpoint", row))

    def revise(self, cell: Cell) -> Replacement | None:
        """Return the new columns of a bound checkpoint or item, with missing readable keys or fields added.

        Returns ``None`` if nothing is missing. The sealed bytes do not change.
        """
        beside, parts = cell.where.beside, self._opened(cell)
        header = parts.header
        if header is None:  # an item; other values than checkpoints are not revised
            found = parse_item(beside["value"])
            value = in_json(read_item(cell, parts, self._rows.tokens))
            more = {**self._items.readable(value), **found}
            return None if more == found else Replacement(None, None, document=self._format(more))
        before = decode_metadata(beside["metadata"])
        rows = self._rows if "document" in beside else self._whole
        after = {**rows.readable(header["metadata"]), **before}
        if after == before:
            return None
        stored, document = _as_stored(after, beside), beside.get("document", "")
        return Replacement(cell.tag, cell.value, beside["parent"], stored, document)

    def unbind(self, cell: Cell) -> Replacement | None:
        """Return the new columns of a row, for savers without SealedSaver; ``None`` for a sentinel."""
        beside, names = cell.where.beside, cell.where.names
        if cell.is_sentinel:
            return None
        parts = self._opened(cell)
        if cell.is_item:
            return self._unbind_item(cell, parts)
        if PSEUDONYM.match(names["thread_id"]):
            raise RowError(
                "the thread has a pseudonym, and only SealedSaver finds threads by pseudonyms",
                hint="sealpoint decrypt makes a copy with the thread ids in place of the pseudonyms",
            )
        if parts.claims and parts.claims.columns != _require_claims(names, beside).columns:
            raise RowError("a write is in another row than the one it was sealed for")
        header, parent, metadata = parts.header, None, None
        if header is not None:
            parent = header["parent"] if beside["parent"] else None
            if cell.where.column.coordinates is METADATA:
                return self._unbind_row(cell, header, parts.opened, parent)
            metadata = _as_stored(header["metadata"], beside)
        tag, blob = self._opener.seal(cell, *parts.opened.typed, None)
        return Replacement(tag, blob, parent, metadata)

    def _unbind_item(self, cell: Cell, parts: Parts) -> Replacement:
        if parts.name is not None:
            raise RowError(
                "the item has a pseudonym, and only SealedStore finds items by pseudonyms",
                hint="sealpoint decrypt makes a copy with the names in place of the pseudonyms",
            )
        value = read_item(cell, parts, self._rows.tokens)
        require_unframed(value)
        return Replacement(None, None, document=self._format(value))

    def _unbind_row(self, cell: Cell, header: Header, opened: Opened, parent: str | None) -> Replacement:
        beside = cell.where.beside
        for channel in channels_apart(header):
            if channel not in beside["channels"]:
                raise value_missing(channel)
        document = self._rows.serde.decode(*opened.typed)
        restored, _ = restore(header, document, beside["document"], cell.where.names["checkpoint_id"])
        metadata = decode_metadata(encode_metadata(header["metadata"]))  # without lone surrogates
        stored = as_json("metadata", metadata)
        return Replacement(None, None, parent, stored, _to_json("checkpoint", restored))

    def _opened(self, cell: Cell) -> Parts:
        parts = self._opener.parts(cell)
        if parts.header is not None:
            cell.require_same(parts.header, self._rows.tokens)
        return parts


def _make_header(cell: Cell, beside: Mapping[str, Any]) -> Header:
    parent, where = beside["parent"], cell.where
    metadata = require_beside(where.column.table, where.names, parent, beside["metadata"])
    if KEY in metadata:
        raise MetadataError(f"metadata has the reserved key {KEY!r}, but the row is not bound to its place")
    return {
        "metadata": metadata,
        "parent": parent or None,
        "rebound": os.urandom(12).hex(),
    }


def _require_claims(names: Mapping[str, Any], beside: Mapping[str, Any]) -> Claims:
    channel, idx, task_path = names["channel"], names["idx"], beside["task_path"]
    if idx not in _INDEXES:
        raise RowError(f"savers do not use the index {idx} for a write to {excerpt(channel)}")
    claims = Claims(task_path, idx)
    require_same_kind(channel, claims)
    return claims


def _as_stored(metadata: Mapping[str, Any], beside: Mapping[str, Any]) -> bytes | str:
    """Return metadata as JSON, in the type that the row has in this column: bytes or text."""
    data = encode_metadata(metadata)
    return data.decode() if isinstance(beside["metadata"], str) else data


def _to_json(what: str, value: Mapping[str, Any]) -> str:
    """Return JSON for a Postgres column; raises if Postgres cannot store it."""
    text = as_json(what, value)
    parse_json(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RebindOptions(Options):
    """Options of a rebinding.

    Attributes:
        unbind: Unbind bound rows, for savers without SealedSaver, instead of binding unbound rows.
        visible: Metadata that stays readable in bound rows.
        fields: Fields of items of LangGraph's Store that stay readable.
        thread_id: Change only rows with this text in the column ``thread_id``, and no items.
        items: If true, change only items; if false, all values except items; if ``None``, all values.
        allow_thread_store: Also unbind rows that are recorded in a thread store. Savers with that thread
            store then refuse the rows until `heads adopt`.
    """

    unbind: bool = False
    allow_thread_store: bool = False
    visible: Visible = NOTHING_MORE
    fields: Visible = NOTHING_MORE
    thread_id: str | None = None
    items: bool | None = None

    def takes(self, label: str) -> bool:
        """Whether the run changes values in the column with this label."""
        return self.items in (None, label == ITEMS.label)

    def revises(self, label: str) -> bool:
        """Whether the run adds missing readable metadata or fields to bound values of this column."""
        visible = {"checkpoints": self.visible, ITEMS.label: self.fields}
        return visible.get(label, NOTHING_MORE) != NOTHING_MORE


def rebind(
    store: WholeRowStore,
    cipher: RingCipher,
    options: RebindOptions,
    before_change: BeforeChange | None = None,
) -> Events:
    """Bind every row to its place, or unbind it. No object is built.

    A row that does not open, or that no saver would write, is reported and not changed. Call this within
    `RowStore.hold`, or in a worker of a process that does.

    Args:
        store: A database, opened as writable.
        cipher: Opens values, and seals values under the active key of its ring.
        options: Options of the rebinding, and the general options that `rotate` has.
        before_change: Called with each row, as a cell, before the row is changed.

    Yields:
        Progress after each batch; one failure for each refused row.

    Raises:
        NoActiveKeyError: If the ring has no active key. Nothing has been changed.
        ConfigError, KeyRingError: If metadata keys are invalid, or the index key is missing; or if rows to
            unbind are recorded in a thread store. Nothing has been changed.
        LockedError: On Postgres, if other sessions keep rows locked. All other rows have been changed.
        StoppedError: If the disk is full or the database is not available. The run can be repeated.
    """
    cipher = RingCipher(cipher.ring, cipher.suite, follow=False)  # the active key stays the same during a run
    cipher.ring.require_active()
    binder = Binder(
        cipher,
        options.visible,
        options.fields,
        allow_plaintext=options.allow_plaintext,
        allow_nul=store.kind == "sqlite",
        limits=options.limits,
    )
    run, bound = Run(store, options.paced_batch, options.max_lock_seconds), Selection(bound=True)
    columns = [column for column in store.columns if options.takes(column.label)]
    if options.unbind:
        require_not_remembered(store, cipher, options)
        yield from run.events(binder.unbind, bound, before_change, columns)
        return
    selection = Selection(bound=False, plaintext=options.allow_plaintext, legacy=options.allow_legacy)
    yield from run.events(binder.bind, selection, before_change, columns)
    if revised := [column for column in columns if options.revises(column.label)]:
        yield from run.events(binder.revise, bound, columns=revised)  # the sealed bytes do not change


def require_not_remembered(store: RowStore, cipher: RingCipher, options: RebindOptions) -> None:
    """Refuse to unbind checkpoints that were stored with a thread store."""
    if not options.unbind or options.allow_thread_store or options.items:
        return
    selection = Selection(bound=True, thread_id=options.thread_id)
    for cell in cells_of(store, [column for column in store.columns if column.has_headers], selection):
        parts = parts_of(Opener(cipher), cell)  # failures are reported later, by the change
        if parts and "store" in (parts.header or ()):
            raise remembered()


def remembered() -> ConfigError:
    """Return the error of a run that would unbind rows which are recorded in a thread store."""
    return ConfigError("the rows to unbind are recorded in a thread store", hint=_REMEMBERED)


def sealing_sentinels(cipher: RingCipher) -> Callable[[str, str], tuple[str, bytes]]:
    """Return a function that seals a sentinel (tag and bytes) for a thread id and a namespace."""
    return partial(seal_sentinel, EncryptedSerializer(cipher))


def _open_rows(database: str, cipher: RingCipher, options: RebindOptions, *, writable: bool) -> WholeRowStore:
    sentinel = None if options.unbind else sealing_sentinels(cipher)
    of_shard = {} if options.shard is None else {"shard": options.shard}
    return kind_of(database).open_whole(
        database, writable=writable, thread_id=options.thread_id, sentinel=sentinel, **of_shard
    )


def rebinding(assignment: Assignment, cipher: RingCipher) -> Events:
    """Rebind the part of the rows that an assignment gives to a worker."""
    options = assignment.options
    if not isinstance(options, RebindOptions):
        raise TypeError(f"options are {type(options).__name__}, not RebindOptions")
    with closing(_open_rows(assignment.url, cipher, options, writable=True)) as store:
        yield from rebind(store, cipher, replace(options, allow_thread_store=True))  # checked by the job


def is_bound(share: Share) -> bool:
    """Whether the values that a share counts are bound to their rows."""
    return "row" in share.flags


class RebindJob(Job):
    """A job that rebinds one database; it opens the row store of whole rows itself."""

    _work = staticmethod(rebinding)
    _options: RebindOptions

    def __init__(
        self,
        store: RowStore,
        cipher: RingCipher,
        options: RebindOptions,
        url: str,
        *,
        writable: bool = True,
    ) -> None:
        super().__init__(store, cipher, options, url)
        self._seals_rows = store.kind == "postgres" and not options.unbind
        self._rows = self._changed = _open_rows(url, cipher, options, writable=writable)
        self._to_verify = Selection(plaintext=False, thread_id=options.thread_id)

    def close(self) -> None:
        """Close the row store through which this job reads and writes whole rows."""
        self._rows.close()

    def require_fitting(self) -> None:
        """Raise if the ring is another environment's, or if rows to unbind are recorded in a thread store."""
        super().require_fitting()
        require_not_remembered(self._store, self._cipher, self._options)

    def _action(self, share: Share) -> Action:
        options = self._options
        if not options.takes(share.table):
            return Action.NOT_ASKED
        if is_bound(share) is not options.unbind:
            examined = is_bound(share) and options.revises(share.table)
            return Action.INDEX if examined else Action.NONE
        if share.kind is Kind.UNKNOWN and share.types == (excerpt(UNSEALED_ROW),):
            return Action.ROTATE
        return action_of(share, self._cipher.ring, options, is_done=False)

    def _run(self, before_change: BeforeChange | None) -> Events:
        options = replace(self._options, allow_thread_store=True)

        def add(cell: Cell) -> None:
            # A fragment of an item may belong to a field that stays readable.
            if before_change is not None and not (cell.is_plain_item and options.fields.plain):
                before_change(cell)

        return rebind(self._rows, self._cipher, options, add)

    def _rotate(self) -> None:
        super()._rotate()
        if self._options.unbind:
            self._rows.remove_sentinels()

    def _count_left(self) -> None:
        asked = (step for step in self.plan() if step.action is not Action.NOT_ASKED)
        wrong = [step for step in asked if is_bound(step.share) is self._options.unbind]
        self._outcome.left = sum(step.share.rows for step in wrong)
        self._outcome.remaining = wrong
