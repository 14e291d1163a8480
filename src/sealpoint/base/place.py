"""Places: what a config names, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from sealpoint.base.checkpoint import RunnableConfig
from sealpoint.errors import ConfigError, ConfigKeyError

_MAPPINGS: Final = (dict, Mapping)  # to ask for the second takes ten times as long
_THREAD_IDS: Final = (str, int, UUID)


class Place(NamedTuple):
    """Where a config points: columns of a row. No ``checkpoint_id`` means the latest."""

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
_place: Final[Callable[[tuple[Any, ...]], Place]] = partial(tuple.__new__, Place)


def require_thread_id(value: object) -> str:
    """Return a thread id as text.

    Raises:
        ConfigError: If it is not a string, an integer or a UUID.
    """
    if type(value) is str and value.isascii():  # nearly always
        return value
    if not isinstance(value, _THREAD_IDS) or isinstance(value, bool):
        raise ConfigError(f"thread_id is {type(value).__name__}; it is a string, an integer or a UUID")
    return require_unicode("thread_id", str(value))


def require_unicode(name: str, text: str) -> str:
    """Return ``text``, if a database can hold it: none has a form for lone surrogates.

    Raises:
        ConfigError: If it holds one.
    """
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{name} holds a lone surrogate, which is not a character")
    return text


def optional_text(configurable: Mapping[str, Any], name: str) -> str | None:
    """Return the text of an optional item of ``configurable``.

    Raises:
        ConfigError: If it is not text, or not Unicode.
    """
    value = configurable.get(name)
    if value is None or (type(value) is str and value.isascii()):  # nearly always
        return value
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {type(value).__name__}; it is a string")
    return require_unicode(name, value)


def configurable_of(config: RunnableConfig) -> Mapping[str, Any]:
    """Return the ``configurable`` of a config.

    Raises:
        ConfigKeyError: If there is none.
    """
    if not isinstance(config, _MAPPINGS) or not isinstance(config.get("configurable"), _MAPPINGS):
        raise ConfigKeyError("the config has no 'configurable' with a 'thread_id'")
    return config["configurable"]


def require_place(config: RunnableConfig, *needed: str) -> Place:
    """Return where ``config`` points.

    Args:
        config: Must name a thread.
        needed: What else it must name.

    Raises:
        ConfigKeyError: If it lacks one of them.
        ConfigError: If one is of the wrong type.
    """
    if type(config) is dict and type(found := config.get("configurable")) is dict:
        get = found.get
        place = thread_id, ns, checkpoint_id = get("thread_id"), get("checkpoint_ns"), get("checkpoint_id")
        # Nearly always plain ASCII text: what follows takes seven calls.
        if type(thread_id) is str and type(ns) is str and thread_id.isascii() and ns.isascii():
            if type(checkpoint_id) is str and checkpoint_id.isascii():
                return _place(place)
            if checkpoint_id is None and "checkpoint_id" not in needed:
                return _place(place)
    configurable = configurable_of(config)
    for name in ("thread_id", *needed):
        if name not in configurable:
            raise ConfigKeyError(f"the config has no {name!r} in 'configurable'")
    return Place(
        require_thread_id(configurable["thread_id"]),
        optional_text(configurable, "checkpoint_ns") or "",
        optional_text(configurable, "checkpoint_id"),
    )
