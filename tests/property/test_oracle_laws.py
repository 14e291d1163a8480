"""Laws of the oracle and of the file format: on honest files it reads what sqlite3 reads."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.sqlitefile import honest, oracle
from fuzz.sqlitefile.commands import Place, WrongAnswerError, check, check_script, learn
from fuzz.sqlitefile.edits import EDITS, make_dag, root_of, schema, write_schema
from fuzz.sqlitefile.forged import Forged, forge
from fuzz.sqlitefile.format import SqliteFile, decode_record, encode_record, read_varint, signed, write_varint
from sealpoint.sqlite import SqliteSaver
from tests.support.runs.extent import by_extent

numbers = st.integers(-(2**63), 2**63 - 1)
cells = st.none() | numbers | st.floats(allow_nan=False) | st.text(max_size=8) | st.binary(max_size=8)
sizes = st.integers(0, 300) | st.sampled_from([470, 480, 4050, 4061, 4096, 9000])
rows = st.lists(st.tuples(st.text("abc", max_size=3), cells, sizes), max_size=60)


@given(numbers)
def test_varints_come_back(number: int) -> None:
    data = write_varint(number)
    found, end = read_varint(data, 0)
    assert (signed(found), end) == (number, len(data))


@given(st.lists(cells, max_size=20))
def test_records_come_back(values: list[Any]) -> None:
    assert decode_record(encode_record(values)) == values


def write(connection: sqlite3.Connection, table: str, written: list[tuple[str, Any, int]]) -> None:
    for number, (name, tag, size) in enumerate(written):
        columns = (name, "", str(number), tag, bytes(size))
        if table == "checkpoints":
            statement = "INSERT INTO checkpoints VALUES (?, ?, ?, NULL, ?, ?, '{}')"
        else:
            statement = "INSERT INTO writes VALUES (?, ?, ?, 't', '', 0, 'c', ?, ?)"
        connection.execute(statement, columns)


@settings(max_examples=by_extent(20, 60), deadline=None)
@given(
    checkpoints=rows,
    writes=rows,
    page_bytes=st.sampled_from([512, 1024, 4096, 65536]),
    deleted=st.integers(1, 5),
    has_log=st.booleans(),
)
def test_the_oracle_reads_what_sqlite_reads(
    checkpoints: Any, writes: Any, page_bytes: int, deleted: int, has_log: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {page_bytes}")
            SqliteSaver(connection).setup()
            connection.execute("PRAGMA synchronous = OFF")
            write(connection, "checkpoints", checkpoints)
            connection.commit()
            if not has_log:
                connection.execute("PRAGMA journal_mode = DELETE")
            write(connection, "writes", writes)
            connection.execute(f"DELETE FROM checkpoints WHERE rowid % {deleted} = 1")
            connection.commit()
            wanted: Counter[Any] = Counter()
            for table, value in oracle.VALUES.items():
                for tag, content in connection.execute(f"SELECT type, {value} FROM {table} NOT INDEXED"):
                    wanted[table, tag, oracle.digest(content)] += 1
            log = path.with_name("x.db-wal")
            found = oracle.read(path.read_bytes(), log.read_bytes() if log.exists() else b"")
    assert found.multiset() == wanted
    assert found.is_sound


def test_the_oracle_reads_what_langgraph_wrote() -> None:
    golden = Path(__file__).parents[1] / "compat" / "golden" / "plain.db"
    with closing(sqlite3.connect(f"{golden.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        wanted = {
            table: connection.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()[0]
            for table in oracle.VALUES
        }
    found = oracle.read(golden.read_bytes())
    assert Counter(row.table for row in found.rows) == wanted
    assert found.is_sound


@settings(max_examples=by_extent(15, 40), deadline=None)
@given(
    rows=st.lists(st.tuples(st.text("ab", max_size=3), sizes), max_size=150),
    page_bytes=st.sampled_from([512, 4096]),
)
def test_trees_are_written_as_sqlite_reads_them(rows: list[tuple[str, int]], page_bytes: int) -> None:
    """A table and an index, rewritten by `SqliteFile.write_tree`, pass SQLite's own check."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {page_bytes}")
            connection.execute("CREATE TABLE t (a, b)")
            connection.execute("CREATE INDEX i ON t (a, b)")
            connection.commit()
        file = SqliteFile(path.read_bytes())
        values = [(name, bytes(size)) for name, size in rows]
        table = [(number, encode_record(row)) for number, row in enumerate(values, 1)]
        keys = sorted((*row, number) for number, row in enumerate(values, 1))
        file.write_tree(root_of(file, "t"), table, is_table=True)
        file.write_tree(root_of(file, "i"), [(0, encode_record(key)) for key in keys], is_table=False)
        write_schema(file, schema(file))
        path.write_bytes(file.to_bytes())
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("SELECT a, b FROM t NOT INDEXED").fetchall() == values


def test_what_the_bytes_do_not_say_is_undefined() -> None:
    file = SqliteFile(honest.make(honest.SHAPES[0]).data)
    make_dag(file, root_of(file, "writes"), 2, 1)
    with pytest.raises(oracle.UndefinedError, match="belongs to writes and to writes"):
        oracle.read(file.to_bytes())


@pytest.mark.parametrize("shape", [*honest.SHAPES, *honest.WITH_ITEMS])
def test_honest_files_pass_every_check(shape: honest.Shape, tmp_path: Path) -> None:
    """A check that refuses all, or that compares nothing, would pass forged files too."""
    forged = forge(bytes(2), [shape])
    found = learn(Place(tmp_path, forged).path).content
    assert found is not None
    assert sum(row.table == "store" for row in found.rows) == shape.items * len(shape.seals)
    codes = dict(check(forged, tmp_path))
    assert {codes[name] for name in ("status", "verify", "types", "rotate", "decrypt")} == {0}


@settings(max_examples=by_extent(25, 400), deadline=None)
@given(st.binary(min_size=4, max_size=24))
def test_forged_files_with_items_are_refused_or_read_right(script: bytes) -> None:
    check_script(script, shapes=honest.WITH_ITEMS)


def test_each_edit_changes_a_file() -> None:
    plain = {forge(bytes((shape, 2))) for shape in (2, 3)}
    data = {honest_one.data for honest_one in plain}
    for number, edit in enumerate(EDITS):
        scripts = [bytes((shape, 2, number, *more)) for shape in (2, 3) for more in ((1, 1), (2, 3, 5, 7))]
        assert any(forge(script).data not in data for script in scripts), edit.__name__


def test_a_wrong_answer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers about another file than the one at hand are refused for each command that counts."""
    one, other = (Forged(*honest.make(shape), ()) for shape in honest.SHAPES[:2])
    place = Place(tmp_path, one)
    truth = learn(place.path)
    monkeypatch.setattr("fuzz.sqlitefile.commands.learn", lambda path: truth)
    for name in ("status", "status --only", "audit", "verify", "types", "inspect --thread"):
        with pytest.raises(WrongAnswerError):
            dict(check(other, tmp_path, [name]))
    for name in ("rotate", "decrypt", "put"):
        with pytest.raises(WrongAnswerError):
            dict(check(other, tmp_path, [name]))
