"""What another account of the same folder puts beside a ring file and its key files before a command runs."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sealpoint.admin.keys.edit import change_state
from sealpoint.admin.results.exits import Exit
from sealpoint.crypto import KeyState
from sealpoint.errors import AccessError
from tests.cli.conftest import Run
from tests.cli.test_companions import REFUSED

COMMANDS: Final = [
    "keys generate k9",
    "keys generate --index",
    "keys promote k2 --no-database-check",
    "keys disable k1 --yes",
    "keys destroy k2 --yes --no-database-check",
    "keys list",
    "keys check",
]
PLACES: Final = [
    ".keys.toml.new",
    "keys.d/k9.key",
    "keys.d/.k2.key.old",
]


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ring of three keys: decrypt-only k1, staged k2 and active k3."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEALPOINT_KEYS", str(tmp_path / "keys.toml"))
    for words in (
        "keys init k1",
        "keys generate k3",
        "keys promote k3 --no-database-check",
        "keys generate k2",
    ):
        assert run(*words.split()).code == Exit.DONE, words
    return tmp_path


def materials(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "keys.d" / f"{name}.key").read_bytes() for name in ("k1", "k3")}


PLANTS: Final[dict[str, Callable[[Path, Path], object]]] = {
    **REFUSED,
    "link to a key": lambda place, _: place.symlink_to(Path("keys.d/k3.key").absolute()),
    "hard link to a key": lambda place, _: place.hardlink_to(Path("keys.d/k3.key")),
    "text": lambda place, _: place.write_text("of nobody"),
}


@pytest.mark.broad
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_command_ends_and_no_key_is_lost(
    run: Run, folder: Path, victim: Path, command: str, place: str, plant: str
) -> None:
    """It is done, or says what it met; afterwards all keys but the one that it is about are as before."""
    before = materials(folder)
    PLANTS[plant](folder / place, victim)
    kind = stat.S_IFMT((folder / place).lstat().st_mode)
    ended = run(*command.split())
    assert ended.code != Exit.BUG, ended
    if ended.code in (Exit.USAGE, Exit.KEYS, Exit.STOPPED):
        assert "error: " in ended.err
        assert (
            Path(place).name in ended.err
            or Path(place).name.removeprefix(".").removesuffix(".old") in ended.err
        )
        assert stat.S_IFMT((folder / place).lstat().st_mode) == kind
    assert materials(folder) == before
    assert victim.read_text() == "as it was"
    assert not victim.with_name("nothing").exists()
    if command.startswith("keys destroy") and ended.code == Exit.DONE:
        assert not (folder / "keys.d" / "k2.key").exists()


def test_a_folder_in_the_place_of_the_new_ring_is_named(run: Run, folder: Path) -> None:
    (folder / ".keys.toml.new").mkdir()
    with pytest.raises(AccessError) as caught:
        change_state("keys.toml", "k1", KeyState.DISABLED)
    assert "move the folder " in caught.value.hint
    assert run("keys", "list").code == Exit.DONE
