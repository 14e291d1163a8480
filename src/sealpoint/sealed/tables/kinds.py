"""Which savers have tables that are looked at, by their classes."""

from __future__ import annotations

from typing import Any, Final

from sealpoint.sealed.heads import Heads
from sealpoint.sealed.tables.base import Tables
from sealpoint.sealed.tables.postgres import AioPostgresTables, PostgresTables, Rights
from sealpoint.sealed.tables.sqlite import AioSqliteTables, SqliteTables
from sealpoint.threads.store import ThreadStore

_PACKAGE: Final = "langgraph.checkpoint"


def tables_of(
    saver: Any,
    threads: ThreadStore | None,
    heads: Heads | None,
    *,
    allow_schema: bool,
    allow_shared_role: bool,
) -> Tables:
    """Return what looks at the tables of a saver.

    Args:
        saver: The saver. sealpoint's savers look at their tables themselves, and others have none that are
            known here.
        threads: The thread store, if any.
        heads: Compares with it.
        allow_schema: Whether not to look at the schema.
        allow_shared_role: Whether not to ask for the rights on the thread store.
    """
    require_apart = None if allow_shared_role else getattr(threads, "require_apart", None)
    rights = None if require_apart is None or heads is None else Rights(require_apart, heads.report)
    for base in type(saver).__mro__:
        match f"{base.__module__}.{base.__qualname__}".removeprefix(f"{_PACKAGE}."):
            case "sqlite.SqliteSaver" if not allow_schema:
                return SqliteTables()
            case "sqlite.aio.AsyncSqliteSaver" if not allow_schema:
                return AioSqliteTables()
            case "postgres.PostgresSaver":
                return PostgresTables(has_schema=not allow_schema, rights=rights)
            case "postgres.aio.AsyncPostgresSaver":
                return AioPostgresTables(has_schema=not allow_schema, rights=rights)
    return Tables()
