"""Inventory: what values name is counted, sealed or not, and nothing of it is imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as LangGraphSerializer

from sealpoint import Key, KeyRing, KeyState, RingCipher
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Batch, Event, Progress
from sealpoint.errors import DecodeError, IntegrityError, LimitError, SealpointError, UnknownTypeError
from sealpoint.maintenance import inventory as module
from sealpoint.maintenance.inventory import Inventory, inventory
from sealpoint.serde.limits import Limits
from tests.compat.golden.write import AES_KEY
from tests.support.foreign import GOLDEN, SECRET, cipher, insert, rows_of, write
from tests.support.forge import named, pack

HUMAN = ("langchain_core.messages.human", "HumanMessage")
UNIMPORTED = "antigravity"  # of the standard library; importing it opens a browser


@dataclass
class Ticket:
    """A type of this module."""

    number: int


def record(module: str, name: str, argument: Any = None) -> bytes:
    """A value that names a type."""
    return pack(named(0, module, name, argument))


def take(path: Path, ring: RingCipher | None = None, **options: Any) -> tuple[Inventory, list[Failure]]:
    """The inventory of a file, and what did not open."""
    events: list[Event] = []
    with rows_of(path) as store:
        found = inventory(store, ring, report=events.append, **options)
    return found, [event for event in events if isinstance(event, Failure)]


def records(found: Inventory) -> dict[tuple[str, str], int]:
    """How often which type is named."""
    return {pair: part.records for pair, part in found.constructors.items()}


def forged(tmp_path: Path, rows: Iterable[tuple[Any, Any]]) -> Path:
    """A sealed file with rows of a stranger."""
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, rows)
    return path


THREADS: dict[str, dict[str, Any]] = {
    "a": {"m": [HumanMessage("x"), AIMessage("y")]},
    "b": {"m": [HumanMessage("z")], "t": Ticket(7)},
}


@pytest.mark.parametrize("sealed", [False, True])
def test_types_are_counted_with_their_first_thread(tmp_path: Path, sealed: bool) -> None:
    found, failures = take(write(tmp_path / "a.db", THREADS, sealed=sealed), cipher())
    assert records(found) == {
        HUMAN: 2,
        ("langchain_core.messages.ai", "AIMessage"): 1,
        (__name__, "Ticket"): 1,
    }
    assert {part.name: part.thread for part in found.constructors.values()} == {
        "HumanMessage": "a",
        "AIMessage": "a",
        "Ticket": "b",
    }
    assert (found.values, found.not_opened, failures) == (4, 0, [])


def test_safe_types_are_told_from_others(tmp_path: Path) -> None:
    found, _ = take(write(tmp_path / "a.db", THREADS))
    assert {part.name for part in found.constructors.values() if not part.is_safe} == {"Ticket"}


def test_nothing_is_imported(tmp_path: Path) -> None:
    path = forged(
        tmp_path, [("msgpack", record(UNIMPORTED, "geohash")), ("pickle", b"cantigravity\ngeohash\n.")]
    )
    found, failures = take(path)
    assert records(found) == {(UNIMPORTED, "geohash"): 1, ("pickle", "?"): 1}
    assert UNIMPORTED not in sys.modules
    assert not failures


def test_nothing_is_called(tmp_path: Path) -> None:
    command = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(["os", "mkdir", [str(tmp_path / "made")]])))
    found, _ = take(forged(tmp_path, [("msgpack", command)]))
    assert records(found) == {("os", "mkdir"): 1}
    assert not os.path.lexists(tmp_path / "made")


def test_sealed_values_without_keys_are_passed_over_and_counted(tmp_path: Path) -> None:
    path = forged(tmp_path, [("msgpack", record("a", "B")), ("x+rot13", b"")])
    found, failures = take(path)
    assert (found.values, found.not_opened, found.failures, failures) == (4, 3, 0, [])
    assert records(found) == {("a", "B"): 1}


def test_rows_under_langgraphs_key_are_opened() -> None:
    legacy = RingCipher(KeyRing([Key("langgraph", AES_KEY, KeyState.DECRYPT_ONLY, suite="aes")]))
    plain, _ = take(GOLDEN / "plain.db")
    opened, failures = take(GOLDEN / "langgraph-aes.db", legacy)
    assert records(opened) == records(plain) != {}
    assert not failures


def test_envelopes_of_json_rows_are_counted(tmp_path: Path) -> None:
    envelope = {"lc": 2, "type": "constructor", "id": ["my", "module", "Thing"], "kwargs": {"text": SECRET}}
    path = forged(tmp_path, [("json", json.dumps({"a": [envelope, envelope]}).encode())])
    assert records(take(path)[0]) == {("my.module", "Thing"): 2}


def test_value_of_langgraphs_serializer_is_found_as_it_names_it(tmp_path: Path) -> None:
    kind, data = LangGraphSerializer().dumps_typed({"path": Path("/x"), "nested": [Ticket(1)]})
    path = forged(tmp_path, [(kind, data)])
    assert ("pathlib", type(Path("/x")).__name__) in {
        (m.partition(".")[0], n) for m, n in records(take(path)[0])
    }


@pytest.mark.parametrize(
    ("tag", "blob", "error"),
    [
        ("msgpack", b"\x91" * 100_000 + b"\xc0", LimitError),
        ("msgpack", b"\xc1", DecodeError),
        ("msgpack", b"\xc0\xc0", DecodeError),
        ("msgpack", "text", SealpointError),
        ("msgpack", None, SealpointError),
        ("json", b"{", DecodeError),
        ("json", b"[" * 100_000 + b"]" * 100_000, LimitError),
        ("yaml", b"a: 1", UnknownTypeError),
        (None, b"\xc0", SealpointError),
        (b"msgpack", b"\xc0", SealpointError),
        ("msg\0pack", b"\xc0", SealpointError),
    ],
)
def test_value_that_is_not_read_is_a_failure_and_no_end(
    tmp_path: Path, tag: Any, blob: Any, error: type[SealpointError]
) -> None:
    path = forged(tmp_path, [(tag, blob), ("msgpack", record("a", "B"))])
    found, (failure,) = take(path)
    assert isinstance(failure.error, error)
    assert (failure.table, failure.place["checkpoint_id"]) == ("checkpoints", "00000000")
    assert (found.failures, records(found)) == (1, {("a", "B"): 1})


def test_nested_extensions_end_at_the_limit(tmp_path: Path) -> None:
    """What kills a decoder that re-enters itself; the rest of the database is still counted."""
    bomb = b"\xc0"
    for _ in range(1_000):
        bomb = ormsgpack.packb(ormsgpack.Ext(7, bomb))
    _, (failure,) = take(forged(tmp_path, [("msgpack", bomb)]))
    assert isinstance(failure.error, LimitError)


def test_limits_are_those_that_were_given(tmp_path: Path) -> None:
    path = forged(tmp_path, [("msgpack", ormsgpack.packb([1] * 20))])
    assert take(path)[1] == []
    assert len(take(path, limits=Limits(elements=10))[1]) == 1


def test_sealed_value_that_was_changed_is_a_failure(tmp_path: Path) -> None:
    path = forged(tmp_path, [("msgpack+cobblestone256@k1", bytes(100))])
    found, (failure,) = take(path, cipher())
    assert isinstance(failure.error, IntegrityError)
    assert records(found) == {HUMAN: 1}


def test_made_up_names_are_bounded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TYPES", 10)
    found, _ = take(forged(tmp_path, [("msgpack", record("m", f"T{number}")) for number in range(25)]))
    assert (len(found.constructors), found.other_records) == (10, 15)


@pytest.mark.parametrize("name", ["N" * 300, "é" * 100_000])
def test_long_name_is_cut_and_is_no_types_name(tmp_path: Path, name: str) -> None:
    found, _ = take(forged(tmp_path, [("msgpack", record("m", name))]))
    (part,) = found.constructors.values()
    assert len(part.name) < 210
    assert not part.is_nameable


@pytest.mark.parametrize(
    ("pair", "nameable"),
    [
        (("a.b", "C"), True),
        (("a", "B.C"), True),
        (("größe", "Maß"), True),
        (("a", ""), False),
        (("", "B"), False),
        (("a b", "C"), False),
        (("a", "B\n"), False),
        (("a", "B', '')] #"), False),
        (("pickle", "?"), False),
    ],
)
def test_only_what_python_could_name_is_nameable(
    tmp_path: Path, pair: tuple[str, str], nameable: bool
) -> None:
    found, _ = take(forged(tmp_path, [("msgpack", record(*pair))]))
    assert found.constructors[pair].is_nameable is nameable


def test_progress_counts_every_value(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {f"t{number}": {} for number in range(7)})
    events: list[Event] = []
    with rows_of(path) as store:
        inventory(store, batch=Batch(rows=3), report=events.append)
    seen = [event.rows for event in events if isinstance(event, Progress)]
    assert seen == sorted(seen)
    assert (seen[-1], {event.total for event in events if isinstance(event, Progress)}) == (14, {14})


def test_nothing_of_the_values_is_kept(tmp_path: Path) -> None:
    found, _ = take(
        write(tmp_path / "a.db", THREADS | {"c": {"m": [HumanMessage(SECRET)]}}, sealed=True), cipher()
    )
    assert SECRET not in repr(found)
