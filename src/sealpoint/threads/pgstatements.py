"""Tables, statements and rows of a thread store in Postgres, in a schema of its own.

Ids and namespaces are stored as bytes of UTF-8, in columns of type bytea: so they sort by bytes in every
database, with any encoding and collation, and may contain NUL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sealpoint.errors import ThreadStoreError
from sealpoint.seal.heads import Head, Kind, Special
from sealpoint.seal.places import Spot
from sealpoint.threads.database import CLOCK, same_spot, specials_of, standing
from sealpoint.threads.store import SEPARATOR

# ruff: noqa: S608 -- statements are put together from constants, a checked name and placeholders only


VERSION: Final = 2

# Columns of the tables, as the statement `TABLES` shows them
COLUMNS: Final = {
    "adopted": "seq bigint, at bigint, reason text",
    "heads": "seq bigint, thread_id bytea, checkpoint_ns bytea, checkpoint_id bytea, kind smallint,"
    " mac bytea, at bigint, gone boolean",
    "identities": "identity text",
    "specials": "seq bigint, thread_id bytea, checkpoint_ns bytea, checkpoint_id bytea, task_id bytea,"
    " idx integer, call bytea, since bigint, head_seq bigint",
    "store": "version integer, identity text, raised bigint, trimmed bigint",
}

# Code of another role must not run with the rights of this one: no views, triggers and rules.
TABLES: Final = """
    SELECT relname, relkind = 'r' AND NOT (relhastriggers OR relhasrules OR relrowsecurity),
        (SELECT string_agg(attname || ' ' || format_type(atttypid, -1), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s AND relname IN ('adopted', 'heads', 'identities', 'specials', 'store')"""

LOCK_CREATION: Final = "SELECT pg_advisory_xact_lock(hashtextextended('sealpoint thread store', 0))"
HAS_SCHEMA: Final = "SELECT FROM pg_namespace WHERE nspname = %s"
CREATE_SCHEMA: Final = 'CREATE SCHEMA "{name}"'
# The tables of version 1
CREATE: Final = (
    "CREATE TABLE {schema}store (version integer NOT NULL, identity text NOT NULL,"
    " raised bigint NOT NULL, trimmed bigint NOT NULL)",
    "CREATE TABLE {schema}identities (identity text PRIMARY KEY)",
    "CREATE TABLE {schema}adopted (seq bigint NOT NULL, at bigint NOT NULL, reason text NOT NULL)",
    "CREATE TABLE {schema}heads (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " thread_id bytea NOT NULL, checkpoint_ns bytea NOT NULL, checkpoint_id bytea NOT NULL,"
    " kind smallint NOT NULL, mac bytea NOT NULL, at bigint NOT NULL)",
    "CREATE INDEX heads_by_checkpoint ON {schema}heads (thread_id, checkpoint_ns, checkpoint_id, seq)",
)

# What version 2 adds: a column of ``heads``, and the special writes
UPGRADE: Final = (
    "ALTER TABLE {schema}heads ADD COLUMN gone boolean NOT NULL DEFAULT false",
    f"""UPDATE {{schema}}heads AS head SET gone = true WHERE kind = {Kind.DELETED:d} OR EXISTS (
        SELECT FROM {{schema}}heads AS later WHERE {same_spot("later", "head")} AND later.seq > head.seq
    )""",
    "CREATE INDEX heads_live ON {schema}heads (thread_id, checkpoint_ns, kind, checkpoint_id, seq)"
    " WHERE NOT gone",
    "CREATE TABLE {schema}specials (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " thread_id bytea NOT NULL, checkpoint_ns bytea NOT NULL, checkpoint_id bytea NOT NULL,"
    " task_id bytea NOT NULL, idx integer NOT NULL, call bytea NOT NULL, since bigint NOT NULL,"
    " head_seq bigint NOT NULL)",
    "CREATE INDEX specials_by_checkpoint ON {schema}specials (thread_id, checkpoint_ns, checkpoint_id, seq)",
    # Roles that may read or append heads get the same rights on the new table, and may mark replaced heads.
    """DO $$ DECLARE one record; BEGIN
        FOR one IN SELECT grantee, privilege_type FROM pg_class, aclexplode(relacl)
            WHERE pg_class.oid = '{schema}heads'::regclass AND grantee <> relowner
            AND privilege_type IN ('SELECT', 'INSERT')
        LOOP
            EXECUTE 'GRANT ' || one.privilege_type || ' ON {schema}specials TO '
                || CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE one.grantee::regrole::text END;
            IF one.privilege_type = 'INSERT' THEN
                EXECUTE 'GRANT UPDATE (gone) ON {schema}heads TO '
                    || CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE one.grantee::regrole::text END;
            END IF;
        END LOOP;
    END $$""",
)

# Columns of the tables of version 1
FIRST_COLUMNS: Final = {
    table: columns.removesuffix(", gone boolean") for table, columns in COLUMNS.items() if table != "specials"
}

SET_VERSION: Final = f"UPDATE {{schema}}store SET version = {VERSION}"
NO_FLUSH: Final = "SET synchronous_commit = off"
FLUSH: Final = "SET LOCAL synchronous_commit = on"
FILL: Final = "INSERT INTO {schema}store VALUES (%s, %s, 0, 0)"
NAME: Final = "INSERT INTO {schema}identities VALUES (%s) ON CONFLICT DO NOTHING"
IDENTITY: Final = "SELECT version, identity FROM {schema}store"

_NOW: Final = "extract(epoch FROM clock_timestamp())::bigint"
# The statement writes a record to the WAL, because a commit without records flushes nothing.
MARK: Final = f"SELECT {CLOCK}, pg_logical_emit_message(true, 'sealpoint', '') FROM {{schema}}store"

RECORDS: Final = (
    "string_agg(special.seq || ' ' || idx || ' ' || since || ' ' || encode(call, 'hex') || ' ' ||"
    f" encode(task_id, 'hex'), '{SEPARATOR}')"
)


NEWEST, BETWEEN, LIVE = (
    statement.replace("?", "%s") for statement in standing(RECORDS, "{schema}heads AS head WHERE NOT gone")
)

FIND: Final = f"""
    SELECT found.*, {CLOCK} FROM {{schema}}store LEFT JOIN (
        SELECT wanted.*, kind, mac, {specials_of(RECORDS, same_spot("special", "wanted"))}
        FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[]) AS wanted(thread_id, checkpoint_ns, checkpoint_id)
        LEFT JOIN LATERAL (
            SELECT kind, mac FROM {{schema}}heads AS head WHERE {same_spot("head", "wanted")}
            ORDER BY seq DESC LIMIT 1
        ) AS head ON true
    ) AS found ON true"""

_APPEND: Final = f"""
    WITH head AS (
        SELECT * FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[], %s::smallint[], %s::bytea[])
            WITH ORDINALITY AS head(a, b, c, d, e, place)
    ), added AS (
        INSERT INTO {{schema}}heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at, gone)
        SELECT a, b, c, d, e, {_NOW}, d = {Kind.DELETED:d} FROM head ORDER BY place RETURNING seq
    )"""
_APPENDED: Final = " SELECT raised, (SELECT max(seq) FROM added) FROM {schema}store"
APPEND: Final = _APPEND + _APPENDED  # for events of the kind PUT

APPEND_ANY: Final = f"""{_APPEND}, replaced AS (
        UPDATE {{schema}}heads SET gone = true FROM head WHERE d <> {Kind.PUT:d}
        AND thread_id = a AND checkpoint_ns = b AND checkpoint_id = c AND NOT gone
    ){_APPENDED}"""

# Executed without a cursor: arrays, the clock and psycopg's types would take most of the time of a put.
APPEND_PUT: Final = f"""
    INSERT INTO {{schema}}heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
    SELECT $1, $2, $3, {Kind.PUT:d}, $4, {_NOW} FROM {{schema}}store"""

# Inserts no row, but needs the right and the lock to insert.
LAST_SPECIAL: Final = """
    WITH tried AS (
        INSERT INTO {schema}specials
            (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, call, since, head_seq)
        SELECT '', '', '', '', 0, '', 0, 0 WHERE false
    ) SELECT coalesce(max(seq), 0) FROM {schema}specials"""

APPEND_SPECIALS: Final = """
    INSERT INTO {schema}specials
        (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, call, since, head_seq)
    SELECT a, b, c, d, e, f, g, coalesce((SELECT max(seq) FROM {schema}heads), 0)
    FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[], %s::integer[], %s::bytea[], %s::bigint[])
        WITH ORDINALITY AS special(a, b, c, d, e, f, g, place) ORDER BY place"""

HEADS: Final = """
    SELECT DISTINCT ON (thread_id, checkpoint_ns, checkpoint_id)
        thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM {schema}heads {conditions}
    ORDER BY thread_id, checkpoint_ns, checkpoint_id, seq DESC LIMIT %s"""

LOCK: Final = "LOCK TABLE {schema}heads IN SHARE MODE"

RAISE: Final = """
    UPDATE {schema}store
    SET raised = greatest(raised, %s - coalesce((SELECT max(seq) FROM {schema}heads), 0))"""
RECORD: Final = f"""
    INSERT INTO {{schema}}adopted SELECT coalesce(max(seq), 0), {_NOW}, %s FROM {{schema}}heads"""

# A page of checkpoints at a time: a blocked writer or reader waits for one statement only.
TRIM: Final = f"""
    WITH page AS (
        SELECT DISTINCT ON (thread_id, checkpoint_ns, checkpoint_id)
            thread_id, checkpoint_ns, checkpoint_id, kind, at, seq FROM {{schema}}heads {{conditions}}
        ORDER BY thread_id, checkpoint_ns, checkpoint_id, seq DESC LIMIT %s
    ), gone AS (
        SELECT * FROM page WHERE kind = {Kind.DELETED:d} AND at < %s
        AND seq < (SELECT max(seq) FROM {{schema}}heads)
    ), removed AS (
        DELETE FROM {{schema}}heads AS head USING gone WHERE {same_spot("head", "gone")}
    ), forgotten AS (
        DELETE FROM {{schema}}specials AS special USING gone WHERE {same_spot("special", "gone")}
    ), marked AS (
        UPDATE {{schema}}store SET trimmed = trimmed + (SELECT count(*) FROM gone)
        WHERE EXISTS (SELECT FROM gone)
    ) SELECT (SELECT count(*) FROM gone), thread_id, checkpoint_ns, checkpoint_id FROM page
    ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT 1"""

# How long a statement of maintenance may take; each changes a bounded number of rows
LONG_SECONDS: Final = 60.0

LONG: Final = f"SET LOCAL statement_timeout = '{LONG_SECONDS:.0f}s'"

# Inserts no row, but needs the right and the lock to insert
REQUIRE_WRITABLE: Final = """
    INSERT INTO {schema}heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
    SELECT '', '', '', 0, '', 0 WHERE false"""

UPGRADE_HINT: Final = (
    "let the owner of the schema open it once: run `sealpoint verify DB --threads URL` with that role"
)

DAMAGED_HINT: Final = "restore the tables from backup, or name the schema of a thread store"


def encoded(*texts: str) -> tuple[bytes, ...]:
    """Return ids and namespaces as bytes of UTF-8, as the tables store them."""
    try:
        return tuple([text.encode() for text in texts])
    except UnicodeEncodeError:
        raise ThreadStoreError(
            "the name of a checkpoint contains a lone surrogate", hint="use Unicode text"
        ) from None


def columns_of(heads: Iterable[Head]) -> list[list[Any]]:
    """Return heads as lists of values, one list for each parameter of the statement `APPEND`."""
    rows = [(*encoded(*spot), int(kind), mac) for spot, kind, mac in heads]
    return [[row[column] for row in rows] for column in range(5)]


def special_columns(specials: Iterable[tuple[Spot, Sequence[Special]]]) -> list[list[Any]]:
    """Return special writes as lists of values, one list for each parameter of `APPEND_SPECIALS`."""
    rows = [
        (*encoded(*spot, event.task_id), event.idx, event.call, event.since)
        for spot, events in specials
        for event in events
    ]
    return [[row[column] for row in rows] for column in range(7)]


# Selects a role that a session of the same cluster is, or may become, and by what right it may write.
# Membership counts with any option: SET ROLE may be all that it allows. An owner counts without any right,
# since it can grant itself all of them; the owner of a schema can drop the tables in it. Columns have rights
# of their own. A session of another cluster holds no lock that this one sees: nothing is returned.
WRITER: Final = """
    SELECT r.rolname::text, CASE
            WHEN r.rolsuper THEN 'is a superuser'
            WHEN r.rolcreaterole AND current_setting('server_version_num')::integer < 160000
                THEN 'may make itself a member of any role (CREATEROLE)'
            WHEN r.rolname IN ('pg_execute_server_program', 'pg_write_server_files')
                THEN 'may write the files of the server'
            WHEN r.oid = n.nspowner THEN 'owns its schema'
            WHEN r.oid = c.relowner THEN 'owns ' || c.relname
            ELSE 'may write ' || c.relname
        END
    FROM pg_roles AS s JOIN pg_roles AS r ON pg_has_role(s.oid, r.oid, 'MEMBER')
    JOIN pg_namespace AS n ON n.nspname = '{name}'
    JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'S')
    WHERE s.rolname = ANY(%s::text[]) AND EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND classid = %s::bigint::oid AND objid = %s::bigint::oid
    ) AND (
        r.rolsuper
        OR r.rolcreaterole AND current_setting('server_version_num')::integer < 160000
        OR r.rolname IN ('pg_execute_server_program', 'pg_write_server_files')
        OR r.oid IN (n.nspowner, c.relowner)
        OR has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
        OR has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE')
    )
    ORDER BY r.rolsuper DESC, r.oid <> s.oid, r.rolname, r.oid <> n.nspowner, c.relname LIMIT 1"""

HINT: Final = (
    "revoke this right, and let a role that the saver's role cannot become own the store; as a superuser:"
    " CREATE ROLE threads LOGIN; ALTER SCHEMA {schema} OWNER TO threads; "
    + "".join(f"ALTER TABLE {{schema}}.{table} OWNER TO threads; " for table in COLUMNS)
    + "then name it in the URL of the store"
    " (docs/threads.md#two-roles). For development: SealedSaver(..., allow_shared_role=True)"
)
