"""Which savers have tables that are looked at, by their classes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sealpoint.sealed.heads import Heads
from sealpoint.sealed.tables.base import Tables
from sealpoint.sealed.tables.postgres import AioPostgresTables, PostgresTables, Rights
from sealpoint.sealed.tables.sqlite import AioSqliteTables, SqliteTables
from sealpoint.threads.store import ThreadStore

_PACKAGE: Final = "langgraph.checkpoint"


class Allowed(NamedTuple):
    """What is not to be looked at: options of `SealedSaver`."""

    partial_writes: bool
    schema: bool
    shared_role: bool


def tables_of(
    saver: Any,
    threads: ThreadStore | None,
    heads: Heads | None,
    allowed: Allowed,
) -> Tables:
    """Return what looks at the tables of a saver.

    Args:
        saver: The saver. sealpoint's savers look at their tables themselves, and others have none that are
            known here.
        threads: The thread store, if any.
        heads: Compares with it.
        allowed: What is not to be looked at.
    """
    require_apart = None if allowed.shared_role else getattr(threads, "require_apart", None)
    rights = None if require_apart is None or heads is None else Rights(require_apart, heads.report)
    for base in type(saver).__mro__:
        match f"{base.__module__}.{base.__qualname__}".removeprefix(f"{_PACKAGE}."):
            case "sqlite.SqliteSaver":
                return SqliteTables(has_schema=not allowed.schema, allow_partial=allowed.partial_writes)
            case "sqlite.aio.AsyncSqliteSaver":
                return AioSqliteTables(has_schema=not allowed.schema, allow_partial=allowed.partial_writes)
            case "postgres.PostgresSaver":
                return PostgresTables(has_schema=not allowed.schema, rights=rights)
            case "postgres.aio.AsyncPostgresSaver":
                return AioPostgresTables(has_schema=not allowed.schema, rights=rights)
    return Tables()
