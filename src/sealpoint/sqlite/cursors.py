"""Cursors for our statements on a connection whose factories belong to the application."""

from __future__ import annotations

import sqlite3
from typing import Any

from sealpoint.errors import TextError
from sealpoint.sqlite import guard


def own_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor with tuples as rows and `str` as text, independent of the application's factories."""
    factory = connection.text_factory
    if factory is not str and not isinstance(factory, _Text):
        connection.text_factory = _Text(factory)
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


class _Text:
    """The text factory of the application, except on a thread that runs a statement of this package.

    Python's sqlite3 has one per connection, and calls it when a row is fetched.
    """

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __call__(self, text: bytes) -> Any:
        if not guard.is_ours():
            return self._theirs(text)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise TextError("a row contains text that is not UTF-8") from None
