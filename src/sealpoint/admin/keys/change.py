"""Changing a ring file: the file is locked, and replaced as a whole.

The new file is read back before it replaces the old file, so an interrupted command leaves either the old or
the new ring, and can be repeated. A file that was changed by hand meanwhile is not replaced.

Comments, order and spaces are preserved. A change is made twice, in the text and in the table parsed from it,
and is accepted only if the new text parses to exactly the changed table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from sealpoint.admin.keys import files
from sealpoint.admin.keys.lock import holding
from sealpoint.errors import FilePermissionsError, HeldError, MissingExtraError, RingFileError
from sealpoint.keys.entry import RingEntry
from sealpoint.keys.files import read_private
from sealpoint.keys.ringfile import SHARED, RingFile, find_ring_file, parse_toml
from sealpoint.seal.keys import active_id
from sealpoint.utc import format_utc

# Raises an error if a key must not change its state. Called with the ring and the key's entry while the
# ring file is locked, before any change.
Precondition = Callable[[RingFile, RingEntry], object]

# Changes a ring, given as nested mappings and lists. The second argument parses TOML.
Change = Callable[[Any, Callable[[str], Any]], None]

NEW_RING: Final = """\
# A sealpoint key ring. It contains no secrets: only ids, states, dates, check values
# and where the material is. Change it with `sealpoint keys`, or by hand.

version = 1
{active} # the only key that seals; every other usable key only opens

# state     seals  opens   meaning
# staged      no    yes    generate: copy it to every host before one host seals with it
# active      yes   yes    promote a staged (or decrypt-only) key
# decrypt-only no   yes    was active until another key was promoted
# disabled    no    no     disable: should no longer be needed; enable undoes it
# compromised no    yes    compromise: may be known to an attacker; never seals again
# destroyed   no    no     destroy: no longer usable; the entry reserves the id

"""

_VERSION: Final = re.compile(r"^version[ \t]*=.*\n", re.MULTILINE)


class LockedRing:
    """A ring file that is locked, so that no other command changes it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.parsed = RingFile(file)
        self.entries = self.parsed.entries
        # Name for a ring without a name, written with its first wrapped key.
        self.name = self.parsed.wrappers.ring or f"ring-{token_hex(4)}"

    @property
    def taken_ids(self) -> list[str]:
        """The ids in use: of all keys, including destroyed keys, of the index key, and of wrappers."""
        index = [] if self.parsed.index_id is None else [self.parsed.index_id]
        return [*(entry.id for entry in self.entries), *index, *self.parsed.wrappers.by_id]

    def replace(self, change: Change) -> LockedRing:
        """Replace the ring file by the changed ring; refuse if it was changed by hand since it was read."""
        fresh = files.write_private(
            self.file.with_name(f".{self.file.name}.new"), self._changed(change), self.file
        )
        try:
            RingFile(fresh)
            # The lock does not exclude editors: compare bytes to detect a change by hand.
            if read_private(self.file, forbidden=SHARED) != self.parsed.data:
                raise HeldError(
                    f"{self.file} was changed by hand during this command",
                    hint="check the change, then run the same command again",
                )
            fresh.replace(self.file)
        finally:
            fresh.unlink(missing_ok=True)
        # fsync the folder: a power failure must not undo the rename, as `destroy` next removes a key file.
        files.fsync_path(self.file.parent)
        return LockedRing(self.file)

    def _changed(self, change: Change) -> bytes:
        text, wanted = self.parsed.data.decode(), deepcopy(self.parsed.table)
        change(wanted, tomllib.loads)
        fresh = {
            field: value
            for field, value in wanted.items()
            if field not in self.parsed.table and isinstance(value, str)
        }
        # Insert below the version: tomlkit would add new fields of the ring below the comment about states.
        lines = "".join(f"{field} = {_quote(value)}\n" for field, value in fresh.items())
        text = text if text.endswith("\n") else f"{text}\n"
        new = _rewritten(_VERSION.sub(lambda found: found[0] + lines, text, count=1), change)
        if new is None or parse_toml(new.encode()) != wanted:
            raise RingFileError(
                f"the layout of {self.file} cannot be changed without loss",
                hint="write the keys as [[key]] entries, one after another, or change the ring file by hand",
            )
        return new.encode()


def _rewritten(text: str, change: Change) -> str | None:
    """Return the changed text of a ring file; ``None`` if tomlkit does not preserve the rest of the text."""
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
        from tomlkit.items import AoT
    except ModuleNotFoundError:
        raise MissingExtraError("tomlkit", "cli") from None
    with suppress(TOMLKitError):  # drop the message, which may quote an inline key
        ring: Any = tomlkit.parse(text)
        keys = ring.get("key", AoT([]))
        if tomlkit.dumps(ring) != text or not isinstance(keys, AoT):
            return None
        # Comments after an entry belong to the next entry or the file, so they are not moved with the entry.
        tails = [_take_tail(entry) for entry in keys]
        last = keys[-1] if tails else None
        change(ring, tomlkit.parse)
        if last is not None and len(keys) > len(tails):
            last.add(tomlkit.nl())
            tails[-1:] = [[], tails[-1]]
        for entry, tail in zip(keys, tails, strict=True):
            entry.value.body.extend(tail)
        return tomlkit.dumps(ring)
    return None


def _take_tail(entry: Any) -> list[Any]:
    """Remove the comments and blank lines after the last field of an entry, and return them."""
    body = entry.value.body
    while body and hasattr(body[-1][1], "is_table") and body[-1][1].is_table():
        body = body[-1][1].value.body
    tail: list[Any] = []
    while body and body[-1][0] is None:
        tail.insert(0, body.pop())
    return tail


@contextmanager
def lock_ring(path: str | PathLike[str] | None) -> Iterator[LockedRing]:
    """Lock and read a ring file."""
    file = find_ring_file(path)
    if file.is_symlink():  # rename would replace the link, not its target
        hint = "change the original, such as the mounted Secret or ConfigMap, and deploy it again"
        raise FilePermissionsError(f"{file} is a symbolic link", hint=hint)
    with lock_folder(file):
        yield LockedRing(file)


@contextmanager
def lock_folder(file: Path) -> Iterator[None]:
    """Lock a ring file, which need not exist; refuse a folder that every account can write to."""
    if not os.access(file.parent, os.W_OK | os.X_OK):
        if file.parent.is_dir() and os.statvfs(file.parent).f_flag & os.ST_RDONLY:
            raise files.read_only(file.parent)
        raise FilePermissionsError(
            f"this account cannot write to {file.parent}", hint="run this as the account that owns the ring"
        )
    files.require_unshared(file.parent)
    with holding(file):
        yield


def find_key(tree: Any, key_id: str) -> Any:
    """Return the TOML table of a key in a parsed ring file."""
    return next(entry for entry in tree["key"] if entry["id"] == key_id)


def now_in_seconds() -> datetime:
    """Return the current time in the form of ring files: UTC, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def entry_text(table: str, fields: Mapping[str, str | datetime | None], source: str) -> str:
    """Return an entry ``[[table]]`` as TOML; its last line is ``source``. Omits fields that are ``None``."""
    lines = [
        f"{field} = {format_utc(value) if isinstance(value, datetime) else _quote(value)}"
        for field, value in fields.items()
        if value is not None
    ]
    return "\n".join([f"[[{table}]]", *lines, source, ""])


def wrapped_text(blob: bytes, by: str, version: str | None, left: str | None = None) -> str:
    """Return the ``source`` line of a wrapped key; ``left`` is a key file that must still be removed."""
    fields = {"wrapped": b64encode(blob).decode(), "by": by, "version": version, "left": left}
    shown = (f"{field} = {_quote(text)}" for field, text in fields.items() if text and text.isprintable())
    return f"source = {{ {', '.join(shown)} }}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # JSON of printable text is valid TOML


def ring_digest(entries: Iterable[RingEntry]) -> str:
    """Return the SHA-256 over the key entries of a ring, as ``sha256:`` and 64 hexadecimal digits.

    The hashed text has a line of ASCII JSON for each key: ``[id, state, suite, check, source, location]``.
    The lines are sorted, and each ends with a newline. Key material and dates are not included.
    """
    lines = sorted(
        json.dumps([entry.id, entry.state.value, entry.suite, entry.check, entry.source, entry.location])
        for entry in entries
    )
    return "sha256:" + hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def describe_ring(entries: Sequence[RingEntry]) -> dict[str, Any]:
    """Return the digest of a ring and its active key id, as members of JSON results and ledger entries."""
    return {"digest": ring_digest(entries), "active": active_id(entries)}
