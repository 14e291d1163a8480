"""Steps: requests that the procedures of SealedSaver yield, and how the wrapped saver replies to them.

A procedure (`sealpoint.base.saver`) yields requests, and receives the replies.

With a thread store, transactions of the caller are refused: heads would be recorded before their rows are
committed. A transaction that the wrapped saver began, and left open when a statement failed or its task was
cancelled, is rolled back: LangGraph's savers on SQLite would leave it open. To distinguish the two, the copy
of a saver gets a wrapper of its SQLite connection, which records the transactions that the saver begins. The
caller keeps the original connection, so the caller's statements do not pass through the wrapper.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache, partial
from types import BuiltinMethodType, MethodType
from typing import Any, Final, NamedTuple, Self, TypeVar

from sealpoint.base import CheckpointTuple, RunnableConfig
from sealpoint.crypto.zstd import Postponed, decompressing_at_most
from sealpoint.errors import ConfigError
from sealpoint.locks import holding
from sealpoint.seal.places import Spot
from sealpoint.threadpool import is_on, shared

R = TypeVar("R")

# From this size on, values are opened and decoded on a worker thread, so that no event loop waits
LARGE_BYTES: Final = 65_536


class Do(NamedTuple):
    """Request to call a method of the wrapped saver."""

    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = {}  # noqa: RUF012 -- never changed


class Request(NamedTuple):
    """Request to call ``list`` of the wrapped saver; the reply is a list.

    Attributes:
        config: Names a thread, and optionally namespace and id; ``None`` for all threads.
        filter: Metadata to search for.
        before: Id of a checkpoint; only older checkpoints are listed.
        limit: Maximum number of checkpoints.
    """

    config: RunnableConfig | None
    filter: dict[str, Any] | None = None
    before: str | None = None
    limit: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``list``."""
        before = None if self.before is None else {"configurable": {"checkpoint_id": self.before}}
        return {"filter": self.filter or None, "before": before, "limit": self.limit}


class Call(NamedTuple):
    """Request to call a function; the reply is the function's result."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    size: Callable[[], int] | None = None  # stored bytes that it opens or decodes; None if it awaits a store


# `Do(...)` and `Call(...)` without their Python constructors.
_do: Final[Callable[[tuple[Any, ...]], Do]] = partial(tuple.__new__, Do)
call: Final[Callable[[tuple[Any, ...]], Call]] = partial(tuple.__new__, Call)
_spot: Final[Callable[[tuple[Any, ...]], Spot]] = partial(tuple.__new__, Spot)
_NO_KEYWORDS: Final[dict[str, Any]] = {}

AnyRequest = Request | Do | Call
Steps = Generator[AnyRequest, Any, R]


def spot_of(found: CheckpointTuple) -> Spot:
    """Return the thread, namespace and id of a checkpoint that a saver returned."""
    named = found.config["configurable"]
    return _spot((str(named["thread_id"]), named.get("checkpoint_ns", ""), named["checkpoint_id"]))


def get_at(config: RunnableConfig) -> Do:
    """Return the request for the checkpoint that ``config`` names; the reply may be ``None``."""
    return _do(("get_tuple", (config,), _NO_KEYWORDS))


def reply(saver: Any, request: AnyRequest) -> Any:
    """Return the wrapped saver's reply to a request; roll back its transaction if the saver raises."""
    if isinstance(request, Call):
        if request is OWN:
            return _require_own_transactions(saver)
        return request.function(*request.arguments)
    try:
        if isinstance(request, Request):
            return [*saver.list(request.config, **request.arguments)]
        return getattr(saver, request.method)(*request.arguments, **request.keywords)
    except BaseException:
        with suppress(ConfigError, sqlite3.Error):
            _require_own_transactions(saver)
        raise


async def areply(saver: Any, request: AnyRequest) -> Any:
    """Async version of `reply`."""
    if isinstance(request, Call):
        if request is OWN:
            return await _arequire_own_transactions(saver)
        if request.size is not None and request.size() < LARGE_BYTES:
            try:
                return decompressing_at_most(LARGE_BYTES, request.function, *request.arguments)
            except Postponed:
                pass
        return await shared.run(request.function, *request.arguments)
    try:
        if isinstance(request, Request):
            return [item async for item in saver.alist(request.config, **request.arguments)]
        return await getattr(saver, f"a{request.method}")(*request.arguments, **request.keywords)
    except GeneratorExit:  # the coroutine is closed, and may not wait; the next call rolls back
        raise
    except BaseException:  # also if the task is cancelled; no other call of the saver begins before this ends
        with suppress(ConfigError, sqlite3.Error):
            # A statement of a task that was cancelled may still wait for the connection's thread: it begins
            # the transaction later, so its thread is asked in any case.
            if is_watched(getattr(saver, "conn", None)) or _may_be_refused(saver):
                await _ais_refused(saver)
        raise


# --- transactions of the caller -------------------------------------------------------------------

_OPEN: Final = (2, 3)  # libpq's PQTRANS_INTRANS and PQTRANS_INERROR


def _require_own_transactions(saver: Any) -> None:
    """Raise if a saver's connection is in a transaction of the caller: see the module.

    A saver without the attribute ``conn``, or with a pool, is not checked.
    """
    if _may_be_refused(saver) and _is_refused(saver):
        raise _refusal()


OWN: Final = Call(_require_own_transactions)  # requests that check, on the wrapped saver


async def _arequire_own_transactions(saver: Any) -> None:
    if _may_be_refused(saver) and await _ais_refused(saver):
        raise _refusal()


def _may_be_refused(saver: Any) -> bool:
    """Whether to look for an open transaction of the caller: not while a call of the saver may have its own.

    A connection to SQLite is not queried while another thread may run a statement on it. From SQLite 3.53 on
    the query would hold Python's GIL until the statement ends, whose callbacks would wait for the GIL.
    """
    connection, lock = getattr(saver, "conn", None), getattr(saver, "lock", None)
    if getattr(connection, "autocommit", True) is False:
        raise ConfigError("with a thread store a connection to Postgres needs autocommit=True")
    if isinstance(lock, asyncio.Lock):  # a task that was cancelled has released it, and its statement runs on
        return not lock.locked() and (is_watched(connection) or _is_within(connection))
    is_sqlite = is_watched(connection) or hasattr(type(connection), "in_transaction")
    return lock is not None and (is_sqlite or _is_within(connection))


def _is_refused(saver: Any) -> bool:
    """Roll back the open transaction if the saver began it; return whether another one is open."""
    connection, lock = saver.conn, saver.lock
    if isinstance(lock, asyncio.Lock):
        loop = getattr(saver, "loop", None)
        if not is_watched(connection) or loop is None or not loop.is_running() or is_on(loop):
            return not is_watched(connection)
        return asyncio.run_coroutine_threadsafe(_ais_refused(saver), loop).result()

    def is_refused() -> bool:
        if is_watched(connection):
            return bool(connection.owner.end(connection.plain))
        return _is_within(connection)

    return holding(lock, 0, is_refused, bool)


async def _ais_refused(saver: Any) -> bool:
    """Async version of `_is_refused`. Its first await is the call on the connection's thread."""
    if not isinstance(saver.lock, asyncio.Lock):
        return _is_refused(saver)
    if saver.lock.locked():
        return False
    if not is_watched(saver.conn):
        return _is_within(saver.conn)
    try:
        return bool(await saver.conn.end())
    except ValueError:  # it is closed
        return False


def _refusal() -> ConfigError:
    return ConfigError(
        "the saver's connection is in a transaction that other code began",
        hint="with a thread store, give the saver its own connection",
    )


class _Owner:
    """Records whether a saver began the open transaction of a connection."""

    __slots__ = ("is_saver",)

    def __init__(self) -> None:
        self.is_saver = False

    def run(
        self, connection: sqlite3.Connection, call: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Run a call of the saver on the connection's thread, and record whether it begins a transaction."""
        self.is_saver = self.is_saver or not _is_within(connection)
        try:
            return call(*arguments, **options)
        finally:
            self.is_saver = self.is_saver and _is_within(connection)

    def end(self, connection: sqlite3.Connection) -> bool:
        if self.is_saver and _is_within(connection):
            connection.rollback()
        self.is_saver = False
        return _is_within(connection)


_METHODS: Final = (BuiltinMethodType, MethodType)
_UNNOTED: Final = ("close", "fetchall", "fetchone")  # begin no transaction, and are called often


class _Watched:
    """Wrapper of a sqlite3 connection of a saver or Store, or of a cursor of such a connection."""

    __slots__ = ("_connection", "_rows", "owner", "plain")

    def __init__(self, plain: Any, connection: sqlite3.Connection, owner: _Owner | None, rows: Any) -> None:
        self.plain, self._connection, self.owner, self._rows = plain, connection, owner, rows

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.plain, name)
        if self.owner is None or name in _UNNOTED or not isinstance(found, _METHODS):
            return found
        return partial(self.owner.run, self._connection, found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.__getattr__("__exit__")(*raised)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.plain)

    def cursor(self, *arguments: Any) -> Any:
        cursor = self.plain.cursor(*arguments)
        cursor.row_factory = self._rows
        return cursor if self.owner is None else _Watched(cursor, self._connection, self.owner, self._rows)


@cache
def _watching(kind: Any) -> Any:
    """Return a class of wrappers that share the state of a connection of aiosqlite's class ``kind``."""

    class WatchedAsync(kind):  # type: ignore[misc]
        __slots__ = ("owner", "plain", "rows")

        def __init__(self, plain: Any, owner: _Owner | None, rows: Any) -> None:
            self.__dict__ = plain.__dict__  # type: ignore[misc]
            self.plain, self.owner, self.rows = plain, owner, rows

        def __del__(self) -> None:  # ``plain`` warns if it was not closed
            pass

        async def _execute(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            noted = () if self.owner is None else (self.owner.run, self._conn)
            found = await self.plain._execute(*noted, function, *arguments, **options)
            if type(found) is sqlite3.Cursor:
                found.row_factory = self.rows
            return found

        async def end(self) -> bool:
            """Call `_Owner.end` on the connection's thread, in the order of its calls."""
            return bool(self.owner and await self.plain._execute(self.owner.end, self._conn))

    return WatchedAsync


def watch(saver: Any, rows: Any, *, notes: bool = False) -> None:
    """Wrap the SQLite connection of a copied saver or Store, if it has one; ``rows`` converts its rows.

    With ``notes`` the wrapper records which transactions the saver begins.

    sealpoint's own savers are not wrapped, because they roll back their transactions themselves.
    """
    connection = unwatched(getattr(saver, "__dict__", {}).get("conn"))  # of another SealedSaver's copy, too
    owner = _Owner() if notes else None
    if getattr(saver, "_rolls_back", False):
        return
    if isinstance(connection, sqlite3.Connection):
        saver.conn = _Watched(connection, connection, owner, rows)
    elif type(connection).__module__.startswith("aiosqlite.") and hasattr(connection, "_execute"):
        kind: Any = type(connection)
        saver.conn = _watching(kind)(connection, owner, rows)


def unwatched(connection: Any) -> Any:
    """Return the original connection behind a wrapper of `watch`; any other connection is returned as is."""
    return connection.plain if hasattr(connection, "owner") else connection


def is_watched(connection: Any) -> bool:
    """Whether a connection is a wrapper that records transactions."""
    return type(getattr(connection, "owner", None)) is _Owner


def _is_within(connection: Any) -> bool:
    try:
        return bool(connection.in_transaction)
    except (sqlite3.ProgrammingError, ValueError):  # it is closed
        return False
    except AttributeError:
        info = getattr(connection, "info", None)  # of psycopg
        return info is not None and info.transaction_status in _OPEN
