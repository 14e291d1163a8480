"""Tables as LangGraph's savers and its Store make them; and with one thing changed, which is refused."""

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


# LangGraph's Store, in the words of `sqlite_master` after its migrations.
STORE = """
    CREATE TABLE store (
        prefix text NOT NULL, key text NOT NULL, value text NOT NULL,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        expires_at TIMESTAMP, ttl_minutes REAL,
        PRIMARY KEY (prefix, key))"""
OLDER_STORE = STORE.replace("expires_at TIMESTAMP, ttl_minutes REAL,", "")
VECTORS = """
    CREATE TABLE store_vectors (
        prefix text NOT NULL, key text NOT NULL, field_name text NOT NULL, embedding BLOB,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        PRIMARY KEY (prefix, key, field_name),
        FOREIGN KEY (prefix, key) REFERENCES store(prefix, key) ON DELETE CASCADE
    )"""
MIGRATIONS = "CREATE TABLE store_migrations (v INTEGER PRIMARY KEY)"
EXPIRY = "CREATE INDEX idx_store_expires_at ON store (expires_at)\nWHERE expires_at IS NOT NULL"


def _store(old: str, new: str) -> list[str]:
    assert STORE.count(old) == 1
    return [STORE.replace(old, new)]


def _vectors(old: str, new: str) -> list[str]:
    assert VECTORS.count(old) == 1
    return [STORE, VECTORS.replace(old, new)]


_INDEX = "CREATE INDEX {} ON store ({}) WHERE {}"
REFUSED_STORES: dict[str, list[str]] = {
    "view": [STORE.replace("store", "hidden"), "CREATE VIEW store AS SELECT * FROM hidden"],
    "virtual table": ["CREATE VIRTUAL TABLE store USING fts5(prefix, key, value)"],
    "trigger": [STORE, LOG, "CREATE TRIGGER spy AFTER UPDATE ON store BEGIN INSERT INTO log VALUES (1); END"],
    "trigger on vectors": [
        STORE, VECTORS, "CREATE TRIGGER spy AFTER DELETE ON store_vectors BEGIN DELETE FROM store; END"
    ],
    "trigger on migrations": [
        MIGRATIONS, LOG,
        "CREATE TRIGGER spy AFTER INSERT ON store_migrations BEGIN INSERT INTO log VALUES (1); END",
    ],
    "generated column": _store("ttl_minutes REAL,", "ttl_minutes REAL, more TEXT AS (hex(value)),"),
    "generated in place of one": _store("expires_at TIMESTAMP", "expires_at TIMESTAMP AS (created_at)"),
    "extra column": _store("ttl_minutes REAL,", "ttl_minutes REAL, more TEXT,"),
    "missing column": _store("key text NOT NULL, value text NOT NULL,", "key text NOT NULL,"),
    "value of another type": _store("value text", "value BLOB"),
    "ttl of another type": _store("ttl_minutes REAL", "ttl_minutes TEXT"),
    "other primary key": _store("(prefix, key)", "(key, prefix)"),
    "collation": _store("key text NOT NULL,", "key text NOT NULL COLLATE NOCASE,"),
    "check": _store("value text NOT NULL", "value text NOT NULL CHECK (json_valid(value))"),
    "other default of a time": _store(
        "updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP", "updated_at TIMESTAMP DEFAULT (hex(zeroblob(9)))"
    ),
    "default of another column": _store(
        "expires_at TIMESTAMP", "expires_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP"
    ),
    "default of the value": _store("value text NOT NULL", "value text NOT NULL DEFAULT CURRENT_TIMESTAMP"),
    "reference of the store": _store("key text NOT NULL,", "key text NOT NULL REFERENCES log (what),"),
    "clause of the vectors on the store": _store(
        "(prefix, key))",
        "(prefix, key), FOREIGN KEY (prefix, key) REFERENCES store(prefix, key) ON DELETE CASCADE )",
    ),
    "WITHOUT ROWID": [f"{STORE} WITHOUT ROWID"],
    "unique index": [STORE, "CREATE UNIQUE INDEX one ON store (key)"],
    "unique column": _store("value text NOT NULL", "value text NOT NULL UNIQUE"),
    "partial index with another condition": [
        STORE, _INDEX.format("idx_store_expires_at", "expires_at", "expires_at IS NULL")
    ],
    "partial index with a longer condition": [STORE, f"{EXPIRY} AND length(value) > 9"],
    "partial index on another column": [
        STORE, _INDEX.format("idx_store_expires_at", "value", "expires_at IS NOT NULL")
    ],
    "partial index of another name": [STORE, _INDEX.format("quick", "expires_at", "expires_at IS NOT NULL")],
    "unique partial index": [STORE, EXPIRY.replace("INDEX", "UNIQUE INDEX")],
    "descending partial index": [STORE, EXPIRY.replace("(expires_at)", "(expires_at DESC)")],
    "index over an expression": [STORE, "CREATE INDEX quick ON store (length(value))"],
    "index with a collation": [STORE, "CREATE INDEX folded ON store (key COLLATE NOCASE)"],
    "vectors that refer to another table": _vectors("REFERENCES store(", "REFERENCES hidden("),
    "vectors that refer to other columns": _vectors("store(prefix, key)", "store(prefix, value)"),
    "vectors that act on an update": _vectors("ON DELETE CASCADE", "ON DELETE CASCADE ON UPDATE SET NULL"),
    "vectors with another action": _vectors("ON DELETE CASCADE", "ON DELETE SET DEFAULT"),
    "vectors that refer twice": _vectors("embedding BLOB", "embedding BLOB REFERENCES store(value)"),
    "vectors with a check": _vectors("embedding BLOB", "embedding BLOB CHECK (length(embedding))"),
    "vectors with a default": _vectors("embedding BLOB", "embedding BLOB DEFAULT (randomblob(9))"),
    "vectors without row ids": [STORE, f"{VECTORS} WITHOUT ROWID"],
    "migrations with a reference": [MIGRATIONS.replace("KEY", "KEY REFERENCES log (what)")],
    "migrations with another column": [MIGRATIONS.replace("v INTEGER", "w TEXT, v INTEGER")],
    "migrations with an index of the key": [MIGRATIONS.replace("PRIMARY KEY", "PRIMARY KEY DESC")],
    "migrations without row ids": [f"{MIGRATIONS} WITHOUT ROWID"],
}  # fmt: skip
ACCEPTED_STORES: dict[str, list[str]] = {
    "nothing": [],
    "store": [STORE, EXPIRY, "CREATE INDEX store_prefix_idx ON store (prefix)", MIGRATIONS],
    "vectors": [STORE, VECTORS, MIGRATIONS, MIGRATIONS.replace("store_", "vector_")],
    "older": [OLDER_STORE],
    "without the times of expiry": [STORE.replace(" ttl_minutes REAL,", "")],
    "in capitals": [STORE.replace("store", "STORE"), EXPIRY],
    "a plain index": [STORE, "CREATE INDEX quick ON store (updated_at)"],
    "vectors alone": [VECTORS],
}


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
