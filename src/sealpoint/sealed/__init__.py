"""SealedSaver: a wrapper that seals everything a saver stores, each value bound to its row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.seal.carrier import Sealable
    from sealpoint.sealed.saver import SealedSaver
else:
    __getattr__ = on_demand(
        __name__,
        {
            "seal.carrier": "Sealable",
            "sealed.saver": "SealedSaver",
        },
    )

__all__ = ["Sealable", "SealedSaver"]
