"""Access lists (POSIX ACLs) of files on Linux, which grant permissions beside the mode.

    version   u32, 2
    entries   tag u16, permissions u16 (read 4, write 2, execute 1), id of the account or group u32

Numbers are little-endian. A file has such a list only if it has entries for named accounts or groups. The
group bits of its mode are then the mask, which limits these entries and that of the file's own group.
Lists of other forms, such as those of NFSv4 and of macOS, are not read.

Sources: Linux, include/uapi/linux/posix_acl_xattr.h; acl(5)
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from pathlib import Path
from typing import Final, NamedTuple

USER: Final = 0x02
"""The tag of an entry for a named account."""

GROUP: Final = 0x08
"""The tag of an entry for a named group."""

_OWN_GROUP: Final = 0x04
_MASK: Final = 0x10
_NAME: Final = "system.posix_acl_access"
_VERSION: Final = struct.pack("<I", 2)
_ENTRY: Final = struct.Struct("<HHI")
_NONE: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.ENOSYS})


class Entry(NamedTuple):
    """An entry of an access list.

    Attributes:
        tag: Whom it is for; `USER` and `GROUP` have an id.
        bits: What it grants: read 4, write 2, execute 1.
        id: The account or group.
    """

    tag: int
    bits: int
    id: int


class AccessList(NamedTuple):
    """What an access list grants, limited by its mask.

    Attributes:
        own_group: What it grants to the group of the file.
        named: The entries for named accounts and groups.
    """

    own_group: int
    named: tuple[Entry, ...]


def read_access_list(descriptor: int) -> AccessList | None:
    """Return the access list of an open file; ``None`` if its mode says everything.

    Raises:
        OSError: If it cannot be read, or has another form.
    """
    data = _get(descriptor)
    if data is None:
        return None
    body = data[len(_VERSION) :]
    if not data.startswith(_VERSION) or len(body) % _ENTRY.size:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    entries = [Entry(*values) for values in _ENTRY.iter_unpack(body)]
    mask = next((entry.bits for entry in entries if entry.tag == _MASK), 7)
    own_group = next((entry.bits for entry in entries if entry.tag == _OWN_GROUP), 0)
    named = (entry._replace(bits=entry.bits & mask) for entry in entries if entry.tag in (USER, GROUP))
    return AccessList(own_group & mask, tuple(named))


def copy_access_list(source: Path, descriptor: int) -> None:
    """Give an open file the access list of another one, or none.

    Raises:
        OSError: If it cannot be read or written.
    """
    data = _get(source)
    if sys.platform == "linux":
        if data is not None:
            os.setxattr(descriptor, _NAME, data)
        elif _get(descriptor) is not None:  # from the folder
            os.removexattr(descriptor, _NAME)


def _get(file: int | Path) -> bytes | None:
    if sys.platform != "linux":
        return None
    try:
        return os.getxattr(file, _NAME)
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise
