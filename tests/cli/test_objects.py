"""What every JSON object begins with: which program said what, and when."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sealpoint.cli.exits import Exit
from tests.cli.conftest import Run
from tests.support.foreign import insert
from tests.support.rings import states_text
from tests.support.sealed import write

COMMANDS = [
    ["status", "DB"],
    ["audit", "DB"],
    ["types", "DB"],
    ["inspect", "DB"],
    ["inspect", "DB", "--thread", "a"],
    ["verify", "DB"],
    ["rotate", "DB"],
    ["rotate", "DB", "--apply"],
    ["decrypt", "DB", "--out", "NEW"],
    ["keys", "list"],
    ["keys", "check"],
    ["keys", "show", "k1"],
    ["keys", "generate"],
    ["keys", "promote", "k1"],
    ["keys", "disable", "k2"],
    ["keys", "enable", "k2"],
    ["keys", "destroy", "k3", "--yes", "--no-database-check"],
    ["keys", "init", "--keys", "RING"],
]

Words = Callable[[list[str]], list[object]]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Words:
    """Puts the paths of a database, a ring and new files into the words of a command."""
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    ring = tmp_path / "keys.toml"
    ring.write_text(states_text(k1="active", k2="decrypt-only", k3="staged"))
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    places: dict[str, object] = {
        "DB": path,
        "NEW": tmp_path / "new.db",
        "RING": tmp_path / "new" / "keys.toml",
    }
    return lambda given: [places.get(word, word) for word in given]


@pytest.mark.parametrize("given", COMMANDS, ids=" ".join)
def test_object_begins_with_its_date(run: Run, words: Words, given: list[str]) -> None:
    """In this order, so that whoever opens the file sees it first."""
    before = datetime.now(UTC).replace(microsecond=0)
    ended = run(*words(given), "--json")
    assert ended.code == Exit.DONE
    (program, version), (name, command), (at, date), *_ = json.loads(ended.out).items()
    assert (program, version) == ("sealpoint", importlib.metadata.version("sealpoint"))
    assert (name, command) == ("command", " ".join(given[: 1 + (given[0] == "keys")]))
    assert at == "at"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", date)
    assert before <= datetime.fromisoformat(date) <= datetime.now(UTC)


@pytest.mark.parametrize(("only", "expected"), [(None, None), ("k1", True), ("k2", False)])
def test_status_says_what_was_asked_and_whether_it_is_so(
    run: Run, words: Words, only: str | None, expected: bool | None
) -> None:
    document = run(*words(["status", "DB"]), *(["--only", only] if only else []), "--json").document
    assert (document["only"], document.get("ok")) == (only, expected)
    assert ("ok" in document) == (only is not None)


@pytest.mark.parametrize(
    "given", [["verify", "DB"], ["rotate", "DB"], ["rotate", "DB", "--apply"]], ids=" ".join
)
@pytest.mark.parametrize("tag", ["msgpack+cobblestone256@k9", "null+cobblestone256@k1"])
def test_ok_is_what_the_exit_code_says(run: Run, words: Words, given: list[str], tag: str) -> None:
    good, *more = words(given)
    assert run(good, *more, "--json").document["ok"] is True
    insert(Path(str(more[0])), [(tag, b"x" * 40)])
    ended = run(good, *more, "--json")
    assert ended.document["ok"] is (ended.code == Exit.DONE)
