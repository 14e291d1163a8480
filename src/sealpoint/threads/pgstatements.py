"""Tables and statements of a thread store in Postgres, for a schema.

Names of checkpoints are bytes of UTF-8: they have the order of bytes in every database, whatever its
encoding and collation, and may have NUL.
"""

# ruff: noqa: S608 -- statements are put together from constants, a checked name and placeholders only

from __future__ import annotations

from typing import Final

from sealpoint.threads.store import REPLACED, Kind

VERSION: Final = 1

COLUMNS: Final = {
    "adopted": "seq bigint, at bigint, reason text",
    "heads": "seq bigint, thread_id bytea, checkpoint_ns bytea, checkpoint_id bytea, kind smallint,"
    " mac bytea, at bigint",
    "identities": "identity text",
    "store": "version integer, identity text, raised bigint, trimmed bigint",
}
"""Columns of the tables, as the statement `TABLES` shows them."""

# Code of another role must not run with the rights of this one: no views, triggers and rules.
TABLES: Final = """
    SELECT relname, relkind = 'r' AND NOT (relhastriggers OR relhasrules OR relrowsecurity),
        (SELECT string_agg(attname || ' ' || format_type(atttypid, -1), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s AND relname IN ('adopted', 'heads', 'identities', 'store')"""

LOCK_CREATION: Final = "SELECT pg_advisory_xact_lock(hashtextextended('sealpoint thread store', 0))"
HAS_SCHEMA: Final = "SELECT FROM pg_namespace WHERE nspname = %s"
CREATE_SCHEMA: Final = 'CREATE SCHEMA "{schema}"'
CREATE: Final = (
    'CREATE TABLE "{schema}".store (version integer NOT NULL, identity text NOT NULL,'
    " raised bigint NOT NULL, trimmed bigint NOT NULL)",
    'CREATE TABLE "{schema}".identities (identity text PRIMARY KEY)',
    'CREATE TABLE "{schema}".adopted (seq bigint NOT NULL, at bigint NOT NULL, reason text NOT NULL)',
    'CREATE TABLE "{schema}".heads (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,'
    " thread_id bytea NOT NULL, checkpoint_ns bytea NOT NULL, checkpoint_id bytea NOT NULL,"
    " kind smallint NOT NULL, mac bytea NOT NULL, at bigint NOT NULL)",
    'CREATE INDEX heads_by_checkpoint ON "{schema}".heads (thread_id, checkpoint_ns, checkpoint_id, seq)',
)
NO_FLUSH: Final = "SET synchronous_commit = off"
FLUSH: Final = "SET LOCAL synchronous_commit = on"
FILL: Final = 'INSERT INTO "{schema}".store VALUES (%s, %s, 0, 0)'
NAME: Final = 'INSERT INTO "{schema}".identities VALUES (%s) ON CONFLICT DO NOTHING'
IDENTITY: Final = 'SELECT version, identity FROM "{schema}".store'
IDENTITIES: Final = 'SELECT identity FROM "{schema}".identities'

_SPOT: Final = "thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"
_NOW: Final = "extract(epoch FROM clock_timestamp())::bigint"
_CLOCK: Final = '(raised + coalesce((SELECT max(seq) FROM "{schema}".heads), 0))'

# It writes a record to the log, without which a commit flushes nothing.
MARK: Final = f"SELECT {_CLOCK}, pg_logical_emit_message(true, 'sealpoint', '') FROM \"{{schema}}\".store"

# A subquery for each row, not a join: the server reads the index from its end, up to the first match.
NEWEST: Final = f"""
    SELECT {_CLOCK}, found.* FROM "{{schema}}".store LEFT JOIN LATERAL (
        SELECT thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM "{{schema}}".heads AS head
        WHERE thread_id = %s AND checkpoint_ns = %s AND kind = {Kind.PUT:d} AND seq = (
            SELECT max(seq) FROM "{{schema}}".heads AS latest WHERE latest.thread_id = head.thread_id
            AND latest.checkpoint_ns = head.checkpoint_ns AND latest.checkpoint_id = head.checkpoint_id
        ) ORDER BY checkpoint_id DESC, seq DESC LIMIT 1
    ) AS found ON true"""

FIND: Final = f"""
    SELECT {_CLOCK}, found.* FROM "{{schema}}".store LEFT JOIN (
        SELECT wanted.*, kind, mac
        FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[]) AS wanted(thread_id, checkpoint_ns, checkpoint_id)
        CROSS JOIN LATERAL (
            SELECT kind, mac FROM "{{schema}}".heads AS head WHERE head.thread_id = wanted.thread_id
            AND head.checkpoint_ns = wanted.checkpoint_ns AND head.checkpoint_id = wanted.checkpoint_id
            ORDER BY seq DESC LIMIT 1
        ) AS head
    ) AS found ON true"""

BETWEEN: Final = f"""
    SELECT {_CLOCK}, found.* FROM "{{schema}}".store LEFT JOIN (
        SELECT DISTINCT ON (checkpoint_ns, checkpoint_id) thread_id, checkpoint_ns, checkpoint_id, kind, mac
        FROM "{{schema}}".heads WHERE thread_id = %s {{conditions}}
        ORDER BY checkpoint_ns, checkpoint_id, seq DESC
    ) AS found ON kind <> {Kind.DELETED:d}"""

MACS: Final = f"""
    SELECT mac FROM "{{schema}}".heads WHERE {_SPOT} AND length(mac) > 0
    AND mac <> (SELECT mac FROM "{{schema}}".heads WHERE {_SPOT} ORDER BY seq DESC LIMIT 1)
    GROUP BY mac ORDER BY max(seq) DESC LIMIT {REPLACED}"""

APPEND: Final = f"""
    WITH added AS (
        INSERT INTO "{{schema}}".heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
        SELECT a, b, c, d, e, {_NOW}
        FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[], %s::smallint[], %s::bytea[])
            WITH ORDINALITY AS head(a, b, c, d, e, place) ORDER BY place
        RETURNING seq
    ) SELECT raised + (SELECT max(seq) FROM added) FROM "{{schema}}".store"""

# Executed without a cursor: arrays, the clock and psycopg's types would take most of the time of a put.
APPEND_PUT: Final = f"""
    INSERT INTO "{{schema}}".heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
    SELECT $1, $2, $3, {Kind.PUT:d}, $4, {_NOW} FROM "{{schema}}".store"""

DELETE_THREAD: Final = f"""
    WITH added AS (
        INSERT INTO "{{schema}}".heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
        SELECT thread_id, checkpoint_ns, checkpoint_id, {Kind.DELETED:d}, '', {_NOW} FROM (
            SELECT DISTINCT ON (checkpoint_ns, checkpoint_id) thread_id, checkpoint_ns, checkpoint_id, kind
            FROM "{{schema}}".heads WHERE thread_id = %s ORDER BY checkpoint_ns, checkpoint_id, seq DESC
        ) AS latest WHERE kind <> {Kind.DELETED:d} ORDER BY checkpoint_ns, checkpoint_id RETURNING seq
    ) SELECT raised + (SELECT max(seq) FROM added) FROM "{{schema}}".store"""

HEADS: Final = """
    SELECT DISTINCT ON (thread_id, checkpoint_ns, checkpoint_id)
        thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM "{schema}".heads {conditions}
    ORDER BY thread_id, checkpoint_ns, checkpoint_id, seq DESC LIMIT %s"""
AFTER: Final = "WHERE (thread_id, checkpoint_ns, checkpoint_id) > (%s, %s, %s)"

EVENTS: Final = """
    SELECT seq, at, thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM "{schema}".heads
    WHERE seq > %s AND seq <= %s ORDER BY seq LIMIT %s"""

LOCK: Final = 'LOCK TABLE "{schema}".heads IN SHARE MODE'
END: Final = 'SELECT coalesce(max(seq), 0) FROM "{schema}".heads'
TRIMMED: Final = 'SELECT trimmed FROM "{schema}".store'

RAISE: Final = """
    UPDATE "{schema}".store
    SET raised = greatest(raised, %s - coalesce((SELECT max(seq) FROM "{schema}".heads), 0))"""
RECORD: Final = f"""
    INSERT INTO "{{schema}}".adopted SELECT coalesce(max(seq), 0), {_NOW}, %s FROM "{{schema}}".heads"""

TRIM: Final = f"""
    WITH gone AS (
        SELECT * FROM (
            SELECT DISTINCT ON (thread_id, checkpoint_ns, checkpoint_id)
                thread_id, checkpoint_ns, checkpoint_id, kind, at, seq FROM "{{schema}}".heads
            ORDER BY thread_id, checkpoint_ns, checkpoint_id, seq DESC
        ) AS latest WHERE kind = {Kind.DELETED:d} AND at < %s
        AND seq < (SELECT max(seq) FROM "{{schema}}".heads)
    ), removed AS (
        DELETE FROM "{{schema}}".heads AS head USING gone WHERE head.thread_id = gone.thread_id
        AND head.checkpoint_ns = gone.checkpoint_ns AND head.checkpoint_id = gone.checkpoint_id
    ), marked AS (
        UPDATE "{{schema}}".store SET trimmed = trimmed + (SELECT count(*) FROM gone)
    ) SELECT count(*) FROM gone"""

LONG: Final = "SET LOCAL statement_timeout = '1h'"
"""For a statement that may change every row."""

REQUIRE_WRITABLE: Final = """
    INSERT INTO "{schema}".heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
    SELECT '', '', '', 0, '', 0 WHERE false"""
"""Inserts nothing, but needs the right and the lock to do so."""

HAVE_ROW: Final = frozenset({NEWEST, FIND, BETWEEN, APPEND, DELETE_THREAD, TRIMMED})
"""Statements that return at least one row, because ``store`` has one."""
