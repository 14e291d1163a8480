"""Places: thread, namespace and checkpoint in a config. Frames: whether a metadata column has a frame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from sealpoint.base.checkpoint import RunnableConfig
from sealpoint.base.metadata import decode_metadata
from sealpoint.errors import ConfigError, ConfigKeyError, MetadataError
from sealpoint.seal.places import KEY, require_unicode

_MAPPINGS: Final = (dict, Mapping)  # to ask for the second takes ten times as long
_THREAD_IDS: Final = (str, int, UUID)


class Place(NamedTuple):
    """Thread, namespace and checkpoint that a config names; an empty ``checkpoint_id`` means the latest."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None

    def config(self, more: Mapping[str, Any] | None = None) -> RunnableConfig:
        """Return a config that names this place, with ``more`` in its ``configurable``."""
        configurable = {**(more or {}), "thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}
        if self.checkpoint_id:
            configurable["checkpoint_id"] = self.checkpoint_id
        return {"configurable": configurable}


# What `Place(...)` does, without the call of its Python constructor.
place_of: Final[Callable[[tuple[Any, ...]], Place]] = partial(tuple.__new__, Place)


def require_thread_id(value: object) -> str:
    """Return a thread id as text; accept a string, an integer or a UUID."""
    if type(value) is str and value.isascii():  # nearly always
        return value
    if not isinstance(value, _THREAD_IDS) or isinstance(value, bool):
        raise ConfigError(f"thread_id is {type(value).__name__}; it is a string, an integer or a UUID")
    return require_unicode("thread_id", str(value))


def require_channels(channels: Collection[Any], *task: Any) -> None:
    """Check the names of channels, and a task's id and path: they must be text that columns can store."""
    with suppress(TypeError):
        if "".join((*task, *channels)).isascii():  # nearly always
            return
    for name, text in zip(("task_id", "task_path"), task, strict=False):
        require_unicode(name, text)
    for channel in channels:
        require_unicode("the name of a channel", channel)


def optional_text(configurable: Mapping[str, Any], name: str) -> str | None:
    """Return the text under an optional key of ``configurable``; refuse other types."""
    value = configurable.get(name)
    return None if value is None else require_unicode(name, value)


def configurable_of(config: RunnableConfig) -> Mapping[str, Any]:
    """Return the ``configurable`` of a config."""
    if not isinstance(config, _MAPPINGS) or not isinstance(config.get("configurable"), _MAPPINGS):
        raise ConfigKeyError("the config has no 'configurable' with a 'thread_id'")
    return config["configurable"]


def require_place(config: RunnableConfig, *needed: str) -> Place:
    """Return the place that ``config`` names; raise if the thread, or a key in ``needed``, is missing."""
    if type(config) is dict and type(found := config.get("configurable")) is dict:
        get = found.get
        place = thread_id, ns, checkpoint_id = get("thread_id"), get("checkpoint_ns"), get("checkpoint_id")
        # Nearly always plain ASCII text: what follows takes seven calls.
        if type(thread_id) is str and type(ns) is str and thread_id.isascii() and ns.isascii():
            if type(checkpoint_id) is str and checkpoint_id.isascii():
                return place_of(place)
            if checkpoint_id is None and "checkpoint_id" not in needed:
                return place_of(place)
    configurable = configurable_of(config)
    for name in ("thread_id", *needed):
        if name not in configurable:
            raise ConfigKeyError(f"the config has no {name!r} in 'configurable'")
    return Place(
        require_thread_id(configurable["thread_id"]),
        optional_text(configurable, "checkpoint_ns") or "",
        optional_text(configurable, "checkpoint_id"),
    )


_QUOTED: Final = f'"{KEY}"'.encode()
_ESCAPE: Final = rb"\u00"  # of each ASCII character


def has_frame(metadata: bytes | str | None) -> bool:
    """Whether the content of a metadata column has a frame: a sealed value in JSON.

    Metadata is parsed only if it contains ``"__sealpoint__"``, or an escape that may stand for a character of
    this name. Content with the name that is not strict JSON counts as a frame.
    """
    if not isinstance(metadata, bytes | str):
        return False
    data = metadata.encode("utf-8", "replace") if isinstance(metadata, str) else metadata
    has_key = _QUOTED in data
    if not has_key and _ESCAPE not in data:
        return False
    try:
        return KEY in decode_metadata(data)
    except MetadataError:
        return has_key
