"""Tables and statements of a thread store in SQLite."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from typing import Final

from sealpoint.threads.specials import SEPARATOR
from sealpoint.threads.store import REPLACED, Kind

VERSION: Final = 2

_HEADS: Final = """CREATE TABLE heads (
    seq INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    mac BLOB NOT NULL,
    at INTEGER NOT NULL
{}) STRICT"""

_KEPT: Final = (
    """CREATE TABLE store (
    version INTEGER NOT NULL,
    identity TEXT NOT NULL,
    raised INTEGER NOT NULL,
    trimmed INTEGER NOT NULL
) STRICT""",
    "CREATE TABLE identities (identity TEXT NOT NULL) STRICT",
    "CREATE TABLE adopted (seq INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT",
)
_BY_CHECKPOINT: Final = "CREATE INDEX heads_by_checkpoint ON heads (thread_id, checkpoint_ns, checkpoint_id)"

_SECOND: Final = (
    "CREATE INDEX heads_live ON heads (thread_id, checkpoint_ns, kind, checkpoint_id) WHERE gone = 0",
    """CREATE TABLE specials (
    seq INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    call BLOB NOT NULL,
    since INTEGER NOT NULL,
    head_seq INTEGER NOT NULL
) STRICT""",
    "CREATE INDEX specials_by_checkpoint ON specials (thread_id, checkpoint_ns, checkpoint_id)",
)

FIRST: Final = (*_KEPT, _HEADS.format(""), _BY_CHECKPOINT)
"""The schema of version 1."""

# The column as ALTER TABLE writes it.
SCHEMA: Final = (
    *_KEPT,
    _HEADS.format(", gone INTEGER NOT NULL DEFAULT 0"),
    _BY_CHECKPOINT,
    *_SECOND,
)

UPGRADE: Final = (
    "ALTER TABLE heads ADD COLUMN gone INTEGER NOT NULL DEFAULT 0",
    f"""UPDATE heads SET gone = 1 WHERE kind = {Kind.DELETED:d} OR EXISTS (
        SELECT 1 FROM heads AS later WHERE later.thread_id = heads.thread_id
        AND later.checkpoint_ns = heads.checkpoint_ns AND later.checkpoint_id = heads.checkpoint_id
        AND later.seq > heads.seq
    )""",
    *_SECOND,
)
"""What makes a store of version 1 one of version 2, but for the version itself."""

SUBQUERIES: Final = ("latest", "head", "every")
"""Names of subqueries: SQLite's authorizer sees them as it sees views."""

_SPOT: Final = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"

END: Final = "SELECT coalesce(max(seq), 0) FROM heads"
CLOCK: Final = f"SELECT raised, ({END}) FROM store LIMIT 1"

_RECORD: Final = "seq || ' ' || idx || ' ' || since || ' ' || hex(call) || ' ' || hex(task_id)"
_LIVE: Final = f"""head_seq >= coalesce((
            SELECT max(seq) FROM heads AS deleted WHERE deleted.kind = {Kind.DELETED:d}
            AND deleted.thread_id = special.thread_id AND deleted.checkpoint_ns = special.checkpoint_ns
            AND deleted.checkpoint_id = special.checkpoint_id), 0)"""


def _specials(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> str:
    """Return a subquery for the events of special writes to a checkpoint, as records."""
    return f"""(SELECT group_concat({_RECORD}, '{SEPARATOR}') FROM specials AS special
        WHERE special.thread_id = {thread_id} AND special.checkpoint_ns = {checkpoint_ns}
        AND special.checkpoint_id = {checkpoint_id} AND {_LIVE})"""


_OF_HEADS: Final = _specials("heads.thread_id", "heads.checkpoint_ns", "heads.checkpoint_id")

# One descent of the index; answers if the greatest id was not deleted.
NEWEST: Final = f"""
    SELECT checkpoint_id, kind, mac, {_OF_HEADS}, (SELECT raised FROM store), ({END}) FROM heads
    WHERE thread_id = ? AND checkpoint_ns = ?
    ORDER BY checkpoint_id DESC, seq DESC LIMIT 1"""

_LAST: Final = """NOT EXISTS (
            SELECT 1 FROM heads AS latest WHERE latest.thread_id = heads.thread_id
            AND latest.checkpoint_ns = heads.checkpoint_ns AND latest.checkpoint_id = heads.checkpoint_id
            AND latest.seq > heads.seq
        )"""

# ``gone`` marks events that a later one has replaced, if that deletes: they are in the log, and not in this
# index, whose first entry is the answer. Without the mark an event is compared with those after it.
NEWEST_PUT: Final = f"""
    SELECT head.checkpoint_id, head.kind, head.mac,
        {_specials("head.thread_id", "head.checkpoint_ns", "head.checkpoint_id")}, raised, ({END})
    FROM store LEFT JOIN (
        SELECT thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM heads INDEXED BY heads_live
        WHERE thread_id = ? AND checkpoint_ns = ? AND kind = {Kind.PUT:d} AND gone = 0 AND {_LAST}
        ORDER BY checkpoint_id DESC, seq DESC LIMIT 1
    ) AS head"""

FIND: Final = f"""
    SELECT head.kind, head.mac, {_specials("?", "?", "?")}, raised, ({END})
    FROM store LEFT JOIN (SELECT kind, mac FROM heads WHERE {_SPOT} ORDER BY seq DESC LIMIT 1) AS head"""

# SQLite takes columns that are not grouped from the row that has the max().
BETWEEN: Final = f"""
    SELECT checkpoint_ns, checkpoint_id, kind, mac, {_OF_HEADS}, max(seq) FROM heads INDEXED BY heads_live
    WHERE thread_id = ? AND gone = 0 {{}}
    GROUP BY checkpoint_ns, checkpoint_id HAVING kind <> {Kind.DELETED:d}"""

MACS: Final = f"""
    SELECT mac FROM heads WHERE {_SPOT} AND length(mac) > 0
    AND mac <> (SELECT mac FROM heads AS latest WHERE {_SPOT} ORDER BY seq DESC LIMIT 1)
    GROUP BY mac ORDER BY max(seq) DESC LIMIT {REPLACED}"""

# BEGIN IMMEDIATE succeeds on a file that is read-only; a statement that would write does not.
REQUIRE_WRITABLE: Final = "UPDATE store SET raised = raised WHERE 0"

APPEND: Final = """
    INSERT INTO heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at, gone)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
REPLACE: Final = f"UPDATE heads SET gone = 1 WHERE {_SPOT} AND gone = 0"

LAST_SPECIAL: Final = "SELECT coalesce(max(seq), 0) FROM specials"

APPEND_SPECIAL: Final = f"""
    INSERT INTO specials (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, call, since, head_seq)
    VALUES (?, ?, ?, ?, ?, ?, ?, ({END}))"""

SPECIALS: Final = f"""
    SELECT thread_id, checkpoint_ns, checkpoint_id, group_concat({_RECORD}, '{SEPARATOR}')
    FROM specials AS special WHERE {_LIVE} {{}}
    GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT ?"""
ALSO_AFTER: Final = "AND (thread_id, checkpoint_ns, checkpoint_id) > (?, ?, ?)"

LIVE: Final = f"""
    SELECT checkpoint_ns, checkpoint_id FROM heads INDEXED BY heads_live
    WHERE thread_id = ? AND gone = 0 AND kind <> {Kind.DELETED:d} AND {_LAST} LIMIT ?"""

# A checkpoint that was not recorded may have special writes that were.
SPECIAL_NAMES: Final = f"""
    SELECT checkpoint_ns, checkpoint_id, max({_LIVE}) FROM specials AS special WHERE thread_id = ? {{}}
    GROUP BY checkpoint_ns, checkpoint_id ORDER BY checkpoint_ns, checkpoint_id LIMIT ?"""
AFTER_NAME: Final = "AND (checkpoint_ns, checkpoint_id) > (?, ?)"

HEADS: Final = """
    SELECT thread_id, checkpoint_ns, checkpoint_id, kind, mac, max(seq) FROM heads {}
    GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT ?"""
AFTER: Final = "WHERE (thread_id, checkpoint_ns, checkpoint_id) > (?, ?, ?)"

EVENTS: Final = """
    SELECT seq, thread_id, checkpoint_ns, checkpoint_id, kind, mac, at FROM heads
    WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""

PAGE: Final = """
    SELECT thread_id, checkpoint_ns, checkpoint_id, kind, at, max(seq) FROM heads {}
    GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT ?"""

FORGET: Final = f"DELETE FROM heads WHERE {_SPOT}"
# The last number is kept, so that it is not used again.
FORGET_SPECIALS: Final = f"DELETE FROM specials WHERE {_SPOT} AND seq < ({LAST_SPECIAL})"
TRIMMED: Final = "UPDATE store SET trimmed = trimmed + ?"

RAISE: Final = f"""
    UPDATE store SET raised = max(raised, ? - ({END}))"""
RECORD: Final = "INSERT INTO adopted SELECT coalesce(max(seq), 0), ?, ? FROM heads"
NAME: Final = "INSERT INTO identities SELECT ? WHERE ? NOT IN (SELECT identity FROM identities)"
