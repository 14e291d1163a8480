"""EncryptedSerializer: seals every value that a saver passes to its serializer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any, Final, Literal, Self

from sealpoint.crypto import Key, KeyRing, KeyState, Opened, PackedRow, RingCipher, Row
from sealpoint.crypto.cipher import PLAINTEXT, CipherTally
from sealpoint.crypto.zstd import ZSTD, require_zstd
from sealpoint.errors import (
    BlockedTypeError,
    ConfigError,
    Omitted,
    PlaintextError,
    SealedValueError,
    SealingError,
    SealpointError,
    TagError,
    UnauthenticatedTypeError,
    UnknownTypeError,
    excerpt,
    require_is,
)
from sealpoint.seal.tag import PICKLE, SEALED_MARK, is_sealed
from sealpoint.serde.base import (
    AllowlistSerializer,
    CipherProtocol,
    SealAwareSerializer,
    SerializerProtocol,
    maybe_add_typed_methods,
)
from sealpoint.serde.catalogue import AllowedModules
from sealpoint.serde.classes import logger
from sealpoint.serde.jsonplus import FROM_ENVIRONMENT, JsonPlusSerializer

PlaintextPolicy = Literal["refuse", "allow"]
Compression = Literal["zstd"]

# Placeholder for the default serializer, created with each instance because it reads the environment.
_DEFAULT: Final = JsonPlusSerializer()
_warned_plaintext: set[str] = set()
_CIPHER_HINT: Final = (
    "use from_key(KEY) for a key, from_key_file(PATH) for a ring file, RingCipher(ring) for a ring"
)


class _Unbound:
    """Adapter for a cipher with only LangGraph's two methods, which authenticates no types or rows."""

    def __init__(self, cipher: CipherProtocol) -> None:
        self._cipher = cipher

    def seal(self, inner: str, data: bytes, *, row: Row | PackedRow | None = None) -> tuple[str, bytes]:
        self._require_unbound(row)
        name, blob = self._cipher.encrypt(data)
        return f"{inner}+{name}", blob

    def open(self, tag: str, blob: bytes, *, row: Row | PackedRow | None = None) -> Opened:
        self._require_unbound(row)
        inner, _, name = tag.partition(SEALED_MARK)
        return Opened(inner, self._cipher.decrypt(name, blob), authenticated=False, key_id=None)

    def _require_unbound(self, row: Row | PackedRow | None) -> None:
        if row is not None:
            name = type(self._cipher).__name__
            raise SealingError(
                f"{name} cannot bind a value to a row; it has only encrypt() and decrypt()",
                hint="use RingCipher",
            )


class EncryptedSerializer:
    """A serializer for any saver: it seals values, and refuses values that are not sealed.

    Safe to share between threads and savers.

    Attributes:
        tally: The counters of the cipher, to which the serializer adds; `RingCipher.stats` shows them.

    Example:
        >>> from sealpoint import EncryptedSerializer
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> tag, blob = serde.dumps_typed({"name": "Ada"})
        >>> tag
        'msgpack+cobblestone256@k1'
        >>> serde.loads_typed((tag, blob))
        {'name': 'Ada'}
        >>> serde.loads_typed(("msgpack", blob))
        Traceback (most recent call last):
        sealpoint.errors.PlaintextError: ...
    """

    from_pycryptodome_aes: Final = Omitted(
        "create one with from_key() or from_key_file(); to read rows that LangGraph sealed under "
        'LANGGRAPH_AES_KEY, add a key with suite = "aes" to the ring '
        "(docs/migration.md#rows-under-langgraph_aes_key)"
    )

    def __init__(
        self,
        cipher: CipherProtocol,
        serde: SerializerProtocol = _DEFAULT,
        *,
        plaintext: PlaintextPolicy = "refuse",
        allow_unauthenticated_types: bool = False,
        allowed_msgpack_modules: AllowedModules | Literal[True] | None = FROM_ENVIRONMENT,
        compress: Compression | None = None,
    ) -> None:
        """Create a serializer.

        Args:
            cipher: A `RingCipher`; or any cipher with ``encrypt`` and ``decrypt``, which authenticates
                neither type nor row.
            serde: Serializer that converts values to bytes before sealing; strict or permissive.
            plaintext: ``refuse``, or ``allow`` to read unsealed rows during a migration; written values are
                always sealed.
            allow_unauthenticated_types: Whether a permissive ``serde`` may build any type that an unsealed
                row or a row under LANGGRAPH_AES_KEY names: if so, an attacker who can write to the database
                chooses code to import and call. By default such rows are read as by a strict ``serde``.
            allowed_msgpack_modules: Without ``serde``, the argument for a new `JsonPlusSerializer`.
            compress: ``zstd`` to compress values of 512 bytes or more before they are sealed, if that saves
                at least a tenth. Every process needs the extra ``zstd`` before the first one compresses. The
                length of a value then says how well it compressed, which can reveal its content to an
                attacker who puts text next to it: see docs/serializer.md.

        Raises:
            ValueError: If ``plaintext`` or ``compress`` is not one of these values.
            ConfigError: If both ``serde`` and ``allowed_msgpack_modules`` are given, or ``cipher`` is
                not a cipher.
            SealingError: If ``compress`` is given and the cipher is not a `RingCipher`.
            MissingExtraError: If ``compress`` is given and no module for zstd is installed.
        """
        if serde is _DEFAULT:
            serde = JsonPlusSerializer(allowed_msgpack_modules=allowed_msgpack_modules)
        elif allowed_msgpack_modules is not FROM_ENVIRONMENT:
            raise ConfigError(
                "serde and allowed_msgpack_modules are both given",
                hint="pass the list to the serializer: serde=JsonPlusSerializer(allowed_msgpack_modules=...)",
            )
        require_is(cipher, CipherProtocol, "cipher", _CIPHER_HINT)
        if plaintext not in ("refuse", "allow"):
            raise ValueError(f"plaintext must be 'refuse' or 'allow', not {excerpt(plaintext)}")
        if compress not in (None, ZSTD):
            raise ValueError(f"compress must be 'zstd' or None, not {excerpt(str(compress))}")
        self._cipher = cipher
        self._set_serde(maybe_add_typed_methods(serde))
        self._plaintext: PlaintextPolicy = plaintext
        self._binds_type = isinstance(cipher, RingCipher)
        self._sealing = cipher if isinstance(cipher, RingCipher) else _Unbound(cipher)
        self._seal: Callable[..., tuple[str, bytes]] = self._sealing.seal
        if compress is not None:
            require_zstd()
            if not isinstance(cipher, RingCipher):
                raise SealingError(f"{type(cipher).__name__} cannot compress a value", hint="use RingCipher")
            self._seal = partial(cipher.seal, compress=True)
        self.tally = cipher.tally if isinstance(cipher, RingCipher) else CipherTally()
        self._allow_unauthenticated_types = allow_unauthenticated_types

    @classmethod
    def from_key(
        cls,
        key: bytes,
        *,
        key_id: str = "k1",
        serde: SerializerProtocol | None = None,
        plaintext: PlaintextPolicy = "refuse",
        allow_unauthenticated_types: bool = False,
        allowed_msgpack_modules: AllowedModules | Literal[True] | None = FROM_ENVIRONMENT,
        compress: Compression | None = None,
    ) -> Self:
        """Create a serializer from a key.

        Args:
            key: 32 bytes.
            key_id: Public name of the key, part of every tag.
            serde: As in ``EncryptedSerializer(...)``.
            plaintext: As in ``EncryptedSerializer(...)``.
            allow_unauthenticated_types: As in ``EncryptedSerializer(...)``.
            allowed_msgpack_modules: As in ``EncryptedSerializer(...)``.
            compress: As in ``EncryptedSerializer(...)``.

        Raises:
            KeyMaterialError: If ``key`` does not have 32 bytes.
            KeyIdError: If ``key_id`` is not a valid key id.
        """
        ring = KeyRing([Key(id=key_id, material=key, state=KeyState.ACTIVE)])
        return cls(
            RingCipher(ring),
            _DEFAULT if serde is None else serde,
            plaintext=plaintext,
            allow_unauthenticated_types=allow_unauthenticated_types,
            allowed_msgpack_modules=allowed_msgpack_modules,
            compress=compress,
        )

    @classmethod
    def from_key_file(
        cls,
        path: str | PathLike[str] | None = None,
        *,
        serde: SerializerProtocol | None = None,
        plaintext: PlaintextPolicy = "refuse",
        allow_unauthenticated_types: bool = False,
        allowed_msgpack_modules: AllowedModules | Literal[True] | None = FROM_ENVIRONMENT,
        compress: Compression | None = None,
    ) -> Self:
        """Create a serializer from a ring file.

        Args:
            path: The ring file; see `KeyRing.load` for the default locations.
            serde: As in ``EncryptedSerializer(...)``.
            plaintext: As in ``EncryptedSerializer(...)``.
            allow_unauthenticated_types: As in ``EncryptedSerializer(...)``.
            allowed_msgpack_modules: As in ``EncryptedSerializer(...)``.
            compress: As in ``EncryptedSerializer(...)``.

        Raises:
            KeyRingError: One of its subclasses, each for one cause.
        """
        return cls(
            RingCipher(KeyRing.load(path)),
            _DEFAULT if serde is None else serde,
            plaintext=plaintext,
            allow_unauthenticated_types=allow_unauthenticated_types,
            allowed_msgpack_modules=allowed_msgpack_modules,
            compress=compress,
        )

    @property
    def cipher(self) -> CipherProtocol:
        """The cipher that seals and opens values."""
        return self._cipher

    @property
    def serde(self) -> SerializerProtocol:
        """The serializer that converts values to bytes before sealing."""
        return self._serde

    @property
    def plaintext(self) -> PlaintextPolicy:
        """``refuse``, or ``allow`` if unsealed values are read."""
        return self._plaintext

    @property
    def allow_unauthenticated_types(self) -> bool:
        """Whether unauthenticated values may name any type that ``serde`` constructs."""
        return self._allow_unauthenticated_types

    @property
    def plaintext_count(self) -> int:
        """Number of unsealed values that all serializers of this cipher have read."""
        return self.tally.read(PLAINTEXT).get("", 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cipher!r}, plaintext={self._plaintext!r})"

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialize and seal: return the tag for the `type` column, and the sealed bytes.

        Args:
            obj: Any value that ``serde`` serializes.
        """
        try:
            inner, data = self._serde.dumps_typed(obj)
            return self._seal(inner, data)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Open a sealed value, and deserialize it.

        Args:
            data: The tag and the sealed bytes, as `dumps_typed` returned them.

        Returns:
            The value.

        Raises:
            PlaintextError: If the value is not sealed, and ``plaintext`` is ``refuse``.
            SealpointError: Errors of `RingCipher.open` and the serializer.
        """
        tag, blob = data
        try:
            if type(tag) is str and type(blob) is bytes and SEALED_MARK in tag:  # nearly always: saves a call
                opened = self._sealing.open(tag, blob)
            else:
                opened = self.open(tag, blob)
            inner, content, authenticated, _ = opened
            if authenticated:
                return self._decode(inner, content)
            # Rows under a user's own cipher may name any type that ``serde`` builds.
            is_foreign = not self._binds_type and is_sealed(tag)
            return self._decode_unauthenticated(
                opened, allow_any_type=is_foreign or self._allow_unauthenticated_types
            )
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def encode(self, obj: Any) -> tuple[str, bytes]:
        """Serialize a value without sealing it.

        Args:
            obj: Any value that ``serde`` serializes.

        Returns:
            The type name and the unsealed bytes of the value.
        """
        return self._serde.dumps_typed(obj)

    def decode(self, inner: str, data: bytes) -> Any:
        """Deserialize authenticated bytes, without the checks for unauthenticated bytes.

        Args:
            inner: The type name.
            data: The bytes, which a key has authenticated.

        Returns:
            The value.
        """
        return self._decode(inner, data)

    def _decode_unauthenticated(self, opened: Opened, *, allow_any_type: bool) -> Any:
        if opened.inner == PICKLE:
            raise UnknownTypeError("a pickle is read only from a value whose seal authenticates its type")
        if self._aware is None:
            return self._serde.loads_typed(opened.typed)
        try:
            return self._aware.loads_unsealed(*opened.typed, allow_any_type=allow_any_type)
        except BlockedTypeError as error:
            if allow_any_type:
                raise
            raise UnauthenticatedTypeError(*error.args) from None

    def _set_serde(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._aware = serde if isinstance(serde, SealAwareSerializer) else None
        # Called for each value that is opened: chosen here, which saves a call and a check each time.
        self._decode: Callable[[str, bytes], Any] = (
            (lambda inner, data: serde.loads_typed((inner, data)))
            if self._aware is None
            else self._aware.loads_sealed
        )

    def seal(self, obj: Any, *, row: Row | PackedRow | None = None, head: bytes = b"") -> tuple[str, bytes]:
        """Serialize a value and seal it, optionally bound to a row.

        Args:
            obj: Any value.
            row: Coordinates of the row to bind the value to, or ``None``.
            head: Bytes to seal before the value's bytes.

        Raises:
            SealingError: If ``row`` is given and the cipher does not support it.
        """
        try:
            inner, data = self._serde.dumps_typed(obj)
            return self._seal(inner, head + data, row=row)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def open(self, tag: str, blob: bytes, *, row: Row | PackedRow | None = None) -> Opened:
        """Open a sealed value without deserializing it.

        Args:
            tag: The whole text of the `type` column.
            blob: The bytes of the value.
            row: The coordinates given to `seal`; ``None`` if `seal` was given no coordinates.

        Returns:
            The inner type name, the bytes including any head, and whether both are authenticated.

        Raises:
            PlaintextError: If the value is not sealed, and ``plaintext`` is ``refuse``.
            SealpointError: Errors of `RingCipher.open`.
        """
        try:
            if not isinstance(tag, str):
                raise TagError(f"{excerpt(tag)} is not a type tag")
            if type(blob) is not bytes:
                raise SealedValueError(f"value is {type(blob).__name__}, not bytes")
            if SEALED_MARK not in tag:  # `is_sealed`, without a call for each value
                return self._open_plaintext(tag, blob)
            return self._sealing.open(tag, blob, row=row)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def _open_plaintext(self, tag: str, blob: bytes) -> Opened:
        if self._plaintext == "refuse":
            raise PlaintextError(f"value of type {excerpt(tag)} is not sealed")
        if tag == PICKLE:
            raise UnknownTypeError("refusing to unpickle an unsealed value")
        self.tally.add(PLAINTEXT, "")
        if "plaintext" not in _warned_plaintext:
            _warned_plaintext.add("plaintext")
            logger.warning("a row that is not sealed was read: plaintext='allow' is on")
        return Opened(tag, blob, authenticated=False, key_id=None)

    def with_msgpack_allowlist(self, extra_allowlist: AllowedModules) -> Self:
        """Return a serializer of the same class, cipher and options that also allows ``extra_allowlist``."""
        serde = self._serde
        if isinstance(serde, AllowlistSerializer):
            serde = serde.with_msgpack_allowlist(extra_allowlist)
        if serde is self._serde and self._aware is not None:  # a permissive serializer returns itself
            serde = self._aware.with_unsealed_allowlist(extra_allowlist)
        if serde is self._serde:
            return self
        clone = copy.copy(self)
        clone._set_serde(serde)
        return clone
