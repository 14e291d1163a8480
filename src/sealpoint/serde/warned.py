"""Warnings that are given once per type, so that a log shows each of them and is not filled by them."""

from __future__ import annotations

import logging
from typing import Final

from sealpoint.errors import excerpt
from sealpoint.serde.limits import MAX_WARNINGS

logger: Final = logging.getLogger("sealpoint.serde")

_warned: set[tuple[str, str, str]] = set()


def warn_once(kind: str, module: str, name: str, message: str) -> None:
    """Log one warning per kind and type in this process, and at most a hundred in all."""
    key = (kind, module[:256], name[:256])
    if key in _warned or len(_warned) > MAX_WARNINGS:
        return
    _warned.add(key)
    if len(_warned) > MAX_WARNINGS:
        logger.warning("over %d types have been warned about; no more will be", MAX_WARNINGS)
    else:
        logger.warning("%s: %s", excerpt(f"{module}.{name}"), message)
