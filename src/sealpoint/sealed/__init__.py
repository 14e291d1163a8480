"""SealedSaver: a wrapper that seals everything a saver stores, each value bound to its row."""

from sealpoint.sealed.carrier import Sealable
from sealpoint.sealed.saver import SealedSaver

SealedSaver.__module__ = __name__

__all__ = ["Sealable", "SealedSaver"]
