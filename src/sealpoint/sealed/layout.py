"""The layout of a wrapped saver, and checks of arguments of SealedSaver, SealedStore and SealedCache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from sealpoint.base.metadata import decode_mapping, decode_metadata, encode_metadata
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import ConfigError, SealingError, require_is
from sealpoint.seal.layouts import Inline, Rows, Values, Whole
from sealpoint.serde import EncryptedSerializer

# How the core reads and writes metadata as JSON.
CODEC: Final[Mapping[str, Any]] = {
    "encode_metadata": encode_metadata,
    "decode_metadata": decode_metadata,
    "decode_mapping": decode_mapping,
}

_NAMES: Final[dict[str, type[Rows]]] = {each.layout: each for each in (Whole, Inline, Values)}
_CLASSES: Final[dict[str, type[Rows]]] = {
    "langgraph.checkpoint.sqlite.SqliteSaver": Whole,
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": Whole,
    "sealpoint.sqlite.saver.SqliteSaver": Whole,
    "sealpoint.sqlite.SqliteSaver": Whole,
    "langgraph.checkpoint.postgres.base.BasePostgresSaver": Inline,
    "langgraph.checkpoint.memory.InMemorySaver": Values,
}


def layout_of(saver: Any, layout: str, serde: Any) -> type[Rows]:
    """Return the layout class of a saver: by the saver's class for ``auto``, else by the name ``layout``.

    ``serde`` is checked by `require_ring`.
    """
    require_instance(saver, "saver", ("get_tuple", "aget_tuple"), "SealedSaver(SqliteSaver(connection), ...)")
    require_ring(serde)
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(saver).__mro__]
    if any("Shallow" in name for name in names):
        raise ConfigError(
            f"{type(saver).__name__} stores no checkpoint ids, so its values cannot be bound to rows",
            hint="use PostgresSaver or AsyncPostgresSaver",
        )
    if layout != "auto":
        if layout not in _NAMES:
            raise ConfigError(f"layout is {layout!r}, not one of {', '.join(['auto', *_NAMES])}")
        return _NAMES[layout]
    for name in names:
        if name in _CLASSES:
            return _CLASSES[name]
    if hasattr(saver, "UPSERT_CHECKPOINT_BLOBS_SQL"):  # kin of PostgresSaver, such as those for MySQL
        return Inline
    raise ConfigError(
        f"the layout of {type(saver).__name__} is not known",
        hint=(
            "pass layout='whole' if its serializer gets the whole checkpoint, 'inline' if it stores text and"
            " numbers outside of it, 'values' if its serializer gets each value and the metadata"
        ),
    )


def require_ring(serde: Any) -> KeyRing:
    """Return the ring of a serializer that can bind a value to its row."""
    require_is(serde, EncryptedSerializer, "serde", "create one: EncryptedSerializer.from_key_file(PATH)")
    if not isinstance(serde.cipher, RingCipher):
        raise SealingError(f"{type(serde.cipher).__name__} cannot bind a row", hint="use RingCipher")
    return serde.cipher.ring


def require_instance(wrapped: Any, kind: str, methods: Sequence[str], example: str) -> None:
    """Refuse a class, a context manager, or an object that lacks a method; ``example`` is a valid call."""
    if isinstance(wrapped, type):
        problem = f"{wrapped.__name__} is a class, not a {kind}"
    elif any(hasattr(wrapped, name) for name in methods):
        return
    elif type(wrapped).__module__ == "contextlib":
        entered = "with" if isinstance(wrapped, AbstractContextManager) else "async with"
        raise ConfigError(
            f"the {kind} is a context manager, as `from_conn_string` returns it, and has not been entered",
            hint=f"enter it first: {entered} ... as {kind}: {example.partition('(')[0]}({kind}, ...)",
        )
    else:
        problem = f"{type(wrapped).__name__} is not a {kind}"
    raise ConfigError(problem, hint=f"wrap a {kind}: {example}")
