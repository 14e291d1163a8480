"""The commands on items in Postgres: the migration of a store that agents use, and what each says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.store.postgres import PostgresStore

from sealpoint.admin.cli.app import run
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import PlaintextError
from sealpoint.langgraph import EncryptedSerializer, SealedStore
from sealpoint.seal.places import KEY
from tests.postgres.test_commands import at
from tests.support.runs.results import require_valid

NAMESPACE = ("users", "ada")
VALUE = {"allergy": "penicillin", "user": "ada", "dose": 1.5}
FIELDS: dict[str, Any] = {"plain_fields": ["dose"], "indexed_fields": ["user"]}
GIVEN = ["--plain-field", "dose", "--index-field", "user"]
PLAIN = "--allow-plaintext"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring of k1 and k2, with an index key."""
    for name in ("k1", "k2", "index"):
        file = tmp_path / f"{name}.key"
        file.write_bytes(name.encode().ljust(32, b"."))
        file.chmod(0o600)
    key = '[[key]]\nid = "{0}"\nstate = "{1}"\nsource = {{ file = "{0}.key" }}\n'
    index = '[[index]]\nid = "index"\nsource = { file = "index.key" }\n'
    ring = tmp_path / "ring.toml"
    ring.write_text(
        f'version = 1\nactive = "k1"\n{key.format("k1", "active")}{key.format("k2", "staged")}{index}'
    )
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    return ring


class Told:
    """Runs commands on a database, and returns what they print."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self._capsys = url, capsys

    def __call__(self, *words: str) -> dict[str, Any]:
        self._capsys.readouterr()
        self.code = run([*words, at(self.url), "--json"])
        return require_valid(json.loads(self._capsys.readouterr().out))


@pytest.fixture
def told(url: str, keys: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(url, capsys)


@contextmanager
def langgraph(url: str) -> Iterator[PostgresStore]:
    with PostgresStore.from_conn_string(url) as store:
        store.setup()
        yield store


def sealed(store: PostgresStore, keys: Path, *, allow: bool = False, **named: Any) -> SealedStore:
    serde = EncryptedSerializer.from_key_file(keys, plaintext="allow" if allow else "refuse")
    return SealedStore(store, serde=serde, unbound="allow" if allow else "refuse", **FIELDS, **named)


def stored(url: str) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT key, value FROM store ORDER BY key").fetchall())


def test_a_migration_without_a_stop(url: str, keys: Path, told: Told) -> None:
    """Processes of each step read what all others have written; at the end only sealed items are there."""
    with langgraph(url) as store:
        store.put(NAMESPACE, "bare", VALUE)
        first = sealed(store, keys, allow=True, allow_write_plain=True)
        first.put(NAMESPACE, "first", VALUE)
        assert store.get(NAMESPACE, "first") is not None
        second = sealed(store, keys, allow=True)
        second.put(NAMESPACE, "second", VALUE)
        for reader in (first, second):
            assert [item.value for item in reader.search(NAMESPACE)] == [VALUE] * 3
        with pytest.raises(PlaintextError):
            sealed(store, keys).get(NAMESPACE, "bare")
        assert (told("verify")["failed"], told.code) == (2, Exit.UNOPENED)
        done = told("rebind", "--apply", PLAIN, *GIVEN)
        assert (done["changed"], done["left"], done["verified"]) == (2, 0, 3)
        third = sealed(store, keys)
        assert [item.value for item in third.search(NAMESPACE, filter={"user": "ada"})] == [VALUE] * 3
        assert [item.value for item in third.search(NAMESPACE, filter={"dose": {"$lt": 2}})] == [VALUE] * 3
    assert told("verify", "--bound")["ok"] is True
    assert "penicillin" not in json.dumps(stored(url))
    back = told("rebind", "--apply", "--unbind", "--items")
    assert (back["changed"], back["left"]) == (3, 0)
    assert stored(url) == dict.fromkeys(("bare", "first", "second"), VALUE)


def test_items_rotate_and_plain_ones_stay(url: str, keys: Path, told: Told) -> None:
    with langgraph(url) as store:
        sealed(store, keys).put(NAMESPACE, "sealed", VALUE)
        store.put(NAMESPACE, "bare", VALUE)
        assert run(["keys", "promote", "k2", "--db", at(url)]) == Exit.DONE
        done = told("rotate", "--apply", PLAIN)
        assert (done["resealed"], done["left"], told.code) == (1, 1, Exit.FOUND)
        found = stored(url)
        assert found["bare"] == VALUE
        assert found["sealed"][KEY]["type"].endswith(".row@k2")
        assert sealed(store, keys).get(NAMESPACE, "sealed").value == VALUE  # type: ignore[union-attr]
        assert run(["keys", "disable", "k1", "--db", at(url)]) == Exit.DONE


EDITS = {
    "a plain field edited": "jsonb_set(value, '{dose}', '9')",
    "a field added": "value || '{\"more\": 1}'",
    "the frame replaced by plaintext": f"value - '{KEY}'",
    "no object": "'[1]'",
    "no frame": f"jsonb_set(value, '{{{KEY}}}', '1')",
    "more in the frame": f"jsonb_set(value, '{{{KEY},more}}', '1')",
    "without .row": f"jsonb_set(value, '{{{KEY},type}}', '\"msgpack+cobblestone256@k1\"')",
}


@pytest.mark.parametrize("case", EDITS)
def test_verify_names_an_item_that_was_edited(url: str, keys: Path, told: Told, case: str) -> None:
    with langgraph(url) as store:
        for key in ("one", "other"):
            sealed(store, keys).put(NAMESPACE, key, VALUE)
    with psycopg.connect(url) as connection:
        connection.execute(f"UPDATE store SET value = {EDITS[case]} WHERE key = 'one'".encode())
    found = told("verify")
    assert (told.code, found["failed"]) == (Exit.UNOPENED, 1)
    assert found["failures"][0]["place"] == {"prefix": "users.ada", "key": "one"}


def test_what_is_read_of_a_store(url: str, keys: Path, told: Told) -> None:
    with langgraph(url) as store:
        store.put(NAMESPACE, "bare", VALUE)
        sealed(store, keys).put(NAMESPACE, "sealed", {**VALUE, "set": {1}})
        hidden = SealedStore(store, serde=EncryptedSerializer.from_key_file(keys), pseudonyms=True)
        hidden.put(NAMESPACE, "hidden", VALUE)
    found = told("audit", "--allow-store", "public")
    assert found["reasons"] == ["store-allowed"]
    assert told("audit")["reasons"] == ["not-sealed"]
    assert {share["table"]: share["rows"] for share in found["shares"] if share["kind"] == "plaintext"} == {
        "store.value": 1
    }
    shown = told("inspect", "--items", "--namespace", "users.ada")["values"]
    assert sorted(item["place"]["key"] for item in shown if "sealed_with" not in item) == ["bare", "sealed"]
    assert [item["sealed_with"]["key"] for item in shown if "sealed_with" in item] == ["hidden"]
    assert [each["name"] for each in told("types")["types"]] == ["set"]
    assert told("trial", PLAIN)["failed"] == 0
