"""The bridge: sealpoint's classes as instances of LangGraph's own base classes.

`StateGraph.compile` accepts only LangGraph's own checkpointers. Under ``LANGGRAPH_STRICT_MSGPACK=true`` it
also makes the checkpointer's serializer allow the types of the graph's schema, and replaces LangGraph's
encrypting serializer. Both serializers here are subclasses of LangGraph's JsonPlusSerializer, which it uses
as it is. `encryption` makes the object that LangGraph's Agent Server loads.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from langgraph.checkpoint.base import BaseCheckpointSaver as _LangGraphSaver
    from langgraph.checkpoint.base import EmptyChannelError
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as _LangGraphSerializer
except ImportError as error:
    raise ImportError("sealpoint.langgraph needs LangGraph: pip install 'sealpoint[langgraph]'") from error

from sealpoint import memory, sealed, serde, sqlite
from sealpoint.agentserver import Reading, Rules, ServerCipher
from sealpoint.base.checkpoint import empty_channel_errors
from sealpoint.base.sealing import arequire_sealing, require_sealing
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import ConfigError
from sealpoint.langgraph.cache import SealedCache
from sealpoint.langgraph.store import SealedStore
from sealpoint.serde.encrypted import PlaintextPolicy
from sealpoint.sqlite import aio
from sealpoint.threadpool import shared

if TYPE_CHECKING:
    from langgraph_sdk import Encryption, EncryptionContext

# Without the classes that are named as LangGraph's own: `import *` replaces no other import.
__all__ = [
    "EmptyChannelError",
    "SealedCache",
    "SealedSaver",
    "SealedStore",
    "arequire_sealing",
    "encryption",
    "require_sealing",
]

# The methods differ only in the names of their types, which is what the type checker reports below.
empty_channel_errors.add(EmptyChannelError)  # raised by LangGraph's channels


class JsonPlusSerializer(serde.JsonPlusSerializer, _LangGraphSerializer):  # type: ignore[misc]
    """`sealpoint.serde.JsonPlusSerializer` as a subclass of LangGraph's."""


class EncryptedSerializer(serde.EncryptedSerializer, _LangGraphSerializer):
    """`sealpoint.serde.EncryptedSerializer` as a subclass of LangGraph's JsonPlusSerializer."""


class SqliteSaver(sqlite.SqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.SqliteSaver` as one of LangGraph's savers."""


class AsyncSqliteSaver(aio.AsyncSqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.aio.AsyncSqliteSaver` as one of LangGraph's savers."""


class InMemorySaver(memory.InMemorySaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.memory.InMemorySaver` as one of LangGraph's savers."""


class SealedSaver(sealed.SealedSaver, _LangGraphSaver[Any]):  # type: ignore[misc]
    """`sealpoint.sealed.SealedSaver` as one of LangGraph's savers."""

    _absent = _LangGraphSaver


SealedCache.__module__ = __name__
SealedSaver.__doc__ = sealed.SealedSaver.__doc__  # what `help` is asked for
SealedStore.__module__ = __name__


def encryption(
    ring: KeyRing | RingCipher,
    *,
    plain_metadata: Collection[str] = (),
    bound_context: Collection[str] = (),
    plaintext: PlaintextPolicy = "refuse",
) -> Encryption:
    """Return the encryption of LangGraph's Agent Server, for ``"encryption"`` in ``langgraph.json``.

    Objects keep their keys, and each value is sealed and bound to its key. A value or blob under an older
    key is returned with its replacement under the active key, if the SDK has `DecryptResult`. All work is
    done on worker threads, so that no event loop waits for a file or for the source of a key.

    Args:
        ring: The keys, or a cipher, whose `RingCipher.stats` then also count what the server does.
        plain_metadata: Keys of ``metadata`` that stay readable: those that searches and the filters of an
            ``@auth.on`` handler use, such as ``owner``. They are not authenticated.
        bound_context: Keys of the encryption context to which all is bound, such as ``tenant_id``. A value
            opens only with the same texts there: name what never changes for a thread.
        plaintext: ``refuse``, or ``allow`` to read values and blobs that are not sealed, during a migration.

    Raises:
        ImportError: If langgraph-sdk is not installed, or has no `Encryption`.
        ConfigError: If an argument is invalid, or the installed Agent Server does not say which keys it
            stores readable.

    Example:
        >>> from sealpoint import KeyRing
        >>> from sealpoint.langgraph import encryption
        >>> my_encryption = encryption(KeyRing.load("keys.toml"))

        In ``langgraph.json``: ``"encryption": {"path": "./my_module.py:my_encryption"}``.
    """
    try:
        import langgraph_sdk
        from langgraph_sdk import Encryption
    except ImportError as error:
        raise ImportError("encryption() needs a newer SDK: pip install -U langgraph-sdk") from error
    server = ServerCipher(
        ring if isinstance(ring, RingCipher) else RingCipher(ring),
        _server_rules(),
        plain_metadata=plain_metadata,
        bound_context=bound_context,
        plaintext=plaintext,
    )
    with_replacement = getattr(langgraph_sdk, "DecryptResult", None)

    def result(reading: Reading) -> Any:
        if reading.replacement is None or with_replacement is None:
            return reading.plain
        return with_replacement(*reading)

    made = Encryption()

    @made.encrypt.blob
    async def encrypt_blob(ctx: EncryptionContext, blob: bytes) -> bytes:
        return await shared.run(server.seal_blob, ctx, blob)

    @made.decrypt.blob
    async def decrypt_blob(ctx: EncryptionContext, blob: bytes) -> Any:
        return result(await shared.run(server.open_blob, ctx, blob))

    @made.encrypt.json
    async def encrypt_json(ctx: EncryptionContext, data: dict[str, Any]) -> dict[str, Any]:
        return await shared.run(server.seal_object, ctx, data)

    @made.decrypt.json
    async def decrypt_json(ctx: EncryptionContext, data: dict[str, Any]) -> Any:
        return result(await shared.run(server.open_object, ctx, data))

    return made


def _server_rules() -> Rules:
    """Return which keys the installed Agent Server stores readable; none if it is not installed."""
    try:
        schema = import_module("langgraph_api.schema")
    except ImportError:
        return Rules()
    try:
        return Rules(
            keys=schema.NEVER_ENCRYPT_FIELDS_GLOBAL,
            paths=schema.NEVER_ENCRYPT_PATHS,
            nested=schema.NESTED_ENCRYPTED_SUBFIELDS,
        )
    except AttributeError as error:
        raise ConfigError(
            f"this release of langgraph-api does not list what it stores readable: {error}"
        ) from None
