"""Who may write a thread store in Postgres: the roles that a session is, or may become."""

from __future__ import annotations

from typing import Final

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
    JOIN pg_namespace AS n ON n.nspname = '{schema}'
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
"""Selects a role that a session of the same cluster is, or may become, and by what right it may write.

Membership counts with any option: SET ROLE may be all that it allows. An owner counts without any right,
since it can grant itself all of them; the owner of a schema can drop the tables in it. Columns have rights of
their own. A session of another cluster holds no lock that this one sees: nothing is returned.
"""

HINT: Final = (
    "take this right away, and give the store a role that the saver's cannot become: CREATE ROLE threads"
    " LOGIN; GRANT USAGE ON SCHEMA {schema} TO threads; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO"
    " threads;"
    " GRANT INSERT ON {schema}.heads, {schema}.specials TO threads; GRANT UPDATE (gone) ON {schema}.heads TO"
    " threads; then name it in the URL of the store"
    " (docs/threads.md#two-roles). For development: SealedSaver(..., allow_shared_role=True)"
)


def halves(lock: int) -> tuple[int, int]:
    """Return the two numbers with which pg_locks shows an advisory lock."""
    return lock >> 32, lock & 0xFFFFFFFF
