"""Merge says yes in one case only: each genuine result of a run once, with its digest in the ledger."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.evidence.folder import digest_of
from sealpoint.admin.evidence.merge import CLOCK_SECONDS, merge_reasons, parse_part
from sealpoint.admin.results.reasons import Reason, answer
from sealpoint.admin.results.result import Result
from sealpoint.admin.results.shards import Shard, new_run
from sealpoint.utc import format_utc

THIS = new_run()
DATABASE = {"name": "postgresql:///x", "kind": "postgres", "identity": {"system": "1", "oid": 2}}

RING = {"file": "/keys.toml", "digest": "sha256:1", "active": "k2", "check": "0a"}
NAMELESS = {**DATABASE, "identity": {"system": None, "oid": 2}}


def make(start: str | None, below: str | None, *reasons: Reason, run: str = THIS, **members: Any) -> bytes:
    """What a command prints of a range."""
    result = Result("rotate", {"allow_plaintext": False})
    result.ring = RING
    result.add(*reasons)
    shard = {"run": run, "command": "rotate", "threads_from": start, "threads_below": below, "salt": "x"}
    found = {"shard": shard, "database": DATABASE, **result.document({"applied": True, "resealed": 3})}
    return json.dumps({**found, **members}, indent=2).encode()


def make_all(bounds: Sequence[str], **members: Any) -> list[bytes]:
    return [make(*ends, **members) for ends in zip([None, *bounds], [*bounds, None], strict=True)]


def merged(files: Sequence[bytes], recorded: Sequence[bytes]) -> set[Reason]:
    return merge_reasons([parse_part(file) for file in files], {digest_of(file) for file in recorded})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all members of an object, and of those within it."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, member in members:
        yield (*path, name)
        yield from places(member, (*path, name))


FORGED: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, -1, 10**400, "", "a", [], {}, ["values-failed"], "1" * 36, [[]], 0.5]
)
JUNK = st.recursive(FORGED, st.lists).map(lambda value: json.dumps(value).encode())


@given(data=st.data(), bounds=st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=4))
def test_only_all_genuine_results_are_proven(data: st.DataObject, bounds: list[str]) -> None:
    """Of all subsets, orders, doublings and forgeries; bounds need not be in an order that is known here."""
    genuine = make_all(bounds)
    chosen = data.draw(st.lists(st.sampled_from(genuine), max_size=6) | st.permutations(genuine))
    files, forgeable = list(chosen), data.draw(st.booleans())
    if files and forgeable:
        at = data.draw(st.integers(0, len(files) - 1))
        document = json.loads(files[at])
        *path, name = data.draw(st.sampled_from(sorted(places(document), key=repr)))
        within = document
        for step in path:
            within = within[step]
        if data.draw(st.booleans()):
            del within[name]
        else:
            within[name] = data.draw(FORGED)
        files[at] = json.dumps(document, indent=data.draw(st.sampled_from([None, 2]))).encode()
    recorded = genuine if data.draw(st.booleans()) else data.draw(st.lists(st.sampled_from(genuine)))
    is_whole = sorted(files) == sorted(genuine) and set(genuine) <= set(recorded)
    reasons = merged(files, recorded)
    assert (answer(reasons) is True) is is_whole
    if not forgeable:
        assert answer(reasons) is not False


@given(file=st.binary(max_size=50) | JUNK)
def test_what_is_no_result_is_a_reason(file: bytes) -> None:
    assert merged([*make_all(["a"]), file], make_all([])) >= {Reason.NOT_A_RESULT}


EARLY = format_utc(datetime.fromtimestamp(Shard(THIS, "").time(), UTC) - timedelta(seconds=CLOCK_SECONDS + 2))
LATE = format_utc(datetime.fromtimestamp(Shard(THIS, "").time(), UTC) - timedelta(seconds=CLOCK_SECONDS - 2))


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (lambda parts: parts, set()),
        (lambda parts: parts[1:], {Reason.RANGES_MISSING}),
        (lambda parts: parts[:-1], {Reason.RANGES_MISSING}),
        (lambda parts: [parts[0], parts[2]], {Reason.RANGES_MISSING}),
        (lambda _: [], {Reason.RANGES_MISSING}),
        (lambda parts: [*parts, parts[1]], {Reason.RANGES_OVERLAP}),
        (lambda parts: [*parts, make("a", "ab")], {Reason.RANGES_OVERLAP}),
        (lambda parts: [*parts, make("aa", "b")], {Reason.RANGES_OVERLAP}),
        (lambda parts: [*parts, make("aa", "ab")], {Reason.RANGES_OVERLAP}),
        (lambda parts: [*parts, make(None, None)], {Reason.RANGES_OVERLAP}),
        (lambda parts: [*parts[:2], make("b", None, run=new_run())], {Reason.RUNS_DIFFER}),
        (
            lambda parts: [*parts[:2], make("b", None, options={"allow_plaintext": True})],
            {Reason.RUNS_DIFFER},
        ),
        (lambda parts: [*parts[:2], make("b", None, applied=False)], {Reason.RUNS_DIFFER}),
        (
            lambda parts: [*parts[:2], make("b", None, database={**DATABASE, "identity": {"system": "2"}})],
            {Reason.DATABASES_DIFFER},
        ),
        (lambda _: make_all(["a"], database=NAMELESS), {Reason.DATABASES_DIFFER}),
        (lambda _: make_all([], database=NAMELESS), set()),
        (lambda parts: [*parts[:2], make("b", None, database={**DATABASE, "name": "y"})], set()),
        (
            lambda parts: [*parts[:2], make("b", None, ring={"digest": "2", "active": "k2"})],
            {Reason.RINGS_DIFFER},
        ),
        (lambda parts: [*parts[:2], make("b", None, ring=None)], {Reason.RINGS_DIFFER}),
        (lambda parts: [*parts[:2], make("b", None, ring={**RING, "check": "0b"})], {Reason.RINGS_DIFFER}),
        (lambda parts: [*parts[:2], make("b", None, began=EARLY)], {Reason.BEGAN_BEFORE}),
        (lambda parts: [*parts[:2], make("b", None, began=LATE)], set()),
        (lambda parts: [*parts[:2], make("b", None, Reason.NO_ROWS)], set()),
        (lambda _: [make(None, None, Reason.NO_ROWS)], {Reason.NO_ROWS}),
        (lambda parts: [*parts[:2], make("b", None, Reason.VALUES_LEFT)], {Reason.VALUES_LEFT}),
        (
            lambda parts: [*parts[:2], make("b", None, Reason.VALUES_LEFT, ok=True)],
            {Reason.NOT_A_RESULT, Reason.RANGES_MISSING},
        ),
        (lambda parts: [*parts, b"{}"], {Reason.NOT_A_RESULT}),
        (lambda parts: [*parts, make("", "")], {Reason.NOT_A_RESULT}),
    ],
)
def test_each_fault_has_its_reason(
    change: Callable[[list[bytes]], list[bytes]], reasons: set[Reason]
) -> None:
    """Also if the ledger has the results: they are of hosts that are trusted."""
    files = change(make_all(["a", "b"]))
    assert merged(files, files) == reasons
    assert merged(files, []) - reasons <= {Reason.NOT_RECORDED}
    assert not files or Reason.NOT_RECORDED in merged(files, files[1:]) or len(set(files)) < len(files)


def test_other_members_do_not_matter_to_the_verdict() -> None:
    """Hosts differ, and so do times and counts."""
    first, second = make_all(["a"])
    document = copy.deepcopy(json.loads(second))
    document |= {"host": "other", "resealed": 9, "database": {**DATABASE, "name": "z"}}
    other = json.dumps(document).encode()
    assert merged([first, other], [first, other]) == set()
