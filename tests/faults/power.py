"""A model of a disk that loses power: what a folder may hold afterwards.

What was not flushed may be there or not, for each file on its own: an older content, half of a write, or all.
Names are changed in order, so that the folder has them as they were after one of the changes. Flushing a file
does not flush its name, nor the other way round: POSIX says no more than that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

STEPS = ("open", "write", "fsync", "replace", "unlink", "truncate", "ftruncate")


class Killed(BaseException):
    """Ends a writer, as a signal does: nothing of it catches this."""


class Disk:
    """Follows the calls that change the files of a folder, which really happen.

    Attributes:
        left: Steps until the writer is killed, in the middle of one that writes; negative if it is not.
    """

    def __init__(self, folder: Path, after: Callable[[], None]) -> None:
        """Start with files that are all on the disk; ``after`` is called after each step."""
        self._folder, self._after = folder, after
        self.left, self._patches = -1, ExitStack()
        self._contents = dict[int, list[bytes]]()  # by inode, what it had since it was flushed
        self._pinned = list[int]()  # so that no inode is used twice
        self._names = list[dict[str, int]]()
        self._look()
        self._names = self._names[-1:]
        self._contents = {inode: each[-1:] for inode, each in self._contents.items()}

    def __enter__(self) -> Self:
        for name in STEPS:
            self._patches.enter_context(patch.object(os, name, self._wrapped(getattr(os, name))))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        for descriptor in self._pinned:
            os.close(descriptor)

    def states(self) -> Iterator[Mapping[str, bytes]]:
        """Yield what the folder may hold if power fails now."""
        for names in self._names:
            contents = [self._possible(inode) for inode in names.values()]
            for each in product(*contents):
                yield dict(zip(names, each, strict=True))

    def _possible(self, inode: int) -> set[bytes]:
        known = self._contents[inode]
        torn = set[bytes]()
        for old, new in pairwise(known):
            same = next(
                (place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
                len(old),
            )
            half = same + (len(new) - same) // 2
            torn.add(new[:half] + old[half:])
        return torn | set(known)

    def _wrapped(self, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if genuine.__name__ == "open" and not arguments[1] & (os.O_CREAT | os.O_TRUNC):
                return genuine(*arguments, **options)
            if self.left == 0:
                if genuine.__name__ == "write":
                    genuine(arguments[0], arguments[1][: len(arguments[1]) // 2])
                    self._look()
                    self._after()
                raise Killed
            self.left -= 1
            if genuine.__name__ == "fsync":
                self._look()
            done = genuine(*arguments, **options)
            if genuine.__name__ == "fsync":
                self._flush(os.fstat(arguments[0]))
            self._look()
            self._after()
            return done

        return call

    def _flush(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            self._names = self._names[-1:]
        else:
            self._contents[status.st_ino] = self._contents[status.st_ino][-1:]

    def _look(self) -> None:
        names = dict[str, int]()
        for file in self._folder.iterdir():
            if file.is_file():
                names[file.name] = inode = file.stat().st_ino
                if inode not in self._contents:
                    self._pinned.append(_open(file, os.O_RDONLY))
                    self._contents[inode] = [b""]
                if self._contents[inode][-1] != (content := file.read_bytes()):
                    self._contents[inode].append(content)
        if not self._names or self._names[-1] != names:
            self._names.append(names)


_open = os.open
