"""One stored value: opened to its bytes, and checked where no key of ours vouches for them."""

from __future__ import annotations

from typing import Final

from sealpoint.crypto import RingCipher
from sealpoint.databases.rows import Cell, Unreadable
from sealpoint.errors import BlobError, PlaintextError, excerpt
from sealpoint.serde.kinds import JSON, MSGPACK, PICKLE, read_plain
from sealpoint.serde.legacy_json import parse_json
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan import require_few_costly, scan

_SEAL: Final = "if it is yours, seal it: sealpoint rotate DB --allow-plaintext --apply"
_READ_FIRST: Final = "it runs when it is read: if it is yours, read it with LangGraph and put it again sealed"


def open_cell(cipher: RingCipher, value: Cell, *, allow_plaintext: bool = False) -> tuple[str, bytes]:
    """Open one value: return its inner type and the serializer's bytes.

    Raises:
        PlaintextError: If it is not sealed, and that is not allowed.
        SealpointError: What `require_bytes` and `RingCipher.open` raise.
    """
    require_bytes(value)
    tag = value.tag
    if isinstance(tag, str) and "+" not in tag:
        if allow_plaintext:
            return tag, value.blob
        hint = _READ_FIRST if tag == PICKLE else _SEAL
        raise PlaintextError(f"value of type {excerpt(tag)} is not sealed", hint=hint)
    return cipher.open(tag, value.blob, row=value.row).typed


def require_bytes(value: Cell) -> None:
    """Refuse a value that has no bytes.

    Raises:
        BlobError: If the database cannot read them, or something else stands there.
    """
    if isinstance(value.blob, Unreadable):
        hint = "restore the row from backup; the log of the server says where it is damaged"
        raise BlobError("the database cannot read the value: its bytes are lost", hint=hint)
    if type(value.blob) is not bytes:
        raise BlobError(f"value is {type(value.blob).__name__}, not bytes")


def require_decodable(kind: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check bytes as a strict serializer does before it decodes them. Nothing is built of what they name.

    Raises:
        LimitError: If they are larger, deeper or have more elements than ``limits`` say.
        DecodeError: If they are not what ``kind`` says.
        UnknownTypeError: If ``kind`` is not one that is read without a key; ``pickle`` is not.
    """
    if kind == MSGPACK:
        require_few_costly(data, scan(data, limits), limits)
    elif kind == JSON:
        parse_json(data, lambda envelope: envelope, limits)
    else:
        read_plain(kind, data)
