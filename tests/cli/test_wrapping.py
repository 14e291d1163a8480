"""`sealpoint keys` with wrapped keys: what each command does, says, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealpoint import EncryptedSerializer
from sealpoint.admin.keys.edit import create_ring, key_file
from sealpoint.admin.results.exits import Exit
from sealpoint.base import RunnableConfig, empty_checkpoint
from sealpoint.crypto import KeyRing
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from sealpoint.keys.wrap import wrapper as ask
from sealpoint.sqlite import SqliteSaver
from tests.cli.conftest import Run
from tests.support.keys.wrappers import Service, fake_service, wrapper_text


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(ask, "sleep", lambda _: None)
    with fake_service(monkeypatch) as found:
        found.version = "3"
        yield found


@pytest.fixture
def ring(tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring with the key ``k1`` in a file, and the wrappers ``w`` and ``v``."""
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    file.write_text(f"{file.read_text()}\n{wrapper_text()}\n{wrapper_text('v', 'two')}")
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))
    return file


def test_life_of_a_wrapped_key(run: Run, ring: Path, service: Service) -> None:
    made = run("keys", "generate", "k2", "--wrap-with", "w")
    assert made.code == Exit.DONE
    assert "keys promote k2" in made.err
    assert [path.name for path in (ring.parent / "keys.d").glob("*.key")] == ["k1.key"]
    assert run("keys", "promote", "k2").code == Exit.DONE
    wrapped = run("keys", "wrap", "k1", "--with", "w")
    assert wrapped.code == Exit.DONE
    assert f"{key_file(ring, 'k1')} is removed" in wrapped.err
    assert not key_file(ring, "k1").exists()
    head, first, second = run("keys", "list").out.splitlines()
    assert head.split() == ["key", "state", "suite", "created", "destroyed", "source", "wrapper", "version"]
    assert [line.split()[-3:] for line in (first, second)] == [["wrapped", "w", "3"]] * 2
    service.version = "4"
    assert run("keys", "rewrap", "k1").code == Exit.DONE
    assert [entry.version for entry in read_ring_entries(ring)] == ["4", "3"]
    assert run("keys", "rewrap", "--with", "v").code == Exit.DONE
    assert [entry.wrapper for entry in read_ring_entries(ring)] == ["v", "v"]
    assert run("keys", "disable", "k1", "--yes").code == Exit.DONE
    gone = run("keys", "destroy", "k1", "--no-database-check", "--yes", "--allow-unproven", "--json")
    assert gone.code == Exit.DONE
    (key,) = gone.document["keys"]
    assert (key["source"], key["wrapper"], key["material"]) == ("wrapped", "v", "removed")
    assert "material-not-removed" not in gone.document["reasons"]
    assert "backups" in gone.err.lower()
    assert KeyRing.load(ring).active_id == "k2"


def test_promoting_asks_once_for_each_key(run: Run, ring: Path, service: Service, tmp_path: Path) -> None:
    """With a database, too, whose rows the key is tried on; the others are asked for a warning alone."""
    file = tmp_path / "state.db"
    config: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    with SqliteSaver.from_conn_string(str(file), serde=EncryptedSerializer.from_key_file(ring)) as saver:
        saver.put(config, empty_checkpoint(), {}, {})
    assert run("keys", "wrap", "k1", "--with", "w").code == Exit.DONE
    assert run("keys", "generate", "k2", "--wrap-with", "w").code == Exit.DONE
    for promoted in ("k2", "k2", "k1"):
        service.calls.clear()
        assert run("keys", "promote", promoted, "--db", file).code == Exit.DONE
        assert Counter(service.calls) == {("unwrap", "k1"): 1, ("unwrap", "k2"): 1}


def test_index_key_is_wrapped(run: Run, ring: Path) -> None:
    made = run("keys", "generate", "--index", "--wrap-with", "w")
    assert (made.code, made.out) == (Exit.DONE, "")
    assert run("keys", "rewrap", "--with", "v").code == Exit.DONE
    assert run("keys", "rewrap", "index", "--with", "w", "--json").document["keys"] == []
    assert KeyRing.load(ring).index_key("x")
    assert not key_file(ring, "index").exists()


def test_key_of_another_source(run: Run, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALPOINT_KEY", RingFile(ring).require_loader("k1")().hex())
    ring.write_text(ring.read_text().replace('file = "keys.d/k1.key"', 'env = "SEALPOINT_KEY"'))
    ended = run("keys", "wrap", "k1", "--with", "w")
    assert "The key material is still in source 'env'" in ended.err


def test_check_tries_each_wrapper(run: Run, ring: Path) -> None:
    run("keys", "wrap", "k1", "--with", "w")
    document = run("keys", "check", "--json").document
    assert document["ok"] is True
    assert [(one["id"], one["location"], one["version"], one["problem"]) for one in document["wrappers"]] == [
        ("w", "one", "3", None),
        ("v", "two", "3", None),
    ]
    ended = run("keys", "check")
    assert ended.code == Exit.DONE
    assert ["w", "fake", "one", "3", "ok"] in [line.split() for line in ended.out.splitlines()]


def test_check_finds_a_wrapper_that_is_away(run: Run, ring: Path, service: Service) -> None:
    """Although no key needs it yet."""
    service.away.add("two")
    ended = run("keys", "check", "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.KEYS, ["wrappers-failing"])
    assert "connection refused" in ended.document["wrappers"][1]["problem"]
    assert "not ok: a wrapper does not wrap and unwrap" in run("keys", "check").out


def test_check_finds_a_wrapping_key_that_waits_for_deletion(run: Run, ring: Path, service: Service) -> None:
    """An outage weeks later; today everything works."""
    run("keys", "wrap", "k1", "--with", "w")
    service.problem = "waits for deletion on 2026-12-01"
    ended = run("keys", "check", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.KEYS, False)
    assert ended.document["keys"][0]["problem"] is None
    assert "waits for deletion" in ended.document["wrappers"][0]["problem"]


def test_check_unwraps_each_key_once(run: Run, ring: Path, service: Service) -> None:
    """Each time is a request to the service."""
    run("keys", "wrap", "k1", "--with", "w")
    run("keys", "generate", "k2", "--wrap-with", "w")
    run("keys", "generate", "--index", "--wrap-with", "w")
    service.calls.clear()
    assert run("keys", "check").code == Exit.DONE
    asked = Counter(key for act, key in service.calls if act == "unwrap")
    assert asked == {"k1": 1, "k2": 1, "index": 1, "keys-check": 2}  # two wrappers


def test_check_finds_an_index_key_that_does_not_unwrap(run: Run, ring: Path, service: Service) -> None:
    """Named beside the keys that do not."""
    run("keys", "wrap", "k1", "--with", "w")
    run("keys", "generate", "--index", "--wrap-with", "v")
    service.away.update({"one", "two"})
    ended = run("keys", "check")
    assert ended.code == Exit.KEYS
    assert "key 'k1': wrapper 'w' (fake, one): connection refused" in ended.err
    assert "[[index]]: wrapper 'v' (fake, two): connection refused" in ended.err


def test_check_on_a_host_that_may_only_unwrap(run: Run, ring: Path, service: Service) -> None:
    run("keys", "wrap", "k1", "--with", "w")
    ring.write_text(ring.read_text().replace(wrapper_text("v", "two"), ""))
    service.wraps = False
    ended = run("keys", "check", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True)
    assert "access denied" in ended.document["wrappers"][0]["problem"]


def test_key_with_a_file_left_is_destroyed_without_its_service(
    run: Run, ring: Path, service: Service
) -> None:
    """It says of both, the file and the wrapped key, where copies are."""
    wrapped = ["generate", "k2", "--wrap-with", "w"], ["generate", "k3"]
    for command in wrapped:
        assert run("keys", *command).code == Exit.DONE
    file = key_file(ring, "k2")
    file.write_bytes(RingFile(ring).require_loader("k2")())
    file.chmod(0o600)
    ring.write_text(ring.read_text().replace('by = "w"', 'by = "w", left = "keys.d/k2.key"'))
    service.away.add("one")
    ended = run("keys", "destroy", "k2", "--no-database-check", "--yes", "--allow-unproven")
    assert (ended.code, file.exists()) == (Exit.DONE, False)
    assert f"{file} is removed" in ended.err
    assert "The wrapped key is removed from the ring" in ended.err


def test_check_says_which_key_has_a_file_left(run: Run, ring: Path) -> None:
    run("keys", "generate", "k2", "--wrap-with", "w")
    ring.write_text(ring.read_text().replace('by = "w"', 'by = "w", left = "keys.d/k2.key"'))
    ended = run("keys", "check")
    assert "warning: key 'k2' is wrapped, but its key file keys.d/k2.key still exists" in ended.err
    assert "ok" not in ended.out.splitlines()
    document = run("keys", "check", "--json").document
    assert (document["ok"], document["reasons"]) == (None, ["material-not-removed"])
    assert run("keys", "wrap", "k2", "--with", "w").code == Exit.DONE
    assert "warning" not in run("keys", "check").err


def test_active_key_whose_wrapper_is_away(run: Run, ring: Path, service: Service) -> None:
    """Every command that needs it says which wrapper, what it said, and what to do."""
    run("keys", "wrap", "k1", "--with", "w")
    service.away.add("one")
    ended = run("keys", "check")
    assert ended.code == Exit.KEYS
    assert "key 'k1': wrapper 'w' (fake, one): connection refused" in ended.err
    assert "hint: " in ended.err


REFUSED = {
    "no wrapper": (["wrap", "k1", "--with", "x"], Exit.USAGE, "has no wrapper 'x'"),
    "no option": (["wrap", "k1"], Exit.USAGE, "--with"),
    "no key": (["wrap", "k9", "--with", "w"], Exit.KEYS, "no key 'k9'"),
    "not wrapped": (["rewrap", "k1"], Exit.USAGE, "'k1' is not wrapped"),
    "none is wrapped": (["rewrap"], Exit.USAGE, "has no wrapped key"),
    "new key": (["generate", "--wrap-with", "x"], Exit.USAGE, "has no wrapper 'x'"),
}


@pytest.mark.parametrize(("words", "code", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(run: Run, ring: Path, words: list[str], code: Exit, problem: str) -> None:
    text = ring.read_text()
    ended = run("keys", *words)
    assert ended.code == code
    assert problem in ended.err
    assert ring.read_text() == text


def test_ring_without_wrappers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no command that adds one: the hint says so."""
    create_ring(tmp_path / "keys.toml", "k1")
    monkeypatch.setenv("SEALPOINT_KEYS", str(tmp_path / "keys.toml"))
    ended = run("keys", "wrap", "k1", "--with", "w")
    assert ended.code == Exit.USAGE
    assert "has no wrapper 'w' (held: none)" in ended.err
    assert "hint: add a [[wrapper]] entry with this id to the ring file by hand" in ended.err
