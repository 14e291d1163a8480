"""ReplayState: finds the checkpoint from which a subgraph starts while its parent graph is replayed."""

from __future__ import annotations

from sealpoint.base import BaseCheckpointSaver, CheckpointTuple, RunnableConfig


class ReplayState:
    """Remembers which subgraphs have already run in a replay of their parent graph.

    A subgraph that runs for the first time in a replay starts from its latest checkpoint before the replayed
    checkpoint of the parent. When the subgraph runs again, in a loop for instance, it starts from its own
    latest checkpoint. One object is used for the whole replay.

    Attributes:
        checkpoint_id: Id of the checkpoint from which the parent graph is replayed.
    """

    __slots__ = ("_visited_ns", "checkpoint_id")

    def __init__(self, checkpoint_id: str) -> None:
        """Create the state of a replay of the parent graph from ``checkpoint_id``."""
        self.checkpoint_id = checkpoint_id
        self._visited_ns: set[str] = set()

    def _is_first_visit(self, checkpoint_ns: str) -> bool:
        """Whether a subgraph runs for the first time; ignores the task id at the end of its namespace."""
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
        """Return the checkpoint from which a subgraph starts; ``None`` to start without a checkpoint.

        Args:
            checkpoint_ns: Namespace of the subgraph, with the id of its task.
            checkpointer: The saver of the subgraph's checkpoints.
            checkpoint_config: Config with the thread id and the namespace of the subgraph.
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
        """Async version of `get_checkpoint`."""
        if self._is_first_visit(checkpoint_ns):
            async for found in checkpointer.alist(checkpoint_config, before=self._before(), limit=1):
                return found
            return None
        return await checkpointer.aget_tuple(checkpoint_config)
