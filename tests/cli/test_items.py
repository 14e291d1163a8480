"""The commands on items of LangGraph's Store in a SQLite file: the migration, and what each says of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.cache.sqlite import SqliteCache
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.base import VECTOR_MIGRATIONS

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.calls import cells_of
from sealpoint.admin.maintenance.scrub import Traces
from sealpoint.admin.results.exits import Exit
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.seal.items import ItemName
from sealpoint.seal.places import KEY
from tests.cli.conftest import Run
from tests.support.databases.items import items_of
from tests.support.databases.sealed import VALUES, write
from tests.unit.maintenance.test_rebind import change

NAMESPACE = ("users", "ada")
VALUE = {"allergy": "penicillin", "user": "ada", "dose": 1.5}
ITEMS = 3
PLAIN = ["--allow-plaintext"]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring of k1 and k2, with an index key."""
    for name in ("k1", "k2", "index"):
        file = tmp_path / f"{name}.key"
        file.write_bytes(name.encode().ljust(32, b"."))
        file.chmod(0o600)
    ring = tmp_path / "ring.toml"
    index = '[[index]]\nid = "index"\nsource = { file = "index.key" }\n'
    key = '[[key]]\nid = "{0}"\nstate = "{1}"\nsource = {{ file = "{0}.key" }}\n'
    text = f'version = 1\nactive = "k1"\n{key.format("k1", "active")}{key.format("k2", "staged")}{index}'
    ring.write_text(text)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    return ring


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a Store and no saver: items that are not sealed."""
    path = tmp_path / "store.db"
    with langgraph(path) as store:
        for number in range(ITEMS):
            store.put(NAMESPACE, f"item-{number}", {**VALUE, "number": number})
    return path


@contextmanager
def langgraph(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        yield store


def stored(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT value FROM store ORDER BY key").fetchall()
    return [json.loads(value) for (value,) in found]


def cipher(keys: Path) -> RingCipher:
    return RingCipher(KeyRing.load(keys).load_material())


def put(path: Path, keys: Path, key: str, value: dict[str, Any], **named: Any) -> None:
    """Store an item as `SealedStore` does."""
    items = items_of(cipher(keys), **named)
    name = ItemName(NAMESPACE, key)
    namespace, stored_key = items.stored_name(name)
    with langgraph(path) as store:
        store.put(namespace, stored_key, items.seal(name, value))


@pytest.mark.claim("i8")
def test_the_whole_migration(run: Run, path: Path, keys: Path) -> None:
    """`verify` says no while an item is not sealed, and ok at the end; then back."""
    before = stored(path)
    ended = run("verify", path, "--json")
    assert (ended.code, ended.document["failed"], ended.document["ok"]) == (Exit.UNOPENED, ITEMS, False)
    assert run("rebind", path, "--apply").code == Exit.FOUND
    assert stored(path) == before
    done = run("rebind", path, "--apply", *PLAIN, "--json").document
    assert (done["changed"], done["plaintext"], done["left"], done["verified"]) == (ITEMS, ITEMS, 0, ITEMS)
    assert done["reasons"] == ["plaintext-allowed"]
    assert [each.keys() for each in stored(path)] == [{KEY}] * ITEMS
    assert b"penicillin" not in b"".join(json.dumps(each).encode() for each in stored(path))
    found = run("verify", path, "--bound", "--json").document
    assert (found["ok"], found["bound"], found["rows"]) == (True, ITEMS, ITEMS)
    assert run("rebind", path, "--apply", *PLAIN, "--json").document["changed"] == 0  # none is sealed twice
    back = run("rebind", path, "--apply", "--unbind", "--json").document
    assert (back["changed"], back["left"], back["ok"]) == (ITEMS, 0, True)
    assert stored(path) == before
    with langgraph(path) as store:
        item = store.get(NAMESPACE, "item-1")
    assert item is not None
    assert item.value == {**VALUE, "number": 1}


@pytest.mark.usefixtures("keys")
def test_the_plan_names_items(run: Run, path: Path) -> None:
    plan = run("rebind", path, *PLAIN, "--json").document["plan"]
    assert [(row["table"], row["kind"], row["rows"], row["action"]) for row in plan] == [
        ("store.value", "plaintext", ITEMS, "to seal and bind")
    ]
    text = run("rebind", path, *PLAIN)
    assert "SealedStore" in text.err


@pytest.mark.claim("i9")
def test_rotate_leaves_items_that_are_not_sealed(run: Run, path: Path, keys: Path) -> None:
    """Also if plaintext is allowed: the bare store could not read them. They are counted, with what to do."""
    put(path, keys, "sealed", VALUE)
    before = stored(path)
    assert run("keys", "promote", "k2", "--db", path).code == Exit.DONE
    for words in ([], PLAIN):
        ended = run("rotate", path, "--apply", *words)
        assert ended.code == Exit.FOUND
        assert "3 values of LangGraph's Store are not sealed" in ended.err
        assert f"`sealpoint rebind {path} --allow-plaintext --apply`" in ended.err
    after = stored(path)
    assert [each for each in after if KEY not in each] == [each for each in before if KEY not in each]
    (sealed,) = [each for each in after if KEY in each]
    assert sealed[KEY]["type"].endswith(".row@k2")
    plan = run("rotate", path, *PLAIN, "--json").document["plan"]
    assert "skipped: not sealed, `sealpoint rebind` seals it" in [row["action"] for row in plan]


def test_a_rotated_item_is_the_same(run: Run, path: Path, keys: Path) -> None:
    assert run("rebind", path, "--apply", *PLAIN, "--plain-field", "dose", "--index-field", "user").code == 0
    before = stored(path)
    run("keys", "promote", "k2", "--db", path)
    done = run("rotate", path, "--apply", "--json").document
    assert (done["resealed"], done["ok"], done["verified"]) == (ITEMS, True, ITEMS)
    for old, new in zip(before, stored(path), strict=True):
        assert {name: old[name] for name in old if name != KEY} == {
            name: new[name] for name in new if name != KEY
        }
    items = items_of(cipher(keys), plain=("dose",), indexed=("user",))
    opened = [items.open(ItemName(NAMESPACE, f"item-{n}"), each)[1] for n, each in enumerate(stored(path))]
    assert opened == [{**VALUE, "number": number} for number in range(ITEMS)]


def test_fields_are_added_to_sealed_items(run: Run, path: Path, keys: Path) -> None:
    run("rebind", path, "--apply", *PLAIN)
    plan = run("rebind", path, "--plain-field", "dose", "--json").document["plan"]
    assert [row["action"] for row in plan] == [
        "bound; to add readable metadata or fields where it lacks some"
    ]
    plan = run("rebind", path, "--plain-metadata", "dose", "--json").document["plan"]
    assert [row["action"] for row in plan] == ["bound"]
    done = run("rebind", path, "--apply", "--plain-field", "dose", "--index-field", "user", "--json").document
    assert (done["changed"], done["ok"]) == (ITEMS, True)
    assert [each["dose"] for each in stored(path)] == [1.5] * ITEMS
    assert run("verify", path).code == Exit.DONE


EDITS = {
    "a plain field edited": ("json_set(value, '$.dose', 9)", "RowError"),
    "a field added": ("json_set(value, '$.more', 'x')", "RowError"),
    "a token of nothing": (f"json_set(value, '$.sp{'0' * 32}', 1)", "RowError"),
    "the frame replaced by plaintext": ("json_remove(value, '$.__sealpoint__')", "PlaintextError"),
    "another type": (
        "json_set(value, '$.__sealpoint__.type', 'json+cobblestone256.row@k1')",
        "IntegrityError",
    ),
    "without .row": ("replace(value, '.row@', '@')", "RowError"),
    "no frame": ("json_set(value, '$.__sealpoint__', 1)", "RowError"),
    "no JSON": ("'{'", "DecodeError"),
}


@pytest.mark.claim("i7")
@pytest.mark.parametrize("case", EDITS)
def test_verify_names_an_item_that_was_edited(run: Run, path: Path, keys: Path, case: str) -> None:
    run("rebind", path, "--apply", *PLAIN, "--plain-field", "dose", "--index-field", "user")
    edit, error = EDITS[case]
    change(path, f"UPDATE store SET value = {edit} WHERE key = 'item-1'")
    found = run("verify", path, "--json")
    assert (found.code, found.document["failed"]) == (Exit.UNOPENED, 1)
    (failed,) = found.document["failures"]
    assert (failed["error"], failed["place"]) == (error, {"prefix": "users.ada", "key": "item-1"})
    if error != "PlaintextError":  # what is not sealed is not accepted for that reason
        assert run("verify", path, *PLAIN).code == Exit.UNOPENED
    assert "penicillin" not in run("verify", path).out


def test_verify_finds_an_item_that_was_moved(run: Run, path: Path, keys: Path) -> None:
    run("rebind", path, "--apply", *PLAIN)
    change(path, "UPDATE store SET key = 'other' WHERE key = 'item-1'")
    change(path, "UPDATE store SET prefix = 'users' WHERE key = 'item-2'")
    assert run("verify", path, "--json").document["failed"] == 2


@pytest.mark.usefixtures("keys")
def test_plain_items_that_are_accepted_prove_nothing(run: Run, path: Path) -> None:
    found = run("verify", path, *PLAIN, "--json").document
    assert (found["accepted"], found["ok"], found["reasons"]) == (ITEMS, None, ["plaintext-allowed"])


@pytest.mark.usefixtures("keys")
def test_one_thread_takes_no_items(run: Run, path: Path) -> None:
    write(path, "plain", "t")
    done = run("rebind", path, "--apply", *PLAIN, "--thread", "t", "--json").document
    assert (done["changed"], done["left"]) == (VALUES, 0)
    assert [KEY in each for each in stored(path)] == [False] * ITEMS


def test_unbind_leaves_what_has_no_json(run: Run, path: Path, keys: Path) -> None:
    put(path, keys, "bytes", {"a": b"x"})
    done = run("rebind", path, "--apply", "--unbind", "--json")
    assert (done.code, done.document["failed"], done.document["left"]) == (Exit.UNOPENED, 1, 1)
    assert done.document["failures"][0]["place"]["key"] == "bytes"


def test_text_with_nul_is_sealed_and_comes_back(run: Run, path: Path, keys: Path) -> None:
    """SQLite stores NUL characters in JSON; Postgres does not."""
    with langgraph(path) as store:
        store.put(NAMESPACE, "nul", {"a": "x\0y", "b\0": "\\u0000"})
    before = stored(path)
    plain = ["--plain-field", "a"]
    assert run("rebind", path, "--apply", *PLAIN, *plain, "--json").document["left"] == 0
    assert run("rebind", path, "--apply", "--unbind", "--json").document["left"] == 0
    assert stored(path) == before


def test_verify_opens_what_is_deeper_than_bytes_that_nothing_authenticates(
    run: Run, path: Path, keys: Path
) -> None:
    put(path, keys, "deep", {"a": json.loads("[" * 200 + "]" * 200)})
    assert run("verify", path, *PLAIN, "--json").document["failed"] == 0


@pytest.mark.claim("i10")
def test_an_item_keeps_its_key(run: Run, path: Path, keys: Path) -> None:
    """Neither disabled nor destroyed is the key that an item needs."""
    run("rebind", path, "--apply", *PLAIN)
    run("keys", "promote", "k2", "--db", path)
    in_use = "3 rows under 'k1'"
    ended = run("keys", "disable", "k1", "--db", path)
    assert (ended.code, in_use in ended.err) == (Exit.FOUND, True)
    assert run("keys", "disable", "k1", "--no-database-check", "--yes").code == Exit.DONE
    ended = run("keys", "destroy", "k1", "--db", path, "--yes")
    assert (ended.code, in_use in ended.err) == (Exit.FOUND, True)
    run("keys", "enable", "k1")
    assert run("rotate", path, "--apply").code == Exit.DONE
    assert run("keys", "disable", "k1", "--db", path).code == Exit.DONE


def test_an_item_under_an_old_key_prevents_a_promotion(run: Run, path: Path, keys: Path) -> None:
    put(path, keys, "old", VALUE)
    assert run("keys", "promote", "k2", "--db", path).code == Exit.DONE
    assert run("keys", "generate", "k3").code == Exit.DONE
    ended = run("keys", "promote", "k3", "--db", path)
    assert (ended.code, "1 rows under 'k1'" in ended.err) == (Exit.FOUND, True)


def test_a_scrub_finds_no_old_item(run: Run, path: Path, keys: Path) -> None:
    done = run("rebind", path, "--apply", *PLAIN, "--scrub", "--json").document
    assert (done["scrubbed"]["fragments"], done["scrubbed"]["found"]) == (ITEMS, [])
    assert b"penicillin" not in path.read_bytes()
    run("keys", "promote", "k2", "--db", path)
    done = run("rotate", path, "--apply", "--scrub", "--json").document
    assert (done["scrubbed"]["fragments"], done["scrubbed"]["found"]) == (ITEMS, [])


def test_a_scrub_looks_for_items_as_they_stand_in_the_file(path: Path, keys: Path) -> None:
    put(path, keys, "sealed", VALUE)
    traces = Traces()
    with closing(SqliteRows(path)) as rows:
        for cell in cells_of(rows, rows.columns):
            traces.add(cell)
    assert len(traces.samples) == ITEMS + 1
    content = path.read_bytes()
    assert all(fragment in content for sample in traces.samples for fragment in sample.fragments)


def test_a_field_that_stays_readable_is_no_old_value(run: Run, path: Path, keys: Path) -> None:
    """What is not sealed any more cannot be told from it: the search is left out, and that is said."""
    with langgraph(path) as store:
        for number in range(ITEMS):
            store.put(NAMESPACE, f"item-{number}", {"note": "a text that is longer than all others " * 3})
    ended = run("rebind", path, "--apply", *PLAIN, "--plain-field", "note", "--scrub", "--json").document
    assert ended["scrubbed"]["found"] == []
    assert "old-values-not-searched" in ended["reasons"]


# --- read -----------------------------------------------------------------------------------------


@pytest.mark.claim("l1")
@pytest.mark.usefixtures("keys")
def test_audit_reads_items_caches_and_embeddings(run: Run, path: Path) -> None:
    cache: SqliteCache[Any] = SqliteCache(path=str(path))
    cache.set({(("node",), "k"): ("v", None)})
    change(path, "UPDATE cache SET encoding = 'msgpack+cobblestone256.row@k1' WHERE 1")
    cache.set({(("node",), "plain"): ("v", None)})
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VECTOR_MIGRATIONS[0])
        connection.execute(LEFT_BEHIND)
        connection.commit()
    found = run("audit", path, "--json").document
    assert found["readable_tables"] == ["store_vectors"]
    assert found["vectors"] == {"rows": 2, "left": 1}
    kinds = [(share["table"], share["kind"], share["rows"]) for share in found["shares"]]
    assert kinds == [("cache", "plaintext", 1), ("cache", "sealed", 1), ("store.value", "plaintext", ITEMS)]
    assert (found["open_rows"], found["reasons"]) == (ITEMS + 1, ["not-sealed", "readable-tables"])
    text = run("audit", path).out
    assert "2 embeddings are readable" in text
    assert "penicillin" not in text
    accepted = run("audit", path, "--allow-store", "public", "--json").document
    assert (accepted["ok"], accepted["reasons"]) == (None, ["store-allowed"])
    write(path, "plain", "t")
    accepted = run("audit", path, "--allow-store", "public", "--json").document
    assert (accepted["ok"], accepted["reasons"]) == (False, ["not-sealed", "store-allowed"])


LEFT_BEHIND = """
    INSERT INTO store_vectors (prefix, key, field_name, embedding)
    VALUES ('users.ada', 'item-0', 'a', x'00'), ('users.ada', 'gone', 'a', x'00')
"""


def test_a_sealed_store_passes_an_audit(run: Run, path: Path, keys: Path) -> None:
    run("rebind", path, "--apply", *PLAIN)
    found = run("audit", path, "--json").document
    assert (found["ok"], found["rows"], found["vectors"]) == (True, ITEMS, None)
    with langgraph(path) as store:
        store.put(("users",), "ada@example.org", {"a": 1})
    found = run("audit", path, "--json").document
    assert [each["column"] for each in found["addresses"]] == ["key"]


def test_audit_lists_the_readable_fields_of_sealed_items(run: Run, path: Path, keys: Path) -> None:
    run("rebind", path, "--apply", *PLAIN, "--plain-field", "dose", "--index-field", "user")
    found = run("audit", path, "--json").document
    fields = [(each["key"], each["rows"], each["known"]) for each in found["metadata"]["fields"]]
    assert (found["is_silent"], fields) == (
        False,
        [("store.value.dose", ITEMS, None), ("store.value.sp...", ITEMS, "token")],
    )
    for allowed, is_found in ((None, True), ("dose", True), ("store.value.dose", False)):
        more = ["--allow-metadata", allowed] if allowed else []
        reasons = run("audit", path, "--strict", *more, "--json").document["reasons"]
        assert ("readable-beside" in reasons) is is_found, allowed


def test_audit_names_readable_fields_of_sealed_items(run: Run, path: Path, keys: Path) -> None:
    given = ["--plain-field", "allergy", "--index-field", "user", "--plain-field", "source"]
    with langgraph(path) as store:
        store.put(NAMESPACE, "item-0", {**VALUE, "source": "a"})
    run("rebind", path, "--apply", *PLAIN, *given)
    ended = run("audit", path, "--strict", "--json")
    fields = {field["key"]: (field["rows"], field["known"]) for field in ended.document["metadata"]["fields"]}
    assert fields == {
        "store.value.allergy": (ITEMS, None),
        "store.value.source": (1, None),  # not what LangGraph has under this name in metadata
        "store.value.sp...": (ITEMS, "token"),
    }
    assert (ended.code, ended.document["is_silent"]) == (Exit.FOUND, False)
    text = run("audit", path).out
    assert "store.value.allergy" in text
    assert "only ids" not in text
    assert "penicillin" not in text


@pytest.mark.usefixtures("keys")
def test_a_store_of_another_program_is_named_and_not_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    write(path, "k1", "t")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE store (city TEXT)")
    found = run("audit", path, "--json").document
    assert (found["readable_tables"], found["scope"]["not_read"]) == ([], ["store"])
    assert run("status", path).code == Exit.DONE


@pytest.mark.parametrize("has_pseudonyms", [False, True])
def test_inspect_shows_items_by_name(run: Run, path: Path, keys: Path, has_pseudonyms: bool) -> None:
    put(path, keys, "sealed", {"a": (1, 2)}, has_pseudonyms=has_pseudonyms)
    found = run("inspect", path, "--items", "--namespace", "users.ada", "--key", "sealed", "--json").document
    (item,) = found["values"]
    assert (item["table"], item["value"]) == ("store.value", {"a": [1, 2]})
    name = {"namespace": ["users", "ada"], "key": "sealed"} if has_pseudonyms else None
    assert item.get("sealed_with") == name
    listed = run("inspect", path, "--items", "--json").document["namespaces"]
    assert len(listed) == 1 + has_pseudonyms
    for stored_namespace in listed:
        assert run("inspect", path, "--items", "--namespace", stored_namespace).code == Exit.DONE
    everything = run("inspect", path, "--items", "--namespace", "users.ada", "--json").document["values"]
    assert len(everything) == ITEMS + 1


@pytest.mark.usefixtures("keys")
def test_inspect_of_items_that_are_not_there(run: Run, path: Path) -> None:
    for words in (["--namespace", "x"], ["--namespace", "users.ada", "--key", "x"]):
        ended = run("inspect", path, "--items", *words)
        assert (ended.code, "no namespace" in ended.err) == (Exit.USAGE, True)
    for words in (
        ["--key", "x"],
        ["--items", "--key", "x"],
        ["--items", "--thread", "t"],
        ["--namespace", "a"],
    ):
        assert run("inspect", path, *words).code == Exit.USAGE


def test_inspect_shows_a_forged_item_without_a_namespace(run: Run, path: Path, keys: Path) -> None:
    """`verify` names it with the prefix ``''``, which is not the same as no option."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO store (prefix, key, value) VALUES ('', 'k', '{}')")
    found = run("inspect", path, "--items", "--namespace", "", "--json").document
    assert [value["place"] for value in found["values"]] == [{"prefix": "", "key": "k"}]


def test_inspect_names_an_item_that_was_edited(run: Run, path: Path, keys: Path) -> None:
    put(path, keys, "sealed", VALUE, plain=("dose",))
    change(path, "UPDATE store SET value = json_set(value, '$.dose', 9) WHERE key = 'sealed'")
    ended = run("inspect", path, "--items", "--namespace", "users.ada", "--key", "sealed")
    assert (ended.code, "RowError" in ended.err, "penicillin" in ended.out) == (Exit.UNOPENED, True, False)


def test_types_and_trial_name_namespaces(run: Run, path: Path, keys: Path) -> None:
    put(path, keys, "set", {"a": {1}})
    found = run("types", path, "--json").document
    assert [(each["name"], each["thread"]) for each in found["types"]] == [("set", "items of users.ada")]
    with langgraph(path) as store:
        store.put(NAMESPACE, "lc", {"lc": 2, "type": "constructor", "id": ["os", "system"]})
    assert [each["name"] for each in run("types", path, "--json").document["types"]] == ["set"]
    assert run("trial", path, *PLAIN, "--json").document["failed"] == 0
    ended = run("trial", path, "--json").document
    assert [(each["thread"], each["values"]) for each in ended["threads"]] == [
        ("items of users.ada", ITEMS + 1)
    ]


def test_a_store_can_be_left_or_changed_alone(run: Run, path: Path, keys: Path) -> None:
    """A store that is not wrapped could not read its items any more; and back, only they are unbound."""
    write(path, "plain", "t")
    for words, sealed in ((["--no-items"], 0), (["--items"], ITEMS)):
        ended = run("rebind", path, "--apply", *PLAIN, *words, "--json")
        assert (ended.code, ended.document["left"]) == (Exit.DONE, 0)
        assert sum(KEY in each for each in stored(path)) == sealed
        plan = run("rebind", path, *words, "--json").document["plan"]
        actions = {row["table"]: row["action"] for row in plan}
        is_left = {table: action == "left as it is" for table, action in actions.items()}
        assert is_left == {
            "checkpoints": words == ["--items"],
            "writes": words == ["--items"],
            "store.value": words == ["--no-items"],
        }
    ended = run("rebind", path, "--apply", "--unbind", "--items", "--json")
    assert (ended.code, ended.document["changed"], ended.document["left"]) == (Exit.DONE, ITEMS, 0)
    assert not any(KEY in each for each in stored(path))
    assert run("verify", path, *PLAIN, "--json").document["bound"] == VALUES
    for words in (
        ["--items", "--thread", "t"],
        ["--items", "--index", "user"],
        ["--no-items", "--plain-field", "user"],
        ["--thread", "t", "--index-field", "user"],
    ):
        assert run("rebind", path, *words).code == Exit.USAGE, words  # else `ok`, and not what was asked for


def test_a_decrypted_copy_says_what_it_lacks(run: Run, path: Path, keys: Path, tmp_path: Path) -> None:
    """Embeddings; the rest LangGraph's own store reads."""
    before, out = stored(path), tmp_path / "out.db"
    assert run("rebind", path, "--apply", *PLAIN).code == Exit.DONE
    ended = run("decrypt", path, "--out", out)
    assert (ended.code, "embeddings" in ended.out) == (Exit.DONE, False)
    assert stored(out) == before
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VECTOR_MIGRATIONS[0])
    out.unlink()
    ended = run("decrypt", path, "--out", out)
    assert f"{ITEMS} values were decrypted" in ended.out
    assert "embeddings were not copied" in ended.out
    put(path, keys, "bytes", {"a": b"bytes"})
    out.unlink()
    ended = run("decrypt", path, "--out", out)
    assert (ended.code, out.exists()) == (Exit.UNOPENED, False)
    assert "cannot be stored as JSON" in ended.out + ended.err


def answers(run: Run, path: Path) -> dict[str, str]:
    return {each["id"]: each["verdict"] for each in run("report", path, "--json").document["questions"]}


def test_a_report_knows_items(run: Run, path: Path, keys: Path) -> None:
    found = answers(run, path)
    assert (found["opens"], found["sealed"], found["active-key"]) == ("refuted",) * 3
    run("rebind", path, "--apply", *PLAIN)
    found = answers(run, path)
    assert [found[question] for question in ("opens", "sealed", "active-key", "bound")] == ["shown"] * 4
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VECTOR_MIGRATIONS[0])
    assert answers(run, path)["sealed"] == "refuted"
    change(path, "UPDATE store SET value = json_set(value, '$.more', 1) WHERE key = 'item-1'")
    assert answers(run, path)["opens"] == "refuted"
