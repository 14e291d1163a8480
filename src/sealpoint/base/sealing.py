"""`require_sealing`: whether a saver passes the values that it stores to its serializer."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, Final

from sealpoint.base.canary import Canary, watched
from sealpoint.base.checkpoint import Checkpoint, empty_checkpoint
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import SealingCheckError, excerpt
from sealpoint.serde.base import SerializerProtocol
from sealpoint.serde.types import INTERRUPT

_CHECKPOINT_VERSION: Final = 4
"""Version of the checkpoints of LangGraph 1: savers convert older ones while they read them."""


def require_sealing(
    saver: Any, *, configurable: Mapping[str, Any] | None = None, thread_id: str | None = None
) -> None:
    """Check that a saver passes every value to its serializer, and that the serializer seals.

    Stores a checkpoint, a write and an interrupt in a thread with a random id, reads them, and deletes the
    thread, also if the check fails. Call it where the process starts, before the saver is in use.

    It checks values that are objects. It does not check:

    - metadata, thread ids and other names, which most savers do not pass to a serializer;
    - strings, numbers and booleans, which savers on Postgres and MySQL store beside the serializer;
    - second copies of a value, except as pickle, JSON or text.

    Nor does it accept a saver that calls a method of the serializer which it fetched when it was created.

    Args:
        saver: Any LangGraph saver with sync methods; its tables must exist.
        configurable: Further keys of ``config["configurable"]``, if the saver requires any.
        thread_id: For a saver that cannot delete a thread: a thread that no agent uses. What the check stores
            remains in it.

    Raises:
        SealingCheckError: If a value does not reach ``saver.serde``, or the serializer does not seal, or the
            saver does not return what was sealed, or one of its methods raises.
    """
    check = _Check(saver, configurable, thread_id, awaited=False)
    with watched(check.serde), suppress(StopIteration):
        steps = check.steps()
        method, arguments = next(steps)
        while True:
            try:
                result = getattr(saver, method)(*arguments)
            except BaseException as error:  # noqa: BLE001 -- `steps` deletes the thread, and raises it
                method, arguments = steps.throw(check.failure(method, error))
            else:
                method, arguments = steps.send(result)


async def arequire_sealing(
    saver: Any, *, configurable: Mapping[str, Any] | None = None, thread_id: str | None = None
) -> None:
    """Async version of `require_sealing`, through the async methods of the saver."""
    check = _Check(saver, configurable, thread_id, awaited=True)
    with watched(check.serde), suppress(StopIteration):
        steps = check.steps()
        method, arguments = next(steps)
        while True:
            try:
                result = await getattr(saver, f"a{method}")(*arguments)
            except BaseException as error:  # noqa: BLE001 -- as above
                method, arguments = steps.throw(check.failure(f"a{method}", error))
            else:
                method, arguments = steps.send(result)


class _Check:
    """The steps of a check, without I/O."""

    def __init__(
        self,
        saver: Any,
        configurable: Mapping[str, Any] | None,
        thread_id: str | None,
        *,
        awaited: bool,
    ) -> None:
        self._saver = saver
        self._other = "require_sealing" if awaited else "arequire_sealing"
        self._deletes = thread_id is None
        self._thread_id = thread_id or f"sealpoint-check-{secrets.token_hex(16)}"
        self._config = {
            "configurable": {**(configurable or {}), "thread_id": self._thread_id, "checkpoint_ns": ""}
        }
        self._value, self._write, self._interrupt = (
            Canary(place) for place in ("channel value", "write", "interrupt")
        )
        self._canaries = (self._value, self._write, self._interrupt)
        self.serde = self._require_sealing_serde()

    def steps(self) -> Generator[tuple[str, tuple[Any, ...]], Any, None]:
        """Yield the methods to call, with their arguments; expects what each of them returned.

        Raises:
            SealingCheckError: What the check found.
        """
        yield "get_tuple", (self._config,)  # some savers create their tables here, but not while deleting
        if not self._deletes:
            yield from self._trial()
            return
        deletion = ("delete_thread", (self._thread_id,))
        yield deletion  # a saver that cannot delete is refused before it stores anything
        try:
            yield from self._trial()
        except BaseException as error:
            try:
                yield deletion
            except SealingCheckError as second:
                error.add_note(f"thread {self._thread_id!r} could not be deleted: {second.reason}")
            raise
        yield deletion

    def _trial(self) -> Generator[tuple[str, tuple[Any, ...]], Any, None]:
        stored = yield "put", self._checkpoint()
        yield "put_writes", (stored, [("canary", self._write)], "task-1", "")
        yield "put_writes", (stored, [(INTERRUPT, self._interrupt)], "task-2", "")
        self._require_sealed()
        self._require_returned((yield "get_tuple", (stored,)))

    def failure(self, method: str, error: BaseException) -> BaseException:
        """Return the error to raise for one that a method of the saver raised."""
        if not isinstance(error, Exception):
            return error  # such as a cancellation
        reason = f"{method} raised {type(error).__name__}: {excerpt(str(error))}"
        given = {"put": self._canaries[:1], "put_writes": self._canaries[1:]}.get(
            method.removeprefix("a"), ()
        )
        missed = [canary.place for canary in given if canary.blob is None]
        if missed:
            reason += f"; the {missed[0]} had not reached saver.serde"
        hint = None
        if isinstance(error, NotImplementedError):
            hint = f"use {self._other} if the saver has those methods"
            if method.endswith("delete_thread"):
                hint += "; pass thread_id if it cannot delete"
        failure = SealingCheckError(type(self._saver), reason, hint=hint)
        failure.__cause__ = error
        return failure

    def _checkpoint(self) -> tuple[Any, Checkpoint, dict[str, Any], dict[str, Any]]:
        version = self._saver.get_next_version(None, None)
        checkpoint: Checkpoint = {
            **empty_checkpoint(),
            "v": _CHECKPOINT_VERSION,
            "channel_values": {"canary": self._value},
            "channel_versions": {"canary": version},
            "updated_channels": ["canary"],
        }
        metadata = {"source": "input", "step": -1, "parents": {}}
        return self._config, checkpoint, metadata, {"canary": version}

    def _require_sealing_serde(self) -> SerializerProtocol:
        serde = getattr(self._saver, "serde", None)
        if not isinstance(serde, SerializerProtocol):
            raise self._refusal("it has no serializer with dumps_typed and loads_typed in `serde`")
        name = type(serde).__name__
        tag, blob = serde.dumps_typed(self._value.text)
        if not is_sealed(tag) or self._value.text.encode() in blob:
            raise self._refusal(
                f"its serializer {name} does not seal",
                hint="give it a sealpoint.langgraph.EncryptedSerializer",
            )
        if not hasattr(serde, "__dict__"):
            raise self._refusal(
                f"its serializer {name} has no __dict__, so it cannot be watched",
                hint="remove __slots__ from the serializer, or check a saver with another serializer",
            )
        return serde

    def _require_sealed(self) -> None:
        for canary in self._canaries:
            if canary.blob is None:
                raise self._refusal(f"the {canary.place} did not reach saver.serde")
            if canary.was_loaded:
                raise self._refusal(
                    f"the {canary.place} was sealed, and deserialized again while it was stored",
                    hint="the saver stores the deserialized value; use another saver",
                )
            if canary.was_shown:
                raise self._refusal(
                    f"the {canary.place} was converted to text while it was stored",
                    hint="the saver stores or logs the text beside the sealed value; use another saver",
                )

    def _require_returned(self, found: Any) -> None:
        if found is None:
            raise self._refusal("get_tuple returned no checkpoint for the config that put returned")
        writes = {channel: value for _, channel, value in found.pending_writes or ()}
        returned = {
            self._value: found.checkpoint["channel_values"].get("canary"),
            self._write: writes.get("canary"),
            self._interrupt: writes.get(INTERRUPT),
        }
        for canary, value in returned.items():
            if value != canary.text:
                raise self._refusal(f"get_tuple did not return the {canary.place} that was sealed")

    def _refusal(self, reason: str, *, hint: str | None = None) -> SealingCheckError:
        return SealingCheckError(type(self._saver), reason, hint=hint)
