"""`require_sealing`: checks that a saver, a store or a cache passes each value to its serializer.

The check stores canaries: values that only a watched serializer can write, while pickle, JSON and msgpack
refuse them. The serializer replaces each canary by a random text, and seals the text. If a canary is stored
in any other way, storing it raises an error, or the check finds that the canary was not sealed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn

from sealpoint.base.checkpoint import Checkpoint, empty_checkpoint
from sealpoint.base.saver import Steps, arun, run
from sealpoint.errors import SealingCheckError, excerpt
from sealpoint.seal.calls import INTERRUPT
from sealpoint.seal.tag import is_sealed
from sealpoint.serde.base import SerializerProtocol

# How deep in a serialized value canaries are looked for: savers put a few containers around them
_DEPTH: Final = 8

# Methods that a watch wraps: `SealedSaver` calls ``seal``, other savers call ``dumps_typed``
_METHODS: Final = ("dumps_typed", "loads_typed", "seal", "with_msgpack_allowlist")

_lock: Final = threading.Lock()


class Canary:
    """A test value that only a serializer under `watched` can write."""

    __slots__ = ("blob", "place", "text", "was_loaded", "was_shown")

    def __init__(self, place: str) -> None:
        self.place = place
        self.text = secrets.token_hex(32)  # the text that is sealed in place of the canary
        self.blob: bytes | None = None  # the bytes that the serializer returned for the canary
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
    """Make ``serde`` accept canaries during a block. Other threads may use and watch ``serde`` meanwhile."""
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
    """Replaces methods of a serializer until the last check that uses this serializer ends."""

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
    """Return a value in which texts replace the canaries; append the canaries to ``found``."""
    if isinstance(value, Canary):
        found.append(value)
        return value.text
    if not depth or not isinstance(value, dict | list | tuple):
        return value
    if isinstance(value, dict):
        return {key: _replaced(member, found, depth - 1) for key, member in value.items()}
    members = [_replaced(member, found, depth - 1) for member in value]
    return tuple(members) if isinstance(value, tuple) else members


_PLACES: Final = ("channel value", "write", "interrupt")
_GIVE: Final = "give the saver a sealpoint.langgraph.EncryptedSerializer"
_WRAP: Final = "use the wrapper Sealed{}({}, serde=...)"
_KNOWN: Final = (
    "pass a compiled graph, a saver, a store or a cache: not its class, nor what `from_conn_string` returns"
    " before `with`"
)

# Version of the checkpoints of LangGraph 1: savers convert checkpoints of older versions at reading
_CHECKPOINT_VERSION: Final = 4


def require_sealing(
    saver: Any, *, configurable: Mapping[str, Any] | None = None, thread_id: str | None = None
) -> dict[str, str | None]:
    """Check that the checkpointer, the store and the cache of a graph seal the values that they store.

    Stores a checkpoint, a write and an interrupt in a thread with a random id, reads them, and deletes the
    thread, also if the check fails; does the same with an item in a random namespace, and a cached value.
    Each value must be passed to the serializer, and the serializer must seal it. Call this function at the
    start of a process, before the graph is in use.

    The check covers values that are objects. It does not cover:

    - metadata, thread ids and other names, which most savers do not pass to a serializer;
    - strings, numbers and booleans, which savers on Postgres and MySQL store without the serializer;
    - second copies of a value, except as pickle, JSON or text;
    - fields that `SealedStore` leaves readable, and embeddings;
    - databases that a node opens itself. A subgraph uses the checkpointer and the store of the graph that
      runs it; its own cache is checked if LangGraph lists the subgraph (``get_subgraphs``).

    A saver is refused if it fetches a method of its serializer at creation, and calls this method later.

    Args:
        saver: A compiled graph or an entrypoint; or a saver, a store or a cache alone. They need sync
            methods, and their tables must exist.
        configurable: Further keys of ``config["configurable"]``, if the saver requires any.
        thread_id: For a saver that cannot delete a thread: a thread that no agent uses. The checkpoint and
            the writes of the check remain in it.

    Returns:
        The name of the class that seals, by part of the graph; ``None`` for a part that the graph lacks.

    Raises:
        SealingCheckError: If a value is not passed to ``serde``, or the serializer does not seal, or a sealed
            value is not returned, or a method raises. For a graph the error names all failed parts.

    Example:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from sealpoint.langgraph import require_sealing
        >>> require_sealing(InMemorySaver())
        Traceback (most recent call last):
        sealpoint.errors.SealingCheckError: ...
    """
    return run(_checks(saver, configurable, thread_id, awaited=False), lambda call: call())


async def arequire_sealing(
    saver: Any, *, configurable: Mapping[str, Any] | None = None, thread_id: str | None = None
) -> dict[str, str | None]:
    """Async version of `require_sealing`, through the async methods of the saver, the store and the cache."""
    return await arun(_checks(saver, configurable, thread_id, awaited=True), lambda call: call())


def _checks(
    checked: Any, configurable: Mapping[str, Any] | None, thread_id: str | None, *, awaited: bool
) -> Steps[dict[str, str | None]]:
    """Yield the calls of methods to make. All parts of a graph are checked before an error is raised."""
    is_graph, refused = hasattr(checked, "checkpointer"), list[tuple[str, SealingCheckError]]()
    found = _places_of(checked) if is_graph else {_kind_of(checked): checked}
    for place, part in found.items():
        if part is not None:
            try:
                check = _Check(part, configurable, thread_id, awaited=awaited)
                with watched(check.serde):
                    yield from check.steps()
            except SealingCheckError as error:
                if not is_graph:
                    raise
                refused.append((place, error))
    if refused:
        reasons = "; ".join(f"{place} {error}" for place, error in refused)
        hints = dict.fromkeys(error.hint for _, error in refused)
        raise SealingCheckError(type(checked), reasons, hint="; ".join(hints)) from refused[0][1]
    return {place: None if part is None else type(part).__name__ for place, part in found.items()}


def _places_of(graph: Any) -> dict[str, Any]:
    """Return the checkpointer, the store and the caches that a graph uses."""
    found = {place: getattr(graph, place, None) for place in ("checkpointer", "store", "cache")}
    if isinstance(found["checkpointer"], bool):  # True: the parent graph's checkpointer; False: none
        found["checkpointer"] = None
    for name, subgraph in graph.get_subgraphs(recurse=True):
        if (cache := getattr(subgraph, "cache", None)) not in (None, found["cache"]):
            found[f"cache of subgraph {excerpt(name)}"] = cache
    return found


def _kind_of(part: Any) -> str:
    return "cache" if hasattr(part, "aclear") else "store" if hasattr(part, "abatch") else "saver"


class _Check:
    def __init__(
        self,
        saver: Any,
        configurable: Mapping[str, Any] | None,
        thread_id: str | None,
        *,
        awaited: bool,
    ) -> None:
        self._saver, self._kind, self._awaited = saver, _kind_of(saver), awaited
        self._deletes = thread_id is None or self._kind != "saver"
        self._thread_id = f"sealpoint-check-{secrets.token_hex(16)}" if self._deletes else thread_id
        self._config = {
            "configurable": {**(configurable or {}), "thread_id": self._thread_id, "checkpoint_ns": ""}
        }
        name = self._name = (self._thread_id,), "canary"  # of an item or a cached value
        kinds: dict[str, Any] = {
            "saver": (_PLACES, ("get_tuple", self._config), ("delete_thread", self._thread_id)),
            "store": (["item"], ("get", *name), ("delete", *name)),
            "cache": (["value"], ("get", [name]), ("clear", [name[0]])),
        }
        places, self._reading, self._deleting = kinds[self._kind]
        self._hint = None if self._kind == "saver" else _WRAP.format(self._kind.capitalize(), self._kind)
        self._canaries = [Canary(place) for place in places]
        self.serde = self._require_sealing_serde()

    def steps(self) -> Steps[None]:
        """Yield the methods to call, and raise if a reply shows a value that was not sealed."""
        yield from self._call(*self._reading)  # some savers create their tables here
        if not self._deletes:
            yield from self._trial()
            return
        # A saver that cannot delete is refused before it stores anything.
        yield from self._call(*self._deleting)
        try:
            yield from self._trial()
        except BaseException as error:
            try:
                yield from self._call(*self._deleting)
            except SealingCheckError as second:
                error.add_note(f"{self._thread_id!r} could not be deleted: {second.reason}")
            raise
        yield from self._call(*self._deleting)

    def _trial(self) -> Steps[None]:
        first, *others = self._canaries
        if self._kind == "store":
            yield from self._call("put", *self._name, {"canary": first}, False)  # not indexed
        elif self._kind == "cache":
            yield from self._call("set", {self._name: (first, None)})
        else:
            stored = yield from self._call("put", *self._checkpoint())
            yield from self._call("put_writes", stored, [("canary", others[0])], "task-1", "")
            yield from self._call("put_writes", stored, [(INTERRUPT, others[1])], "task-2", "")
            self._reading = "get_tuple", stored
        self._require_sealed()
        found = yield from self._call(*self._reading)
        for canary, value in zip(self._canaries, self._values(found), strict=True):
            if value != canary.text:
                raise self._refusal(f"{self._reading[0]} did not return the {canary.place} that was sealed")

    def _values(self, found: Any) -> Sequence[Any]:
        if self._kind == "cache":
            return [found.get(self._name)]
        if self._kind == "store":
            return [found and found.value.get("canary")]
        if found is None:
            raise self._refusal("get_tuple returned no checkpoint for the config that put returned")
        writes = {channel: value for _, channel, value in found.pending_writes or ()}
        return found.checkpoint["channel_values"].get("canary"), writes.get("canary"), writes.get(INTERRUPT)

    def _call(self, method: str, *arguments: Any) -> Steps[Any]:
        name = f"a{method}" if self._awaited else method
        try:
            return (yield partial(getattr(self._saver, name), *arguments))
        except Exception as error:
            reason = f"{name} raised {type(error).__name__}: {excerpt(str(error))}"
            first, others = self._canaries[:1], self._canaries[1:]
            given = {"put": first, "set": first, "put_writes": others}.get(method, ())
            missed = [canary.place for canary in given if canary.blob is None]
            if missed:
                reason += f"; the {missed[0]} was not passed to {self._kind}.serde"
            hint = None
            if isinstance(error, NotImplementedError):
                other = "require_sealing" if self._awaited else "arequire_sealing"
                hint = f"use {other} if the {self._kind} has {'sync' if self._awaited else 'async'} methods"
                if method == "delete_thread":
                    hint += "; pass thread_id if it cannot delete threads"
            raise self._refusal(reason, hint=hint) from error

    def _checkpoint(self) -> tuple[Any, Checkpoint, dict[str, Any], dict[str, Any]]:
        version = self._saver.get_next_version(None, None)
        checkpoint: Checkpoint = {
            **empty_checkpoint(),
            "v": _CHECKPOINT_VERSION,
            "channel_values": {"canary": self._canaries[0]},
            "channel_versions": {"canary": version},
            "updated_channels": ["canary"],
        }
        return self._config, checkpoint, {"source": "input", "step": -1, "parents": {}}, {"canary": version}

    def _require_sealing_serde(self) -> SerializerProtocol:
        serde = None if isinstance(self._saver, type) else getattr(self._saver, "serde", None)
        if not isinstance(serde, SerializerProtocol):
            raise self._refusal(
                "it has no serializer with dumps_typed and loads_typed in `serde`", hint=self._hint or _KNOWN
            )
        if getattr(self._saver, "allow_write_with", None) is not None:
            raise self._refusal(
                "allow_write_with is set, so values are written without being bound to their rows",
                hint="remove allow_write_with when no process without SealedSaver is left",
            )
        name = type(serde).__name__
        tag, blob = serde.dumps_typed(text := self._canaries[0].text)
        if not is_sealed(tag) or text.encode() in blob:
            raise self._refusal(f"its serializer {name} does not seal", hint=self._hint or _GIVE)
        if not hasattr(serde, "__dict__"):
            raise self._refusal(
                f"its serializer {name} has no __dict__, so it cannot be watched",
                hint="remove __slots__ from the serializer, or check a saver with another serializer",
            )
        return serde

    def _require_sealed(self) -> None:
        for canary in self._canaries:
            if canary.blob is None:
                raise self._refusal(f"the {canary.place} was not passed to {self._kind}.serde")
            if canary.was_loaded:
                raise self._refusal(
                    f"the {canary.place} was sealed, but also deserialized while it was stored",
                    hint=f"the {self._kind} stores the deserialized value; use another {self._kind}",
                )
            if canary.was_shown:
                raise self._refusal(
                    f"the {canary.place} was converted to text while it was stored",
                    hint=f"the {self._kind} stores or logs the text, too; use another {self._kind}",
                )

    def _refusal(self, reason: str, *, hint: str | None = None) -> SealingCheckError:
        return SealingCheckError(type(self._saver), reason, hint=hint or self._hint)
