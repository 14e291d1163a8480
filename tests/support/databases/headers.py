"""The header of a checkpoint, packed as SealedSaver packs it."""

from __future__ import annotations

from typing import Any

from sealpoint.base.metadata import encode_metadata
from sealpoint.seal.rows import pack_header


def packed_header(header: Any) -> bytes:
    """Return the bytes in front of a document."""
    metadata = encode_metadata(header["metadata"], sealed=True, keep_surrogates="rebound" in header)
    return pack_header(header, metadata)
