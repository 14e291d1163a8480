"""Tables as LangGraph's savers make them, and with one thing changed, for which a database is refused."""

from __future__ import annotations

CHECKPOINTS = """
    CREATE TABLE checkpoints (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))"""
WRITES = """
    CREATE TABLE writes (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL,
        channel TEXT NOT NULL, type TEXT, value BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))"""
OLDER_WRITES = WRITES.replace("task_path TEXT NOT NULL DEFAULT '', ", "")

NAMES = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
HIDDEN = CHECKPOINTS.replace("checkpoints", "hidden")
LOG = "CREATE TABLE log (what)"
TRIGGER = "CREATE TRIGGER spy AFTER INSERT ON {} BEGIN INSERT INTO log VALUES (new.thread_id); END"


def altered(old: str, new: str, table: str = CHECKPOINTS) -> list[str]:
    """Both tables, with one thing changed in one of them."""
    assert table.count(old) == 1
    return [table.replace(old, new), WRITES if table is CHECKPOINTS else CHECKPOINTS]


REFUSED: dict[str, list[str]] = {
    "view": [HIDDEN, f"CREATE VIEW checkpoints AS SELECT {NAMES} FROM hidden", WRITES],
    "view in capitals": [HIDDEN, f"CREATE VIEW CHECKPOINTS AS SELECT {NAMES} FROM hidden", WRITES],
    "virtual table": [f"CREATE VIRTUAL TABLE checkpoints USING fts5({NAMES})", WRITES],
    "trigger": [CHECKPOINTS, WRITES, LOG, TRIGGER.format("checkpoints")],
    "trigger on writes": [CHECKPOINTS, WRITES, LOG, TRIGGER.format("writes")],
    "trigger in capitals": [
        CHECKPOINTS.replace("checkpoints", "Checkpoints"), WRITES, LOG, TRIGGER.format("CHECKPOINTS")
    ],
    "generated column": altered("metadata BLOB,", "metadata BLOB, more TEXT AS (hex(checkpoint)),"),
    "generated in place of one": altered("metadata BLOB", "metadata BLOB GENERATED ALWAYS AS (type) STORED"),
    "generated in place of one, in short": altered("metadata BLOB", "metadata BLOB AS (type)"),
    "extra column": altered("metadata BLOB,", "metadata BLOB, more TEXT,"),
    "missing column": altered("metadata BLOB,", ""),
    "renamed column": altered("metadata BLOB", "meta BLOB"),
    "other type": altered("metadata BLOB", "metadata TEXT"),
    "other primary key": altered("(thread_id, checkpoint_ns, checkpoint_id)", "(thread_id, checkpoint_id)"),
    "primary key in another order": altered(
        "(thread_id, checkpoint_ns, checkpoint_id)", "(checkpoint_id, checkpoint_ns, thread_id)"
    ),
    "a column in place of the primary key": altered(
        "PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)", "more TEXT", WRITES
    ),
    "collation": altered("checkpoint_id TEXT NOT NULL", "checkpoint_id TEXT NOT NULL COLLATE NOCASE"),
    "collation in lower case": altered("idx)", "idx collate/**/nocase)", WRITES),
    "default": altered("type TEXT", "type TEXT DEFAULT (hex(zeroblob(9)))"),
    "default of task_path": altered("task_path TEXT NOT NULL DEFAULT ''", "task_path TEXT DEFAULT 1", WRITES),
    "check": altered("checkpoint BLOB", "checkpoint BLOB CHECK (length(checkpoint) < 9)"),
    "reference": altered("type TEXT", "type TEXT REFERENCES log (what)"),
    "unique index": [CHECKPOINTS, WRITES, "CREATE UNIQUE INDEX one ON writes (channel)"],
    "unique column": altered("type TEXT", "type TEXT UNIQUE ON CONFLICT REPLACE"),
    "task_path of another type": altered("task_path TEXT", "task_path BLOB", WRITES),
    "task_path in the key": altered("task_id, idx)", "task_id, idx, task_path)", WRITES),
}  # fmt: skip
