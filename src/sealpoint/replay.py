"""ReplayState: which checkpoint a subgraph starts from while its parent is replayed."""

from __future__ import annotations

from sealpoint.base import BaseCheckpointSaver, CheckpointTuple, RunnableConfig


class ReplayState:
    """Remembers which subgraphs were already restored to the time before the replay began.

    The first time that a subgraph runs in a replay it starts from the latest checkpoint
    older than the replay's; after that, in a loop for instance, from its own latest. One
    object serves a whole run.

    Attributes:
        checkpoint_id: The checkpoint that the parent is replayed from.
    """

    __slots__ = ("_visited_ns", "checkpoint_id")

    def __init__(self, checkpoint_id: str) -> None:
        """Begin a replay from ``checkpoint_id``."""
        self.checkpoint_id = checkpoint_id
        self._visited_ns: set[str] = set()

    def _is_first_visit(self, checkpoint_ns: str) -> bool:
        """Whether the subgraph was not met before; its namespace ends in a task id, which does not count."""
        name = checkpoint_ns.rsplit(":", 1)[0]
        first = name not in self._visited_ns
        self._visited_ns.add(name)
        return first

    def _before(self) -> RunnableConfig:
        return {"configurable": {"checkpoint_id": self.checkpoint_id}}

    def get_checkpoint(
        self,
        checkpoint_ns: str,
        checkpointer: BaseCheckpointSaver[int] | BaseCheckpointSaver[float] | BaseCheckpointSaver[str],
        checkpoint_config: RunnableConfig,
    ) -> CheckpointTuple | None:
        """Return the checkpoint that a subgraph starts from, or ``None`` if there is none.

        Args:
            checkpoint_ns: Namespace of the subgraph, with the id of its task.
            checkpointer: The saver.
            checkpoint_config: Names the thread and the namespace.
        """
        if self._is_first_visit(checkpoint_ns):
            return next(iter(checkpointer.list(checkpoint_config, before=self._before(), limit=1)), None)
        return checkpointer.get_tuple(checkpoint_config)

    async def aget_checkpoint(
        self,
        checkpoint_ns: str,
        checkpointer: BaseCheckpointSaver[int] | BaseCheckpointSaver[float] | BaseCheckpointSaver[str],
        checkpoint_config: RunnableConfig,
    ) -> CheckpointTuple | None:
        """Do as `get_checkpoint`."""
        if self._is_first_visit(checkpoint_ns):
            async for found in checkpointer.alist(checkpoint_config, before=self._before(), limit=1):
                return found
            return None
        return await checkpointer.aget_tuple(checkpoint_config)
