"""What a run says beside its figures: what was left and why, what failed and why, and what to do about it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from sealpoint.admin.cli import output
from sealpoint.admin.maintenance import job, rotate, scrub
from sealpoint.admin.results.events import MAX_CAUSES, Failure, Failures
from sealpoint.admin.results.exits import Exit
from sealpoint.base import empty_checkpoint
from sealpoint.errors import IntegrityError, RowError, excerpt
from tests.cli.conftest import Run
from tests.support.databases.checkpoints import at
from tests.support.databases.foreign import insert
from tests.support.databases.harm import flip
from tests.support.databases.sealed import AES_KEY, VALUES, langgraph, tags_of, values_of, write
from tests.support.keys.rings import states_text

pytestmark = pytest.mark.usefixtures("keys")

PICKLES = "skipped: a pickle is never sealed unopened"
WAY_OUT = "read them with LangGraph and write them again sealed, or delete those threads"


class Odd:
    """A type that LangGraph writes as a pickle, if it is let."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def write_pickles(path: Path) -> None:
    """Let LangGraph write a thread whose checkpoint is a pickle, and so is one of two writes."""
    with langgraph(path, JsonPlusSerializer(pickle_fallback=True)) as saver:
        checkpoint: Any = {**empty_checkpoint(), "channel_values": {"odd": Odd()}}
        config = saver.put(at("odd"), checkpoint, {"step": 0}, {})
        saver.put_writes(config, [("a", Odd()), ("b", 7)], "task")


def hints(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("hint: ")]


# --- pickles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--allow-plaintext"]], ids=str)
def test_plan_counts_pickles_apart(run: Run, path: Path, options: list[str]) -> None:
    """It promises nothing that the run then refuses."""
    write_pickles(path)
    ended = run("rotate", path, "--json", *options)
    plan = [(part["table"], part["rows"], part["action"]) for part in ended.document["plan"]]
    other = "to seal" if options else "skipped: not sealed, add --allow-plaintext"
    assert ended.code == Exit.DONE
    assert sorted(plan) == [("checkpoints", 1, PICKLES), ("writes", 1, PICKLES), ("writes", 1, other)]


def test_run_says_what_to_do_about_pickles(run: Run, path: Path) -> None:
    write_pickles(path)
    ended = run("rotate", path, "--apply", "--allow-plaintext")
    assert ended.code == Exit.UNOPENED
    assert f"2 pickles stay: {WAY_OUT}" in ended.err.splitlines()
    assert "says why" not in ended.err
    assert tags_of(path) == {"pickle", "msgpack+cobblestone256@k2"}


def test_pickles_alone_are_no_work_for_another_run(run: Run, path: Path) -> None:
    """However often it was run again, they would stay."""
    write_pickles(path)
    run("rotate", path, "--apply", "--allow-plaintext")
    again = run("rotate", path, "--apply", "--allow-plaintext", "--max-seconds", 0)
    assert "run the same command again" not in again.err


def test_other_types_that_nobody_checks_stay_too(run: Run, path: Path) -> None:
    """Also where LANGGRAPH_AES_KEY stands behind them: it does not vouch for a type."""
    write(path, "k2", "a")
    insert(path, [("yaml", b"x"), ("pickle+aes", b"x" * 40), ("yaml+aes", b"x" * 40)])
    plan = run("rotate", path, "--allow-plaintext", "--allow-legacy", "--json").document["plan"]
    assert sorted(part["action"] for part in plan if part["action"] != "done") == [
        PICKLES,
        "skipped: its type is not sealed unopened",
        "skipped: its type is not sealed unopened",
    ]


# --- what was left ------------------------------------------------------------------------------


def test_run_says_itself_what_it_left(run: Run, path: Path, keys: Path) -> None:
    """With the options that would have taken it, and nothing that has to be looked up."""
    lines = ["[[key]]", "id = 'aes'", "state = 'decrypt-only'", "suite = 'aes'"]
    keys.write_text(
        "\n".join([keys.read_text(), *lines, f"source = {{ inline = '{AES_KEY.decode()}' }}", ""])
    )
    for kind, thread in (("k1", "a"), ("plain", "b"), ("eax", "c")):
        write(path, kind, thread)
    write_pickles(path)
    ended = run("rotate", path, "--apply")
    assert ended.code == Exit.FOUND
    assert ended.err.splitlines() == [
        f"{VALUES + 1} values are not sealed: --allow-plaintext seals them",
        f"{VALUES} values are under LANGGRAPH_AES_KEY: --allow-legacy reseals them",
        f"2 pickles stay: {WAY_OUT}",
    ]


def test_unrecognised_tag_is_told(run: Run, path: Path) -> None:
    write(path, "k2", "a")
    insert(path, [(None, b"x")])
    ended = run("rotate", path, "--apply", "--verify", "none")
    assert ended.code != Exit.DONE
    assert f"1 value has an unrecognised tag: `sealpoint status {path}` shows it" in ended.err.splitlines()


def test_values_that_came_meanwhile_are_told(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer with the old key, at the last moment."""
    write(path, "k1", "a")
    genuine = rotate.outstanding

    def late(*args: Any) -> Any:
        write(path, "k1", "b")
        return genuine(*args)

    monkeypatch.setattr(job, "outstanding", late)
    ended = run("rotate", path, "--apply")
    assert ended.code == Exit.FOUND
    assert ended.err == f"{VALUES} values written during the run are not under 'k2': run again\n"


# --- what failed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [["rotate", "DB", "--apply"], ["types", "DB"], ["decrypt", "DB", "--out", "NEW"], ["verify", "DB"]],
)
def test_causes_are_summed_up_with_their_hints(
    run: Run, path: Path, keys: Path, tmp_path: Path, words: list[str]
) -> None:
    """Below the rows: a line a cause with its count, and what to do."""
    write(path, "k2", "b")
    with closing(sqlite3.connect(path)) as connection, connection:
        flip(connection, values_of(path)[0])
    write(path, "k1", "a")
    keys.write_text(states_text(k2="active", k1="disabled"))
    places = {"DB": path, "NEW": tmp_path / "new.db"}
    ended = run(*(places.get(word, word) for word in words))
    lines = ended.err.splitlines()
    place = lines.index(f"{VALUES} values: key 'k1' is disabled")
    assert lines[place + 1] == "hint: to read these values again, enable the key: sealpoint keys enable ID"
    assert [line for line in lines if line.startswith("1 value: ")]
    assert len(hints(ended.err)) == 2


def test_a_hostile_row_is_not_kept_whole() -> None:
    """Its key and its tag may have many megabytes, and a thousand rows are kept."""
    causes, text = Failures(), "x" * 10**6
    for number in range(3):
        causes.add(Failure("writes", {"thread_id": f"{number}{text}"}, text, RowError(excerpt(text))))
    assert causes.count == len(causes.kept) == 3
    assert sum(len(str(failed)) for failed in causes.kept) < 10_000


def test_large_counts_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    causes = Failures()
    for _ in range(12_584):
        causes.add(Failure("writes", {}, "null", IntegrityError("x", hint="y")))
    output.show_causes(causes)
    assert capsys.readouterr().err == "12,584 values: x\nhint: y\n"


def test_a_stranger_does_not_fill_the_screen_with_hints(capsys: pytest.CaptureFixture[str]) -> None:
    causes = Failures()
    for number in range(1000):
        causes.add(Failure("writes", {}, "null", IntegrityError("x", hint=str(number))))
    output.show_causes(causes)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 * MAX_CAUSES + 1
    assert lines[-1] == f"{1000 - MAX_CAUSES} values: other causes"


def test_a_stranger_does_not_fill_the_screen_with_causes(capsys: pytest.CaptureFixture[str]) -> None:
    causes = Failures()
    for number in range(1000):
        causes.add(Failure("writes", {}, "null", IntegrityError(str(number), hint="y")))
    output.show_causes(causes)
    *told, rest, hint = capsys.readouterr().err.splitlines()
    assert len(told) == MAX_CAUSES
    assert rest == f"{1000 - MAX_CAUSES} values: other causes"
    assert hint == "hint: y"


def test_verify_names_every_row_and_then_the_causes(run: Run, path: Path, keys: Path) -> None:
    write(path, "k1", "a")
    keys.write_text(states_text(k2="active", k1="disabled"))
    ended = run("verify", path)
    *rows, opened, refused, verdict = ended.out.splitlines()
    assert (ended.code, len(rows)) == (Exit.KEYS, VALUES)
    assert all("KeyDisabledError: key 'k1' is disabled" in row for row in rows)
    assert (opened, refused) == (f"0 of {VALUES} values open", f"refused values and rows: {VALUES}")
    assert verdict == "not ok: keys are not available"
    assert ended.err.splitlines()[0] == f"{VALUES} values: key 'k1' is disabled"


# --- scrub --------------------------------------------------------------------------------------


def test_scrub_says_that_it_looked_for_a_sample(run: Run, path: Path) -> None:
    write(path, "k1", "a")
    ended = run("rotate", path, "--apply", "--scrub")
    assert f"for a sample of {VALUES} fragments of old values and for old tags" in ended.out


@pytest.mark.parametrize(("number", "told"), [(5, 5), (12, 5)])
def test_few_places_are_listed_and_the_others_counted(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: int
) -> None:
    write(path, "k1", "a")
    places = tuple(("x.db", place) for place in range(number))
    monkeypatch.setattr(scrub, "scrub", lambda *args: scrub.Scrubbed(4096, 3, places))
    ended = run("rotate", path, "--apply", "--scrub")
    assert ended.code == Exit.FOUND
    assert ended.out.count("x.db at byte") == told
    assert (f"and {number - told} more places" in ended.out) == (number > told)
    assert ended.out.endswith("not ok: old content is still in the file\n")
    assert "end the process" not in ended.err


def test_scrub_in_vain_names_the_writer(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found may be what somebody has just written anew, and not what was left."""
    write(path, "k1", "a")
    genuine = scrub.scrub

    def busy(*args: Any) -> Any:
        write(path, "k1", "a")
        return genuine(*args)._replace(found=(("x.db", 7),))

    monkeypatch.setattr(scrub, "scrub", busy)
    ended = run("rotate", path, "--apply", "--scrub")
    assert ended.code == Exit.FOUND
    advice = "a process still writes rows unsealed or under an old key: end the process and run again"
    assert advice in ended.err.splitlines()


def test_without_a_ring_a_new_one_is_for_a_new_database(run: Run, tmp_path: Path) -> None:
    """The ring of a sealed database that is not found is not replaced by following the hint."""
    ended = run("keys", "list", "--keys", tmp_path / "none.toml")
    assert "for a new database" in ended.err


def test_a_database_without_tables_may_be_the_wrong_one(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE other (x)")
    assert "is it the right file?" in run("status", tmp_path / "other.db").err
