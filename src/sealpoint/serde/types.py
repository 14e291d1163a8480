"""Names and shapes that channels, tasks and stored values share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

ERROR: Final = "__error__"
SCHEDULED: Final = "__scheduled__"
INTERRUPT: Final = "__interrupt__"
RESUME: Final = "__resume__"
TASKS: Final = "__pregel_tasks"

Value = TypeVar("Value", covariant=True)
Update = TypeVar("Update", contravariant=True)
C = TypeVar("C")


class ChannelProtocol(Protocol[Value, Update, C]):
    """A channel: holds one value of a graph's state and knows how to save it."""

    @property
    def ValueType(self) -> Any:  # noqa: N802 -- LangGraph's name
        """Type of the value."""
        ...

    @property
    def UpdateType(self) -> Any:  # noqa: N802 -- LangGraph's name
        """Type of an update."""
        ...

    def checkpoint(self) -> C | None:
        """Return what to store, or raise `EmptyChannelError`."""
        ...

    def from_checkpoint(self, checkpoint: C | None) -> Self:
        """Return a channel that holds what was stored."""
        ...

    def update(self, values: Sequence[Update]) -> bool:
        """Apply updates; return whether the value changed."""
        ...

    def get(self) -> Value:
        """Return the value, or raise `EmptyChannelError`."""
        ...

    def consume(self) -> bool:
        """Mark the value as read; return whether that changed it."""
        ...


@runtime_checkable
class SendProtocol(Protocol):
    """A message to a node: what LangGraph's ``Send`` looks like."""

    node: str
    arg: Any

    def __hash__(self) -> int:
        """Hash by node and argument."""
        ...

    def __repr__(self) -> str:
        """Show node and argument."""
        ...

    def __eq__(self, value: object) -> bool:
        """Compare node and argument."""
        ...


class _DeltaSnapshot(NamedTuple):
    """The whole value of a delta channel, stored so that a walk over its updates may end here."""

    value: Any
