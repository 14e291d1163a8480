"""The module for zstd: imported only for a value that is compressed."""

from __future__ import annotations

from functools import cache
from typing import Any

from sealpoint.errors import MissingExtraError


@cache
def require_zstd() -> Any:
    """Return the module for zstd: of Python from 3.14 on, else of the extra.

    Raises:
        MissingExtraError: If there is none.
    """
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise MissingExtraError("backports.zstd", "zstd") from None
    return zstd
