"""Recovery: what a crash left in a ledger is completed, or cut off and shown. Anything else is refused.

| beyond the checkpoint | ``checkpoint.new`` | what is done |
|---|---|---|
| nothing | any | it is not used; the next entry replaces it |
| one line, the root of which it has | signed | it becomes the checkpoint |
| anything else, as long as one entry | signed, for one more entry | cut off, set aside and recorded |
| anything | missing or not signed | refused: the signer has not agreed to it |

What is cut off is the entry of a command that had not begun: an entry is on the disk before its effect.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from sealpoint.errors import LedgerTamperedError
from sealpoint.evidence.checkpoint import Checkpoint
from sealpoint.evidence.entry import MAX_BYTES
from sealpoint.evidence.folder import Folder, open_regular, read_lines
from sealpoint.evidence.note import VerifierKey
from sealpoint.keys.files import fsync_path, write_private
from sealpoint.merkle import Tree

_PENDING: Final = "entries.torn.new"
_MAX_PENDING: Final = 1 << 20


def recover(folder: Folder, checkpoint: Checkpoint, key: VerifierKey) -> Tree:
    """Check the entries of a ledger that is locked against its checkpoint, and repair what a crash left.

    Returns:
        The tree over the entries.

    Raises:
        LedgerTamperedError: If they do not belong together.
        OSError: If a file cannot be read or written.
    """
    with open_regular(folder.entries) as stream:
        tree = _read(read_lines(stream, checkpoint.size), checkpoint)
        whole = stream.tell()
        tail = stream.read(MAX_BYTES + 2)
    if not tail:
        return tree
    if _is_next(tail, tree, new := folder.read_new(key)):
        fsync_path(folder.entries)
        folder.new.replace(folder.checkpoint)
        fsync_path(folder.path)
        tree.add(tail[:-1])
        return tree
    if new is None or new.size != tree.size + 1 or len(tail) > MAX_BYTES + 1:
        raise LedgerTamperedError(
            f"{folder.entries} has lines after the {checkpoint.size} entries of its checkpoint"
        )
    _set_aside(folder, tail)
    os.truncate(folder.entries, whole)
    fsync_path(folder.entries)
    return tree


def _is_next(tail: bytes, tree: Tree, new: Checkpoint | None) -> bool:
    """Whether a tail is the one entry that the next head has more than a tree."""
    line, newline, rest = tail.partition(b"\n")
    if new is None or not newline or rest or new.size != tree.size + 1:
        return False
    longer = tree.copy()
    longer.add(line)
    return longer.root() == new.root


def pending(folder: Folder) -> bytes | None:
    """Return what was set aside and is not yet recorded.

    Raises:
        LedgerTamperedError: If it is not a regular file, or has over 1 MiB: more than interruptions leave.
    """
    file = folder.path / _PENDING
    try:
        with open_regular(file) as stream:
            data = stream.read(_MAX_PENDING + 1)
    except FileNotFoundError:
        return None
    if len(data) > _MAX_PENDING:
        raise LedgerTamperedError(f"{file} has over {_MAX_PENDING} bytes")
    return data


def name_torn(folder: Folder, size: int) -> None:
    """Give what was set aside its final name, once it is recorded as the last of ``size`` entries."""
    kept = folder.torn
    if kept.exists():
        kept = kept.with_name(f"{kept.name}.{size - 1}")
    (folder.path / _PENDING).replace(kept)
    fsync_path(folder.path)


def _read(lines: Iterable[bytes], checkpoint: Checkpoint) -> Tree:
    tree = Tree.of(lines)
    if tree.size < checkpoint.size:
        raise LedgerTamperedError(
            f"the ledger has {tree.size} entries, and its checkpoint was signed for {checkpoint.size}"
        )
    if tree.root() != checkpoint.root:
        raise LedgerTamperedError(
            f"the {tree.size} entries of the ledger are not those that its checkpoint was signed for"
        )
    return tree


def _set_aside(folder: Folder, tail: bytes) -> None:
    known = pending(folder) or b""
    # Interrupted before the tail was cut off, this runs again with the same tail.
    write_private(folder.path / _PENDING, known if known.endswith(tail) else known + tail)
    fsync_path(folder.path)
