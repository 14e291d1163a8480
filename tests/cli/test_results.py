"""What `ok` says: true only if a command looked, and found it so. Each case once said yes without that."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.maintenance.job import Job
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.result import MAX_TABLES
from sealpoint.base import empty_checkpoint
from sealpoint.serde import EncryptedSerializer
from sealpoint.sqlite import SqliteSaver
from tests.cli.conftest import Ended, Run
from tests.support.databases.sealed import AES_KEY, VALUES, make_cipher, write

NOTHING = "DELETE FROM checkpoints; DELETE FROM writes;"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.executescript(statement)


def beside(ended: Ended) -> tuple[str, list[str]]:
    """What a report says of what is readable beside the values."""
    (question,) = (each for each in ended.document["questions"] if each["id"] == "beside")
    return question["verdict"], [reason["reason"] for reason in question["reasons"]]


def says(ended: Ended) -> tuple[bool | None, list[str]]:
    return ended.document["ok"], ended.document["reasons"]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.db"
    write(path, "plain", "a")
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.db"
    write(path, "k2", "a")
    change(path, NOTHING)
    return path


@pytest.mark.claim("u5")
@pytest.mark.usefixtures("keys")
def test_accepted_plaintext_proves_nothing(run: Run, plain: Path, path: Path) -> None:
    ended = run("verify", plain, "--allow-plaintext", "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, None, ["plaintext-allowed"])
    assert ended.document["options"] == {"allow_plaintext": True, "bound": False, "no_threads": False}
    assert (ended.document["accepted"], ended.document["opened"]) == (VALUES, [])
    assert run("verify", plain, "--allow-plaintext", "--allow-unproven").code == Exit.DONE
    whole = run("verify", path, "--allow-plaintext", "--json")  # nothing was accepted
    assert (whole.code, *says(whole)) == (Exit.DONE, True, [])
    assert whole.document["opened"] == [{"key": "k1", "values": VALUES}]


@pytest.mark.claim("l2")
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("table", ["cache", "store_vectors", "Store_Vectors"])
def test_tables_of_langgraph_that_are_not_read_are_a_finding(run: Run, path: Path, table: str) -> None:
    change(path, f"CREATE TABLE {table} (value TEXT); INSERT INTO {table} VALUES ('078-05-1120')")
    change(path, "CREATE TABLE orders (id INTEGER)")
    ended = run("audit", path, "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, False, ["readable-tables"])
    assert ended.document["readable_tables"] == [table]
    assert ended.document["scope"] == {
        "read": ["checkpoints", "writes"],
        "not_read": sorted(["orders", table]),
        "others": 0,
        "missing": [],
    }
    assert "orders" in run("audit", path).out


@pytest.mark.usefixtures("keys")
def test_a_store_is_accepted_with_a_reason(run: Run, path: Path) -> None:
    """It is named in the object and in the text, and nothing else is accepted."""
    reason = "sealed by the server\x1b[31m"
    change(path, "CREATE TABLE cache (value TEXT)")
    given = ["audit", path, "--allow-store", reason]
    ended = run(*given, "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, None, ["store-allowed"])
    assert ended.document["options"]["allow_store"] == reason
    assert ended.document["readable_tables"] == ["cache"]
    text = run(*given, "--allow-unproven")
    assert text.code == Exit.DONE
    assert "accepted by --allow-store: sealed by the server\\x1b[31m\n" in text.out
    last = "not proven: unsealed values of LangGraph's Store and caches were accepted"
    assert text.out.splitlines()[-1] == last
    write(path, "plain", "p")
    ended = run(*given, "--allow-unproven", "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, False, ["not-sealed", "store-allowed"])


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("reason", ["", "  ", "x" * 1_001, "\udcff"])
@pytest.mark.parametrize("command", ["audit", "report"])
def test_a_store_is_not_accepted_without_a_reason(run: Run, path: Path, command: str, reason: str) -> None:
    ended = run(command, path, "--allow-store", reason)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "--allow-store" in ended.err


@pytest.mark.usefixtures("keys")
def test_a_finding_does_not_hide_behind_many_tables(run: Run, path: Path) -> None:
    change(path, *(f"CREATE TABLE aa{number} (x)" for number in range(MAX_TABLES + 5)))
    change(path, "CREATE TABLE store_vectors (value TEXT)")
    ended = run("audit", path, "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, False, ["readable-tables"])
    scope = ended.document["scope"]
    assert (len(scope["not_read"]), scope["others"]) == (MAX_TABLES, 6)


@pytest.mark.claim("u5")
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["verify"], Exit.FOUND),
        (["audit"], Exit.FOUND),
        (["status", "--only", "k2"], Exit.DONE),
        (["rotate", "--apply"], Exit.DONE),
        (["types", "--allow", "a:b"], Exit.DONE),
        (["trial"], Exit.DONE),
        (["decrypt", "--out", "OUT"], Exit.DONE),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else None,
)
def test_an_empty_database_proves_nothing(
    run: Run, empty: Path, tmp_path: Path, words: list[str], code: Exit
) -> None:
    ended = run(*[tmp_path / "out.db" if word == "OUT" else word for word in words], empty, "--json")
    assert (ended.code, *says(ended)) == (code, None, ["no-rows"])


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(("mode", "reason"), [("none", "not-verified"), ("sample", "sampled"), ("all", None)])
def test_a_rotation_is_proven_by_opening_all(run: Run, path: Path, mode: str, reason: str | None) -> None:
    ended = run("rotate", path, "--apply", "--verify", mode, "--json")
    assert (ended.code, *says(ended)) == (Exit.DONE, None if reason else True, [reason] if reason else [])
    assert ended.document["options"]["verify"] == mode
    assert (ended.document["verified"] is None) is (mode == "none")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("option", "kind", "reason"),
    [
        ("--allow-plaintext", "plain", "plaintext-allowed"),
        ("--no-key-check", "k1", "key-check-waived"),
    ],
)
def test_a_rotation_that_waives_a_check_says_so(
    run: Run, tmp_path: Path, option: str, kind: str, reason: str
) -> None:
    path = tmp_path / "waived.db"
    write(path, kind, "a")
    ended = run("rotate", path, "--apply", option, "--json")
    assert (ended.code, *says(ended)) == (Exit.DONE, None, [reason])


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("kind", "option", "reason"),
    [("plain", "--allow-plaintext", "plaintext-allowed"), ("eax", "--allow-legacy", "legacy-allowed")],
)
def test_values_that_come_after_the_plan_are_counted(
    run: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, option: str, reason: str
) -> None:
    """An attacker can add a row at any time: what no key authenticated is counted as it is sealed."""
    ring = tmp_path / "ring.toml"
    legacy = "[[key]]\nid = 'langgraph'\nstate = 'decrypt-only'\nsuite = 'aes'\n"
    ring.write_text(f"{ring.read_text()}{legacy}source = {{ inline = {AES_KEY.decode()!r} }}\n")
    genuine = Job.plan

    def plan_and_write(*arguments: Any, **options: Any) -> Any:
        plan = genuine(*arguments, **options)
        write(path, kind, "b")
        return plan

    monkeypatch.setattr(Job, "plan", plan_and_write)
    ended = run("rotate", path, "--apply", option, "--json")
    assert (ended.code, *says(ended)) == (Exit.DONE, None, [reason])
    assert ended.document[reason.removesuffix("-allowed")] == VALUES


@pytest.mark.claim("u16")
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE checkpoints SET checkpoint_id = checkpoint_id || 'x'",
        "UPDATE checkpoints SET metadata = CAST('{\"a\": nan}' AS BLOB)",
        "UPDATE checkpoints SET metadata = CAST('[]' AS BLOB)",
        "UPDATE checkpoints SET parent_checkpoint_id = x'00'",
        "UPDATE checkpoints SET checkpoint_id = '' WHERE rowid = 1",
        "UPDATE writes SET task_id = 7, channel = x'6100'",
    ],
)
def test_verify_refuses_what_a_saver_refuses(run: Run, path: Path, harm: str) -> None:
    change(path, harm)
    ended = run("verify", path, "--json")
    ok, reasons = says(ended)
    assert (ended.code, ok, reasons[0]) == (Exit.UNOPENED, False, "values-failed")
    assert ended.document["failed"] == len(ended.document["failures"]) > 0


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("metadata", ["CAST('{\"a\": nan}' AS BLOB)", "CAST('[]' AS BLOB)", "7"])
def test_trial_refuses_rows_that_an_agent_could_not_read(run: Run, path: Path, metadata: str) -> None:
    change(path, f"UPDATE checkpoints SET metadata = {metadata} WHERE rowid = 1")
    ended = run("trial", path, "--json")
    assert (ended.code, *says(ended)) == (Exit.UNOPENED, False, ["values-failed"])
    assert [part["error"] for part in ended.document["threads"]] == ["MetadataError"]


@pytest.mark.usefixtures("keys")
def test_text_of_inspect_ends_with_the_verdict(run: Run, path: Path) -> None:
    change(path, "UPDATE writes SET value = x'00' WHERE rowid = 1")
    ended = run("inspect", path, "--thread", "a")
    assert (ended.code, ended.out.splitlines()[-1]) == (Exit.UNOPENED, "not ok: values do not open")


@pytest.mark.usefixtures("keys")
def test_verify_names_checkpoints_without_their_parent(run: Run, path: Path) -> None:
    """A pruned thread looks so, and one from which rows were removed."""
    with closing(sqlite3.connect(path)) as connection:
        (middle,) = connection.execute(
            "SELECT checkpoint_id FROM checkpoints ORDER BY 1 LIMIT 1 OFFSET 1"
        ).fetchone()
    change(path, f"DELETE FROM checkpoints WHERE checkpoint_id = '{middle}'")
    ended = run("verify", path, "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, None, ["parents-missing"])
    assert ended.document["orphans"] == len(ended.document["orphan_places"]) == 1
    assert run("verify", path, "--allow-unproven").code == Exit.DONE


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("words", [["verify"], ["audit"], ["status", "--only", "k1"], ["rotate", "--apply"]])
def test_a_missing_table_is_named(run: Run, path: Path, words: list[str]) -> None:
    change(path, "DROP TABLE writes")
    ended = run(*words, path, "--json")
    ok, reasons = says(ended)
    assert (ok, reasons) == (None, ["tables-missing"])
    part = ended.document.get("databases", [ended.document])[0]
    assert part["scope"]["missing"] == ["writes"]


@pytest.mark.usefixtures("keys")
def test_a_strict_audit_does_not_speak_for_free_pages(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "free.db"
    with SqliteSaver.from_conn_string(str(path), serde=EncryptedSerializer(make_cipher("k1"))) as saver:
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for _ in range(20):
            saved = saver.put(at, empty_checkpoint(), {"source": "input", "step": -1, "parents": {}}, {})
            saver.put_writes(saved, [("a", "b" * 5000)], "task")
    change(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    first = run("audit", path, "--strict", "--json")
    assert first.document["residue"] == {
        "free_bytes": 0,
        "log_bytes": 0,
        "journal_bytes": 0,
        "slack_bytes": 0,
    }
    assert says(first) == (True, [])
    change(path, "DELETE FROM writes WHERE rowid > 1; PRAGMA wal_checkpoint(TRUNCATE)")
    second = run("audit", path, "--strict", "--json")
    assert (second.code, *says(second)) == (Exit.FOUND, None, ["old-content-not-read"])
    assert second.document["residue"]["free_bytes"] > 0
    assert "free pages were not read" in run("audit", path, "--strict").out


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        ("slack_bytes", "bytes of old content in unused space of pages were not read\n"),
        ("journal_bytes", "bytes of the rollback journal were not read\n"),
        (None, "the unused space within pages could not be examined\n"),
    ],
)
def test_neither_an_audit_nor_a_report_speaks_for_what_no_statement_reads(
    run: Run, path: Path, member: str | None, sentence: str
) -> None:
    assert run("rotate", path, "--apply", "--scrub").code == Exit.DONE
    change(path, "PRAGMA journal_mode = DELETE")
    asked = [run("audit", path, "--strict", "--json"), run("report", path, "--json")]
    assert (asked[0].code, *says(asked[0])) == (Exit.DONE, True, [])
    assert beside(asked[1]) == ("shown", [])
    if member is None:
        with path.open("r+b") as file:
            file.seek(32)
            file.write(b"\0\0\0\1\0\0\0\0")  # the list of free pages begins with the schema
    else:
        mode = "PERSIST" if member == "journal_bytes" else "DELETE"
        secure = "ON" if member == "journal_bytes" else "OFF"
        change(
            path,
            f"PRAGMA journal_mode = {mode}; PRAGMA secure_delete = {secure};"
            " DELETE FROM writes WHERE rowid = (SELECT max(rowid) FROM writes)",
        )
    found = run("audit", path, "--strict", "--json")
    assert (found.code, *says(found)) == (Exit.FOUND, None, ["old-content-not-read"])
    sizes = found.document["residue"]
    assert {name for name, size in sizes.items() if size != 0} == {member or "slack_bytes"}
    assert sentence in run("audit", path, "--strict").out
    assert beside(run("report", path, "--json")) == ("not shown", ["old-content-not-read"])


@pytest.mark.usefixtures("keys")
def test_metadata_of_frameworks_is_known_and_other_keys_can_be_allowed(run: Run, path: Path) -> None:
    change(
        path,
        'UPDATE checkpoints SET metadata = CAST(\'{"langgraph_version": "1", "team": "x"}\' AS BLOB)',
        "PRAGMA journal_mode = DELETE",
    )
    strict = run("audit", path, "--strict", "--json")
    assert says(strict) == (False, ["readable-beside"])
    assert {field["key"]: field["known"] for field in strict.document["metadata"]["fields"]} == {
        "team": None,
        "langgraph_version": "framework",
    }
    allowed = run("audit", path, "--strict", "--allow-metadata", "team", "--json")
    assert (allowed.code, *says(allowed)) == (Exit.DONE, True, [])
    assert allowed.document["options"] == {
        "strict": True,
        "allow_metadata": ["team"],
        "allow_store": None,
    }


@pytest.mark.claim("k10")
@pytest.mark.parametrize("source", ["file", "env"])
def test_destroying_without_looking_is_recorded(
    run: Run, ring: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    run("keys", "generate", "k2")
    if source == "env":
        material = (ring.parent / "keys.d" / "k2.key").read_text().strip()
        monkeypatch.setenv("K2", material)
        ring.write_text(ring.read_text().replace('{ file = "keys.d/k2.key" }', '{ env = "K2" }'))
    ended = run("keys", "destroy", "k2", "--yes", "--no-database-check", "--json")
    left = ["material-not-removed"] if source == "env" else []
    assert (ended.code, *says(ended)) == (Exit.FOUND, None, ["database-check-waived", *left])
    (key,) = ended.document["keys"]
    assert (key["waived"], key["source"]) == (["database-check"], source)
    assert key["material"] == ("left" if left else "removed")
    assert 'waived = ["database-check"]' in ring.read_text()
    again = run("keys", "destroy", "k2", "--yes", "--no-database-check", "--allow-unproven", "--json")
    assert (again.code, *says(again)) == (Exit.DONE, None, ["database-check-waived", *left])


def test_destroying_beside_an_unrelated_database_is_recorded(run: Run, ring: Path, plain: Path) -> None:
    run("keys", "generate", "k2")
    words = ("keys", "destroy", "k2", "--yes", "--db", plain)
    assert run(*words).code == Exit.USAGE
    ended = run(*words, "--allow-unrelated", "--json")
    assert (ended.code, *says(ended)) == (Exit.FOUND, None, ["unrelated-allowed"])
    assert ended.document["keys"][0]["waived"] == ["relation-check"]
    assert 'waived = ["relation-check"]' in ring.read_text()


@pytest.mark.usefixtures("keys")
def test_a_file_that_takes_stdout_has_the_result(run: Run, path: Path, plain: Path) -> None:
    good, bad = run("verify", path), run("verify", plain, "--allow-plaintext")
    assert good.out.splitlines()[-2:] == [f"{VALUES} of {VALUES} values open: {VALUES} under k1", "ok"]
    assert bad.out.splitlines()[-1] == "not proven: unsealed values were accepted"


@pytest.mark.usefixtures("keys")
def test_a_copy_of_unsealed_values_proves_nothing(run: Run, plain: Path, tmp_path: Path) -> None:
    ended = run("decrypt", plain, "--out", tmp_path / "o.db", "--allow-plaintext", "--json")
    assert (ended.code, *says(ended)) == (Exit.DONE, None, ["plaintext-allowed"])


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "words", [["status"], ["types"], ["inspect"], ["inspect", "--thread", "a"]], ids=" ".join
)
def test_what_was_not_asked_is_not_answered(run: Run, path: Path, words: list[str]) -> None:
    ended = run(*words, path, "--json")
    assert (ended.code, *says(ended)) == (Exit.DONE, None, ["not-asked"])
    assert "ok" not in run(*words, path).out.split()


@pytest.mark.usefixtures("keys")
def test_a_plan_is_no_proof(run: Run, path: Path) -> None:
    for command in ("rotate", "scrub"):
        ended = run(command, path, "--json")
        assert (ended.code, *says(ended)) == (Exit.DONE, None, ["not-applied"])
