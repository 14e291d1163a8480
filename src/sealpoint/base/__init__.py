"""Checkpoints and the interface of savers, under the names of LangGraph's ``langgraph.checkpoint.base``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.base.checkpoint import (
        LATEST_VERSION,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        EmptyChannelError,
        PendingWrite,
        RunnableConfig,
        V,
        copy_checkpoint,
        create_checkpoint,
        empty_checkpoint,
        get_checkpoint_id,
        uuid6,
        writes_sort_key,
    )
    from sealpoint.base.metadata import (
        EXCLUDED_METADATA_KEYS,
        get_checkpoint_metadata,
        get_serializable_checkpoint_metadata,
        logger,
    )
    from sealpoint.base.saver import BaseCheckpointSaver
    from sealpoint.base.sealing import arequire_sealing, require_sealing
    from sealpoint.seal.calls import ERROR, INTERRUPT, RESUME, SCHEDULED, WRITES_IDX_MAP
    from sealpoint.serde.base import SerializerProtocol, maybe_add_typed_methods
    from sealpoint.serde.classes import ChannelProtocol
    from sealpoint.serde.encrypted import EncryptedSerializer
    from sealpoint.serde.jsonplus import JsonPlusSerializer
else:
    __getattr__ = on_demand(
        __name__,
        {
            "base.metadata": "EXCLUDED_METADATA_KEYS get_checkpoint_metadata logger"
            " get_serializable_checkpoint_metadata",
            "base.saver": "BaseCheckpointSaver",
            "base.sealing": "arequire_sealing require_sealing",
            "serde.base": "SerializerProtocol maybe_add_typed_methods",
            "seal.calls": "ERROR INTERRUPT RESUME SCHEDULED WRITES_IDX_MAP",
            "serde.classes": "ChannelProtocol",
            "serde.encrypted": "EncryptedSerializer",
            "serde.jsonplus": "JsonPlusSerializer",
        },
        others="base.checkpoint",
    )

__all__ = [
    "ERROR",
    "EXCLUDED_METADATA_KEYS",
    "INTERRUPT",
    "LATEST_VERSION",
    "RESUME",
    "SCHEDULED",
    "WRITES_IDX_MAP",
    "BaseCheckpointSaver",
    "ChannelProtocol",
    "ChannelVersions",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointTuple",
    "DeltaChannelHistory",
    "EmptyChannelError",
    "EncryptedSerializer",
    "JsonPlusSerializer",
    "PendingWrite",
    "RunnableConfig",
    "SerializerProtocol",
    "V",
    "arequire_sealing",
    "copy_checkpoint",
    "create_checkpoint",
    "empty_checkpoint",
    "get_checkpoint_id",
    "get_checkpoint_metadata",
    "get_serializable_checkpoint_metadata",
    "logger",
    "maybe_add_typed_methods",
    "require_sealing",
    "uuid6",
    "writes_sort_key",
]
