"""The demo's key ring: fresh random keys, in a folder that only its owner can open."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from sealpoint.crypto import KeyState
from sealpoint.keys.material import check_value

ENTRY = """
[[key]]
id = "{id}"
state = "{state}"
created = {created}
check = "{check}"
source = {{ file = "{id}.key" }}
"""
INDEX = """
[[index]]
id = "index"
created = {created}
check = "{check}"
source = {{ file = "index.key" }}
"""


def write_ring(folder: Path, name: str, *, active: str, decrypt_only: tuple[str, ...] = ()) -> Path:
    """Write a ring file into ``folder``, and the key files that do not exist yet; return its path."""
    text = f'version = 1\nactive = "{active}"\n' + _entry(folder, active, KeyState.ACTIVE)
    text += "".join(_entry(folder, key_id, KeyState.DECRYPT_ONLY) for key_id in decrypt_only)
    text += _entry(folder, "index")
    ring = folder / name
    _write_private(ring, text.encode(), os.O_TRUNC)
    return ring


def _entry(folder: Path, key_id: str, state: KeyState | None = None) -> str:
    """Return the entry of a key, or without a state that of the index key."""
    file = folder / f"{key_id}.key"
    if not file.exists():
        _write_private(file, os.urandom(32), os.O_EXCL)
    created = datetime.fromtimestamp(int(file.stat().st_mtime), UTC).isoformat()
    check = check_value(file.read_bytes())
    if state is None:
        return INDEX.format(created=created, check=check)
    return ENTRY.format(id=key_id, state=state.value, created=created, check=check)


def _write_private(file: Path, data: bytes, flag: int) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | flag, 0o600), "wb") as stream:  # noqa: PTH123 -- a descriptor
        stream.write(data)
