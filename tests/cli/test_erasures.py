"""`sealpoint erasures`: what is shown of an erasure, and all for which *complete* is never said."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.admin.evidence import Proof, VerifierKey
from sealpoint.admin.evidence.erasure import (
    ERASE_AGAIN,
    ERASE_BEGIN,
    ERASE_END,
    Erased,
    Erasure,
    HeldKey,
    State,
    hmac_of,
)
from sealpoint.admin.evidence.recorder import Act, Recorder
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.result import Result
from sealpoint.base import empty_checkpoint
from sealpoint.errors import LedgerTamperedError
from sealpoint.keys.ringfile import RingFile
from sealpoint.langgraph import EncryptedSerializer
from tests.cli.conftest import Ended, Run

RING = Path("keys.toml")
TABLES = """
[ledger]
dir = "ledger"
origin = "example.org/agents"
signer = { file = "ledger.key" }

[[database]]
path = "state.db"
"""


def today(days: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def name_of(text: str) -> str | None:
    return hmac_of(RingFile(RING))(text)


def recorder(act: Act, command: str = "erase") -> Recorder:
    ring = RingFile(RING)
    assert ring.ledger is not None
    return Recorder(ring, ring.ledger, Result(command), act)


def begin(thread: str = "t", **fields: Any) -> Recorder:
    """Begin an erasure, as `sealpoint erase --apply` does."""
    known: dict[str, Any] = {"database": "/srv/state.db", "sealed_since": today(), "reason": "asked for"}
    erasure = Erasure(
        threads=(Erased([str(name_of(thread))], "1f0"),),
        keys=HeldKey.of(RingFile(RING).entries),
        counts={"checkpoints": {"k1": 1}},
        **known | fields,
    )
    begun = recorder(Act(ERASE_BEGIN, ERASE_END, {"database": ["state.db"]}, (), [bytes(erasure)]))
    begun.begin()
    return begun


def erase(thread: str = "t", **fields: Any) -> None:
    begin(thread, **fields).end("done", Exit.DONE, None)


def search(found: int, erased: int, database: str = "state.db") -> None:
    """Record what `sealpoint erasures --again` has found."""
    entries = [json.loads(line) for line in Path("ledger/entries.jsonl").read_text().splitlines()]
    (document,) = next(each["documents"] for each in entries if each["event"] == ERASE_BEGIN)
    act = Act(ERASE_AGAIN, ERASE_AGAIN, {"database": [database], "erasure": document})
    again, result = recorder(act, "erasures"), Result("erasures")
    again.begin()
    result.document({"found": found, "erased": erased})
    again.end("done", Exit.DONE, result)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A ring with a ledger and a database that is sealed under k1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEALPOINT_KEYS", str(RING))
    assert run("keys", "init", "k1").code == Exit.DONE
    assert run("keys", "generate", "--index").code == Exit.DONE
    RING.write_text(RING.read_text() + TABLES)
    serde = EncryptedSerializer.from_key_file(RING)
    with SqliteSaver.from_conn_string("state.db") as saver:
        saver.serde = serde
        config: Any = {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {"source": "input"}, {})
    Path("vkey").write_text(run("ledger", "init").out)
    shutil.copyfile("ledger/checkpoint", "pin")
    return tmp_path


def rotate(run: Run, old: str = "k1", new: str = "k2") -> None:
    """Reseal everything under a new key, and disable the old one."""
    for words in (
        ("keys", "generate", new),
        ("keys", "promote", new),
        ("rotate", "state.db", "--apply"),
        ("keys", "disable", old, "--yes"),
    ):
        assert run(*words).code == Exit.DONE, words


def destroy(run: Run, key: str = "k1", *words: str) -> Ended:
    return run("keys", "destroy", key, "--yes", *words)


def replace_in(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def add_key(entry: str) -> None:
    """Add a key to the ring by hand."""
    replace_in(RING, "[[index]]", f"{entry.strip()}\n\n[[index]]")


def shown(run: Run, *words: str) -> Ended:
    return run("erasures", "--vkey", "vkey", "--pin", "pin", *words)


def states(run: Run) -> list[tuple[str, list[str]]]:
    """The states, and the keys to destroy."""
    return [(each["state"], each["keys"]) for each in shown(run, "--json").document["erasures"]]


@pytest.mark.usefixtures("place")
def test_an_erasure_through_its_states(run: Run) -> None:
    ended = shown(run)
    assert (ended.code, ended.out) == (Exit.DONE, "no erasure is recorded\nok\n")
    begun = begin(due=today(30))
    assert states(run) == [(State.NOT_ENDED, [])]
    begun.end("done", Exit.DONE, None)
    assert states(run) == [(State.DELETED, ["k1"])]
    rotate(run)
    assert states(run) == [(State.DELETED, ["k1"])]
    assert destroy(run).code == Exit.DONE
    assert states(run) == [(State.COMPLETE, [])]
    ended = shown(run)
    columns, line, ok = ended.out.splitlines()
    assert re.split(r"  +", columns) == ["entry", "at", "ids", "reason", "keys to destroy", "due", "state"]
    assert re.split(r"  +", line.strip())[2:] == ["1", "asked for", "-", today(30), "complete"]
    assert (ended.code, ok) == (Exit.DONE, "ok")


@pytest.mark.usefixtures("place")
def test_without_a_key_and_a_pin_the_result_is_not_proven(run: Run) -> None:
    erase()
    ended = run("erasures", "--json")
    assert (ended.document["ok"], ended.code) == (None, Exit.FOUND)
    assert ended.document["reasons"] == [Reason.SIGNER_NOT_GIVEN, Reason.PIN_NOT_GIVEN]
    assert run("erasures", "--allow-unproven").code == Exit.DONE


@pytest.mark.usefixtures("place")
def test_one_that_is_overdue_ends_in_3_until_it_is_complete(run: Run) -> None:
    erase("a", due=today())
    assert shown(run).code == Exit.DONE
    erase("b", due=today(-1))
    ended = shown(run)
    assert (ended.code, ended.out.count(", overdue")) == (Exit.FOUND, 1)
    assert shown(run, "--allow-unproven").code == Exit.FOUND
    assert shown(run, "--json").document["reasons"] == [Reason.OVERDUE]
    rotate(run)
    assert shown(run).code == Exit.FOUND
    destroy(run)
    assert (shown(run).code, states(run)) == (Exit.DONE, [(State.COMPLETE, [])] * 2)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("outcome", [None, "stopped", "failed", "refused"])
def test_one_that_did_not_end_is_overdue_until_it_is_repeated(run: Run, outcome: str | None) -> None:
    """The date remains that of the first."""
    begun = begin("a", due=today(-1))
    if outcome is not None:
        begun.end(outcome, Exit.STOPPED, None)
    assert (shown(run).code, states(run)) == (Exit.FOUND, [(State.NOT_ENDED, [])])
    erase("b", due=today(30))
    erase("a", due=today(30), database="/other/state.db")
    first, *_ = shown(run, "--json").document["erasures"]
    assert first["is_overdue"] is True
    erase("a", due=today(30))
    first, *_, last = shown(run, "--json").document["erasures"]
    assert (first["state"], first["is_overdue"]) == (State.NOT_ENDED, False)
    assert (last["state"], last["due"], last["is_overdue"]) == (State.DELETED, today(-1), True)


# --- never complete ---------------------------------------------------------------------------------


def complete(run: Run, *words: str) -> None:
    """All that makes an erasure complete."""
    erase()
    rotate(run)
    destroy(run, "k1", *words)


def with_key(state: str) -> Callable[[Run], None]:
    """Another key of that time is still there."""

    def act(run: Run) -> None:
        run("keys", "generate", "k0")
        if state in ("decrypt-only", "disabled"):
            run("keys", "promote", "k0")
            run("keys", "promote", "k1", "--no-database-check")
        if state == "disabled":
            run("keys", "disable", "k0", "--yes")
        if state == "compromised":
            run("keys", "compromise", "k0")
        erase()
        run("keys", "generate", "k2")
        assert run("keys", "promote", "k2", "--no-database-check").code == Exit.DONE
        run("rotate", "state.db", "--apply")
        run("keys", "disable", "k1", "--yes")
        assert destroy(run).code == Exit.DONE
        assert f'state = "{state}"' in RING.read_text()

    return act


def gone(run: Run) -> None:
    erase()
    rotate(run)
    Path("keys.d/k1.key").unlink()
    assert "gone-before" in destroy(run, "k1", "--json").out


def left_before(run: Run) -> None:
    """A key that was marked as destroyed before, and is still there."""
    rotate(run)
    destroy(run, "k1", "--leave-material")
    erase()
    rotate(run, "k2", "k3")
    assert destroy(run, "k2").code == Exit.DONE


def destroyed_by_hand(run: Run) -> None:
    erase()
    rotate(run)
    replace_in(RING, 'state = "disabled"', 'state = "destroyed"\nmaterial = "removed"')
    assert run("verify", "state.db").code == Exit.DONE  # and recorded


def edited(when: str) -> Callable[[Run], None]:
    """A key that is removed from the ring by hand, so that no list names it."""

    def cut() -> None:
        start, first, rest = RING.read_text().partition("[[key]]")
        parts = re.split(r"(?=^\[\[?\w)", first + rest, flags=re.MULTILINE)
        RING.write_text(start + "".join(part for part in parts if 'id = "k0"' not in part))

    def act(run: Run) -> None:
        run("keys", "generate", "k0")
        if when == "between two commands":
            cut()
        if when == "during a command":
            begun = recorder(Act("verify", "verify"), "verify")
            begun.begin()
            cut()
            begun.end("done", Exit.DONE, None)
        if when == "after a command that was killed":
            recorder(Act("key.promote", "key.promote")).begin()
            run("verify", "state.db")
            cut()
        complete(run)
        if when == "at last":
            run("keys", "destroy", "k0", "--yes")
            cut()
        assert "k0" not in RING.read_text()

    return act


def made_again(run: Run) -> None:
    """The same id with other material, destroyed in place of the first."""
    erase()
    rotate(run)
    Path("other").mkdir()
    run("keys", "init", "k1", "--keys", "other/keys.toml")
    shutil.copyfile("other/keys.d/k1.key", "keys.d/k1.key")
    check = re.compile(r'check = "(\w+)"')
    mine, others = (check.findall(Path(file).read_text())[0] for file in ("keys.toml", "other/keys.toml"))
    replace_in(RING, mine, others)
    assert destroy(run).code == Exit.DONE


def another_ring(run: Run) -> None:
    """One that has never seen the ledger, with a key of the same id that is destroyed."""
    complete(run)
    Path("other").mkdir()
    file = Path("other/keys.toml")
    run("keys", "init", "k1", "--keys", file)
    run("keys", "generate", "k2", "--keys", file)
    run("keys", "promote", "k2", "--keys", file)
    run("keys", "disable", "k1", "--yes", "--keys", file)
    run("keys", "destroy", "k1", "--yes", "--no-database-check", "--keys", file)
    file.write_text(file.read_text() + TABLES)
    shutil.copyfile(file, RING)


def key_made_meanwhile(run: Run) -> None:
    begun = begin()
    run("keys", "generate", "k2")
    run("keys", "promote", "k2")
    begun.end("done", Exit.DONE, None)
    run("rotate", "state.db", "--apply")
    run("keys", "disable", "k1", "--yes")
    destroy(run)


def copied(run: Run) -> None:
    """The same material under another id, which is still in use."""
    text = RING.read_text()
    entry = text[text.index("[[key]]") : text.index("[[index]]")].replace('id = "k1"', 'id = "k1-b"')
    add_key(entry.replace('state = "active"', 'state = "decrypt-only"').replace("k1.key", "k1-b.key"))
    shutil.copyfile("keys.d/k1.key", "keys.d/k1-b.key")
    Path("keys.d/k1-b.key").chmod(0o600)
    complete(run)


def came_back(run: Run) -> None:
    complete(run)
    search(2, 2)


NOT_SHOWN: dict[str, tuple[Callable[[Run], None], str]] = {
    "no database examined": (lambda run: complete(run, "--no-database-check"), "a check was waived"),
    "a waived check, and no result asked for": (
        lambda run: complete(run, "--no-database-check", "--allow-unproven"),
        "a check was waived when key k1 was destroyed",
    ),
    "unrelated databases accepted": (lambda run: complete(run, "--allow-unrelated"), "a check was waived"),
    "material left": (lambda run: complete(run, "--leave-material"), "its material was left"),
    "material gone before": (gone, "no run removed the material of key k1"),
    "material of an earlier key left": (
        left_before,
        "key k1 is marked as destroyed, but its material",
    ),
    "destroyed by hand": (destroyed_by_hand, "the ledger has no later destruction of key k1"),
    "edited between two commands": (edited("between two commands"), "changed by hand"),
    "edited during a command": (edited("during a command"), "changed by hand"),
    "edited after a command that was killed": (edited("after a command that was killed"), "changed by hand"),
    "edited at last": (edited("at last"), "the ring differs from the ring in the last entry of the ledger"),
    "the same id with other material": (made_again, "the ring has no key k1 with the check value"),
    "another ring": (another_ring, "the ring has no key k1 with the check value"),
    "a key that was made meanwhile": (key_made_meanwhile, "the ring was changed during the erasure"),
    "erased again after rows came back": (came_back, "rows came back"),
}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("case", NOT_SHOWN)
def test_not_shown_to_be_complete(run: Run, case: str) -> None:
    act, why = NOT_SHOWN[case]
    act(run)
    (one,) = shown(run, "--json").document["erasures"]
    assert one["state"] == State.NOT_SHOWN
    assert why in "; ".join(one["why"])


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("state", ["staged", "decrypt-only", "disabled", "compromised"])
def test_a_key_that_is_still_there_in_any_state(run: Run, state: str) -> None:
    with_key(state)(run)
    assert states(run) == [(State.DELETED, ["k0"])]


@pytest.mark.usefixtures("place")
def test_material_that_is_still_there_under_another_id(run: Run) -> None:
    copied(run)
    (one,) = shown(run, "--json").document["erasures"]
    assert (one["state"], one["keys"]) == (State.NOT_SHOWN, ["k1", "k1-b"])


LEGACY = """
[[key]]
id = "aes"
suite = "aes"
state = "decrypt-only"
source = { env = "LANGGRAPH_AES_KEY" }
"""


def with_legacy_key(run: Run) -> None:
    add_key(LEGACY)
    complete(run)


def also(*words: str, later: bool = False) -> Callable[[Run], None]:
    """All that makes an erasure complete, and another command before it or after it."""

    def act(run: Run) -> None:
        if later:
            complete(run)
        assert run(*words).code == Exit.DONE
        if not later:
            complete(run)

    return act


NOT_BY_KEYS: dict[str, Callable[[Run], None]] = {
    "plaintext rotated": also("rotate", "state.db", "--apply", "--allow-plaintext"),
    "plaintext rotated later": also("rotate", "state.db", "--apply", "--allow-plaintext", later=True),
    "legacy rotated": also("rotate", "state.db", "--apply", "--allow-legacy"),
    "plaintext read": also("verify", "state.db", "--allow-plaintext", "--allow-unproven"),
    "decrypted": also("decrypt", "state.db", "--out", "plain.db"),
    "LANGGRAPH_AES_KEY in the ring": with_legacy_key,
}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("case", NOT_BY_KEYS)
def test_not_to_be_completed_by_keys(run: Run, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    NOT_BY_KEYS[case](run)
    (one,) = shown(run, "--json").document["erasures"]
    assert (one["state"], bool(one["why"])) == (State.NOT_BY_KEYS, True)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("since", [None, "2020-01-01", today(1)])
def test_a_database_of_which_nobody_knows_since_when_it_is_sealed(run: Run, since: str | None) -> None:
    """Nobody said it, the ledger does not go back so far, or it was said of a later day."""
    erase(sealed_since=since)
    rotate(run)
    destroy(run)
    assert states(run) == [(State.NOT_BY_KEYS, [])]


@pytest.mark.usefixtures("place")
def test_a_refused_run_says_nothing_about_rows(run: Run) -> None:
    assert run("decrypt", "state.db", "--out", "state.db").code == Exit.USAGE
    complete(run)
    assert states(run) == [(State.COMPLETE, [])]


@pytest.mark.usefixtures("place")
def test_rows_that_came_back(run: Run) -> None:
    """In whichever database; what is found in another does not make up for it."""
    complete(run)
    search(0, 0)
    assert states(run) == [(State.COMPLETE, [])]
    search(3, 0, "restored.db")
    search(0, 0)
    assert states(run) == [(State.CAME_BACK, [])]
    search(3, 2, "restored.db")
    assert states(run) == [(State.CAME_BACK, [])]
    search(1, 1, "restored.db")
    assert states(run) == [(State.NOT_SHOWN, [])]
    erase()
    rotate(run, "k2", "k3")
    destroy(run, "k2")
    assert states(run)[1] == (State.COMPLETE, [])


@pytest.mark.usefixtures("place")
def test_what_came_back_before_it_was_erased_once_more(run: Run) -> None:
    """Both have the same document, and the search was of the first."""
    erase()
    search(1, 0)
    erase()
    assert states(run) == [(State.CAME_BACK, ["k1"]), (State.DELETED, ["k1"])]


@pytest.mark.usefixtures("place")
def test_a_killed_destruction_is_completed_by_the_next(run: Run) -> None:
    """The ring was changed by a run that is recorded, and not by hand."""
    erase()
    rotate(run)
    recorder(Act("key.destroy", "key.destroy", {"key": "k1"})).begin()
    ring = Path("ledger.toml")  # what the killed run did is not recorded
    ring.write_text(RING.read_text().replace('dir = "ledger"', 'dir = "none"'))
    text = RING.read_text()
    table = text[text.index("[ledger]") : text.index("[[database]]")]
    RING.write_text(text.replace(table, ""))
    assert destroy(run).code == Exit.DONE
    RING.write_text(RING.read_text() + table)
    assert states(run) == [(State.NOT_SHOWN, [])]
    assert destroy(run).code == Exit.DONE
    assert states(run) == [(State.COMPLETE, [])]


# --- the ledger and its documents ---------------------------------------------------------------------


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("file", ["entries.jsonl", "documents"])
def test_a_ledger_that_was_changed(run: Run, file: str) -> None:
    complete(run)
    path = Path("ledger") / file
    if path.is_dir():
        path = next(each for each in path.iterdir() if b'"erasure": 1' in each.read_bytes())
        replace_in(path, '"k1"', '"k9"')
    else:
        replace_in(path, '"ledger.init"', '"ledger.inix"')
    ended = shown(run, "--json")
    assert (ended.document["ok"], ended.code) == (False, Exit.FOUND)
    assert State.COMPLETE not in [each["state"] for each in ended.document["erasures"]]


@pytest.mark.usefixtures("place")
def test_a_document_of_another_form_is_not_known_and_overdue(run: Run) -> None:
    act = Act(ERASE_BEGIN, ERASE_END, {}, (), [b'{"erasure": 2}'])
    for each in (act, Act(ERASE_BEGIN, ERASE_END)):
        begun = recorder(each)
        begun.begin()
        begun.end("done", Exit.DONE, None)
    ended = shown(run, "--json")
    assert [each["state"] for each in ended.document["erasures"]] == [State.NOT_SHOWN] * 2
    assert (ended.document["reasons"], ended.code) == ([Reason.OVERDUE], Exit.FOUND)


@pytest.mark.usefixtures("place")
def test_entries_are_proven_to_a_reader_without_the_ledger(run: Run) -> None:
    complete(run)
    (one,) = shown(run, "--json").document["erasures"]
    key = VerifierKey.parse(Path("vkey").read_text().strip())
    lines = [each["entry"].encode() for each in one["proofs"]]
    for line, each in zip(lines, one["proofs"], strict=True):
        Proof.parse(each["proof"].encode()).verify(line, key)
    events = [(entry["event"], entry["outcome"]) for entry in map(json.loads, lines)]
    assert events == [(ERASE_BEGIN, "begun"), (ERASE_END, "done"), ("key.destroy", "done")]
    assert json.loads(lines[0])["documents"] == [one["document"]]


@pytest.mark.usefixtures("place")
def test_the_reason_is_escaped(run: Run) -> None:
    erase(reason="\x1b[31m<b>red</b>")
    assert r"\x1b[31m" in shown(run).out
    run("report", "--out", "page.html")
    assert "<b>red" not in Path("page.html").read_text()


@pytest.mark.usefixtures("place")
def test_the_report_has_the_erasures(run: Run) -> None:
    assert run("report", "--json").document["erasures"] == []
    erase(due=today(-1))
    given = ["--vkey", "vkey", "--ledger-pin", "pin"]
    ended = run("report", "--json", "--out", "page.html", *given)
    (one,) = shown(run, "--json").document["erasures"]
    del one["proofs"]
    assert ended.document["erasures"] == [one]
    assert "deleted, overdue</span>" in Path("page.html").read_text()
    assert "deleted, overdue" in run("report", *given).out
    rotate(run)
    destroy(run)
    assert run("report", "--json", *given).document["erasures"][0]["state"] == State.COMPLETE
    replace_in(RING, TABLES, "")
    assert run("report", "state.db", "--json").document["erasures"] is None


# --- documents ----------------------------------------------------------------------------------------

names = st.binary(min_size=32, max_size=32).map(lambda data: "hmac-sha256:" + data.hex())
dates = st.none() | st.dates().map(lambda day: day.isoformat())
texts = st.text(max_size=8)
owners = st.lists(st.builds(Erased, st.lists(names, max_size=2), st.none() | texts), max_size=3).map(tuple)
keys = st.lists(st.builds(HeldKey, texts, st.none() | texts, texts), max_size=3).map(tuple)
counts = st.dictionaries(texts, st.dictionaries(texts, st.integers(), max_size=2), max_size=2)


@given(
    st.builds(
        Erasure,
        erasure=st.just(1),
        database=texts,
        index=st.none() | names,
        threads=owners,
        namespaces=owners,
        keys=keys,
        counts=counts,
        reason=st.none() | texts,
        due=dates,
        sealed_since=dates,
    )
)
def test_a_document_is_parsed_back(erasure: Erasure) -> None:
    assert Erasure.parse(bytes(erasure)) == erasure


GOOD: dict[str, Any] = {
    "erasure": 1,
    "database": "/srv/state.db",
    "threads": [{"names": ["hmac-sha256:" + "0" * 64], "last": "1f0"}],
    "namespaces": [],
    "keys": [{"id": "k1", "check": "00000000", "state": "active"}],
    "counts": {"checkpoints": {"k1": 3}},
    "reason": "r",
    "due": "2026-01-31",
    "sealed_since": "2026-01-01",
}
BAD: dict[str, list[Any]] = {
    "erasure": [2, None],
    "threads": [None, 1, [1], [{}], [{"names": [1]}], [{"names": [], "last": 1}]],
    "keys": [None, [{}], [{"id": 1, "check": None, "state": ""}], [{"id": "k1"}]],
    "reason": [1],
    "due": ["20260131", "2026-01-32", 1],
    "more": [1],
}


@pytest.mark.parametrize(("member", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_another_form_is_refused(member: str, value: Any) -> None:
    assert bytes(Erasure.parse(json.dumps(GOOD).encode()))
    with pytest.raises(LedgerTamperedError, match="cannot be parsed as an erasure"):
        Erasure.parse(json.dumps(GOOD | {member: value}).encode())


@pytest.mark.parametrize("data", [b"", b"null", b"[" * 100_000, b"\xff"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(LedgerTamperedError):
        Erasure.parse(data)
