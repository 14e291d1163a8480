"""The way back out: a copy of a SQLite database with nothing sealed in it, for LangGraph's plain saver."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import chain
from os import PathLike
from pathlib import Path

from sealpoint.crypto import RingCipher
from sealpoint.crypto.tag import LEGACY
from sealpoint.errors import OutputExistsError, OutputNameError, PlaintextError, StoppedError, excerpt
from sealpoint.maintenance.hold import holding
from sealpoint.maintenance.keyfiles import keep
from sealpoint.maintenance.rotate import rewrite_all
from sealpoint.maintenance.rows import BATCH, Batch, Event, Events, Failure, Selection, StoredValue, failure
from sealpoint.maintenance.sqlite_connection import copy_database
from sealpoint.maintenance.sqlite_rows import SqliteRows
from sealpoint.maintenance.stored import open_stored, require_decodable
from sealpoint.maintenance.verify import pages

_WITHOUT_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})  # file systems
_FILES = ("", "-journal", "-wal", "-shm")
_SEALED = Selection(plaintext=False)
_UNSEALED = "if such values are yours, take them over: allow_plaintext, or --allow-plaintext"
_HINT = "see what is there, and that this account may write to the folder"


def decrypt(
    source: str | PathLike[str],
    out: str | PathLike[str],
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    batch: Batch = BATCH,
) -> Events:
    """Write what ``source`` holds, opened, to the new file ``out``, readable by its owner alone.

    The source is read as it stands at one moment, and not changed. ``out`` appears when it is whole:
    a run that ends early, or meets a value that does not open, leaves none.

    Args:
        source: A SQLite file.
        out: Where the copy goes; there must be nothing yet.
        cipher: Opens with the keys of its ring.
        allow_plaintext: Copy values too that are not sealed; else each is a failure. In the copy
            nothing tells them from what a holder of the key wrote.
        batch: How much to change in one transaction.

    Yields:
        Progress after each batch; a failure for each value that does not open.

    Raises:
        OutputExistsError: If there is something at ``out``.
        OutputNameError: If that name is too long.
        HeldError: If another run writes to ``out``.
        StoppedError: If the disk is full. The run can be repeated.
    """
    source, out = Path(source), Path(out)
    _require_free(out)
    partial = out.with_name(f".{out.name}.partial")
    _require_short(out, Path(f"{partial}-journal"))
    with holding(out):
        _make_private(partial)
        try:
            with closing(SqliteRows(source)) as store:  # whose tables are checked
                copy_database(store.connection, partial)
            yield from _open_all(partial, out, _opener(cipher), batch, allow_plaintext=allow_plaintext)
        finally:
            _remove(partial)


def _require_free(out: Path) -> None:
    for suffix in _FILES:  # SQLite would take a log that is there for the copy's own
        file = Path(f"{out}{suffix}")  # a folder may have no name to change
        if os.path.lexists(file):
            raise OutputExistsError(f"{file} is there already")


def _require_short(out: Path, longest: Path) -> None:
    """Refuse a place for which one of the names beside it would be too long."""
    try:
        longest.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise OutputNameError(f"{excerpt(str(out))} is too long") from None


def _opener(cipher: RingCipher) -> Callable[[StoredValue], tuple[str, bytes]]:
    def open_value(value: StoredValue) -> tuple[str, bytes]:
        inner, data = open_stored(cipher, value)
        if value.tag.endswith(f"+{LEGACY}"):  # the key did not authenticate the type
            require_decodable(inner, data)
        return inner, data

    return open_value


def _make_private(partial: Path) -> None:
    try:
        _remove(partial)  # of a run that was killed
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoppedError(f"{partial} cannot be made: {os.strerror(error.errno or 0)}", hint=_HINT) from None


def _open_all(
    partial: Path,
    out: Path,
    change: Callable[[StoredValue], tuple[str, bytes]],
    batch: Batch,
    *,
    allow_plaintext: bool,
) -> Iterator[Event]:
    failed = False
    with closing(SqliteRows(partial, writable=True)) as store:
        unsealed = () if allow_plaintext else _unsealed(store, batch)
        for event in chain(unsealed, rewrite_all(store, change, _SEALED, batch)):
            failed = failed or isinstance(event, Failure)
            yield event
    if not failed:
        _put_in_place(partial, out)


def _unsealed(store: SqliteRows, batch: Batch) -> Iterator[Failure]:
    """Yield what nobody sealed: in the copy it would pass for what a holder of the key wrote."""
    if all(_SEALED.takes(count.tag) for count in store.count()):
        return
    for table in store.tables:
        for page in pages(store, table, batch=batch):
            for value in page.values:
                if not _SEALED.takes(value.tag):
                    message = f"value of type {excerpt(value.tag)} is not sealed"
                    error = PlaintextError(message, hint=_UNSEALED)
                    yield failure(value, error)


def _put_in_place(partial: Path, out: Path) -> None:
    _require_free(out)
    keep(partial)
    _name(partial, out)
    keep(out.parent)


def _name(partial: Path, out: Path) -> None:
    """Give the copy its name, and take it from nobody who came first."""
    try:
        try:
            os.link(partial, out)
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            os.close(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            partial.replace(out)
    except FileExistsError:
        raise OutputExistsError(f"{out} is there already") from None


def _remove(partial: Path) -> None:
    for suffix in _FILES:
        with suppress(FileNotFoundError):
            partial.with_name(partial.name + suffix).unlink()
