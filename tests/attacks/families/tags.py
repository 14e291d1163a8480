"""Sealed values with another tag, another blob, or another place."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.attacks.case import Case, Forge, Read, Reading, Scene
from tests.attacks.families.names import TOUCH
from tests.attacks.sides import LangGraph
from tests.support.values.forge import named, pack

VALUE: Final = {"a": 1}
_REGIONS: Final = 16

Change = Callable[[Any, Any], tuple[Any, Any]]


def _sealed(change: Change, value: Any = VALUE, *, plaintext: bool = False) -> Forge:
    def forge(scene: Scene) -> Read:
        serde = scene.side.sealing(plaintext=plaintext)
        tag, blob = serde.dumps_typed(value)
        forged = change(tag, blob)

        def read() -> Reading:
            return Reading(serde.loads_typed(forged), whole=False)

        return read

    return forge


def _tag(change: Callable[[str], Any]) -> Change:
    return lambda tag, blob: (change(tag), blob)


def _changed(what: Any, change: Callable[[Any, Any, Any], Any]) -> Change:
    return lambda tag, blob: change(tag, blob, what)


def _inner(name: str) -> Change:
    return _tag(lambda tag: f"{name}+{tag.partition('+')[2]}")


def relabelled() -> Iterator[Case]:
    """The same blob under another tag."""
    for name in (
        "pickle",
        "json",
        "bytes",
        "bytearray",
        "null",
        "MSGPACK",
        "msgpack ",
        "msgpac",
        "",
        "msgpack\n",
        "m" * 1000,
    ):
        yield Case("tags", f"inner {name[:20]!r}", _sealed(_inner(name)))
        if name in ("bytes", "null"):
            yield Case("tags", f"inner {name!r}, with plaintext", _sealed(_inner(name), plaintext=True))
    for label, change in (
        ("one + more", lambda tag: tag + "+"),
        ("a + in front", lambda tag: "+" + tag),
        ("two tags", lambda tag: f"{tag}+{tag}"),
        ("no +", lambda tag: tag.replace("+", "")),
        ("no suite", lambda tag: tag.partition("+")[0] + "+"),
        ("the inner alone", lambda tag: tag.partition("+")[0]),
        ("a newline behind it", lambda tag: tag + "\n"),
        ("a space behind it", lambda tag: tag + " "),
        ("a NUL behind it", lambda tag: tag + "\0"),
        ("a NUL in front", lambda tag: "\0" + tag),
        ("capitals", lambda tag: tag.upper()),
        ("a full-width +", lambda tag: tag.replace("+", "\uff0b")),
        ("a homoglyph", lambda tag: tag.replace("a", "\u0430")),
        ("a surrogate", lambda tag: tag + "\ud800"),
        ("65 characters", lambda tag: "m" * (65 - len(tag)) + tag),
        ("a megabyte", lambda tag: tag + "x" * 1_000_000),
        ("a million +", lambda tag: "+" * 1_000_000),
        ("bytes", lambda tag: tag.encode()),
        ("nil", lambda tag: None),
        ("a number", lambda tag: 5),
        ("a float", lambda tag: 1.5),
        ("a list", lambda tag: [tag]),
        ("nothing", lambda tag: ""),
    ):
        yield Case("tags", f"tag: {label}", _sealed(_tag(change)))
    for kind in (
        "str",
        "bytearray",
        "memoryview",
        "nil",
        "number",
        "list",
        "nothing",
        "half",
        "one byte less",
        "one byte more",
        "twice",
    ):
        yield Case(
            "tags", f"blob: {kind}", _sealed(_changed(kind, lambda tag, blob, kind: (tag, _blob(kind, blob))))
        )
    for length in (1, 15, 16, 27, 28, 31, 32, 55, 56, 71, 72):
        yield Case(
            "tags",
            f"the first {length} bytes",
            _sealed(_changed(length, lambda tag, blob, n: (tag, blob[:n]))),
        )


def _blob(kind: str, blob: bytes) -> Any:
    forged: dict[str, Any] = {
        "str": blob.decode("latin-1"),
        "bytearray": bytearray(blob[:-1]),
        "memoryview": memoryview(blob)[:-1],
        "nil": None,
        "number": 5,
        "list": list(blob),
        "nothing": b"",
        "half": blob[: len(blob) // 2],
        "one byte less": blob[:-1],
        "one byte more": blob + b"\0",
        "twice": blob + blob,
    }
    return forged[kind]


def keyed() -> Iterator[Case]:
    """Other suites, flags and keys: of sealpoint's tags alone."""
    for label, change in (
        ("another key of the ring", lambda tag: tag.replace("@k1", "@k2")),
        ("a disabled key", lambda tag: tag.replace("@k1", "@k3")),
        ("an unknown key", lambda tag: tag.replace("@k1", "@k9")),
        ("the legacy key", lambda tag: tag.replace("@k1", "@langgraph")),
        ("no key", lambda tag: tag.replace("@k1", "")),
        ("an empty key", lambda tag: tag.replace("@k1", "@")),
        ("two keys", lambda tag: tag + "@k1"),
        ("a key in capitals", lambda tag: tag.replace("@k1", "@K1")),
        ("a path for a key", lambda tag: tag.replace("@k1", "@../k1")),
        ("a long key", lambda tag: tag.replace("@k1", "@" + "k" * 25)),
        ("the other suite", lambda tag: tag.replace("cobblestone256", "xaes256gcm")),
        ("an unknown suite", lambda tag: tag.replace("cobblestone256", "rot13")),
        ("the legacy suite", lambda tag: tag.replace("cobblestone256@k1", "aes")),
        ("the legacy suite with a key", lambda tag: tag.replace("cobblestone256", "aes")),
        ("suite none", lambda tag: tag.replace("cobblestone256", "none")),
        ("flag row added", lambda tag: tag.replace("@", ".row@")),
        ("flag zst added", lambda tag: tag.replace("@", ".zst@")),
        ("an unknown flag", lambda tag: tag.replace("@", ".x@")),
        ("flags out of order", lambda tag: tag.replace("@", ".row.zst@")),
        ("a flag twice", lambda tag: tag.replace("@", ".row.row@")),
        ("an empty flag", lambda tag: tag.replace("@", ".@")),
    ):
        yield Case("tags", label, _sealed(_tag(change)), shared=False)
    for label, sealing, opening in (
        ("another row", {"row": {"thread_id": "t"}}, {"row": {"thread_id": "u"}}),
        ("no row", {"row": {"thread_id": "t"}}, {}),
        ("a row that it has not", {}, {"row": {"thread_id": "t"}}),
        ("a part of its row", {"row": {"a": "b", "c": "d"}}, {"row": {"a": "b"}}),
        ("its row, cut elsewhere", {"row": {"a": "bc"}}, {"row": {"ab": "c"}}),
    ):
        yield Case("tags", f"opened with {label}", _bound(sealing, opening), shared=False)


def _bound(sealing: dict[str, Any], opening: dict[str, Any]) -> Forge:
    def forge(scene: Scene) -> Read:
        serde: Any = scene.side.sealing()
        tag, blob = serde.seal(VALUE, **sealing)
        return lambda: Reading(serde.open(tag, blob, **opening), whole=False)

    return forge


def plaintext() -> Iterator[Case]:
    """Rows that nobody sealed, where only sealed ones are."""
    for kind, data in (
        ("msgpack", pack({"forged": True})),
        ("msgpack", pack(named(0, "os", "system", TOUCH))),
        ("json", b'{"forged": true}'),
        ("bytes", b"forged"),
        ("bytearray", b"forged"),
        ("null", b""),
        ("pickle", pickle.dumps({"forged": True})),
    ):
        yield Case(
            "tags",
            f"unsealed {kind} of {len(data)} bytes",
            _sealed(_changed((kind, data), lambda _tag, _blob, row: row)),
        )


def legacy() -> Iterator[Case]:
    """Rows of LangGraph's cipher, whose tag nobody vouches for."""

    def forge_legacy(kind: str, value: Any) -> Forge:
        def forge(scene: Scene) -> Read:
            writer: Any = LangGraph().sealing()
            name, blob = writer.cipher.encrypt(value)
            serde = scene.side.sealing(pickle_fallback=True)
            return lambda: Reading(serde.loads_typed((f"{kind}+{name}", blob)), whole=False)

        return forge

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            import os

            return os.system, (TOUCH,)

    for kind, label, data in (
        ("pickle", "bytes that are an evil pickle", pickle.dumps(Evil())),
        ("pickle", "bytes that are a pickle", pickle.dumps(1)),
        ("msgpack", "bytes that name os.system", pack(named(0, "os", "system", TOUCH))),
        ("msgpack", "bytes of 2,000 snapshots", _deep()),
        (
            "json",
            "bytes that name os.system",
            b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["x"]}',
        ),
        ("null", "bytes that are not empty", b"x"),
        ("yaml", "bytes", b"x"),
    ):
        yield Case("tags", f"{label}, relabelled {kind}+aes", forge_legacy(kind, data))


def _deep() -> bytes:
    from tests.support.values.wire import nested_extensions

    return nested_extensions(7, 2000)


def tampered() -> Iterator[Case]:
    """Every bit of a blob, and every character of a tag, changed one at a time."""
    for region in range(_REGIONS):
        yield Case("tampering", f"each bit of part {region + 1} of {_REGIONS} of a blob", _each_bit(region))
    for position in range(28):
        yield Case(
            "tampering", f"character {position} of a tag", _each_character(position), shared=position < 11
        )


def _each_bit(region: int) -> Forge:
    def forge(scene: Scene) -> Read:
        serde = scene.side.sealing()
        tag, blob = serde.dumps_typed(VALUE)
        first, last = len(blob) * region // _REGIONS, len(blob) * (region + 1) // _REGIONS
        forged = [_flip(blob, bit) for bit in range(first * 8, last * 8)]
        return _all_refused(scene, serde, [(tag, changed) for changed in forged])

    return forge


def _each_character(position: int) -> Forge:
    def forge(scene: Scene) -> Read:
        serde = scene.side.sealing()
        tag, blob = serde.dumps_typed(VALUE)
        place = position % len(tag)
        tags = {tag[:place] + other + tag[place + 1 :] for other in map(chr, range(128))} - {tag}
        return _all_refused(scene, serde, [(changed, blob) for changed in sorted(tags)])

    return forge


def _flip(blob: bytes, bit: int) -> bytes:
    changed = bytearray(blob)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _all_refused(scene: Scene, serde: Any, rows: list[tuple[str, bytes]]) -> Read:
    """Return a reading that raises the last refusal, if there was nothing but refusals."""

    def read() -> Reading:
        last: Exception = AssertionError("there was nothing to read")
        for row in rows:
            try:
                return Reading(serde.loads_typed(row), whole=False)
            except Exception as error:
                if not scene.side.refuses(error):
                    raise
                last = error
        raise last

    return read


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (relabelled, keyed, plaintext, legacy, tampered):
        yield from family()
