"""`sealpoint report`: its verdicts, its object, and what may not be in it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.evidence import verify_ledger
from sealpoint.admin.evidence.ledger import Ledger
from sealpoint.admin.evidence.report import sources
from sealpoint.admin.evidence.report.document import load_template
from sealpoint.admin.evidence.report.sources import ORDER, Why, find_changes, parse_period, sentence_of
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import Reason
from sealpoint.threads.sqlite import SqliteThreadStore
from tests.cli.conftest import Ended, Run
from tests.matrix import databases, oracle
from tests.postgres.test_commands import at
from tests.support.databases.bound import INDEX, PRIVATE, play, sealed_file, sealed_schema
from tests.support.databases.postgres import set_up
from tests.support.databases.sealed import write
from tests.support.keys.ledgers import SIGNER, make_entry, make_ledger
from tests.support.keys.rings import states_text
from tests.support.runs.results import REPORT, expected_code
from tests.support.servers.postgres import schema, server

DUE = "2099-01-01T00:00:00Z"


def answers(ended: Ended) -> dict[str, tuple[str, list[str]]]:
    """The verdict on each question, and the reasons."""
    return {
        each["id"]: (each["verdict"], [reason["reason"] for reason in each["reasons"]])
        for each in ended.document["questions"]
    }


def verdict(ended: Ended, question: str) -> str:
    return answers(ended)[question][0]


def make(path: Path, name: str) -> Path:
    """A database of the matrix."""
    file = path / f"{name}.db"
    databases.SQLITE[name](file)
    return file


@pytest.fixture
def legacy_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring with each state, and LANGGRAPH_AES_KEY."""
    ring = databases.write_ring(tmp_path, "legacy")
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    return ring


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring for which all can be shown: with a due date, an index key, and a thread store."""
    monkeypatch.chdir(tmp_path)
    index = tmp_path / "index.key"
    index.write_text(INDEX.hex())
    index.chmod(0o600)
    ring = tmp_path / "keys.toml"
    text = states_text(k2="active", k1="decrypt-only").replace("id = 'k2'\n", f"id = 'k2'\nexpires = {DUE}\n")
    lines = "[[index]]\nid = 'index'\nsource = { file = 'index.key' }\n[threads]\nstore = 'threads.db'\n"
    ring.write_text(f"{text}\n{lines}")
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    SqliteThreadStore("threads.db", create=True).close()
    database = tmp_path / "app.db"
    with (
        closing(SqliteThreadStore("threads.db")) as store,
        sealed_file(database, threads=store, **PRIVATE) as saver,
    ):
        play(saver, "t", runs=1)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
    return database


# --- verdicts -----------------------------------------------------------------------------------------


def start_ledger(run: Run) -> list[str]:
    """Create the ledger of the ring, with an entry; return the options for which it verifies."""
    ring = Path("keys.toml")
    table = "[ledger]\ndir = 'ledger'\norigin = 'example.org/agents'\nsigner = { file = 'ledger.key' }\n"
    ring.write_text(f"{ring.read_text()}\n{table}")
    vkey = run("ledger", "init").out.strip()
    shutil.copyfile("ledger/checkpoint", "ledger.pin")
    return ["--vkey", vkey, "--ledger-pin", "ledger.pin"]


def test_all_can_be_shown(run: Run, whole: Path) -> None:
    """With a thread store, a pin, a due date and a ledger, and SealedSaver's rows in a compact file."""
    assert run("heads", "seal", "--pin", "pin.json").code == Exit.DONE
    given = start_ledger(run)
    ended = run("report", whole, "--pin", "pin.json", *given, "--json")
    assert {question: found for question, found in answers(ended).items() if found[0] != "shown"} == {}
    assert (ended.document["ok"], ended.document["reasons"], ended.code) == (True, [], Exit.DONE)
    assert ended.document["integrity"]["continues"] is True
    assert ended.document["exceptions"] == [
        {"exception": "inline-material", "key": key, "sentence": "the key material is in the ring file"}
        for key in ("k2", "k1")
    ]
    events = [(each["event"], each["outcome"]) for each in ended.document["changes"]["entries"]]
    assert events == [("ledger.init", "done"), ("report", "begun")]
    lines = run("report", whole, "--pin", "pin.json", *given).out.splitlines()
    assert lines[lines.index("exceptions: 2") + 1 :][:2] == ["- inline-material k2", "- inline-material k1"]
    assert lines[-1] == "ok"


def test_a_store_that_is_accepted_is_an_exception(run: Run, whole: Path) -> None:
    """In the object, on the page and in the ledger; without the option it refutes."""
    reason = "<b>the server seals it</b>"
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("CREATE TABLE cache (value TEXT)")
    start_ledger(run)
    assert answers(run("report", whole, "--json"))["sealed"] == ("refuted", ["readable-tables"])
    ended = run("report", whole, "--allow-store", reason, "--out", "page.html", "--json")
    found = answers(ended)
    assert (found["sealed"], found["beside"][0]) == (("not shown", ["store-allowed"]), "not shown")
    (exception,) = [each for each in ended.document["exceptions"] if each["exception"] == "allow-store"]
    sentence = f"unsealed values of LangGraph's Store and caches were accepted: {reason}"
    assert exception == {"exception": "allow-store", "key": None, "sentence": sentence}
    assert f"--allow-store '{reason}'" in ended.document["again"]["command"]
    page = Path("page.html").read_text()
    assert "&lt;b&gt;the server seals it&lt;/b&gt;" in page
    assert reason not in page
    entry = json.loads(Path("ledger/entries.jsonl").read_text().splitlines()[-1])
    assert (entry["event"], entry["waived"]) == ("report", ["store"])
    documents = [json.loads(file.read_text()) for file in Path("ledger/documents").iterdir()]
    assert reason in [document["options"].get("allow_store") for document in documents]


def test_what_is_not_given_is_not_shown(run: Run, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(run("report", whole, "--json"))
    assert found["pinned"] == ("not shown", ["no-pin"])
    assert found["changes"] == ("not shown", ["no-ledger"])
    ring = Path("keys.toml")
    ring.write_text(ring.read_text().partition("[threads]")[0].replace(f"expires = {DUE}\n", ""))
    found = answers(run("report", whole, "--json"))
    assert found["remembered"] == ("not shown", ["no-thread-store"])
    assert found["keys"] == ("not shown", ["no-due-date"])
    monkeypatch.delenv("SEALPOINT_KEYS")
    ended = run("report", whole, "--json")
    found = answers(ended)
    assert {question: found[question][1] for question in ("opens", "active-key", "bound", "keys")} == {
        "opens": ["not-opened"],
        "active-key": ["no-ring"],
        "bound": ["not-opened"],
        "keys": ["no-ring"],
    }
    assert (ended.code, ended.document["keys"], ended.document["ring"]) == (Exit.KEYS, None, None)


@pytest.mark.usefixtures("whole")
def test_a_ledger_that_does_not_verify(run: Run, whole: Path) -> None:
    """Without a key and a pin nothing is shown; a line that was changed and a ring edited by hand refute."""
    given = start_ledger(run)
    assert answers(run("report", whole, "--json"))["changes"] == (
        "not shown",
        ["signer-not-given", "pin-not-given"],
    )
    ring = Path("keys.toml")
    text = ring.read_text()
    ring.write_text(text.replace("decrypt-only", "disabled"))  # `begin` records the drift
    found = answers(run("report", whole, *given, "--json"))["changes"]
    assert found == ("shown", [])
    entries = Path("ledger/entries.jsonl")
    lines = entries.read_text()
    entries.write_text(lines.replace("ledger.init", "ledger.inix"))
    changes = find_changes(Path("ledger"), None, "sha256:other")
    assert changes.verified is False
    assert {Reason.LEDGER_BROKEN, Why.RING_DIFFERS} <= changes.reasons


@pytest.mark.usefixtures("whole")
def test_entries_that_are_replaced_after_the_check_are_no_evidence(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is of the entries that verify, not of those that another process puts there meanwhile."""
    start_ledger(run)
    entries = Path("ledger/entries.jsonl")

    def verify_and_replace(*arguments: Any) -> Any:
        verdict = verify_ledger(*arguments)
        entries.write_text(entries.read_text().replace("ledger.init", "ledger.inix"))
        return verdict

    monkeypatch.setattr("sealpoint.admin.evidence.verify.verify_ledger", verify_and_replace)
    changes = find_changes(Path("ledger"), None, "sha256:other")
    assert changes.verified is False
    assert Reason.LEDGER_BROKEN in changes.reasons


@pytest.mark.usefixtures("whole")
def test_what_a_recorded_command_waived_is_an_exception(run: Run, whole: Path) -> None:
    start_ledger(run)
    assert run("rotate", whole, "--apply", "--allow-plaintext").code == Exit.DONE
    found = run("report", whole, "--json").document["exceptions"]
    sentence = "waived by rotate.end, entry 2 of the ledger"
    assert {"exception": "plaintext", "key": None, "sentence": sentence} in found
    old = run("report", whole, "--period", "2020-01-01..2020-01-02", "--json").document
    assert (old["changes"]["entries"], len(old["exceptions"])) == ([], len(found) - 1)


def test_entries_of_the_period(tmp_path: Path) -> None:
    """All of them are counted, and the last ones listed; ids of threads are not."""
    ledger = make_ledger(tmp_path / "ledger", 5)
    with ledger.writing(make_entry()) as writer:
        writer.add(replace(make_entry("<b>scrub"), subject={"thread": "hmac", "key": "k1"}, at="2020-01-01"))
    digest = make_entry().ring
    assert digest is not None
    every = find_changes(tmp_path / "ledger", None, digest["digest"], SIGNER.key)
    assert (len(every.entries), every.others, every.verified) == (6, 0, None)
    (old,) = find_changes(tmp_path / "ledger", parse_period("2020-01-01..2020-01-01"), "x").entries
    assert (old["event"], old["subject"]) == ("<b>scrub", {"key": "k1"})


def test_entries_of_a_wrong_clock_are_listed_in_their_order(tmp_path: Path) -> None:
    """The order of a ledger is signed, and its times are those of each host's clock."""
    Ledger.create(tmp_path / "ledger", SIGNER, replace(make_entry(), at="2023-01-01T00:00:00Z"))
    times = {"before": "2024-05-01", "back": "2020-01-01", "after": "2024-05-03", "ahead": "2999-01-01"}
    with Ledger(tmp_path / "ledger", SIGNER).writing(make_entry()) as writer:
        for event, day in {**times, "later": "2024-07-01"}.items():
            writer.add(replace(make_entry(event), at=f"{day}T00:00:00Z"))

    def listed(period: str) -> list[str]:
        found = find_changes(tmp_path / "ledger", parse_period(period), "x").entries
        return [entry["event"] for entry in found[-5:] if entry["event"] in {*times, "later"}]

    assert listed("2024-05-01..2024-05-31") == ["before", "back", "after", "ahead"]
    assert listed("2020-01-01..2020-01-01") == ["back", "ahead"]
    assert listed("2024-07-01..2024-07-01") == ["ahead", "later"]


@pytest.mark.usefixtures("whole")
def test_a_pin_of_the_ledger_is_also_the_line_as_it_was_printed(run: Run, whole: Path) -> None:
    given = start_ledger(run)
    lines = run("report", whole, "--json").err.splitlines()
    Path("printed.pin").write_text(next(line for line in lines if line.startswith("ledger head: ")))
    ended = run("report", whole, *given[:-1], "printed.pin", "--json")
    assert ended.document["changes"]["verified"] is True


@pytest.mark.usefixtures("whole")
def test_a_period_before_the_ledger_is_not_shown(run: Run, whole: Path) -> None:
    """It listed nothing, and said that changes are recorded."""
    given = start_ledger(run)
    (at_init,) = find_changes(Path("ledger"), None, "x").entries
    answer = {}
    for start in ("2020-01-01", at_init["at"]):
        ended = run("report", whole, "--period", f"{start}..2999-12-31", *given, "--json")
        answer[start] = answers(ended)["changes"]
        assert ended.document["changes"]["verified"] is True
    assert answer == {
        "2020-01-01": ("not shown", ["period-before-ledger"]),
        at_init["at"]: ("shown", []),
    }


def test_the_ledger_names_the_report(run: Run, whole: Path) -> None:
    """The page, a proof and this script over public libraries lead to the same verdicts."""
    vkey = start_ledger(run)[1]
    run("report", whole, "--out", "page.html", "--json-out", "report.json")
    proof = run("ledger", "prove", "2", "--json").document
    page = Page(Path("page.html").read_text())
    # The page: its object has the digest that it shows.
    digest = hashlib.sha256(page.texts["report"].encode()).hexdigest()
    assert digest == page.texts["digest"]
    # The entry: it names that digest, and stands in the tree whose head is signed.
    assert json.loads(proof["entry"])["documents"] == [f"sha256:{digest}"]
    head, _, signatures = proof["proof"].partition("\n\n")[2].partition("\n\n")
    origin, size, root = head.splitlines()
    steps = [base64.b64decode(line) for line in proof["proof"].partition("\n\n")[0].splitlines()[2:]]
    node, index, last = hashlib.sha256(b"\0" + proof["entry"].encode()).digest(), 2, int(size) - 1
    for step in steps:  # RFC 9162, section 2.1.3.2
        if index % 2 or index == last:
            node = hashlib.sha256(b"\1" + step + node).digest()
            while index % 2 == 0 and index:
                index, last = index >> 1, last >> 1
        else:
            node = hashlib.sha256(b"\1" + node + step).digest()
        index, last = index >> 1, last >> 1
    assert (node, last) == (base64.b64decode(root), 0)
    # The head: it is signed with the key that was noted at `ledger init`.
    name, number, key = vkey.split("+", 2)
    signed = base64.b64decode(signatures.split()[-1])
    assert (name, number) == (origin, signed[:4].hex())
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key)[1:])
    public.verify(signed[4:], f"{head}\n".encode())
    # The verdicts: those of the page are those of the object.
    assert page.words == [each["verdict"] for each in json.loads(page.texts["report"])["questions"]]
    assert Path(f"ledger/documents/{digest}.json").read_text() == Path("report.json").read_text()


def test_material_that_is_not_available_shows_nothing(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    (tmp_path / "k1.key").unlink()
    ended = run("report", make(tmp_path, "good"), "--json")
    assert answers(ended)["opens"] == ("not shown", ["not-opened"])
    assert (ended.document["keys_problem"], ended.code) == ("SourceError", Exit.KEYS)
    assert "warning: values are not opened" in ended.err


@pytest.mark.usefixtures("whole")
def test_a_checkpoint_that_was_put_back_refutes(run: Run, whole: Path) -> None:
    before = whole.read_bytes()
    with (
        closing(SqliteThreadStore("threads.db")) as store,
        sealed_file(whole, threads=store, **PRIVATE) as saver,
    ):
        saver.delete_thread("t")
    whole.write_bytes(before)
    ended = run("report", whole, "--json")
    assert answers(ended)["remembered"] == ("refuted", ["heads-differ"])
    assert ended.document["databases"][0]["heads"]["put_back"] > 0
    assert (verdict(ended, "opens"), ended.code) == ("shown", Exit.UNOPENED)


@pytest.mark.usefixtures("whole")
def test_another_thread_store_refutes_a_pin(run: Run, whole: Path) -> None:
    assert run("heads", "seal", "--pin", "pin.json").code == Exit.DONE
    pin = json.loads(Path("pin.json").read_text())
    Path("pin.json").write_text(json.dumps({**pin, "root": "0" * 64}))
    ended = run("report", whole, "--pin", "pin.json", "--json")
    assert answers(ended)["pinned"] == ("refuted", ["pin-differs"])
    assert ended.document["integrity"]["continues"] is False


def test_a_pin_needs_its_store(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    assert run("report", make(tmp_path, "good"), "--pin", tmp_path / "none.json").code == Exit.USAGE


@pytest.mark.usefixtures("whole")
def test_a_thread_store_is_that_of_one_database(run: Run, whole: Path, tmp_path: Path) -> None:
    ended = run("report", whole, make(tmp_path, "good"), "--json")
    assert answers(ended)["remembered"] == ("not shown", ["several-databases"])
    opened = [part["opening"]["complete"] for part in ended.document["databases"]]
    assert opened == [True, True]
    (active,) = [each for each in ended.document["questions"] if each["id"] == "beside"]
    places = {name for reason in active["reasons"] for name in reason["databases"]}
    assert places <= {str(tmp_path / "good.db")}


KEY_CASES: dict[str, tuple[str, str, str]] = {
    "expired": ("id = 'k2'\n", "id = 'k2'\nexpires = 2020-01-01T00:00:00Z\n", Why.KEY_EXPIRED),
    "compromised": ("state = 'decrypt-only'", "state = 'compromised'", Why.COMPROMISED_IN_USE),
    "destroyed": (
        "state = 'decrypt-only'",
        "state = 'destroyed'\nmaterial = 'removed'",
        Why.DESTROYED_IN_USE,
    ),
}


@pytest.mark.parametrize("case", KEY_CASES)
def test_keys_that_refute(run: Run, legacy_ring: Path, tmp_path: Path, case: str) -> None:
    old, new, reason = KEY_CASES[case]
    legacy_ring.write_text(legacy_ring.read_text().replace(old, new, 1))
    ended = run("report", make(tmp_path, "half"), "--json")
    word, reasons = answers(ended)["keys"]
    assert (word, reason in reasons) == ("refuted", True)


@pytest.mark.parametrize(
    ("fields", "reasons", "exceptions"),
    [
        ("material = 'removed'", [], []),
        ("material = 'left'", ["material-not-removed"], ["material-not-removed"]),
        ("material = 'gone-before'", ["material-not-removed"], ["material-not-removed"]),
        ("", ["material-not-removed"], ["material-not-removed"]),
        (
            "material = 'removed'\nwaived = ['database-check', 'relation-check']",
            ["database-check-waived", "unrelated-allowed"],
            ["database-check", "relation-check"],
        ),
    ],
)
def test_a_waived_check_is_an_exception(
    run: Run, legacy_ring: Path, tmp_path: Path, fields: str, reasons: list[str], exceptions: list[str]
) -> None:
    text = legacy_ring.read_text().replace("state = 'decrypt-only'", f"state = 'destroyed'\n{fields}", 1)
    legacy_ring.write_text(text)
    ended = run("report", make(tmp_path, "good"), "--json")
    word = "not shown" if reasons else "shown"
    assert answers(ended)["destroyed-keys"] == (word, reasons)
    found = [each["exception"] for each in ended.document["exceptions"] if each["key"] == "k1"]
    assert found == exceptions


# --- weak options, and the oracle ---------------------------------------------------------------------

# Those whose file cannot be opened give no report, as any other command.
UNOPENED = {"no_bytes", "other_file", "other_tables", "cut"}
CHEAP = sorted(set(databases.SQLITE) - UNOPENED)


def is_so(question: str, found: oracle.Facts, ring: oracle.Ring) -> bool:
    """Whether the answer to a question is yes, read with the parts of others alone."""
    if not found.is_whole:
        return False
    rows = found.documents_fit(ring) and found.rows_read and found.parents_present and found.bound_fit(ring)
    opens = found.all_open(ring)
    known = {"step", "source", "parents", "run_id", "counters_since_delta_snapshot", "delta_writes_versioned"}
    beside = found.has_metadata(known) or found.inline or found.has_addresses or found.readable_tables
    return {
        "opens": opens and rows and not found.is_mixed,
        "sealed": found.all_sealed and not found.readable_tables,
        "active-key": opens and found.all_under(ring.active),
        "bound": opens and all(value.is_bound for value in found.values),
        "beside": not (beside or found.free_bytes or found.holds(databases.SECRET)),
        "keys": True,
    }[question]


@pytest.mark.broad
@pytest.mark.parametrize("option", [[], ["--allow-plaintext"]], ids=" ".join)
@pytest.mark.parametrize("name", CHEAP)
def test_shown_only_where_it_is_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: list[str]
) -> None:
    """The oracle of the matrix reads the database and the ring by itself."""
    monkeypatch.chdir(tmp_path)
    ring = databases.write_ring(tmp_path, "legacy")
    facts_of = make(tmp_path, name)
    found, held = oracle.read_sqlite(facts_of), oracle.read_ring(ring)
    ended = run("report", facts_of, "--keys", ring, "--json", *option)
    assert ended.code == expected_code(ended.document) != Exit.DONE
    shown = [question for question, (word, _) in answers(ended).items() if word == "shown"]
    assert [question for question in shown if not is_so(question, found, held)] == []
    if option:
        accepted = ended.document["databases"][0]["opening"]["accepted"]
        assert [each["exception"] for each in ended.document["exceptions"]][:1] == ["allow-plaintext"]
        assert not accepted or verdict(ended, "opens") != "shown"


def test_values_under_langgraphs_key_are_accepted_and_not_opened(
    run: Run, legacy_ring: Path, tmp_path: Path
) -> None:
    """Their type is not authenticated; that is another reason than values in the clear."""
    path = make(tmp_path, "legacy")
    ended = run("verify", path, "--json")
    assert (ended.code, ended.document["ok"], ended.document["reasons"]) == (3, None, ["legacy-allowed"])
    assert (ended.document["accepted"], ended.document["opened"]) == (ended.document["rows"], [])
    assert f"{ended.document['rows']} under LANGGRAPH_AES_KEY" in run("verify", path).out
    reasons = {reason for _, reasons in answers(run("report", path, "--json")).values() for reason in reasons}
    assert "legacy-allowed" in reasons
    assert "plaintext-allowed" not in reasons


def test_accepted_plaintext_is_not_shown(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    ended = run("report", make(tmp_path, "plain"), "--allow-plaintext", "--json")
    assert answers(ended)["opens"] == ("not shown", ["plaintext-allowed"])
    assert verdict(ended, "sealed") == verdict(ended, "active-key") == "refuted"
    assert ended.document["options"] == {"allow_plaintext": True, "allow_store": None}


def test_exit_codes(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    good = make(tmp_path, "good")
    assert run("report", good).code == Exit.FOUND
    assert run("report", good, "--allow-unproven").code == Exit.DONE
    assert run("report", make(tmp_path, "half"), "--allow-unproven").code == Exit.FOUND  # refuted
    assert run("report", make(tmp_path, "forged"), "--allow-unproven").code == Exit.UNOPENED
    assert run("report", make(tmp_path, "third"), "--allow-unproven").code == Exit.KEYS
    assert run("report").code == run("report", good, "--period", "x").code == Exit.USAGE
    ended = run("report", good, "--period", "2998-01-01..2999-01-01")
    assert (ended.code, "the period begins in the future" in ended.err) == (Exit.USAGE, True)


# --- the object ---------------------------------------------------------------------------------------


def test_every_reason_has_a_sentence() -> None:
    assert {*ORDER} == {*Reason, *Why}
    assert all(sentence_of(reason) or reason is Reason.NOT_ASKED for reason in ORDER)


def test_files_have_what_stdout_has(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    page, file, path = tmp_path / "page.html", tmp_path / "report.json", make(tmp_path, "good")
    run("report", path, "--out", page, "--json-out", file)
    before = page.read_text(), file.read_text()
    ended = run("report", path, "--out", page, "--json-out", file, "--json")
    assert file.read_text() == ended.out
    assert page.read_text() != before[0]
    assert file.read_text() != before[1]
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []
    assert run("report", tmp_path / "good.db", "--out", tmp_path / "no" / "x.html").code == Exit.USAGE


@pytest.mark.parametrize("option", ["--out", "--json-out"])
def test_only_a_report_is_replaced(run: Run, legacy_ring: Path, tmp_path: Path, option: str) -> None:
    path, pipe = make(tmp_path, "good"), tmp_path / "pipe"
    os.mkfifo(pipe)
    for other in (legacy_ring, path, tmp_path, pipe):
        before = other.read_bytes() if other.is_file() else None
        ended = run("report", path, option, other)
        assert ended.code == Exit.USAGE
        assert "is not a report" in ended.err
        assert before is None or other.read_bytes() == before


def test_page_and_object_are_two_files(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    file = tmp_path / "report"
    assert run("report", make(tmp_path, "good"), "--out", file, "--json-out", file).code == Exit.USAGE
    assert not file.exists()


def test_two_runs_differ_in_times_and_ids_alone(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    path = make(tmp_path, "mixed")
    first, second = (run("report", path, "--json").document for _ in range(2))

    def strip(document: dict[str, Any]) -> dict[str, Any]:
        parts = [{**part, "state": None} for part in document["databases"]]
        return {**document, "run": None, "began": None, "ended": None, "databases": parts}

    assert first["run"] != second["run"]
    assert strip(first) == strip(second)


def test_coverage_is_opened_and_believed_apart(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    """Values of k1 that say they were under k2: believed, and not opened."""
    ended = run("report", make(tmp_path, "relabelled_key"), "--json")
    rows = ended.document["databases"][0]["coverage"]
    assert rows
    assert all((row["key"], row["opened"]) == ("k2", 0) and row["rows"] > 0 for row in rows)
    (key,) = [key for key in ended.document["keys"] if key["id"] == "k2"]
    assert (key["rows"] > 0, key["opened"], key["last_use"]) == (True, 0, None)


def test_last_use_is_the_time_in_an_id(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    ended = run("report", make(tmp_path, "old"), "--json")
    used = {key["id"]: key["last_use"] for key in ended.document["keys"]}
    assert used == {"k2": None, "k1": used["k1"], "aes": None}
    assert datetime.fromisoformat(used["k1"]) < datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026-01-01..2026-03-31", "2026-01-01T00:00:00Z", "2026-04-01T00:00:00Z"),
        ("2026-01-01..2026-01-01", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("2026-01-01T10:00:00+02:00..2026-01-01T09:00:00Z", "2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z"),
    ],
)
def test_period(text: str, begin: str, end: str) -> None:
    assert parse_period(text).object() == {"from": begin, "until": end}


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026", "2026-01-01", "..", "2026-02-01..2026-01-01", "a..b"),
        *("2026-01-01..9999-12-31", "0001-01-01T00:00:00+23:00..2026-01-01"),
    ],
)
def test_no_period(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_period(text)


def test_transitions_of_the_period(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    new = "id = 'k1'\ncreated = 2026-01-31T23:30:00Z\nretired = 2026-02-01T00:30:00+01:00\n"
    new += "disabled = 2026-02-01T00:00:00Z\n"
    legacy_ring.write_text(legacy_ring.read_text().replace("id = 'k1'\n", new))
    path = make(tmp_path, "good")
    found = run("report", path, "--period", "2026-01-01..2026-01-31", "--json").document
    (key,) = [key for key in found["keys"] if key["id"] == "k1"]
    assert key["in_period"] == ["created", "retired"]
    assert key["times"]["retired"] == "2026-01-31T23:30:00Z"


# --- text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["good", "mixed", "forged"])
def test_text(
    run: Run, legacy_ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, name: str
) -> None:
    """On a terminal no line of the table is longer, and each question has its verdict."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, name)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    ended = run("report", f"{name}.db")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", ended.out).splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(lines)
    labels = ("Values open ", "As in the thread store ", "Changes are recorded")
    assert sum(map(words.count, labels)) == 3
    head = "not proven: of 9 questions" if name == "good" else "not ok: of 9 questions"
    assert lines[-1].startswith(head)


# --- the page -----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a reader of the page alone has: texts by id, verdicts, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._at: str | None = None
        self._is_verdict = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._at = found.get("id") if tag == "pre" else None
        self._is_verdict = tag == "span" and (found.get("class") or "").startswith("v ")

    def handle_endtag(self, tag: str) -> None:
        self._at, self._is_verdict = None, False

    def handle_data(self, data: str) -> None:
        if self._at:
            self.texts[self._at] = self.texts.get(self._at, "") + data
        if self._is_verdict:
            self.words.append(data)


def test_the_page_alone_is_enough(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    """Its object is that of the file, its digest is right, and its verdicts are the object's."""
    out, file = tmp_path / "page.html", tmp_path / "report.json"
    run("report", make(tmp_path, "mixed"), make(tmp_path, "address"), "--out", out, "--json-out", file)
    page = Page(out.read_text())
    assert page.texts["report"] == file.read_text()
    assert page.texts["digest"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert page.words == [each["verdict"] for each in json.loads(file.read_text())["questions"]]


def test_the_page_loads_and_runs_nothing(run: Run, legacy_ring: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    run("report", make(tmp_path, "mixed"), "--out", out)
    page = Page(out.read_text())
    assert not {tag for tag, _ in page.tags} & {"script", "img", "link", "iframe", "object", "embed", "form"}
    assert not {name for _, found in page.tags for name in found if name.startswith("on") or name == "src"}
    assert all(found["href"].startswith("#") for _, found in page.tags if found.get("href"))  # type: ignore[union-attr]
    policies = [found["content"] for tag, found in page.tags if found.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in out.read_text()
    assert "@import" not in out.read_text()


def test_the_template_is_compiled_once(run: Run, tmp_path: Path) -> None:
    before = load_template()
    run("report", make(tmp_path, "mixed"), "--out", tmp_path / "page.html")
    assert load_template() is before


def test_the_page_needs_an_extra(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before a database is read; the object and the text need nothing."""
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    load_template.cache_clear()
    path = tmp_path / "a.db"
    write(path, "k2", "a")
    ended = run("report", path, "--out", tmp_path / "page.html")
    assert ended.code == Exit.USAGE
    assert "hint: pip install 'sealpoint[evidence]'" in ended.err
    assert run("report", path, "--json").document["schema"] == REPORT["$id"]


# --- hostile and planted texts ------------------------------------------------------------------------

LONG = "<script>alert(1)</script>" + "x" * (1 << 20)
HOSTILE: dict[str, tuple[str, tuple[object, ...]]] = {
    "thread": ("UPDATE writes SET thread_id = ? WHERE rowid = 1", (LONG,)),
    "direction": ("UPDATE writes SET thread_id = ? WHERE rowid = 1", ("\u202ekcab",)),
    "checkpoint": ("UPDATE checkpoints SET checkpoint_id = ? WHERE rowid = 1", (LONG,)),
    "long key": ("UPDATE checkpoints SET metadata = ?", (json.dumps({LONG: LONG}).encode(),)),
    "odd key": ("UPDATE checkpoints SET metadata = ?", (json.dumps({"\u202e<b>": "<script>"}).encode(),)),
    "tag": ("UPDATE writes SET type = ? WHERE rowid = 1", (f"<script>{LONG}+cobblestone256@k2",)),
    "key": ("UPDATE writes SET type = 'msgpack+cobblestone256@<script>' WHERE rowid = 1", ()),
    "table": (f'CREATE TABLE "<script>\u202e{"y" * 100_000}" (x)', ()),
    "bytes": ("UPDATE writes SET thread_id = x'ff00' WHERE rowid = 1", ()),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts(run: Run, legacy_ring: Path, tmp_path: Path, name: str) -> None:
    path = make(tmp_path, "good")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(*HOSTILE[name])
    out, file = tmp_path / "page.html", tmp_path / "report.json"
    ended = run("report", path, "--out", out, "--json-out", file)
    assert ended.code in (Exit.FOUND, Exit.UNOPENED, Exit.KEYS)
    page = out.read_text()
    assert "<script" not in page
    assert "\u202e" not in page + file.read_text() + ended.out
    assert max(len(page), len(file.read_text())) < 200_000
    assert Page(page).texts["report"] == file.read_text()


CANARY = "Mango7411Quince"


@pytest.mark.parametrize("kind", ["k2", "plain", "eax"])
def test_no_planted_text_is_in_the_files(run: Run, legacy_ring: Path, tmp_path: Path, kind: str) -> None:
    """Neither of sealed nor of readable values, of metadata, or of ids, whether they open or not."""
    path = tmp_path / "x.db"
    write(path, kind, f"{CANARY}-thread", value=f"{CANARY}-value")
    with closing(sqlite3.connect(path)) as connection, connection:
        text = json.dumps({"user": f"{CANARY}-metadata", f"{CANARY} key with spaces": 1, "step": 1}).encode()
        connection.execute("UPDATE checkpoints SET metadata = ?", (text,))
        connection.execute("UPDATE writes SET channel = ? WHERE rowid = 2", (f"{CANARY}-channel",))
        connection.execute("UPDATE writes SET value = x'00' WHERE rowid = 1")
    out, file = tmp_path / "page.html", tmp_path / "report.json"
    ended = run("report", path, "--out", out, "--json-out", file)
    for text_of in (out.read_text(), file.read_text(), ended.out, ended.err):
        assert CANARY.lower() not in text_of.lower()
    assert ended.code == Exit.UNOPENED


def test_no_planted_text_of_a_sealed_saver(run: Run, whole: Path, tmp_path: Path) -> None:
    with closing(SqliteThreadStore("threads.db")) as store, sealed_file(whole, threads=store) as saver:
        play(saver, f"{CANARY}-thread", runs=1)
        saver.delete_thread(f"{CANARY}-thread")
    with closing(sqlite3.connect(whole)) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE rowid = 1")
    ended = run("report", whole, "--out", "page.html", "--json-out", "report.json")
    found = Path("page.html").read_text() + Path("report.json").read_text() + ended.out
    assert CANARY not in found
    assert "Kumquat" not in found
    marks = json.loads(Path("report.json").read_text())["databases"][0]["opening"]["threads"]
    assert all(re.fullmatch("[0-9a-f]{32}", mark) for mark in marks)
    assert len(marks) == 1


# --- Postgres -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pg_good", "pg_bound", "pg_mixed", "pg_inline", "pg_vectors"])
def test_postgres(
    run: Run,
    legacy_ring: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    name: str,
) -> None:
    with schema(server(pytestconfig)) as url:
        databases.fill_postgres(url, name)
        monkeypatch.setenv("SEALPOINT_REPORT_URL", at(url))
        found, held = oracle.read_postgres(url), oracle.read_ring(legacy_ring)
        words = ["report", "--db-env", "SEALPOINT_REPORT_URL", "--json-out", tmp_path / "report.json"]
        ended = run(*words, "--out", tmp_path / "page.html", "--json")
    assert ended.code == expected_code(ended.document)
    shown = [question for question, (word, _) in answers(ended).items() if word == "shown"]
    assert [question for question in shown if not is_so(question, found, held)] == []
    assert ("opens" in shown) is (name != "pg_mixed")
    assert ended.document["databases"][0]["database"]["kind"] == "postgres"
    assert ended.document["again"]["command"] == "sealpoint report --db-env SEALPOINT_REPORT_URL"
    assert databases.SECRET.decode() not in ended.out + (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_all_parts_speak_of_the_same_rows(
    run: Run, whole: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, kind: str
) -> None:
    """An agent stores a thread between two readings: none of them has it, and no head is missed."""
    with ExitStack() as stack:
        url = stack.enter_context(schema(server(pytestconfig))) if kind == "postgres" else ""
        if url:
            set_up(PostgresSaver, url)
            monkeypatch.setenv("SEALPOINT_REPORT_URL", at(url))
        else:
            with closing(sqlite3.connect(whole)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")

        def store(thread_id: str) -> None:
            saver: Any = sealed_schema(url, threads=heads) if url else sealed_file(whole, threads=heads)
            with saver as opened:
                play(opened, thread_id, runs=1)

        heads = stack.enter_context(closing(SqliteThreadStore("agents.db", create=True)))
        if not url:
            assert run("heads", "adopt", whole, "--threads", "agents.db", "--reason", "x").code == Exit.DONE
        store("before")
        looked = audit

        def audit_while_an_agent_writes(*arguments: Any) -> Any:
            store("meanwhile")
            return looked(*arguments)

        monkeypatch.setattr(sources, "audit", audit_while_an_agent_writes)
        place = ["--db-env", "SEALPOINT_REPORT_URL"] if url else [whole]
        ended = run("report", *place, "--threads", "agents.db", "--json")
    (part,) = ended.document["databases"]
    believed = sum(row["rows"] for row in part["coverage"])
    assert part["rows"] == believed == part["opening"]["rows"] == part["opening"]["opened"][0]["values"]
    assert answers(ended)["remembered"] == ("shown", [])
    assert part["heads"]["recorded"] > part["readable"]["metadata"]["rows"] > 0
