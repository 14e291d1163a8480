"""Metadata with a sealed value in it, as a saver that seals metadata writes it."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sealpoint.crypto import RingCipher
from sealpoint.seal.places import METADATA

KEY = "__sealpoint__"
PLAIN = {"source": "loop", "step": 1, "parents": {}, "user_id": "zoë"}
BODY = b"\x81\xa4user\xa5alice"


def sealed(cipher: RingCipher, *key: str, body: bytes = BODY) -> dict[str, str]:
    """What stands under the key: a value that is bound to its row."""
    row = METADATA.row(dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), key, strict=True)))
    tag, blob = cipher.seal("msgpack", body, row=row)
    return {"type": tag, "value": b64encode(blob).decode()}


def document(frame: Any, **more: Any) -> str:
    """Metadata with ``frame`` in it."""
    return json.dumps({**PLAIN, **more, KEY: frame}, ensure_ascii=False)


def put_metadata(path: Path, make: Callable[..., Any], rows: str = "1") -> None:
    """Replace the metadata of rows of a SQLite file by what ``make`` returns for their key."""
    columns = "thread_id, checkpoint_ns, checkpoint_id, rowid"
    with closing(sqlite3.connect(path)) as connection, connection:
        for *key, row_id in connection.execute(f"SELECT {columns} FROM checkpoints WHERE {rows}").fetchall():
            connection.execute("UPDATE checkpoints SET metadata = ? WHERE rowid = ?", (make(*key), row_id))
