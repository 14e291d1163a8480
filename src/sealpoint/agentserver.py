"""Seals what LangGraph's Agent Server stores: the values of JSON objects, and blobs.

The keys of an object stay readable. Text of the first form replaces each value of an object; bytes of the
second form replace a blob:

    sealpoint:json+cobblestone256.row@k27a:<base64 of the sealed JSON>
    sealpoint:bytes+cobblestone256.row@k27a:<the sealed bytes>

A value is bound to its key in the object, and not to its row, model or field: the server does not name the
row, and it merges objects of different models and fields. A value and a blob are bound to these coordinates:

    value   server=value key [context.NAME ...]
    blob    server=blob      [context.NAME ...]
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, AnyStr, Final, NamedTuple, Protocol, TypeGuard

from sealpoint.base.metadata import names_of
from sealpoint.crypto import Opened, RingCipher
from sealpoint.crypto.cipher import PLAINTEXT
from sealpoint.errors import (
    ConfigError,
    DecodeError,
    KeyDestroyedError,
    KeyDisabledError,
    PlaintextError,
    SealedValueError,
    TagError,
    UnknownKeyError,
    UnsupportedTypeError,
    excerpt,
)
from sealpoint.seal.places import decode_value, encode_value
from sealpoint.seal.tag import MAX_CHARS
from sealpoint.serde.encrypted import PlaintextPolicy

PREFIX: Final = "sealpoint:"

# The shortest sealed value has 72 bytes. With plaintext="allow", other text with the prefix is plaintext.
_SEALED: Final = re.compile(r"sealpoint:[^:]*\+[^:]*@[^:]*:[A-Za-z0-9+/]{95,}={0,2}", re.DOTALL)


class Context(Protocol):
    """The encryption context that the server passes to a handler: ``langgraph_sdk.EncryptionContext``."""

    model: str | None
    field: str | None
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which values of a JSON object the server itself stores unsealed, by their keys in the object.

    Attributes:
        keys: Keys whose values the server never passes to an encryption handler.
        paths: Keys whose values in some fields the server does not pass, as ``<model>.<field>...<key>``.
        nested: Maps model and field to keys whose values are objects: the server passes these separately.
    """

    keys: Collection[str] = ()
    paths: Collection[str] = ()
    nested: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)

    def is_readable(self, context: Context, key: str, value: object) -> bool:
        """Whether the server stores the value of ``key`` unsealed, in the field that ``context`` names."""
        if key in self.keys:
            return True
        model, end = f"{context.model}.", f".{context.field}.{key}"
        if any(path.startswith(model) and path.endswith(end) for path in self.paths):
            return True
        nested = self.nested.get((str(context.model), str(context.field)), ())
        return key in nested and isinstance(value, dict)


class Reading(NamedTuple):
    """The result of opening an object or a blob.

    Attributes:
        plain: The opened object or blob.
        replacement: ``plain`` sealed under the active key, to replace stored data; ``None`` if not needed.
    """

    plain: Any
    replacement: Any


class ServerCipher:
    """Seals and opens objects and blobs for handlers of the Agent Server. Safe to share between threads."""

    def __init__(
        self,
        cipher: RingCipher,
        rules: Rules,
        *,
        plain_metadata: Collection[str] = (),
        bound_context: Collection[str] = (),
        plaintext: PlaintextPolicy = "refuse",
    ) -> None:
        """Create a cipher for the server.

        Args:
            cipher: The cipher that seals and opens values and blobs.
            rules: Which values of a JSON object the server itself stores unsealed.
            plain_metadata: Keys in the field ``metadata`` whose values stay readable, for searches.
            bound_context: Keys of the encryption context, to whose values each value and blob is bound.
            plaintext: ``refuse``, or ``allow`` to read values and blobs that are not sealed.

        Raises:
            ConfigError: If an argument is invalid.
        """
        if plaintext not in ("refuse", "allow"):
            raise ConfigError(f"plaintext must be 'refuse' or 'allow', not {excerpt(plaintext)}")
        self._cipher, self._rules = cipher, rules
        self._plain, self._bound = names_of(plain_metadata), sorted(names_of(bound_context))
        self._allows_plaintext = plaintext == "allow"

    def seal_object(self, context: Context, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object with the same keys, and with sealed values.

        Raises:
            UnsupportedTypeError: If JSON cannot represent a value, or a value of the encryption context.
            NoActiveKeyError: If the ring has no active key.
        """
        with self._cipher.tally:
            return {
                key: value
                # A text that looks sealed would be opened, or refused, when the server reads the row.
                if self._is_plain(context, key) and not _looks_sealed(value)
                else self._seal_value(context, key, _dump(value))
                for key, value in data.items()
            }

    def open_object(self, context: Context, data: Mapping[str, Any]) -> Reading:
        """Open the values of an object.

        The values of some keys are stored unsealed in some fields of a model, and sealed in other fields. A
        value of such a key that does not open is plaintext of a client, and is returned unchanged.

        Raises:
            PlaintextError: If a value is not sealed, and ``plaintext`` is ``refuse``.
            SealpointError: For every reason for which `RingCipher.open` raises.
        """
        plain, replaced = dict(data), dict[str, Any]()
        with self._cipher.tally:
            for key, value in data.items():
                if key in self._rules.keys:
                    continue  # a client's own value, even if its text looks sealed
                is_readable = self._rules.is_readable(context, key, value)
                if _looks_sealed(value) and (not self._allows_plaintext or _SEALED.fullmatch(value)):
                    try:
                        opened = self._open_value(context, key, value)
                    except (SealedValueError, UnknownKeyError, KeyDisabledError, KeyDestroyedError):
                        if not is_readable:
                            raise
                        continue  # a client's text: the server does not say by which path it stored a field
                    plain[key] = _load(opened.data)
                    if self._is_old(opened.key_id):
                        replaced[key] = self._seal_value(context, key, opened.data)
                elif not (is_readable or self._is_plain(context, key)):
                    self._take_plaintext(f"the value of key {excerpt(key)}")
                    if self._is_old(None):
                        replaced[key] = self._seal_value(context, key, _dump(value))
        return Reading(plain, {**data, **replaced} if replaced else None)

    def seal_blob(self, context: Context, blob: bytes) -> bytes:
        """Return a sealed blob.

        Raises:
            UnsupportedTypeError: If JSON cannot represent a value of the encryption context.
            NoActiveKeyError: If the ring has no active key.
        """
        tag, sealed = self._cipher.seal("bytes", bytes(blob), row=self._row(context, "blob"))
        return f"{PREFIX}{tag}:".encode() + sealed

    def open_blob(self, context: Context, blob: bytes) -> Reading:
        """Open a blob.

        Raises:
            PlaintextError: If the blob is not sealed, and ``plaintext`` is ``refuse``.
            SealpointError: For every reason for which `RingCipher.open` raises.
        """
        blob = bytes(blob)
        with self._cipher.tally:
            if not blob.startswith(PREFIX.encode()):
                self._take_plaintext("a blob")
                return Reading(blob, self.seal_blob(context, blob) if self._is_old(None) else None)
            tag, sealed = _split(blob, b":")  # tags contain no colon
            opened = self._cipher.open(tag.decode("latin-1"), sealed, row=self._row(context, "blob"))
        is_old = self._is_old(opened.key_id)
        return Reading(opened.data, self.seal_blob(context, opened.data) if is_old else None)

    def _open_value(self, context: Context, key: str, value: str) -> Opened:
        tag, text = _split(value, ":")
        blob = decode_value(text)
        if blob is None:
            raise SealedValueError(f"the value of key {excerpt(key)} is not base64")
        return self._cipher.open(tag, blob, row=self._row(context, "value", key))

    def _seal_value(self, context: Context, key: str, data: bytes) -> str:
        tag, blob = self._cipher.seal("json", data, row=self._row(context, "value", key))
        return f"{PREFIX}{tag}:{encode_value(blob)}"

    def _row(self, context: Context, kind: str, key: str | None = None) -> dict[str, str]:
        row = {"server": kind}
        if key is not None:
            try:
                str.encode(key)
            except (TypeError, UnicodeEncodeError):
                raise UnsupportedTypeError("a key of an object is not Unicode text") from None
            row["key"] = key
        for name in self._bound:
            value = context.metadata.get(name)
            try:
                row[f"context.{name}"] = json.dumps(value, sort_keys=True)
            except (TypeError, ValueError, RecursionError):
                raise UnsupportedTypeError(
                    f"key {excerpt(name)} of the encryption context is {type(value).__name__},"
                    " which JSON cannot represent",
                    hint="let the context handler return text, numbers, or lists and objects of them",
                ) from None
        return row

    def _is_plain(self, context: Context, key: str) -> bool:
        return context.field == "metadata" and key in self._plain

    def _is_old(self, key_id: str | None) -> bool:
        """Whether to seal a value again: there is an active key, and it is not the key ``key_id``."""
        active_id = self._cipher.ring.active_id
        return active_id is not None and key_id != active_id

    def _take_plaintext(self, what: str) -> None:
        if not self._allows_plaintext:
            raise PlaintextError(f"{what} is not sealed")
        self._cipher.tally.add(PLAINTEXT, "")


def _looks_sealed(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.startswith(PREFIX)


def _split(text: AnyStr, end: AnyStr) -> tuple[AnyStr, AnyStr]:
    """Return the type tag after `PREFIX`, and the sealed data after the tag."""
    start = len(PREFIX)
    found = text.find(end, start, start + MAX_CHARS + 1)
    if found < 0:
        raise TagError(f"{excerpt(str(text[start : start + MAX_CHARS]))} is not a type tag")
    return text[start:found], text[found + 1 :]


def _dump(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedTypeError(f"JSON cannot represent a value: {type(error).__name__}") from None


def _load(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"a sealed value is not JSON: {type(error).__name__}") from None
