"""Rebinding in tests: over a SQLite file or a Postgres database, by path or DSN."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from sealpoint.admin.databases.kinds import WholeRowStore
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.sqlite.rows import SqliteWholeRows
from sealpoint.admin.maintenance.rebind import RebindOptions, Visible, rebind, sealing_sentinels
from sealpoint.admin.results.events import Event
from sealpoint.crypto import RingCipher
from tests.support.databases.sealed import failures


def open_whole(place: str, cipher: RingCipher, options: RebindOptions) -> WholeRowStore:
    """Open a database, as a job does."""
    if "=" not in place:
        return SqliteWholeRows(place, writable=True, thread_id=options.thread_id)
    sentinel = None if options.unbind else sealing_sentinels(cipher)
    return PostgresWholeRows(place, writable=True, thread_id=options.thread_id, sentinel=sentinel)


def run(place: object, cipher: RingCipher, **named: Any) -> list[Event]:
    """Rebind, or unbind, to the end."""
    options = RebindOptions(**named)
    with closing(open_whole(str(place), cipher, options)) as store, store.hold():
        events = list(rebind(store, cipher, options))
        if options.unbind:
            store.remove_sentinels()
    return events


def rebound(place: object, cipher: RingCipher, **named: Any) -> None:
    """Rebind, or unbind; nothing is refused."""
    assert failures(run(place, cipher, **named)) == []


def visible(*plain: str, indexed: tuple[str, ...] = ()) -> Visible:
    return Visible(frozenset(plain), frozenset(indexed))
