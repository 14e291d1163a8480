"""The SDKs of services: each is part of an extra, and imported at the first call."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sealpoint.errors import KeyUnavailableError


def load_sdk(module: str, extra: str) -> Any:
    """Import a module of an extra.

    Raises:
        KeyUnavailableError: If it is not installed; its hint names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
    hint = f"pip install 'sealpoint[{extra}]'"
    raise KeyUnavailableError(f"package {missing!r} of the extra {extra!r} is not installed", hint=hint)
