"""What `--scrub` says of old text that also stands in rows: it stays by design, is named, or is left."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run
from tests.support.databases import foreign

TEXT: Final = " ".join(f"the diagnosis of patient {number} is known to the ward only;" for number in range(9))
SCRUB: Final = ("--allow-plaintext", "--apply", "--scrub", "--json")
HOSTILE: Final = 'app "log"; DROP TABLE writes; --'


@pytest.fixture
def path(tmp_path: Path, keys: Path) -> Path:
    """A database of LangGraph's, with one write of a long text."""
    path = foreign.write(tmp_path / "a.db", {"t": {"x": 1}})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET type = 'bytes', value = ?", (TEXT.encode(),))
        connection.execute("UPDATE checkpoints SET type = 'bytes', checkpoint = x'00'")
    return path


def execute(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def scrubbed(run: Run, path: Path, *more: Any) -> tuple[int, Any, list[str]]:
    ended = run("rebind", path, *SCRUB, *more)
    return ended.code, ended.document["scrubbed"], ended.document["reasons"]


def middle_of(text: str) -> str:
    """What holds the fragment that is searched for first, and no other."""
    return text[len(text) // 2 - 20 : len(text) // 2 + 20]


ALLOWED: Final = ["plaintext-allowed"]


@pytest.mark.parametrize("column", ["task_path", "task_id", "checkpoint_ns"])
def test_a_name_in_another_row_stays_by_design(run: Run, path: Path, column: str) -> None:
    """Another fragment of the value is searched for; nothing has to be named."""
    others = {"thread_id": "'u'", column: "?"}
    columns = "thread_id checkpoint_ns checkpoint_id task_id idx channel type value task_path".split()  # noqa: SIM905
    selected = ", ".join(others.get(name, name) for name in columns)
    execute(path, f"INSERT INTO writes ({', '.join(columns)}) SELECT {selected} FROM writes", middle_of(TEXT))
    execute(path, "UPDATE writes SET type = 'null', value = x'' WHERE thread_id = 'u'")
    code, found, reasons = scrubbed(run, path)
    assert (code, found["found"], found["readable"], found["unsearched"]) == (Exit.DONE, [], [], 0)
    assert (found["fragments"], reasons) == (1, ALLOWED)


def test_readable_metadata_stays_by_design(run: Run, path: Path) -> None:
    execute(path, "UPDATE checkpoints SET metadata = json_object('source', ?)", middle_of(TEXT))
    code, found, reasons = scrubbed(run, path)
    assert (code, found["found"], found["readable"], reasons) == (Exit.DONE, [], [], ALLOWED)


@pytest.mark.parametrize("table", ["app_log", HOSTILE, "WITHOUT", 'a"b'])
@pytest.mark.parametrize("text", [TEXT, middle_of(TEXT)], ids=["all", "a part"])
def test_an_applications_table_is_named(run: Run, path: Path, table: str, text: str) -> None:
    """It is readable, so that the result is not proven; it is nothing that a scrub left."""
    name = '"{}"'.format(table.replace('"', '""'))
    rowless = " WITHOUT ROWID" if table == "WITHOUT" else ""
    execute(path, f'CREATE TABLE {name} (id INTEGER PRIMARY KEY, "bo""dy" TEXT){rowless}')
    execute(path, f'CREATE INDEX by_body ON {name} ("bo""dy")')
    execute(path, f"INSERT INTO {name} VALUES (1, ?)", f"log: {text}.")
    code, found, reasons = scrubbed(run, path)
    is_all = text == TEXT
    assert (code, found["found"], found["columns"]) == (Exit.DONE, [], [])
    assert found["readable"] == [f'{table}.bo"dy']
    assert (found["unsearched"], found["fragments"]) == (is_all, not is_all)
    assert reasons == [*ALLOWED, "old-text-readable", *(["old-values-not-searched"] if is_all else [])]


def test_the_text_names_what_is_readable(run: Run, path: Path) -> None:
    execute(path, "CREATE TABLE app_log (body)")
    execute(path, "INSERT INTO app_log VALUES (?)", TEXT)
    said = run("rebind", path, *SCRUB[:-1]).out
    assert "only for old tags, because the old values are readable: found nothing" in said
    assert "text of old values is also readable in 'app_log.body'" in said
    assert "1 sampled values are readable there in full, so not searched for" in said
    assert "at byte" not in said


@pytest.mark.parametrize("text", [TEXT, middle_of(TEXT)], ids=["all", "a part"])
def test_a_copy_does_not_hide_what_is_left(
    run: Run, path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a value in bytes that no statement reads is found, or the result is not proven."""
    execute(path, "CREATE TABLE app_log (body)")
    execute(path, "INSERT INTO app_log VALUES (?)", text)
    original = SqliteRows.vacuum

    def vacuum(store: SqliteRows) -> bool:
        """Leave a page of the free list as it was, as a scrub that fails silently would."""
        is_empty = original(store)
        with path.open("r+b") as file:
            file.seek(0, 2)
            file.write(TEXT.encode().ljust(4096, b"\0"))
        return is_empty

    monkeypatch.setattr(SqliteRows, "vacuum", vacuum)
    code, found, reasons = scrubbed(run, path)
    assert found["readable"] == ["app_log.body"]
    if text == TEXT:
        assert (found["fragments"], found["unsearched"]) == (0, 1)
        assert {"old-text-readable", "old-values-not-searched"} <= {*reasons}
    else:
        assert (code, bool(found["found"]), "old-content-found" in reasons) == (Exit.FOUND, True, True)


def test_a_value_that_is_not_sealed_is_no_readable_column(run: Run, path: Path) -> None:
    """Text in a row that this run was not asked about is old content, and its column is named."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TEMP TABLE one AS SELECT * FROM writes")
        connection.execute("UPDATE one SET thread_id = 'u'")
        connection.execute("INSERT INTO writes SELECT * FROM one")
    code, found, reasons = scrubbed(run, path, "--thread", "t")
    assert (code, "old-content-found" in reasons) == (Exit.FOUND, True)
    assert (found["columns"], found["readable"]) == (["writes.value"], [])


def test_old_ciphertext_in_another_table_is_left_and_named(run: Run, path: Path) -> None:
    """It is sealed, under a key that the operator may want to destroy."""
    assert run("rebind", path, *SCRUB).code == Exit.DONE
    execute(path, "CREATE TABLE backup AS SELECT value AS old FROM writes")
    for words in (["generate", "k9"], ["promote", "k9"]):
        assert run("keys", *words).code == Exit.DONE
    ended = run("rotate", path, "--apply", "--scrub", "--json")
    found = ended.document["scrubbed"]
    assert (ended.code, found["columns"], found["readable"]) == (Exit.FOUND, ["backup.old"], [])
    assert found["found"]


@pytest.fixture
def traps(path: Path) -> Path:
    """Views, triggers, virtual tables and generated columns with the text, beside a table that holds it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE app_log (body, v AS (upper(body)), s AS (body || '!') STORED)")
        connection.execute("INSERT INTO app_log (body) VALUES (?)", (TEXT,))
        connection.execute("CREATE VIEW seen AS SELECT body FROM app_log")
        connection.execute("CREATE TRIGGER acts AFTER INSERT ON app_log BEGIN SELECT body FROM app_log; END")
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(body)")
        connection.execute("INSERT INTO words VALUES (?)", (TEXT,))
    return path


def test_nothing_of_the_schema_is_run(run: Run, traps: Path) -> None:
    code, found, _ = scrubbed(run, traps)
    assert code == Exit.DONE
    assert found["readable"] == ["app_log.body", "app_log.s", "words_content.c0"]
