"""Metadata: the parts of a run's config that are stored with a checkpoint, as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from sealpoint.base.checkpoint import CheckpointMetadata, RunnableConfig
from sealpoint.errors import ConfigError, DecodeError, MetadataError, excerpt
from sealpoint.seal.jsontext import MAX_DEPTH, pack_json, prepared_encoder
from sealpoint.seal.tokens import in_json
from sealpoint.serde.catalogue import strict_from_environment
from sealpoint.serde.jsontext import parse, require_bounded
from sealpoint.serde.limits import DEFAULT_LIMITS, MAX_NUMBER_BITS, MAX_PACKED_LEVELS

logger: Final = logging.getLogger("sealpoint.base")

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_LEVELS: Final = MAX_PACKED_LEVELS
MAX_ELEMENTS: Final = DEFAULT_LIMITS.elements
_SURELY_FEW_CHARS: Final = MAX_ELEMENTS  # JSON has at most one element per character

EXCLUDED_METADATA_KEYS: Final = {
    "checkpoint_id",
    "checkpoint_map",
    "checkpoint_ns",
    "langgraph_checkpoint_ns",
    "langgraph_node",
    "langgraph_path",
    "langgraph_step",
    "langgraph_triggers",
    "thread_id",
}
"""Keys of a config that are never stored as metadata: they are columns, or change with every step."""


_HINT: Final = "store the value in the state, or as text of at most 16 MiB"
_warned: Final = set[str]()
_TEXTS: Final = (bytes, str)  # a union would be created for every column
_KEPT: Final = (str, int, float)
_TEXT: Final = frozenset((str,))
_NUMBERS: Final = (int, float)
_CONTAINERS: Final = (dict, list, tuple)
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


def names_of(names: Collection[str]) -> frozenset[str]:
    """Return a caller's names as a set. A single string is refused: it would count as a set of letters."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{excerpt(str(names))} is not a collection of names")
    return frozenset(names)


def get_checkpoint_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return ``metadata`` with the scalars of the config's ``metadata`` and ``configurable`` added.

    Existing keys of ``metadata`` are not replaced. `EXCLUDED_METADATA_KEYS`, keys that begin with ``__``,
    and values that are not str, int, float or bool are omitted. NUL characters, which PostgreSQL cannot
    store, are removed from text, with a warning.

    Args:
        config: The config of the run.
        metadata: The metadata of the checkpoint.

    Raises:
        MetadataError: If text has a NUL character and ``LANGGRAPH_STRICT_MSGPACK`` is ``true``.
    """
    merged: dict[str, Any] = dict(metadata.items())
    for part in (config.get("metadata"), config.get("configurable")):
        if not part or EXCLUDED_METADATA_KEYS.issuperset(part):
            continue
        for key, value in part.items():
            if key in EXCLUDED_METADATA_KEYS or key in merged or key.startswith("__"):
                continue
            if isinstance(value, _KEPT):
                merged[key] = value
    for key, value in merged.items():
        if isinstance(value, str) and (type(value) is not str or "\x00" in value):
            if "\x00" in value:
                _report_change("NUL characters")
            merged[key] = value.replace("\x00", "")  # also converts a subclass to a plain str
    return merged  # type: ignore[return-value]


def get_serializable_checkpoint_metadata(
    config: RunnableConfig, metadata: CheckpointMetadata
) -> CheckpointMetadata:
    """Return the metadata as `get_checkpoint_metadata` does, without ``writes``.

    Older graphs put ``writes`` into the metadata, and JSON may not support the values in it.

    Args:
        config: The config of the run.
        metadata: The metadata of the checkpoint.
    """
    merged = get_checkpoint_metadata(config, metadata)
    merged.pop("writes", None)  # type: ignore[typeddict-item]
    return merged


def encode_metadata(
    metadata: Mapping[str, Any], *, sealed: bool = False, keep_surrogates: bool = False
) -> bytes:
    """Return metadata as JSON in UTF-8.

    Args:
        metadata: At most 255 levels deep, and 16 MiB as JSON.
        sealed: Write strict JSON, see `sealpoint.serde.jsontext.pack_json`. LangGraph's savers, and so this
            function by default, write NaN and infinities, which strict JSON lacks.
        keep_surrogates: Keep lone surrogates. By default they are removed, with a warning.

    Raises:
        MetadataError: If JSON cannot represent a value, or two keys are equal in JSON: ``1`` and ``"1"``.
    """
    data = None
    if _is_ordinary(metadata):
        with suppress(ValueError):  # NaN, an infinity, a lone surrogate
            data = "".join(_encode(metadata, False)).encode()
    if data is None:
        value = _in_json(metadata, keep_surrogates)
        data = "".join(_encode_all(pack_json(value) if sealed else value, False)).encode()
    if len(data) > MAX_BYTES:
        raise _too_long(len(data))
    if len(data) > _SURELY_FEW_CHARS:
        require_bounded(data, len(data), MAX_ELEMENTS)
    return data


def _too_long(size: int) -> MetadataError:
    return MetadataError(f"metadata has {size} bytes; at most {MAX_BYTES} are stored and read", hint=_HINT)


def _in_json(metadata: Mapping[str, Any], keep_surrogates: bool) -> dict[str, Any]:
    """Return metadata as it is when it is read back from JSON."""
    if not isinstance(metadata, dict):
        raise MetadataError(f"metadata is {type(metadata).__name__}, not a dict")
    try:
        return _value_in_json(metadata, keep_surrogates, MAX_LEVELS)  # type: ignore[no-any-return]
    except MetadataError:
        raise
    except ValueError as error:
        reason = str(error)
    refused = "keys"
    for key, value in metadata.items():
        try:
            _value_in_json({key: value}, keep_surrogates, MAX_LEVELS)
        except ValueError:
            refused = str(key)
            break
    raise MetadataError(f"metadata {excerpt(refused)}: {reason}", hint=_HINT)


def _value_in_json(value: Any, keep_surrogates: bool, levels: int) -> Any:
    if type(value) is str and value.isascii():
        return value
    if isinstance(value, str):
        return _text_in_json(value, keep_surrogates)
    if value is None or isinstance(value, _NUMBERS):
        if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
            raise ValueError(f"an integer has over {MAX_NUMBER_BITS} bits")
        return value if type(value) in _SCALARS else in_json(value)
    if not isinstance(value, _CONTAINERS):
        raise ValueError(f"JSON cannot represent {type(value).__name__}")
    if not levels:
        raise ValueError(f"a value is nested over {MAX_LEVELS} levels deep, or contains itself")
    if not isinstance(value, dict):
        return [_value_in_json(each, keep_surrogates, levels - 1) for each in value]
    found = {
        key if type(key) is str and key.isascii() else _name_in_json(key, keep_surrogates): _value_in_json(
            each, keep_surrogates, levels - 1
        )
        for key, each in value.items()
    }
    if len(found) != len(value):
        raise ValueError("two keys are equal in JSON")
    return found


def _text_in_json(text: str, keep_surrogates: bool) -> str:
    found: str = str.__str__(text) if keep_surrogates else in_json(text)
    if len(found) != len(text):
        _report_change("lone surrogates")
    return found


def _name_in_json(key: Any, keep_surrogates: bool) -> str:
    if isinstance(key, str):
        return _text_in_json(key, keep_surrogates)
    if key is None or isinstance(key, int | float):
        return json.dumps(in_json(key))
    raise ValueError(f"a key is {type(key).__name__}, not text")


def _report_change(what: str) -> None:
    """Report characters of metadata that are not stored. LangGraph removes them without a message."""
    if strict_from_environment():
        raise MetadataError(f"text in metadata has {what}, and would be stored without them")
    if what not in _warned:
        _warned.add(what)
        logger.warning("text in metadata has %s, and is stored without them", what)


def _is_ordinary(table: Any, depth: int = 2) -> bool:
    """Whether metadata certainly stays equal when it is written as JSON and read again.

    Nearly all metadata has plain strings as keys, and as values scalars or dicts of scalars, such as
    ``parents``: no two of these keys are equal in JSON.
    """
    if type(table) is not dict or depth == 0 or not _TEXT.issuperset(map(type, table)):
        return False
    for value in table.values():  # faster than all() with a generator
        if type(value) in _SCALARS or (type(value) is dict and not value):
            continue
        if not _is_ordinary(value, depth - 1):
            return False
    return True


def decode_metadata(data: bytes | str | None, *, strict: bool = True) -> CheckpointMetadata:
    """Return the metadata in the content of a metadata column.

    Args:
        data: The content of the column: a JSON object of at most 16 MiB, or ``None``.
        strict: Accept only what sealed rows contain: strict JSON of at most 64 levels. Otherwise accept what
            LangGraph's savers do: up to 255 levels, NaN, infinities, and the last of duplicate keys.

    Raises:
        MetadataError: If the column contains anything else.
    """
    if data is None:
        return {}
    if not isinstance(data, _TEXTS):
        raise MetadataError(f"metadata is {type(data).__name__}, not text")
    if len(data) > MAX_BYTES:
        raise _too_long(len(data))
    try:
        text = data.encode() if isinstance(data, str) else data
        metadata = parse(text, MAX_DEPTH if strict else MAX_LEVELS, MAX_ELEMENTS, strict=strict)
    except DecodeError as error:
        reason = str(error)
    except UnicodeEncodeError:
        reason = "it has a lone surrogate"
    else:
        if not isinstance(metadata, dict):
            raise MetadataError(f"metadata is {type(metadata).__name__}, not an object")
        return metadata  # type: ignore[return-value]
    raise MetadataError(f"metadata is not {'strict ' if strict else ''}JSON: {reason}")


def decode_mapping(data: bytes) -> Any:
    """Return a JSON object that a saver stored readable, with sealed parts; raises the errors of `parse`."""
    return parse(data, MAX_LEVELS, MAX_ELEMENTS, strict=False)


_encode: Final = prepared_encoder(json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False))
_encode_all: Final = prepared_encoder(json.JSONEncoder(ensure_ascii=False, check_circular=False))
