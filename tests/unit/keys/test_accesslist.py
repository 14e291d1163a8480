"""Access lists (POSIX ACLs) on files with keys: real ones, written as setfacl writes them."""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from sealpoint.admin.keys import edit
from sealpoint.crypto import KeyRing
from sealpoint.errors import FilePermissionsError
from sealpoint.keys.files import read_private
from sealpoint.keys.sources import parse_source
from tests.support.keys.rings import NEW, ring_text, states_text, write, write_ring
from tests.unit.keys.conftest import needs_root, outcome_as

if sys.platform != "linux":
    pytest.skip("access lists of this form are of Linux", allow_module_level=True)

ACCOUNT, OWN_GROUP, OTHER, OTHER_GROUP = 12345, 23456, 34567, 45678
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS: Final = {"user": 0x01, "u": 0x02, "group": 0x04, "g": 0x08, "mask": 0x10, "other": 0x20}


def packed(text: str) -> bytes:
    """An access list as the kernel stores it, of text like ``user:6 u1000:4 group:0 mask:4 other:0``."""
    data = struct.pack("<I", 2)
    for part in text.split():
        name, bits = part.split(":")
        tag = name if name in TAGS else name[0]
        number = int(name[1:]) if name not in TAGS else 0xFFFFFFFF
        data += struct.pack("<HHI", TAGS[tag], int(bits), number)
    return data


def give(path: Path, text: str, kind: str = ACCESS) -> Path:
    """Give a file an access list."""
    try:
        os.setxattr(path, kind, packed(text))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("the file system of the temporary folder has no access lists")
    return path


def list_of(path: Path) -> bytes | None:
    try:
        return os.getxattr(path, ACCESS)
    except OSError:
        return None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def of_root(path: Path) -> Path:
    """Make a file one of root and its group: the group bits of its mode are no reason to refuse it."""
    if os.geteuid() == 0:
        os.chown(path, 0, 0)
    return path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"user:6 u{OTHER}:4 group:0 mask:7 other:0", f"user {OTHER} can read it"),
        (f"user:6 u{OTHER}:2 group:0 mask:7 other:0", f"user {OTHER} can write it"),
        (f"user:6 u{OTHER}:1 group:0 mask:7 other:0", f"user {OTHER} can execute it"),
        (f"user:6 u{os.geteuid()}:4 u{OTHER}:4 group:0 mask:7 other:0", f"user {OTHER} can read it"),
        (f"user:6 group:0 g{OTHER_GROUP}:4 mask:7 other:0", f"group {OTHER_GROUP} can read it"),
        (f"user:6 u{OTHER}:7 group:0 mask:0 other:0", None),
        (f"user:6 u{OTHER}:0 group:0 mask:7 other:0", None),
        ("user:6 u0:7 group:0 mask:7 other:0", None),
        (f"user:6 u{os.geteuid()}:7 group:0 mask:7 other:0", None),
    ],
)
def test_entry_of_another_account_is_refused_if_it_grants_anything(
    tmp_path: Path, text: str, problem: str | None
) -> None:
    """With mode 0640 and a group of root it once passed: the group bits are only the mask."""
    path = give(of_root(write(tmp_path / "k", NEW)), text)
    if problem is None:
        assert read_private(path) == NEW
    else:
        with pytest.raises(FilePermissionsError, match=problem) as caught:
            read_private(path)
        assert "setfacl -x" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (f"user:6 u{OTHER}:4 group:4 mask:4 other:4", True),
        (f"user:6 u{OTHER}:6 group:4 mask:4 other:4", True),
        (f"user:6 u{OTHER}:4 group:4 mask:6 other:4", True),
        (f"user:6 u{OTHER}:6 group:4 mask:6 other:4", False),
        (f"user:6 group:4 g{OTHER_GROUP}:2 mask:6 other:4", False),
        (f"user:6 u{OTHER}:4 group:6 mask:6 other:4", False),
    ],
)
def test_ring_file_may_be_readable_and_not_writable(tmp_path: Path, text: str, allowed: bool) -> None:
    """Nor readable if it has a key in it."""
    path = give(of_root(write_ring(tmp_path, ring_text())), text)
    if allowed:
        assert KeyRing.load(path).active_id == "k1"
        write(path, states_text(k1="active"))
        give(path, text)
    with pytest.raises(FilePermissionsError, match="can read it" if allowed else "write it"):
        KeyRing.load(path)


RULE = [
    # owner, group, access list, whether ACCOUNT of OWN_GROUP may use the file
    (0, 0, f"user:4 u{ACCOUNT}:4 group:0 mask:4 other:0", True),  # a credential of systemd
    (0, 0, f"user:4 u{ACCOUNT}:4 u{OTHER}:4 group:0 mask:4 other:0", False),
    (0, 0, f"user:4 group:0 g{OWN_GROUP}:4 mask:4 other:0", True),
    (0, 0, f"user:4 group:0 g{OWN_GROUP}:6 mask:6 other:0", False),
    (0, 0, f"user:4 u{ACCOUNT}:4 group:0 g{OTHER_GROUP}:4 mask:4 other:0", False),
    (0, OWN_GROUP, f"user:4 u{OTHER}:4 group:4 mask:4 other:0", False),
    (0, OWN_GROUP, f"user:4 u{OTHER}:0 group:4 mask:4 other:0", True),
    (0, OTHER_GROUP, f"user:4 u{ACCOUNT}:4 group:4 mask:4 other:0", False),
    (0, OTHER_GROUP, f"user:4 u{ACCOUNT}:4 group:0 mask:4 other:0", True),
    (ACCOUNT, OWN_GROUP, f"user:4 u{ACCOUNT}:4 u0:4 group:0 mask:4 other:0", True),
    (ACCOUNT, OWN_GROUP, f"user:4 group:0 g{OWN_GROUP}:4 mask:4 other:0", False),
    (ACCOUNT, OWN_GROUP, f"user:4 u{OTHER}:4 group:0 mask:4 other:0", False),
]


@needs_root
@pytest.mark.parametrize(("owner", "group", "text", "allowed"), RULE)
def test_rule_for_another_account(owner: int, group: int, text: str, allowed: bool) -> None:
    with TemporaryDirectory() as name:  # the folders above a pytest folder are root's alone
        path = Path(name) / "k1"
        os.chown(write(path, NEW), owner, group)
        give(path, text)
        path.parent.chmod(0o755)
        outcome = outcome_as(ACCOUNT, [OWN_GROUP], lambda: parse_source({"file": "k1"}).read(path.parent))
    assert outcome == ("ok" if allowed else "FilePermissionsError")


# --- files that commands write ----------------------------------------------------------------


def test_default_list_of_a_folder_opens_no_file(tmp_path: Path) -> None:
    """Of the permissions that a folder gives its new files, none are left on a file that is made private.

    Also if the folder got its list after the ring was made.
    """
    for folder, is_late in (("a", False), ("b", True)):
        ring = tmp_path / folder / "keys.toml"
        ring.parent.mkdir(mode=0o755)
        default = f"user:7 u{OTHER}:7 group:7 mask:7 other:0"
        if not is_late:
            give(ring.parent, default, DEFAULT)
        edit.create_ring(ring, "k1")
        if is_late:
            give(ring.parent, default, DEFAULT)
        edit.stage_key(ring, "k2")
        for file in (ring.parent / "keys.d").glob("*.key"):
            assert mode(file) == 0o600
            assert len(read_private(file)) > 0
        assert mode(ring) & 0o022 == 0
        assert KeyRing.load(ring).ids == ("k1", "k2")
        if is_late:
            assert (list_of(ring), mode(ring)) == (None, 0o644)


def test_changed_ring_keeps_its_list(tmp_path: Path) -> None:
    """Otherwise an agent could not read the ring any more, and the group of the file could."""
    ring = tmp_path / "keys.toml"
    edit.create_ring(ring, "k1")
    ring.chmod(0o600)
    give(ring, f"user:6 u{OTHER}:4 group:0 mask:4 other:0")
    before = list_of(ring), mode(ring)
    edit.stage_key(ring, "k2")
    assert (list_of(ring), mode(ring)) == before
