"""`require_sealing`: whether a saver passes the values that it stores to its serializer.

It stores canaries: values that only a watched serializer can write, while pickle, JSON and msgpack refuse
them. The serializer replaces each canary by a random text, and seals that. If a saver stores a canary in any
other way, that raises, or the canary has not been sealed when it is looked at.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from sealpoint.base.checkpoint import Checkpoint, empty_checkpoint
from sealpoint.base.saver import Steps, arun, run
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import SealingCheckError, excerpt
from sealpoint.serde.base import SerializerProtocol
from sealpoint.serde.classes import INTERRUPT

# How deep in a serialized value canaries are looked for: savers put a few containers around them
_DEPTH: Final = 8

# What a watch stands before: `SealedSaver` calls ``seal``, other savers ``dumps_typed``
_METHODS: Final = ("dumps_typed", "loads_typed", "seal", "with_msgpack_allowlist")

_lock: Final = threading.Lock()


class Canary:
    """A value that only a serializer under `watched` can write."""

    __slots__ = ("blob", "place", "text", "was_loaded", "was_shown")

    def __init__(self, place: str) -> None:
        self.place = place
        self.text = secrets.token_hex(32)  # what is sealed in its place
        self.blob: bytes | None = None  # what the serializer returned for it, if it was given it
        self.was_loaded = False
        self.was_shown = False

    def __repr__(self) -> str:
        self.was_shown = True
        return f"<{self.place} of require_sealing>"

    def __copy__(self) -> Canary:
        return self  # a saver may copy a checkpoint before it passes it on

    def __deepcopy__(self, memo: object) -> Canary:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a canary of require_sealing was pickled")


@contextmanager
def watched(serde: SerializerProtocol) -> Iterator[None]:
    """Make ``serde`` accept canaries. Others may use it meanwhile, and may be watching it too."""
    attributes = vars(serde)
    with _lock:
        watch = getattr(attributes.get("dumps_typed"), "__self__", None)
        if not isinstance(watch, _Watch):
            watch = _Watch(serde)
            # On the object, and not on the saver: a saver may hold its serializer in several places.
            attributes.update(watch.methods)
        watch.users += 1
    try:
        yield
    finally:
        with _lock:
            watch.users -= 1
            if not watch.users:
                watch.restore(attributes)


class _Watch:
    """The methods that stand before those of a serializer, until the last check of it ends."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.users = 0
        self._serde = serde
        self._originals = {name: getattr(serde, name) for name in _METHODS if hasattr(serde, name)}
        self.methods = {name: getattr(self, name) for name in self._originals}
        self._hidden = {name: vars(serde)[name] for name in _METHODS if name in vars(serde)}
        self._sealed: list[Canary] = []

    def restore(self, attributes: dict[str, Any]) -> None:
        for name, method in self.methods.items():
            if attributes.get(name) != method:
                continue  # a serializer that was derived without copying attributes
            if name in self._hidden:
                attributes[name] = self._hidden[name]
            else:
                del attributes[name]

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self._dump("dumps_typed", obj)

    def seal(self, obj: Any, **options: Any) -> tuple[str, bytes]:
        return self._dump("seal", obj, **options)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        for canary in self._sealed:
            canary.was_loaded |= canary.blob == data[1]
        return self._originals["loads_typed"](data)

    def with_msgpack_allowlist(self, extra_allowlist: Any) -> Any:
        derived = self._originals["with_msgpack_allowlist"](extra_allowlist)
        if derived is not self._serde:  # a copy, also of the watch
            self.restore(vars(derived))
        return derived

    def _dump(self, method: str, obj: Any, **options: Any) -> tuple[str, bytes]:
        canaries = list[Canary]()
        replaced = _replaced(obj, canaries)
        stored: tuple[str, bytes] = self._originals[method](replaced if canaries else obj, **options)
        for canary in canaries:
            canary.blob = stored[1]
        self._sealed += canaries
        return stored


def _replaced(value: Any, found: list[Canary], depth: int = _DEPTH) -> Any:
    """Return a value with the texts of its canaries, which are added to ``found``."""
    if isinstance(value, Canary):
        found.append(value)
        return value.text
    if not depth or not isinstance(value, dict | list | tuple):
        return value
    if isinstance(value, dict):
        return {key: _replaced(member, found, depth - 1) for key, member in value.items()}
    members = [_replaced(member, found, depth - 1) for member in value]
    return tuple(members) if isinstance(value, tuple) else members


# Version of the checkpoints of LangGraph 1: savers convert older ones while they read them
_CHECKPOINT_VERSION: Final = 4


def require_sealing(
    saver: Any, *, configurable: Mapping[str, Any] | None = None, thread_id: str | None = None
) -> None:
    """Check that a saver passes every value to its serializer, and that the serializer seals.

    Stores a checkpoint, a write and an interrupt in a thread with a random id, reads them, and deletes the
    thread, also if the check fails. Call it where the process starts, before the saver is in use.

    It checks values that are objects. It does not check:

    - metadata, thread ids and other names, which most savers do not pass to a serializer;
    - strings, numbers and booleans, which savers on Postgres and MySQL store without the serializer;
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

    Example:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from sealpoint.langgraph import require_sealing
        >>> require_sealing(InMemorySaver())
        Traceback (most recent call last):
        sealpoint.errors.SealingCheckError: ...
    """
    check = _Check(saver, configurable, thread_id, awaited=False)
    with watched(check.serde):
        run(check.steps(), lambda call: getattr(saver, call[0])(*call[1]))


async def arequire_sealing(
    saver: Any, *, configurable: Mapping[str, Any] | None = None, thread_id: str | None = None
) -> None:
    """Async version of `require_sealing`, through the async methods of the saver."""
    check = _Check(saver, configurable, thread_id, awaited=True)
    with watched(check.serde):
        await arun(check.steps(), lambda call: getattr(saver, call[0])(*call[1]))


class _Check:
    def __init__(
        self,
        saver: Any,
        configurable: Mapping[str, Any] | None,
        thread_id: str | None,
        *,
        awaited: bool,
    ) -> None:
        self._saver, self._awaited = saver, awaited
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

    def steps(self) -> Steps[None]:
        """Yield the methods to call with their arguments, and raise what their replies show."""
        yield from self._call("get_tuple", self._config)  # some savers create their tables here
        if not self._deletes:
            yield from self._trial()
            return
        # A saver that cannot delete is refused before it stores anything.
        yield from self._call("delete_thread", self._thread_id)
        try:
            yield from self._trial()
        except BaseException as error:
            try:
                yield from self._call("delete_thread", self._thread_id)
            except SealingCheckError as second:
                error.add_note(f"thread {self._thread_id!r} could not be deleted: {second.reason}")
            raise
        yield from self._call("delete_thread", self._thread_id)

    def _trial(self) -> Steps[None]:
        stored = yield from self._call("put", *self._checkpoint())
        yield from self._call("put_writes", stored, [("canary", self._write)], "task-1", "")
        yield from self._call("put_writes", stored, [(INTERRUPT, self._interrupt)], "task-2", "")
        self._require_sealed()
        self._require_returned((yield from self._call("get_tuple", stored)))

    def _call(self, method: str, *arguments: Any) -> Steps[Any]:
        name = f"a{method}" if self._awaited else method
        try:
            return (yield name, arguments)
        except Exception as error:
            reason = f"{name} raised {type(error).__name__}: {excerpt(str(error))}"
            given = {"put": self._canaries[:1], "put_writes": self._canaries[1:]}.get(method, ())
            missed = [canary.place for canary in given if canary.blob is None]
            if missed:
                reason += f"; the {missed[0]} had not reached saver.serde"
            hint = None
            if isinstance(error, NotImplementedError):
                other = "require_sealing" if self._awaited else "arequire_sealing"
                hint = f"use {other} if the saver has those methods"
                if method == "delete_thread":
                    hint += "; pass thread_id if it cannot delete"
            raise self._refusal(reason, hint=hint) from error

    def _checkpoint(self) -> tuple[Any, Checkpoint, dict[str, Any], dict[str, Any]]:
        version = self._saver.get_next_version(None, None)
        checkpoint: Checkpoint = {
            **empty_checkpoint(),
            "v": _CHECKPOINT_VERSION,
            "channel_values": {"canary": self._value},
            "channel_versions": {"canary": version},
            "updated_channels": ["canary"],
        }
        return self._config, checkpoint, {"source": "input", "step": -1, "parents": {}}, {"canary": version}

    def _require_sealing_serde(self) -> SerializerProtocol:
        serde = getattr(self._saver, "serde", None)
        if not isinstance(serde, SerializerProtocol):
            raise self._refusal("it has no serializer with dumps_typed and loads_typed in `serde`")
        if getattr(self._saver, "allow_write_with", None) is not None:
            raise self._refusal(
                "allow_write_with is on, so that rows are written as before and not bound",
                hint="remove allow_write_with when no process without SealedSaver is left",
            )
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
                    hint="the saver stores or logs the text as well as the sealed value; use another saver",
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
