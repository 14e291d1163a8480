"""Tables and statements of a thread store in SQLite."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from typing import Final

from sealpoint.threads.store import REPLACED, Kind

SCHEMA: Final = (
    """CREATE TABLE store (
    version INTEGER NOT NULL,
    identity TEXT NOT NULL,
    raised INTEGER NOT NULL,
    trimmed INTEGER NOT NULL
) STRICT""",
    "CREATE TABLE identities (identity TEXT NOT NULL) STRICT",
    "CREATE TABLE adopted (seq INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT",
    """CREATE TABLE heads (
    seq INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    mac BLOB NOT NULL,
    at INTEGER NOT NULL
) STRICT""",
    "CREATE INDEX heads_by_checkpoint ON heads (thread_id, checkpoint_ns, checkpoint_id)",
)

SUBQUERIES: Final = ("latest", "head")
"""Names of subqueries: SQLite's authorizer sees them as it sees views."""

_SPOT: Final = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"

END: Final = "SELECT coalesce(max(seq), 0) FROM heads"
CLOCK: Final = f"SELECT raised, ({END}) FROM store LIMIT 1"

# One descent of the index; answers if the greatest id was not deleted.
NEWEST: Final = f"""
    SELECT checkpoint_id, kind, mac, (SELECT raised FROM store), ({END}) FROM heads
    WHERE thread_id = ? AND checkpoint_ns = ?
    ORDER BY checkpoint_id DESC, seq DESC LIMIT 1"""

NEWEST_PUT: Final = f"""
    SELECT head.checkpoint_id, head.kind, head.mac, raised, ({END}) FROM store LEFT JOIN (
        SELECT checkpoint_id, kind, mac FROM heads
        WHERE thread_id = ? AND checkpoint_ns = ? AND kind = {Kind.PUT:d} AND NOT EXISTS (
            SELECT 1 FROM heads AS latest WHERE latest.thread_id = heads.thread_id
            AND latest.checkpoint_ns = heads.checkpoint_ns AND latest.checkpoint_id = heads.checkpoint_id
            AND latest.seq > heads.seq
        ) ORDER BY checkpoint_id DESC, seq DESC LIMIT 1
    ) AS head"""

FIND: Final = f"""
    SELECT head.kind, head.mac, raised, ({END})
    FROM store LEFT JOIN (SELECT kind, mac FROM heads WHERE {_SPOT} ORDER BY seq DESC LIMIT 1) AS head"""

# SQLite takes columns that are not grouped from the row that has the max().
BETWEEN: Final = f"""
    SELECT checkpoint_ns, checkpoint_id, kind, mac, max(seq) FROM heads WHERE thread_id = ? {{}}
    GROUP BY checkpoint_ns, checkpoint_id HAVING kind <> {Kind.DELETED:d}"""

MACS: Final = f"""
    SELECT mac FROM heads WHERE {_SPOT} AND length(mac) > 0
    AND mac <> (SELECT mac FROM heads AS latest WHERE {_SPOT} ORDER BY seq DESC LIMIT 1)
    GROUP BY mac ORDER BY max(seq) DESC LIMIT {REPLACED}"""

# BEGIN IMMEDIATE succeeds on a file that is read-only; a statement that would write does not.
REQUIRE_WRITABLE: Final = "UPDATE store SET raised = raised WHERE 0"

APPEND: Final = """
    INSERT INTO heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at) VALUES (?, ?, ?, ?, ?, ?)"""

DELETE_THREAD: Final = f"""
    INSERT INTO heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
    SELECT thread_id, checkpoint_ns, checkpoint_id, {Kind.DELETED:d}, x'', ? FROM (
        SELECT thread_id, checkpoint_ns, checkpoint_id, kind, max(seq) FROM heads WHERE thread_id = ?
        GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ) AS latest WHERE kind <> {Kind.DELETED:d} ORDER BY checkpoint_ns, checkpoint_id"""

HEADS: Final = """
    SELECT thread_id, checkpoint_ns, checkpoint_id, kind, mac, max(seq) FROM heads {}
    GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT ?"""
AFTER: Final = "WHERE (thread_id, checkpoint_ns, checkpoint_id) > (?, ?, ?)"

EVENTS: Final = """
    SELECT seq, thread_id, checkpoint_ns, checkpoint_id, kind, mac, at FROM heads
    WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""

DELETED: Final = f"""
    SELECT thread_id, checkpoint_ns, checkpoint_id, last FROM (
        SELECT thread_id, checkpoint_ns, checkpoint_id, kind, at, max(seq) AS last FROM heads
        GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ) AS latest WHERE kind = {Kind.DELETED:d} AND at < ? AND last < (SELECT max(seq) FROM heads)"""

FORGET: Final = f"DELETE FROM heads WHERE {_SPOT}"
TRIMMED: Final = "UPDATE store SET trimmed = trimmed + ?"

RAISE: Final = f"""
    UPDATE store SET raised = max(raised, ? - ({END}))"""
RECORD: Final = "INSERT INTO adopted SELECT coalesce(max(seq), 0), ?, ? FROM heads"
NAME: Final = "INSERT INTO identities SELECT ? WHERE ? NOT IN (SELECT identity FROM identities)"
