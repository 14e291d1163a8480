"""A plugin of pytest for LangGraph's suites: their stores are wrapped in SealedStore, in one of the forms.

The process runs in the folder of a suite, whose package is called ``tests``, too.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import langgraph.store.memory
import langgraph.store.postgres
import langgraph.store.sqlite
import langgraph.store.sqlite.aio
from vectors import vector_connections  # type: ignore[import-not-found]

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedStore

FIELDS: Final = (
    *("score", "color", "access", "value", "price", "data", "author", "x"),
    *("tags", "tag", "even", "active", "title", "id", "text", "category"),
)
FORMS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "open": {"vectors": "open"},
    "all": {"vectors": "open", "pseudonyms": True, "indexed_fields": FIELDS},
}
RING: Final = KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)], index=bytes(range(32, 64)))


def wrapped(kind: Any) -> Any:
    """Return a class that is made like one of LangGraph's, and is a SealedStore around it."""
    options = FORMS[os.environ["SEALPOINT_FORM"]]
    if "Postgres" in kind.__name__:  # their fixtures give the table another column
        options = {**options, "allow_schema": True}

    def seal(made: Any, store: Any) -> Any:
        SealedStore.__init__(made, store, serde=EncryptedSerializer(RingCipher(RING)), **options)
        return made

    class Wrapped(SealedStore):
        def __new__(cls, *args: Any, **keywords: Any) -> Any:
            store = kind(*args, **keywords)
            made = super().__new__(cls, store)
            made.__dict__["given"] = store
            return made

        def __init__(self, *_: Any, **__: Any) -> None:
            seal(self, self.__dict__.pop("given"))

        @classmethod
        def from_conn_string(cls, *args: Any, **keywords: Any) -> Any:
            def wrap(store: Any) -> Any:
                return seal(SealedStore.__new__(cls, store), store)

            found = kind.from_conn_string(*args, **keywords)
            return entered(found, wrap) if hasattr(found, "__enter__") else aentered(found, wrap)

        @property
        def _cursor(self) -> Any:
            return self.inner._cursor

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute; their fixtures set the migrations, which are the store's."""
            setattr(self.inner, name, value) if name == "MIGRATIONS" else super().__setattr__(name, value)

    shared = {
        name: getattr(kind, name) for name in ("MIGRATIONS", "VECTOR_MIGRATIONS") if hasattr(kind, name)
    }
    return type(kind.__name__, (Wrapped,), shared)


@contextmanager
def entered(manager: Any, wrap: Any) -> Any:
    """Enter what ``from_conn_string`` returns."""
    with manager as store:
        yield wrap(store)


@asynccontextmanager
async def aentered(manager: Any, wrap: Any) -> Any:
    """Async version of `entered`."""
    async with manager as store:
        yield wrap(store)


def _patch() -> None:
    loadable = vector_connections()
    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **more: connect(*args, **{"factory": loadable, **more})
    if os.environ["SEALPOINT_FORM"] == "plain":
        return
    modules = (
        *(langgraph.store.memory, langgraph.store.sqlite, langgraph.store.sqlite.aio),
        langgraph.store.postgres,
    )
    for module in modules:
        for name in (
            "InMemoryStore",
            "SqliteStore",
            "AsyncSqliteStore",
            "PostgresStore",
            "AsyncPostgresStore",
        ):
            if hasattr(module, name):
                setattr(module, name, wrapped(getattr(module, name)))


_patch()
