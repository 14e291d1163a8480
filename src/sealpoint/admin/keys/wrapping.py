"""Wrapping keys: wraps new key material and the keys of key files, and rewraps wrapped keys.

Every wrapped key is unwrapped and compared before it is written to the ring; only then is its key file
removed, so the ring can be loaded at any time. Until the file is removed, the source of the key names it as
``left``, so that an interrupted command can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.keys.change import LockedRing, find_key, lock_ring, wrapped_text
from sealpoint.admin.keys.destroy import left_file, own_file
from sealpoint.errors import KeyTransitionError, KeyUnavailableError, WrappedKeyError, excerpt
from sealpoint.keys.entry import WrappedSource
from sealpoint.keys.material import check_value
from sealpoint.keys.ringfile import INDEX, RingFile
from sealpoint.keys.wrap.wrapper import WrapContext, WrapperState
from sealpoint.seal.keys import KEY_BYTES, KeyState


def wrap_key(path: str | PathLike[str] | None, key_id: str, wrapper_id: str) -> Path | None:
    """Wrap a key; remove its key file, if any, and return the path of the removed file, or ``None``."""
    with lock_ring(path) as locked:
        ring, source = locked, locked.parsed.require_loader(key_id).source
        if not isinstance(source, WrappedSource):
            ring = _wrap_key(ring, key_id, wrapper_id)
        elif source.left is None or source.wrapper.id != wrapper_id:
            again = f"to wrap it again: sealpoint keys rewrap {key_id} --with {wrapper_id}"
            first = f"to remove its key file first: sealpoint keys wrap {key_id} --with {source.wrapper.id}"
            hint = again if source.left is None else first
            raise KeyTransitionError(f"key {key_id!r} is already wrapped by {source.wrapper.id!r}", hint=hint)
        # An earlier run may have been interrupted here, before it removed the file.
        return _remove_left(ring, key_id)


def rewrap_keys(
    path: str | PathLike[str] | None, ids: Iterable[str] | None = None, wrapper_id: str | None = None
) -> list[str]:
    """Unwrap keys and wrap them again: under the latest version of the wrapping key, or by another wrapper.

    Each wrapped key is written to the ring file at once, so an interrupted command can be repeated.
    Rows of databases do not change. Returns the ids of the keys.
    """
    with lock_ring(path) as locked:
        ring = locked
        named = list(dict.fromkeys(_wrapped_sources(ring.parsed) if ids is None else ids))
        if not named:
            raise KeyTransitionError(f"{ring.file} has no wrapped key", hint=_WRAP_FIRST)
        sources = {key_id: _require_wrapped(ring.parsed, key_id) for key_id in named}
        for key_id, source in sources.items():
            loader = ring.parsed.require_loader(key_id)
            material = loader()
            if loader.check is None:
                # Without a check value, a faulty wrapper could replace the only wrapped key by another key.
                hint = f'if the values under the key open, add check = "{check_value(material)}" to the entry'
                raise KeyTransitionError(f"the entry of {key_id!r} has no check value", hint=hint)
            text = wrap_material(ring, wrapper_id or source.wrapper.id, key_id, material, source.left)
            ring = _set_source(ring, key_id, text, check_value(material))
    return named


def check_wrappers(
    path: str | PathLike[str] | None = None, unwrapped: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Test each wrapper: wrap and unwrap 32 random bytes, and get the state of the wrapping key.

    Returns JSON members for each wrapper. ``problem`` is the error of the test, or a problem that the service
    reports; ``is_failing`` means that unwrapping fails, or soon will. ``unwrapped`` has the ids of wrappers
    that have just unwrapped a key: they may refuse to wrap, since hosts of agents need no right to wrap.
    """
    ring = RingFile(path)
    context = WrapContext(ring.wrappers.ring or "unnamed", "keys-check")
    found = []
    for one in ring.wrappers.by_id.values():
        state, problem, is_failing = WrapperState(), None, False
        try:
            one.wrap(os.urandom(KEY_BYTES), context)
        except (KeyUnavailableError, WrappedKeyError) as error:
            problem = str(error).removeprefix(f"{one.name}: ")
            is_failing = one.id not in unwrapped or isinstance(error, WrappedKeyError)
        try:
            state = one.describe()
        except KeyUnavailableError as error:
            problem = problem or str(error).removeprefix(f"{one.name}: ")
        problem, is_failing = state.problem or problem, is_failing or state.problem is not None
        found.append(
            {
                "id": one.id,
                "kind": one.wrapper.kind,
                "location": one.wrapper.location,
                "version": state.version,
                "problem": problem,
                "is_failing": is_failing,
            }
        )
    return found


def find_left_files(path: str | PathLike[str] | None = None) -> dict[str, str]:
    """Return the names of key files that an interrupted `wrap_key` has not removed, by key id."""
    sources = _wrapped_sources(RingFile(path))
    return {key_id: source.left for key_id, source in sources.items() if source.left is not None}


_WRAP_FIRST: Final = "to wrap a key of a key file: sealpoint keys wrap ID --with WRAPPER"


def _wrapped_sources(ring: RingFile) -> dict[str, WrappedSource]:
    ids = [entry.id for entry in ring.entries if entry.state is not KeyState.DESTROYED]
    ids += [] if ring.index is None else [ring.index_id or INDEX]
    sources = {key_id: ring.require_loader(key_id).source for key_id in ids}
    return {key_id: source for key_id, source in sources.items() if isinstance(source, WrappedSource)}


def _require_wrapped(ring: RingFile, key_id: str) -> WrappedSource:
    source = ring.require_loader(key_id).source
    if not isinstance(source, WrappedSource):
        raise KeyTransitionError(f"key {key_id!r} is not wrapped", hint=_WRAP_FIRST)
    return source


def wrap_material(
    ring: LockedRing, wrapper_id: str, key_id: str, material: bytes, left: str | None = None
) -> str:
    """Wrap key material; return its ``source`` line. The caller writes ``ring.name`` to the ring file."""
    wrapper = ring.parsed.wrappers.require(wrapper_id)
    wrapped = wrapper.wrap(material, WrapContext(ring.name, key_id))
    return wrapped_text(wrapped.blob, wrapper_id, wrapped.version, left)


def _wrap_key(ring: LockedRing, key_id: str, wrapper_id: str) -> LockedRing:
    loader = ring.parsed.require_loader(key_id)
    file, left = own_file(ring, key_id, "wrap"), None
    material = loader()
    if file is not None:
        replace(file, check=check_value(material)).require_removable()
        left = str(loader.source.location)
        if not left.isprintable():
            raise KeyTransitionError(f"a ring cannot name the file {excerpt(left)}", hint="rename the file")
    text = wrap_material(ring, wrapper_id, key_id, material, left)
    return _set_source(ring, key_id, text, check_value(material))


def _remove_left(ring: LockedRing, key_id: str) -> Path | None:
    source, file = _require_wrapped(ring.parsed, key_id), left_file(ring, key_id)
    if file is None:
        return None
    if file.require_removable():
        # The file may be the last copy: first read the wrapped key back from the ring, unwrap and compare.
        ring.parsed.require_loader(key_id)()
    is_removed = file.remove()
    text = wrapped_text(source.blob, source.wrapper.id, source.version)
    _set_source(ring, key_id, text, file.check)
    return file.path if is_removed else None


def _set_source(ring: LockedRing, key_id: str, text: str, check: str | None) -> LockedRing:
    """Replace the source of a key; if the ring has no name or the key no check value, add these."""

    def change(tree: Any, parse: Callable[[str], Any]) -> None:
        is_key = any(entry.id == key_id for entry in ring.entries)
        key = find_key(tree, key_id) if is_key else tree["index"][0]
        key["source"] = parse(text)["source"]
        if check is not None:
            key.setdefault("check", check)
        tree.setdefault("name", ring.name)

    return ring.replace(change)
