"""Key ids, and the lengths of keys."""

from __future__ import annotations

import re
from typing import Final

from sealpoint.errors import KeyIdError, excerpt

KEY_BYTES: Final = 32

LEGACY: Final = "aes"
"""The suite of LANGGRAPH_AES_KEY, which only opens LangGraph's own rows."""

LEGACY_KEY_BYTES: Final = (16, 24, 32)

KEY_ID: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,23}")


def require_key_id(key_id: object) -> str:
    """Return ``key_id``.

    Raises:
        KeyIdError: If it is not a string of 1 to 24 of ``a-z``, ``0-9``, ``.`` and ``-``, beginning with a
            letter or a digit.
    """
    if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
        raise KeyIdError(f"{excerpt(key_id)} is not a key id")
    return key_id
