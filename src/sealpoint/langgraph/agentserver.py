"""The encryption of LangGraph's Agent Server: its handlers, which call `sealpoint.agentserver`."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sealpoint.agentserver import Reading, Rules, ServerCipher
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import ConfigError
from sealpoint.serde.encrypted import PlaintextPolicy
from sealpoint.threadpool import shared

if TYPE_CHECKING:
    from langgraph_sdk import Encryption, EncryptionContext


def encryption(
    ring: KeyRing | RingCipher,
    *,
    plain_metadata: Collection[str] = (),
    bound_context: Collection[str] = (),
    plaintext: PlaintextPolicy = "refuse",
) -> Encryption:
    """Return the encryption of LangGraph's Agent Server, for ``"encryption"`` in ``langgraph.json``.

    JSON objects keep their keys, and each value is sealed and bound to its key. A value or blob under an old
    key is returned with its replacement under the active key, if the SDK has `DecryptResult`. All work is
    done on worker threads, so that no event loop waits for a file or for the source of a key.

    Args:
        ring: The keys, or a cipher, whose statistics (`RingCipher.stats`) then include the server's values.
        plain_metadata: Keys of ``metadata`` that stay readable, for searches and the filters of an
            ``@auth.on`` handler, such as ``owner``. They are not authenticated.
        bound_context: Keys of the encryption context to which every value is bound, such as ``tenant_id``. A
            value opens only if their texts are as at sealing: choose those that never change for a thread.
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
    """Return the JSON keys that the installed Agent Server stores readable; empty if it is not installed."""
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
            f"this release of langgraph-api does not list the keys that it stores readable: {error}"
        ) from None
