"""Runs over a database of items alone: by the role of the page, beside writers, over bad rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.cells import ITEMS, Selection
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.tables import grants
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rebind import RebindOptions, rebind
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import DatabaseCorruptError, DecodeError, MaintenanceError, RowError, SealpointError
from sealpoint.guards.limits import MAX_VALUE_BYTES
from sealpoint.serde.jsontext import parse_item
from tests.postgres.harm import OUT_OF_ROW, lose_item
from tests.postgres.processes import (
    FORKS,
    put_items_again,
    rotate_and_rebind_until,
    rotate_until,
)
from tests.postgres.test_commands import at
from tests.postgres.test_damage import failures_of
from tests.postgres.test_items import sealed
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.postgres import K1, K2, items, make_store, put_items, read_all, store_at
from tests.support.keys.rings import states_text, write
from tests.support.runs.extent import by_extent

PUTS: Final = int(os.environ.get("SEALPOINT_POSTGRES_WRITES", by_extent(400, 4_000)))
WRITERS: Final = 4


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only")))


@pytest.fixture
def role(store_url: str) -> Iterator[str]:
    """URL of the role that the page makes, for a schema with items alone."""
    put_items(store_url, [*map(sealed, range(3))])
    schema = schema_of(store_url)
    name = f"{schema}_role"
    made = grants(schema, ["store"])
    alter(store_url, made.replace("ROLE sealpoint", f"ROLE {name}").replace("TO sealpoint;", f"TO {name};"))
    try:
        yield make_conninfo(store_url, user=name)
    finally:
        alter(store_url, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_the_role_of_the_page_runs_every_command(
    role: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a key that items are under is not destroyed."""
    named = [at(role), "--keys", keys]
    for command in ("status", "audit", "types", "verify", "rotate"):
        assert run([command, *named]) == Exit.DONE, command
    assert run(["keys", "disable", "k1", "--db", *named]) != Exit.DONE
    assert run(["rotate", *named, "--apply", "--workers", "2"]) == Exit.DONE
    assert run(["status", *named, "--only", "k2"]) == Exit.DONE
    assert run(["keys", "disable", "k1", "--db", *named]) == Exit.DONE
    assert "superuser" not in capsys.readouterr().err


def test_a_key_that_items_are_under_is_not_destroyed(store_url: str, tmp_path: Path) -> None:
    ring = str(write(tmp_path / "keys.toml", states_text(k2="active", k1="disabled")))
    put_items(store_url, [sealed(1)])
    named = ["--db", at(store_url), "--keys", ring]
    assert run(["keys", "destroy", "k1", "--yes", *named]) not in (Exit.DONE, Exit.STOPPED)
    alter(store_url, "DELETE FROM store")
    put_items(store_url, [("p", "1", "{}")])
    with store_at(store_url, K2) as sealing:
        sealing.put(("a",), "1", {})
    assert run(["keys", "destroy", "k1", "--yes", *named]) == Exit.DONE


@pytest.mark.parametrize("lacking", ["SELECT", "UPDATE"])
def test_a_role_that_lacks_a_right_gets_the_statement(store_url: str, role: str, lacking: str) -> None:
    """Which the owner of the table can run as it stands."""
    name = str(conninfo_to_dict(role)["user"])
    alter(store_url, f"REVOKE {lacking} ON store FROM {name}")
    with closing(PostgresRows(role, writable=True)) as store:
        with pytest.raises(MaintenanceError, match="InsufficientPrivilege") as caught:
            [*rotate(store, K2)]
        statement, *_ = caught.value.hint.split(";")
        alter(store_url, statement)
        assert not failures_of([*rotate(store, K2)])
        assert not outstanding(store, "k2")


def test_rights_on_items_are_not_needed_where_only_a_saver_is(url: str, keys: str) -> None:
    """A role that may not read the items of a database reads none of it: it would not say what is there."""
    make_store(url)
    name = f"{schema_of(url)}_role"
    made = grants(schema_of(url)).replace("ROLE sealpoint", f"ROLE {name}")
    alter(url, made.replace("TO sealpoint;", f"TO {name};").replace("sealpoint;  --", f"{name};  --"))
    try:
        path = make_conninfo(url, user=name)
        assert run(["status", at(path)]) == Exit.USAGE
        alter(url, "ALTER TABLE store RENAME TO another")
        assert run(["status", at(path)]) == Exit.DONE
    finally:
        alter(url, f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.costly
@pytest.mark.timeout(240 + PUTS / 10)
@pytest.mark.parametrize("binds", [False, True], ids=["rotate", "rotate and rebind"])
def test_no_put_is_lost_while_others_work(store_url: str, tmp_path: Path, binds: bool) -> None:
    """Four stores put under the old key all the time, or plain, over what has just been sealed."""
    put_items(store_url, [*map(sealed, range(50))])
    end, puts, plain = tmp_path / "end", PUTS // WRITERS, [binds and number < 2 for number in range(WRITERS)]
    with ProcessPoolExecutor(2 + WRITERS, mp_context=FORKS) as pool:
        writers = [pool.submit(put_items_again, store_url, f"w{n}", puts, plain[n]) for n in range(WRITERS)]
        if binds:
            binders = [pool.submit(rotate_and_rebind_until, store_url, end, 7, True) for _ in range(2)]
        rotators = [pool.submit(rotate_until, store_url, end, 7) for _ in range(0 if binds else 2)]
        lost = [writer.result() for writer in writers]
        end.touch()
        assert not binds or sum(binder.result() for binder in binders) > 0
        moved = [rotator.result()[0] for rotator in rotators]
        assert binds or sum(moved) > 50
    assert lost == [0] * WRITERS
    with closing(PostgresWholeRows(store_url, writable=True)) as whole:
        assert not failures_of([*rebind(whole, K2, RebindOptions(allow_plaintext=True))])
    with closing(PostgresRows(store_url, writable=True)) as store:
        assert not failures_of([*rotate(store, K2)])
        assert not outstanding(store, "k2")
        assert not failures_of([*verify(store, K2)])
    with store_at(store_url, K2) as after:
        for number in range(WRITERS):
            found = after.search((f"w{number}",), limit=100)
            assert {item.key: item.value["n"] for item in found} == {
                f"{key}": max(range(key, puts, 10)) for key in range(10)
            }


def test_an_item_whose_bytes_are_lost_ends_a_run(store_url: str) -> None:
    """Its type is lost with it, so that no statement tells it from others. Nothing is passed over."""
    alter(store_url, "ALTER TABLE store ALTER value SET STORAGE EXTERNAL")
    large = {"x": "x" * OUT_OF_ROW}
    with store_at(store_url, K1) as sealing:
        for number in range(6):
            sealing.put(("a",), f"{number}", {**large, "n": number})
    before = items(store_url)
    lose_item(store_url, 3)
    alter(store_url, "INSERT INTO store VALUES ('p', 'plain', '{}')")
    with closing(PostgresRows(store_url, writable=True)) as store:
        for run_of in (verify, rotate):
            with pytest.raises(DatabaseCorruptError, match="damaged") as caught:
                [*run_of(store, K2, batch=Batch(rows=1))]
            assert "server's log" in caught.value.hint
        damage = list[SealpointError]()
        assert store.count(damage) == []
        assert len(damage) == 1
    alter(store_url, "DELETE FROM store WHERE key = '3'")
    with closing(PostgresRows(store_url, writable=True)) as store:
        assert not failures_of([*rotate(store, K2)])
    moved = {key for key, (value, _) in items(store_url).items() if "k2" in json.dumps(value)}
    assert moved == before.keys() - {("a", "3")}


@pytest.mark.costly
@pytest.mark.timeout(900)
def test_an_item_that_is_too_large_is_named_and_the_others_go_on(store_url: str) -> None:
    """Its JSON is counted as the text that would be sent: in the table it has half as many bytes."""
    put_items(store_url, [*map(sealed, range(5))])
    large = f"jsonb_build_object('x', repeat('x', {17 * 1024 * 1024}))"
    huge = f"jsonb_build_object('x', repeat('\"', {MAX_VALUE_BYTES // 2 + 1000}))"
    alter(store_url, f"UPDATE store SET value = value || {large} WHERE key = '0002'")
    alter(store_url, f"INSERT INTO store VALUES ('p', 'plain', {huge})")
    with closing(PostgresRows(store_url, writable=True)) as store:
        (failed,) = failures_of([*verify(store, K2, batch=Batch(rows=2), allow_plaintext=True)])
        assert (failed.place["key"], type(failed.error)) == ("plain", RowError)
        assert not failures_of([*rotate(store, K2)])
        fields = {
            cell.where.key[1]: cell.where.beside["fields"]
            for page in read_all(store, ITEMS.widened, Selection(plaintext=False))
            for cell in page
        }
        with pytest.raises(DecodeError):  # no more is read than the fields of an item may have
            parse_item(fields.pop("0002"))
        assert all(parse_item(text) == {"user": "ada"} for text in fields.values())
    with closing(PostgresWholeRows(store_url)) as whole:
        values = {cell.where.key[1]: cell.value for page in read_all(whole, ITEMS) for cell in page}
    assert {key for key, value in values.items() if isinstance(value, RowError)} == {"plain"}
