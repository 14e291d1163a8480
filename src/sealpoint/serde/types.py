"""Names and protocols of LangGraph's channels, as in ``langgraph.checkpoint.serde.types``."""

from __future__ import annotations

from sealpoint.seal.calls import ERROR, INTERRUPT, RESUME, SCHEDULED, TASKS
from sealpoint.serde.classes import C, ChannelProtocol, SendProtocol, Update, Value

__all__ = ["ERROR", "INTERRUPT", "RESUME", "SCHEDULED", "TASKS"]
__all__ += ["C", "ChannelProtocol", "SendProtocol", "Update", "Value"]
