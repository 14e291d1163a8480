"""Errors of thread stores, and of databases that lack what a store remembers."""

from __future__ import annotations

from sealpoint.errors.root import SealpointError, excerpt


class RolledBackError(SealpointError, LookupError):
    """A database lacks a checkpoint that its thread store remembers, or has an earlier state of it.

    Attributes:
        thread_id: The thread.
        have: Id of the checkpoint that the database has instead; ``None`` if none is known.
        want: Id of the checkpoint that the store remembers.
    """

    hint = (
        "compare all of it with `sealpoint heads verify DB`; after a backup that was restored on purpose, "
        "`sealpoint heads adopt DB --reason TEXT` takes what is there"
    )

    def __init__(self, thread_id: str, have: str | None, want: str, *, hint: str | None = None) -> None:
        super().__init__(thread_id, have, want, hint=hint)
        self.thread_id, self.have, self.want = thread_id, have, want

    def __str__(self) -> str:
        thread, want = excerpt(self.thread_id), excerpt(self.want)
        if self.have == self.want:
            return f"thread {thread}: checkpoint {want} is in an earlier state than the last that was stored"
        instead = "" if self.have is None else f"; the database has {excerpt(self.have)}"
        return f"thread {thread}: checkpoint {want} is missing{instead}"


class DeletedCheckpointError(SealpointError, LookupError):
    """A checkpoint that was deleted is in the database again.

    Attributes:
        thread_id: The thread.
        checkpoint_id: The checkpoint.
    """

    hint = (
        "SealedSaver does not return it: delete the thread again, which also ends a deletion that was"
        " interrupted; if a backup was restored on purpose, `sealpoint heads adopt DB --reason TEXT` takes it"
    )

    def __init__(self, thread_id: str, checkpoint_id: str, *, hint: str | None = None) -> None:
        super().__init__(thread_id, checkpoint_id, hint=hint)
        self.thread_id, self.checkpoint_id = thread_id, checkpoint_id

    def __str__(self) -> str:
        thread, checkpoint = excerpt(self.thread_id), excerpt(self.checkpoint_id)
        return f"thread {thread}: checkpoint {checkpoint} was deleted, and put back"


class ThreadStoreError(SealpointError):
    """A thread store cannot be used."""


class ThreadStoreDownError(ThreadStoreError, ConnectionError):
    """A thread store cannot be reached or opened, or is damaged."""

    hint = "make it available again; nothing was read as current or written meanwhile"


class ThreadStoreMissingError(ThreadStoreDownError):
    """There is no thread store at a place that can be reached: nothing is there, or something else."""

    hint = "name the place of the store, or create one: create=True, or `sealpoint heads adopt DB --create`"


class ThreadStoreTimeoutError(ThreadStoreError, TimeoutError):
    """A thread store did not answer in time."""

    hint = "find out what slows it down or locks it, or raise the time limit: timeout=SECONDS"


class ThreadStoreReadOnlyError(ThreadStoreError, PermissionError):
    """A thread store cannot be written to: it is mounted read-only, a replica, or lacks a permission."""

    hint = "let this account write to it, and to its folder"


class SharedRoleError(ThreadStoreError, PermissionError):
    """What runs in the session of a saver could write its thread store.

    Attributes:
        role: A role that the session is, or may become.
        right: By what right it could.
    """

    def __init__(self, role: str, right: str, *, hint: str | None = None) -> None:
        super().__init__(role, right, hint=hint)
        self.role, self.right = role, right

    def __str__(self) -> str:
        return f"the saver's session may write the thread store: role {excerpt(self.role)} {self.right}"


class ThreadStoreFullError(ThreadStoreError, OSError):
    """There is no space for a thread store."""

    hint = "make space; a checkpoint that was stored without its head is read, but its loss is not noticed"


class ThreadStoreBehindError(ThreadStoreError, LookupError):
    """A thread store was put back to an earlier state: the database names a later one."""

    hint = "a store that was restored from backup is brought up to date with `sealpoint heads adopt`"


class WrongThreadStoreError(ThreadStoreError, ValueError):
    """A thread store belongs to another database."""

    hint = "name the store that belongs to the database, or take this one over with `sealpoint heads adopt`"
