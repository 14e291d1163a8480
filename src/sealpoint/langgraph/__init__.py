"""sealpoint's classes as subclasses of LangGraph's own base classes.

`StateGraph.compile` accepts only LangGraph's own checkpointers. Under ``LANGGRAPH_STRICT_MSGPACK=true`` it
also makes the checkpointer's serializer allow the types of the graph's schema, and replaces LangGraph's
encrypting serializer. Both serializers here are subclasses of LangGraph's JsonPlusSerializer, and are not
replaced. `encryption` creates the object that LangGraph's Agent Server loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

try:
    from langgraph.checkpoint.base import EmptyChannelError
except ImportError as error:
    raise ImportError("sealpoint.langgraph needs LangGraph: pip install 'sealpoint[langgraph]'") from error

if TYPE_CHECKING:
    from sealpoint.base.sealing import arequire_sealing, require_sealing
    from sealpoint.langgraph.agentserver import encryption
    from sealpoint.langgraph.cache import SealedCache
    from sealpoint.langgraph.saver import SealedSaver
    from sealpoint.langgraph.savers import AsyncSqliteSaver as AsyncSqliteSaver
    from sealpoint.langgraph.savers import InMemorySaver as InMemorySaver
    from sealpoint.langgraph.savers import SqliteSaver as SqliteSaver
    from sealpoint.langgraph.serializers import EncryptedSerializer as EncryptedSerializer
    from sealpoint.langgraph.serializers import JsonPlusSerializer as JsonPlusSerializer
    from sealpoint.langgraph.store import SealedStore
else:
    __getattr__ = on_demand(
        __name__,
        {
            "base.sealing": "arequire_sealing require_sealing",
            "langgraph.agentserver": "encryption",
            "langgraph.cache": "SealedCache",
            "langgraph.saver": "SealedSaver",
            "langgraph.savers": "AsyncSqliteSaver InMemorySaver SqliteSaver",
            "langgraph.serializers": "EncryptedSerializer JsonPlusSerializer",
            "langgraph.store": "SealedStore",
        },
    )

# Classes with the same names as LangGraph's are left out, so that `import *` does not replace those.
__all__ = [
    "EmptyChannelError",
    "SealedCache",
    "SealedSaver",
    "SealedStore",
    "arequire_sealing",
    "encryption",
    "require_sealing",
]
