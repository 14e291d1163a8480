"""SealedSaver as a subclass of LangGraph's BaseCheckpointSaver."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver as _LangGraphSaver

from sealpoint.sealed import saver


class SealedSaver(saver.SealedSaver, _LangGraphSaver[Any]):  # type: ignore[misc]
    """`sealpoint.sealed.SealedSaver` as one of LangGraph's savers."""

    __module__ = "sealpoint.langgraph"

    _absent = _LangGraphSaver


SealedSaver.__doc__ = saver.SealedSaver.__doc__  # shown by `help`
