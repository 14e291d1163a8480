"""A rotation job as a library: what it reports, and what comes of it."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Batch, Progress
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import HeldError, ScrubError, WrongRingError
from sealpoint.maintenance import job as job_module
from sealpoint.maintenance.job import Action, End, Job, Outcome, Phase, make_plan
from sealpoint.maintenance.options import Check, Options
from sealpoint.maintenance.pace import Stop
from tests.support.harm import flip
from tests.support.rings import material_of
from tests.support.sealed import VALUES, make_cipher, values_of, write


def run(
    path: Path, options: Options, cipher: RingCipher | None = None, stop: Stop | None = None
) -> tuple[Outcome, list[Any]]:
    """Run a job to the key k2; return its outcome and what it reported."""
    events: list[Any] = []
    with closing(SqliteRows(path, writable=True)) as store:
        job = Job(
            store,
            cipher or make_cipher("k2", "k1"),
            options,
            stop=stop or Stop(),
            report=events.append,
        )
        return job.run(), events


def test_phases_are_reported_in_order_with_their_progress(path: Path) -> None:
    outcome, events = run(path, Options(scrub=True))
    assert [event for event in events if isinstance(event, Phase)] == list(Phase)
    verifying = events.index(Phase.VERIFY)
    rotated = [event for event in events[:verifying] if isinstance(event, Progress)]
    assert rotated[-1].changed == outcome.changed == VALUES
    assert (outcome.end, outcome.problem, outcome.left, outcome.remaining) == (End.COMPLETE, None, 0, [])
    assert outcome.verified == VALUES
    assert outcome.scrubbed is not None
    assert outcome.scrubbed.found == ()
    assert outcome.longest_lock_seconds > 0


@pytest.mark.parametrize("check", Check)
def test_check_says_how_many_are_opened_once_more(path: Path, check: Check) -> None:
    outcome, events = run(path, Options(check=check))
    assert outcome.verified == {Check.ALL: VALUES, Check.SAMPLE: 1, Check.NONE: None}[check]
    assert (Phase.VERIFY in events) is (check is not Check.NONE)
    assert Phase.SCRUB not in events


def test_failure_of_a_value_is_reported_once(path: Path) -> None:
    """The rotation meets it, and the verification meets it again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        flip(connection, values_of(path)[0])
    outcome, events = run(path, Options())
    assert len([event for event in events if isinstance(event, Failure)]) == 1
    assert (outcome.changed, outcome.left, outcome.verified) == (VALUES - 1, 1, VALUES - 1)
    assert outcome.pending == 1
    assert outcome.end is End.COMPLETE


def test_plan_is_what_the_options_allow(path: Path) -> None:
    write(path, "plain", "b")
    ring = make_cipher("k2", "k1").ring
    with closing(SqliteRows(path)) as store:
        strict = {step.action for step in make_plan(store, ring, Options())}
        lax = {step.action for step in make_plan(store, ring, Options(allow_plaintext=True))}
        alone = {step.action for step in make_plan(store, make_cipher("k2").ring, Options())}
    assert strict == {Action.ROTATE, Action.NEEDS_PLAINTEXT}
    assert lax == {Action.ROTATE, Action.SEAL}
    assert alone == {Action.NEEDS_KEY, Action.NEEDS_PLAINTEXT}


def test_job_that_is_stopped_says_what_is_left(path: Path) -> None:
    stop = Stop()
    stop.set()
    outcome, _ = run(path, Options(batch=Batch(rows=5), scrub=True), stop=stop)
    assert outcome.end is End.STOPPED
    assert 0 < outcome.changed < VALUES
    assert outcome.pending == outcome.left == VALUES - outcome.changed
    assert (outcome.verified, outcome.scrubbed) == (None, None)


def test_scrub_that_is_in_vain_is_an_end_and_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise ScrubError("another process reads it")

    monkeypatch.setattr(job_module, "scrub", fail)
    outcome, _ = run(path, Options(scrub=True))
    assert outcome.end is End.UNSCRUBBED
    assert isinstance(outcome.problem, ScrubError)
    assert (outcome.left, outcome.verified) == (0, VALUES)


def test_ring_of_another_environment_is_refused_unless_that_is_left_out(path: Path) -> None:
    keys = [Key("k2", material_of("k2"), KeyState.ACTIVE), Key("k1", bytes(32), KeyState.DECRYPT_ONLY)]
    other = RingCipher(KeyRing(keys))
    with pytest.raises(WrongRingError):
        run(path, Options(), other)
    outcome, events = run(path, Options(check_keys=False, check=Check.NONE), other)
    assert (outcome.changed, outcome.left) == (0, VALUES)
    assert len([event for event in events if isinstance(event, Failure)]) == VALUES


def test_database_is_held_for_the_whole_job(path: Path) -> None:
    with closing(SqliteRows(path, writable=True)) as other, other.hold(), pytest.raises(HeldError):
        run(path, Options())


def test_options_cross_to_other_processes_and_never_change() -> None:
    options = Options(rows_per_second=7.5, batch=Batch(rows=100))
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.paced_batch.rows == 7
    assert Options(rows_per_second=0.5).paced_batch.rows == 1
    assert Options().paced_batch == Batch()
    with pytest.raises(FrozenInstanceError):
        options.scrub = True  # type: ignore[misc]
