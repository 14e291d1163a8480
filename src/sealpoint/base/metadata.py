"""Metadata: the parts of a run's config that are stored with a checkpoint, as strict JSON."""

from __future__ import annotations

import json
import json.encoder
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from sealpoint.base.checkpoint import CheckpointMetadata, RunnableConfig
from sealpoint.errors import ConfigError, DecodeError, MetadataError, excerpt
from sealpoint.serde.catalogue import strict_from_environment
from sealpoint.serde.jsontext import parse
from sealpoint.serde.limits import DEFAULT_LIMITS

logger: Final = logging.getLogger("sealpoint.base")

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 64
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


_warned: Final = set[str]()
_TEXTS: Final = (bytes, str)  # a union would be created for every column
_KEPT: Final = (str, int, float)
_TEXT: Final = frozenset((str,))
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


def names_of(names: Collection[str]) -> frozenset[str]:
    """Return names that a caller gave, and not those of the letters of a text."""
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

    Older graphs put ``writes`` there, and JSON may not support what is in it.

    Args:
        config: The config of the run.
        metadata: The metadata of the checkpoint.
    """
    merged = get_checkpoint_metadata(config, metadata)
    merged.pop("writes", None)  # type: ignore[typeddict-item]
    return merged


def encode_metadata(metadata: CheckpointMetadata) -> bytes:
    """Return metadata as JSON in UTF-8. Lone surrogates are removed with a warning.

    Refused is what JSON cannot represent, and two keys that are the same there, such as ``1`` and ``"1"``.
    """
    try:
        text = "".join(_encode(metadata, False))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, TypeError) else "NaN, infinity, a cycle or too deep"
        raise MetadataError(f"metadata has no form in JSON: {excerpt(reason)}") from None
    try:
        data = text.encode()
    except UnicodeEncodeError:
        _report_change("lone surrogates")
        data = text.encode("utf-8", "ignore")
    if not (text.isascii() and len(text) <= _SURELY_FEW_CHARS and _is_ordinary(metadata)):
        decode_metadata(data)  # nothing is stored that cannot be read back
    return data


def _report_change(what: str) -> None:
    """Report that characters of metadata are not stored. LangGraph drops them silently."""
    if strict_from_environment():
        raise MetadataError(f"text in metadata has {what}, and would be stored without them")
    if what not in _warned:
        _warned.add(what)
        logger.warning("text in metadata has %s, and is stored without them", what)


def _is_ordinary(table: Any, depth: int = 2) -> bool:
    """Whether ASCII JSON of this metadata can certainly be read back, so that it need not be tried.

    Nearly all metadata has plain strings as keys, and as values scalars or dicts of scalars, such as
    ``parents``: no two of these keys are the same in JSON.
    """
    if type(table) is not dict or depth == 0 or not _TEXT.issuperset(map(type, table)):
        return False
    for value in table.values():  # a generator takes as long as all of it
        if type(value) in _SCALARS or (type(value) is dict and not value):
            continue
        if not _is_ordinary(value, depth - 1):
            return False
    return True


def decode_metadata(data: bytes | str | None) -> CheckpointMetadata:
    """Return the metadata of a column: an object in strict JSON, within the limits of stored metadata."""
    if data is None:
        return {}
    if not isinstance(data, _TEXTS):
        raise MetadataError(f"metadata is {type(data).__name__}, not text")
    if len(data) > MAX_BYTES:
        raise MetadataError(f"metadata has {len(data)} bytes; at most {MAX_BYTES} are stored and read")
    try:
        metadata = parse(data.encode() if isinstance(data, str) else data, MAX_DEPTH, MAX_ELEMENTS)
    except DecodeError as error:
        reason = str(error)
    except UnicodeEncodeError:
        reason = "it has a lone surrogate"
    else:
        if not isinstance(metadata, dict):
            raise MetadataError(f"metadata is {type(metadata).__name__}, not an object")
        return metadata  # type: ignore[return-value]
    raise MetadataError(f"metadata is not strict JSON: {reason}")


def prepared_encoder(encoder: json.JSONEncoder) -> Callable[[Any, bool], Iterable[str]]:
    """Return a function that encodes a value as an encoder does; its second argument is ``False``.

    `json.JSONEncoder.encode` creates another encoder for each value, which takes as long as using it. Without
    ``markers``, which one encoder cannot share among threads, a cycle ends in `RecursionError`. The encoder
    has no indentation, neither sorts nor skips keys, and does not look for cycles.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the C accelerator
        return encoder.iterencode
    text = json.encoder.encode_basestring_ascii if encoder.ensure_ascii else json.encoder.encode_basestring
    separators = encoder.key_separator, encoder.item_separator
    made: Callable[[Any, bool], Iterable[str]] = make(
        None, encoder.default, text, None, *separators, False, False, encoder.allow_nan
    )
    return made


_encode: Final = prepared_encoder(json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False))
