"""Options of ormsgpack: what it packs and unpacks by itself, and what it asks for."""

from __future__ import annotations

from typing import Final

import ormsgpack

UNPACK: Final = ormsgpack.OPT_NON_STR_KEYS
# Without PASSTHROUGH ormsgpack writes such objects by itself, in forms that do not name their type.
PACK: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
PACK_REPLACING: Final = PACK | ormsgpack.OPT_REPLACE_SURROGATES
"""Writes ``?`` in place of a lone surrogate."""
