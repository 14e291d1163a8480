"""Wrapping keys: new ones, those that lie in files, and wrapped ones again.

Every wrapped key is unwrapped and compared before the ring names it, and a key file is removed after that:
at every moment the ring loads. Until the file is removed, the source names it as ``left``: an interrupted
command can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from sealpoint.errors import (
    DuplicateKeyError,
    KeyTransitionError,
    KeyUnavailableError,
    OutputExistsError,
    WrappedKeyError,
    excerpt,
)
from sealpoint.keys import leftovers
from sealpoint.keys.change import LockedRing, add_key, find_key, lock_ring, now_in_seconds
from sealpoint.keys.entry import require_owner
from sealpoint.keys.ids import KEY_BYTES, require_key_id
from sealpoint.keys.key import check_value
from sealpoint.keys.keyfile import left_file, own_file
from sealpoint.keys.ringfile import INDEX, RingFile, find_ring_file
from sealpoint.keys.ringtext import entry_text, index_text, wrapped_text
from sealpoint.keys.state import KeyState
from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey
from sealpoint.keys.wrapped import WrappedSource

_CHECK_ID: Final = "keys-check"


def stage_wrapped_key(
    path: str | PathLike[str] | None,
    wrapper_id: str,
    key_id: str | None = None,
    *,
    expires: datetime | None = None,
    owner: str | None = None,
) -> str:
    """Add a key with new material, staged and wrapped. The material is never in a file.

    Args:
        path: The ring file, as for `KeyRing.load`; also in all other changes.
        wrapper_id: Id of the wrapper.
        key_id: Id of the key; by default the next id of the year with a random part.
        expires: When the key should no longer seal.
        owner: Who is responsible for the key, one line.

    Returns:
        The id of the key.

    Raises:
        DuplicateKeyError: If the id is used.
        OutputExistsError: If there is a key file for this id.
        KeyRingError: Another of its subclasses, if the wrapper is not in the ring, or does not wrap it.
    """
    with lock_ring(path) as ring:
        now, taken = now_in_seconds(), ring.taken_ids
        if key_id is None:
            key_id = leftovers.free_id(ring.file, taken, now.year, resume=False)
        if require_key_id(key_id) in taken:
            raise DuplicateKeyError(f"{ring.file} has a key {key_id!r} already")
        if os.path.lexists(file := leftovers.key_file(ring.file, key_id)):
            raise OutputExistsError(f"{file} is there already", hint="name another id")
        if owner is not None:
            require_owner(owner, f"key {key_id!r}")
        material = os.urandom(KEY_BYTES)
        name, source = _wrap(ring, material, key_id, wrapper_id)
        dates = {"created": now, "expires": expires}
        text = entry_text(key_id, KeyState.STAGED.value, dates, owner, check_value(material), source)

        def change(tree: Any, parse: Callable[[str], Any]) -> None:
            tree.setdefault("name", name)
            add_key(tree, parse(text))

        ring.replace(change)
    return key_id


def add_wrapped_index(path: str | PathLike[str] | None, wrapper_id: str) -> str:
    """Add an index key with new material, wrapped: for tokens and pseudonyms, and never rotated.

    Returns:
        The id of the key, ``index``.

    Raises:
        DuplicateKeyError: If the ring has an index key, or another key of this id.
        KeyRingError: Another of its subclasses, if the wrapper is not in the ring, or does not wrap it.
    """
    with lock_ring(path) as ring:
        if ring.parsed.index_source is not None or INDEX in ring.taken_ids:
            hint = "an index key is never replaced: no token could be found under another one"
            raise DuplicateKeyError(f"{ring.file} has an index key already", hint=hint)
        material = os.urandom(KEY_BYTES)
        name, source = _wrap(ring, material, INDEX, wrapper_id)
        text = index_text(INDEX, now_in_seconds(), check_value(material), source)

        def change(tree: Any, parse: Callable[[str], Any]) -> None:
            tree.setdefault("name", name)
            tree.update(index=parse(text)["index"])

        ring.replace(change)
    return INDEX


def wrap_key(path: str | PathLike[str] | None, key_id: str, wrapper_id: str) -> Path | None:
    """Wrap a key that the ring has from another source, and remove its key file.

    Args:
        path: The ring file.
        key_id: The key, or the index key.
        wrapper_id: Id of the wrapper.

    Returns:
        The file that was removed, if the key was in one.

    Raises:
        KeyTransitionError: If the key is wrapped already, or by another wrapper, another key has the same
            file, or the file is not known to hold the key.
        FileLinkError: If the file has links.
        StoppedError: If the file cannot be removed.
        KeyRingError: Another of its subclasses, if the key is not available, or the wrapper does not wrap it.
    """
    with lock_ring(path) as locked:
        ring, source = locked, locked.parsed.require_loader(key_id).source
        if not isinstance(source, WrappedSource):
            ring = _wrap_key(ring, key_id, wrapper_id)
        else:
            _require_resumed(key_id, source, wrapper_id)
        return _remove_left(ring, key_id)


def rewrap_keys(
    path: str | PathLike[str] | None, ids: Iterable[str] | None = None, wrapper_id: str | None = None
) -> list[str]:
    """Unwrap keys and wrap them again: under the latest version of the wrapping key, or by another wrapper.

    Each key is written when it is wrapped: an interrupted command can be repeated. No row is touched.

    Args:
        path: The ring file.
        ids: The keys; by default all that are wrapped.
        wrapper_id: Id of the wrapper; by default that of each key.

    Returns:
        The ids of the keys that were wrapped again.

    Raises:
        KeyTransitionError: If a key is not wrapped, or has no check value, or none is wrapped.
        KeyRingError: Another of its subclasses, if a wrapper does not unwrap or wrap.
    """
    with lock_ring(path) as locked:
        ring = locked
        named = list(dict.fromkeys(_wrapped_ids(ring.parsed) if ids is None else ids))
        if not named:
            raise KeyTransitionError(f"{ring.file} has no wrapped key", hint=_WRAP_FIRST)
        sources = {key_id: _require_wrapped(ring.parsed, key_id) for key_id in named}
        for key_id, source in sources.items():
            loader = ring.parsed.require_loader(key_id)
            material = loader()
            if loader.check is None:
                # A program that prints another line than it was given would replace the only wrapped key.
                hint = f'add check = "{check_value(material)}" to it, if the key opens its values'
                raise KeyTransitionError(f"the entry of {key_id!r} has no check value", hint=hint)
            name, text = _wrap(ring, material, key_id, wrapper_id or source.wrapper.id, source.left)
            ring = _set_source(ring, key_id, text, name, check_value(material))
    return named


@dataclass(frozen=True, slots=True)
class WrapperCheck:
    """What a wrapper did when it was tried.

    Attributes:
        id: Of the wrapper.
        kind: Of the wrapper.
        location: The service and its key.
        version: The version with which it wraps now, if the service named one.
        problem: What it did not do, or what the service says of its key.
        is_failing: Whether keys will not be unwrapped, now or soon.
    """

    id: str
    kind: str
    location: str
    version: str | None
    problem: str | None
    is_failing: bool


def check_wrappers(
    path: str | PathLike[str] | None = None, unwrapped: Collection[str] = ()
) -> list[WrapperCheck]:
    """Wrap and unwrap 32 random bytes by each wrapper, and ask for the state of its key.

    Args:
        path: The ring file.
        unwrapped: Ids of wrappers that have just unwrapped a key. They may refuse to wrap: hosts of agents
            need no right to that.

    Raises:
        KeyRingError: If the ring file is not valid.
    """
    ring = RingFile(find_ring_file(path))
    context = WrapContext(ring.wrappers.ring or "unnamed", _CHECK_ID)
    found = []
    for one in ring.wrappers.by_id.values():
        version = problem = None
        is_failing = False
        try:
            one.wrap(os.urandom(KEY_BYTES), context)
        except (KeyUnavailableError, WrappedKeyError) as error:
            problem = str(error).removeprefix(f"{one.name}: ")
            is_failing = one.id not in unwrapped or isinstance(error, WrappedKeyError)
        try:
            state = one.describe()
        except KeyUnavailableError as error:
            problem = problem or str(error).removeprefix(f"{one.name}: ")
        else:
            version = state.version
            if state.problem is not None:
                problem, is_failing = state.problem, True
        found.append(
            WrapperCheck(one.id, one.wrapper.kind, one.wrapper.location, version, problem, is_failing)
        )
    return found


def find_left_files(path: str | PathLike[str] | None = None) -> dict[str, str]:
    """Return the files that an interrupted `wrap_key` has left, by the id of their key."""
    ring = RingFile(find_ring_file(path))
    sources = {key_id: _require_wrapped(ring, key_id) for key_id in _wrapped_ids(ring)}
    return {key_id: source.left for key_id, source in sources.items() if source.left is not None}


_WRAP_FIRST: Final = "to wrap a key that is not: sealpoint keys wrap ID --with WRAPPER"


def _wrapped_ids(ring: RingFile) -> list[str]:
    ids = [entry.id for entry in ring.entries if entry.state is not KeyState.DESTROYED]
    ids += [] if ring.index_source is None else [ring.index_id or INDEX]
    return [key_id for key_id in ids if isinstance(ring.require_loader(key_id).source, WrappedSource)]


def _require_wrapped(ring: RingFile, key_id: str) -> WrappedSource:
    source = ring.require_loader(key_id).source
    if not isinstance(source, WrappedSource):
        raise KeyTransitionError(f"key {key_id!r} is not wrapped", hint=_WRAP_FIRST)
    return source


def _wrap(
    ring: LockedRing, material: bytes, key_id: str, wrapper_id: str, left: str | None = None
) -> tuple[str, str]:
    """Wrap material; return the ring's name, and the line of the key's source."""
    wrappers = ring.parsed.wrappers
    name = wrappers.ring or f"ring-{token_hex(4)}"
    wrapped: WrappedKey = wrappers.require(wrapper_id).wrap(material, WrapContext(name, key_id))
    return name, wrapped_text(wrapped.blob, wrapper_id, wrapped.version, left)


def _wrap_key(ring: LockedRing, key_id: str, wrapper_id: str) -> LockedRing:
    loader = ring.parsed.require_loader(key_id)
    file, left = own_file(ring, key_id, "wrap"), None
    material = loader()
    if file is not None:
        replace(file, check=check_value(material)).require_removable()
        left = str(loader.source.location)
        if not left.isprintable():
            raise KeyTransitionError(f"the name of {excerpt(left)} cannot be kept", hint="rename the file")
    name, text = _wrap(ring, material, key_id, wrapper_id, left)
    return _set_source(ring, key_id, text, name, check_value(material))


def _require_resumed(key_id: str, source: WrappedSource, wrapper_id: str) -> None:
    """Refuse a wrapped key, unless this command was interrupted before it removed the key's file."""
    if source.left is None or source.wrapper.id != wrapper_id:
        again = f"to wrap it again: sealpoint keys rewrap {key_id} --with {wrapper_id}"
        first = f"its file is not removed: sealpoint keys wrap {key_id} --with {source.wrapper.id}"
        hint = again if source.left is None else first
        raise KeyTransitionError(f"key {key_id!r} is wrapped by {source.wrapper.id!r} already", hint=hint)


def _remove_left(ring: LockedRing, key_id: str) -> Path | None:
    """Remove the file of a key that is wrapped, and record that."""
    source, file = _require_wrapped(ring.parsed, key_id), left_file(ring, key_id)
    if file is None:
        return None
    if file.require_removable():
        # The file may be the last copy: the wrapped key is read back from the ring, unwrapped and compared.
        ring.parsed.require_loader(key_id)()
    is_removed = file.remove()
    text = wrapped_text(source.blob, source.wrapper.id, source.version)
    _set_source(ring, key_id, text, source.context.ring, file.check)
    return file.path if is_removed else None


def _set_source(ring: LockedRing, key_id: str, text: str, name: str, check: str | None) -> LockedRing:
    """Replace the source of a key. A ring without a name gets one, and a key without a check value."""

    def change(tree: Any, parse: Callable[[str], Any]) -> None:
        is_key = any(entry.id == key_id for entry in ring.entries)
        key = find_key(tree, key_id) if is_key else tree["index"][0]
        key["source"] = parse(text)["source"]
        if check is not None:
            key.setdefault("check", check)
        tree.setdefault("name", name)

    return ring.replace(change)
