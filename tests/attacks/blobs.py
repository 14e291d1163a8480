"""Cases about bytes that a serializer reads: one blob, several readers."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.attacks.case import Case, Read, Reading, Scene

Build = Callable[[Scene], Any]
Honest = Callable[[Any], bool]

STACK_BYTES: Final = 128 * 1024
_LARGE_BYTES: Final = 16 * 1024
_OURS_ALONE: Final = frozenset({"inert", "inventory", "inert-thread"})

Row = tuple[Any, Any]


def cases(
    family: str,
    name: str,
    data: bytes | Build,
    *,
    kind: Any = "msgpack",
    readers: str = "strict",
    honest: Honest | None = None,
    malformed: bool = False,
) -> Iterator[Case]:
    """Make one case a reader.

    Args:
        family: Family of the cases.
        name: Name of the blob.
        data: The blob, or how to build it.
        kind: What it is labelled with.
        readers: Names of readers, between spaces; see `_reader`.
        honest: Tells a value that was honestly stored. By default that is one that the
            serializer writes as the very same bytes.
        malformed: Whether the bytes are no value at all, so that an inert reading, too,
            must refuse them.
    """
    if isinstance(data, bytes) and len(data) > _LARGE_BYTES:
        data = _unpacking(zlib.compress(data, 1))  # the parent stays small, and quick to fork
    for reader in readers.split():
        forge = _forge(reader, kind, data, honest, malformed)
        yield Case(family, f"{name} [{reader}]", forge, shared=reader not in _OURS_ALONE)


def _unpacking(packed: bytes) -> Build:
    return lambda _: zlib.decompress(packed)


def _forge(
    reader: str, kind: Any, data: bytes | Build, honest: Honest | None, malformed: bool
) -> Callable[[Scene], Read]:
    def forge(scene: Scene) -> Read:
        blob = data if isinstance(data, bytes) else data(scene)
        return _reader(reader, scene, (kind, blob), honest, malformed)

    return forge


def _reader(reader: str, scene: Scene, row: Row, honest: Honest | None, malformed: bool) -> Read:
    """Return the reading: how is said by the name of the reader.

    ``strict``: by a strict serializer. ``plaintext``: by the encrypting one that accepts
    plaintext. ``inert``: as plain data. ``inventory``: for the names in it. With ``-thread``:
    in a thread with a small stack.
    """
    how, _, thread = reader.partition("-")
    if how in ("inert", "inventory"):
        read = _read_inert(row, malformed) if how == "inert" else _read_inventory(row, malformed)
    else:
        serde = scene.side.strict() if how == "strict" else scene.side.sealing(plaintext=True)
        serde.dumps_typed({"warm": 1})

        def read() -> Reading:
            value = serde.loads_typed(row)
            return Reading(value, honest(value) if honest else rewrites(scene, value, row))

    return in_thread(read) if thread else read


def rewrites(scene: Scene, value: Any, row: Row) -> bool:
    """Whether an honest writer turns ``value`` into just this row."""
    try:
        return scene.side.strict().dumps_typed(value) == row
    except Exception:  # noqa: BLE001 -- what cannot be written was not written
        return False


def in_thread(read: Read) -> Read:
    """Do a reading in a thread with a small stack."""

    def reading() -> Reading:
        given: list[Reading | BaseException] = []

        def work() -> None:
            try:
                given.append(read())
            except BaseException as error:  # noqa: BLE001 -- handed on
                given.append(error)

        threading.stack_size(STACK_BYTES)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(given[0], BaseException):
            raise given[0]
        return given[0]

    return reading


def _read_inert(row: Row, malformed: bool) -> Read:
    from sealpoint.serde.inert import decode_inert

    def read() -> Reading:
        value = decode_inert(*row)
        return Reading(value, not malformed and is_plain(value))

    return read


def _read_inventory(row: Row, malformed: bool) -> Read:
    from sealpoint.serde.inert import inventory

    def read() -> Reading:
        found = inventory(row[1], row[0])
        return Reading(found, not malformed and type(found) is Counter and is_plain(dict(found)))

    return read


def is_plain(value: Any) -> bool:
    """Whether there are nothing but plain data and inert records in ``value``. Does not recur."""
    from sealpoint.serde.inert import Inert

    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) in (list, tuple, Inert):
            waiting.extend(item)
        elif type(item) is dict:
            waiting.extend(item)
            waiting.extend(item.values())
        elif type(item) not in (type(None), bool, int, float, str, bytes, bytearray):
            return False
    return True
