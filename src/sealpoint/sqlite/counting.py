"""Counting of the errors that SqliteSaver raises, as SealedSaver counts its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sealpoint.errors import SealpointError
from sealpoint.serde import EncryptedSerializer, SerializerProtocol

P = ParamSpec("P")
R = TypeVar("R")


class _Saver(Protocol):
    @property
    def serde(self) -> SerializerProtocol: ...


S = TypeVar("S", bound=_Saver)


def count(saver: _Saver, error: SealpointError) -> None:
    """Count an error with those of the saver's cipher, if it has one and the error is not counted yet."""
    if isinstance(saver.serde, EncryptedSerializer):
        saver.serde.tally.refuse(error)


def counted(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Have the errors of a saver's method counted."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except SealpointError as error:
            count(self, error)
            raise

    return call
