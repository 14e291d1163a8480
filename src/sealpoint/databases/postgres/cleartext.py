"""What is readable in the tables of a Postgres saver beside the values: names, metadata, inline values."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sealpoint.base.frame import KEY
from sealpoint.databases.cleartext import InlineValue, Record
from sealpoint.databases.postgres.scan import places
from sealpoint.databases.postgres.tables import CheckedTables
from sealpoint.errors import RowError
from sealpoint.sealed.body import SENTINEL

_METADATA_ROWS: Final = 10
_NAME_ROWS: Final = 10_000
_IS_BOUND: Final = f"jsonb_exists(metadata, '{KEY}')"
_IS_CHECKPOINT: Final = f"""jsonb_typeof(checkpoint) = 'object'
    AND jsonb_typeof(checkpoint -> 'channel_versions') IS NOT DISTINCT FROM 'object'
    AND ({_IS_BOUND} OR jsonb_typeof(checkpoint -> 'versions_seen') IS NOT DISTINCT FROM 'object')"""
_WAS_BOUND: Final = f"coalesce(jsonb_exists(checkpoint -> 'channel_versions', '{SENTINEL}'), false)"
_OTHER: Final = "the row does not hold the checkpoint of its id"
_NONE: Final = "the row holds no checkpoint"
_LACKS: Final = "the checkpoint lacks its sealed part"
_NAME_CHARS: Final = 2_001  # one more than is examined
_METADATA_CHARS: Final = 16 * 1024 * 1024 + 1  # one more than is read
_MAX_INLINE: Final = 100_000  # channels; an agent has few
_NAMED: Final = ("thread_id", "checkpoint_ns", "channel", "task_path")
# In a checkpoint that is bound, "" stands for each value, and true for one that is in a row of its own.
_INLINE: Final = f"""
    SELECT left(inlined.key, 2001), jsonb_typeof(inlined.value), count(*) FROM ONLY {{}}
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(checkpoint -> 'channel_values')
        WHEN 'object' THEN checkpoint -> 'channel_values' ELSE '{{{{}}}}' END) AS inlined
    WHERE NOT ({_IS_BOUND} AND inlined.value IN ('""', 'true'))
    GROUP BY 1, 2 ORDER BY 1, 2 LIMIT {_MAX_INLINE + 1}"""


class PostgresCleartext:
    """A `Cleartext` of one schema of a Postgres database."""

    def __init__(self, checked: CheckedTables) -> None:
        """Take the tables of the saver."""
        self._checked = checked

    def names(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield what is readable in key columns. See `Cleartext.names`."""
        for table, columns in self._checked.found.columns.items():
            for column in _NAMED:
                if column in columns and only in (None, column):
                    text_of = f"left({column}, {_NAME_CHARS})"
                    for (text,) in self._scan(table, f"DISTINCT {text_of}", text_of, _NAME_ROWS):
                        if text is not None:
                            yield column, text

    def records(self) -> Iterator[Record]:
        """Yield what stands beside the values of each checkpoint. See `Cleartext.records`."""
        layout = self._checked.found.layouts.get("checkpoints")
        if layout is None:
            return
        # A shallow saver keeps one checkpoint for each thread, without its id and parent.
        has_id = "checkpoint_id" in layout.primary
        key = ", ".join(layout.primary)
        own = "checkpoint ->> 'id' IS NOT DISTINCT FROM checkpoint_id" if has_id else "true"
        parent = f"left(parent_checkpoint_id, {_METADATA_CHARS})" if has_id else "NULL"
        metadata = f"left(metadata::text, {_METADATA_CHARS})"
        columns = f"{key}, {own}, {_IS_CHECKPOINT}, {_WAS_BOUND}, {_IS_BOUND}, {parent}, {metadata}"
        for row in self._scan("checkpoints", columns, key, _METADATA_ROWS):
            place = dict(zip(layout.primary, row, strict=False))
            is_own, is_one, was_bound, is_bound, parent_id, metadata = row[len(place) :]
            flaw = _LACKS if was_bound and not is_bound else _NONE if not is_one else None
            flaw = flaw or (None if is_own else _OTHER)
            yield Record("checkpoints", place, parent_id, metadata, flaw, not is_bound)

    def inline(self) -> Iterator[InlineValue]:
        """Yield the kinds of strings, numbers and other values that are readable in the checkpoints.

        Raises:
            RowError: If they are of over 100,000 channels.
        """
        if "checkpoints" in self._checked.found.layouts:
            found = self._checked.select("checkpoints", _INLINE, ())
            if len(found) > _MAX_INLINE:
                raise RowError(f"the checkpoints have over {_MAX_INLINE} channels; they are forged")
            yield from (InlineValue(*row) for row in found)

    def _scan(self, table: str, columns: str, key: str, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns``, which begin with ``key``, in the order of ``key``, in batches."""
        after: tuple[Any, ...] = ()
        while True:
            where = f"WHERE ({key}) > ({places(after)})" if after else ""
            statement = f"SELECT {columns} FROM ONLY {{}} {where} ORDER BY {key} LIMIT {rows:d}"
            found = self._checked.select(table, statement, after)
            yield from found
            if len(found) < rows:
                return
            after = found[-1][: key.count(",") + 1]
