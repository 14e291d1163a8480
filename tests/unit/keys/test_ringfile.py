"""The ring file: what it may say, whose files and keys are refused, and where it is looked for."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealpoint.crypto import KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    FilePermissionsError,
    KeyDisabledError,
    KeyMaterialError,
    KeyRingError,
    RingFileError,
    RingFileMissingError,
    SourceError,
)
from sealpoint.keys import ringfile
from sealpoint.keys.entry import RingEntry
from sealpoint.keys.material import check_value
from sealpoint.keys.ringfile import read_ring_entries
from sealpoint.keys.sources import FileSource
from tests.support.keys.rings import NEW, OLD, OTHER, ring_text, write, write_ring

EXAMPLE = Path(__file__).parents[3] / "keys.example"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No ring is named or lies anywhere but where a test puts it."""
    for name in ("SEALPOINT_KEYS", "CREDENTIALS_DIRECTORY", "SEALPOINT_ALLOW_TEST_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ringfile, "SYSTEM_PATH", tmp_path / "etc" / "keys.toml")


def test_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field and every source at once; entries are read without any source."""
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    write(tmp_path / "k2", OLD.hex() + "\n")
    text = ring_text(
        "created = 2026-11-01T09:00:00Z",
        f"check = '{check_value(NEW)}'",
        "[[key]]",
        "id = 'k2'",
        "state = 'decrypt-only'",
        "source = { credential = 'k2' }",
        "[[key]]",
        "id = 'k3'",
        "state = 'staged'",
        f"source = {{ inline = '{OTHER.hex()}' }}",
        "[[key]]",
        "id = 'k4'",
        "state = 'disabled'",
        f"source = {{ command = ['printf', '{OTHER.hex()}'] }}",
        "[[key]]",
        "id = 'k5'",
        "state = 'destroyed'",
        "created = 2025-01-01T00:00:00Z",
        "destroyed = 2026-01-01T00:00:00Z",
        "check = '01234567'",
        "[[key]]",
        "id = 'langgraph'",
        "suite = 'aes'",
        "state = 'decrypt-only'",
        "source = { env = 'LANGGRAPH_AES_KEY' }",
        "[[index]]",
        "id = 'index'",
        "created = 2026-01-01T00:00:00Z",
        f"check = '{check_value(OTHER)}'",
        f"source = {{ inline = '{OTHER.hex()}' }}",
    )
    ring = KeyRing.load(write_ring(tmp_path, text))
    materials = [NEW, OLD, OTHER, b"", b"", b"0123456789abcdef"]
    assert [key.material for key in ring.keys] == materials
    assert ring.keys[0].created == datetime(2026, 11, 1, 9, tzinfo=UTC)
    assert ring.keys[4].destroyed == datetime(2026, 1, 1, tzinfo=UTC)
    assert ring.require_legacy().id == "langgraph"
    assert ring.index_key("x") == KeyRing([], index=OTHER).index_key("x")
    (tmp_path / "k1.key").unlink()
    (tmp_path / "k2").unlink()
    monkeypatch.delenv("LANGGRAPH_AES_KEY")
    born, made = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 11, 1, 9, tzinfo=UTC)
    died, check = datetime(2026, 1, 1, tzinfo=UTC), check_value(NEW)
    assert read_ring_entries(tmp_path / "keys.toml") == (
        RingEntry("k1", KeyState.ACTIVE, created=made, check=check, source="file", location="k1.key"),
        RingEntry("k2", KeyState.DECRYPT_ONLY, source="credential", location="k2"),
        RingEntry("k3", KeyState.STAGED, source="inline"),
        RingEntry("k4", KeyState.DISABLED, source="command", location="printf"),
        RingEntry("k5", KeyState.DESTROYED, created=born, destroyed=died, check="01234567"),
        RingEntry(
            "langgraph", KeyState.DECRYPT_ONLY, suite="aes", source="env", location="LANGGRAPH_AES_KEY"
        ),
    )


@pytest.mark.claim("k3")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_ring_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Who writes it could name another key, or a command."""
    path = write_ring(tmp_path, ring_text())
    path.chmod(mode)
    with pytest.raises(FilePermissionsError, match="write"):
        KeyRing.load(path)


@pytest.mark.parametrize("state", ["active", "disabled"])
def test_ring_with_inline_material_must_be_private(tmp_path: Path, state: str) -> None:
    """A ring without it holds no secrets; only its key files do."""
    path = write_ring(tmp_path, ring_text(state=state))
    path.chmod(0o644)
    assert KeyRing.load(path).ids == ("k1",)
    path = write_ring(tmp_path, ring_text(source=f"{{ inline = '{NEW.hex()}' }}", state=state))
    assert KeyRing.load(path).ids == ("k1",)
    path.chmod(0o644)
    with pytest.raises(FilePermissionsError, match="read"):
        KeyRing.load(path)


INDEX = "[[index]]\nid = 'index'\nsource = "
OF_NOTHING = {
    "file": ("{ file = 'none' }", "restore its copy at this path"),
    "env": ("{ env = 'SEALPOINT_NONE' }", "set the variable"),
    "credential": ("{ credential = 'none' }", "LoadCredential"),
    "command": ("{ command = ['false'] }", "by hand"),
}


@pytest.mark.parametrize(("source", "hint"), OF_NOTHING.values(), ids=OF_NOTHING)
def test_a_disabled_key_needs_no_material(tmp_path: Path, source: str, hint: str) -> None:
    """Material is removed next; a process starts without it. An index key and a signer cannot be disabled."""
    ring = KeyRing.load(write_ring(tmp_path, ring_text(source=source, state="disabled")))
    with pytest.raises(KeyDisabledError):
        ring.require_key("k1")
    with pytest.raises(SourceError, match=r"keys\.toml: key 'k1': ") as caught:
        KeyRing.load(write_ring(tmp_path, ring_text(source=source)))
    assert hint in caught.value.hint
    assert caught.value.hint.endswith(
        "; a key that is no longer needed can be disabled: its material is then not read"
    )
    with pytest.raises(SourceError) as caught:
        KeyRing.load(write_ring(tmp_path, ring_text(INDEX + source))).load_material()
    assert "disabled" not in caught.value.hint
    with pytest.raises(SourceError) as caught:
        FileSource("ledger.key").read(tmp_path)
    assert caught.value.hint == "restore its copy at this path"


LEGACY = b"0123456789abcdef"
CHECKED = {
    "active": (NEW, ring_text("check = '{}'")),
    "staged": (NEW, ring_text("check = '{}'", state="staged")),
    "index": (NEW, ring_text(INDEX + "{ file = 'k1.key' }", "check = '{}'")),
    "legacy": (LEGACY, ring_text("suite = 'aes'", "check = '{}'", state="decrypt-only")),
}


@pytest.mark.parametrize("name", CHECKED)
def test_check_value_that_does_not_match(tmp_path: Path, name: str) -> None:
    """Swapped or damaged material is found at load, and not by values that do not open."""
    material, text = CHECKED[name]
    text = text.replace("'{}'", f"'{check_value(material)}'")
    assert KeyRing.load(write_ring(tmp_path, text, material=material)).ids == ("k1",)
    with pytest.raises(KeyMaterialError, match="index" if name == "index" else "key 'k1'") as caught:
        KeyRing.load(write_ring(tmp_path, text, material=material[::-1]))
    assert "restore the material" in caught.value.hint


def example(tmp_path: Path) -> Path:
    """A copy of keys.example whose mode does not depend on how the repository was checked out."""
    return write(tmp_path / "keys.toml", EXAMPLE.read_bytes())


@pytest.mark.parametrize("value", [None, "0", "true"])
def test_example_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv("SEALPOINT_ALLOW_TEST_KEYS", value)
    with pytest.raises(RingFileError, match="key 'k26b'") as caught:
        KeyRing.load(example(tmp_path))
    assert "generate keys of your own" in caught.value.hint
    with pytest.raises(RingFileError):
        KeyRing.load(write_ring(tmp_path, ring_text(), material=b"sealpoint PUBLIC TEST key k26b.."))


def test_example_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads where it is allowed to, readable by others as it is in a checkout, and works."""
    monkeypatch.setenv("SEALPOINT_ALLOW_TEST_KEYS", "1")
    path = example(tmp_path)
    path.chmod(0o644)
    ring = KeyRing.load(path)
    assert [(key.id, key.state.value) for key in ring.keys] == [
        ("k26b", "active"),
        ("k26a", "decrypt-only"),
        ("k25", "destroyed"),
    ]
    cipher = RingCipher(ring)
    assert cipher.open(*cipher.seal("msgpack", b"value")).typed == ("msgpack", b"value")
    assert len(ring.index_key("thread_id")) == 32


def named(path: Path, key_id: str) -> Path:
    """Write a ring file with one staged key, whose id tells which file was read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_ring(path.parent, ring_text(state="staged").replace("'k1'", f"'{key_id}'")).rename(path)


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument, $SEALPOINT_KEYS, credential, /etc: the first found wins, also if it is damaged."""
    named(tmp_path / "etc" / "keys.toml", "etc")
    monkeypatch.setenv("SEALPOINT_KEYS", "")  # names nothing
    assert KeyRing.load().ids == ("etc",)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    assert KeyRing.load().ids == ("etc",)
    named(tmp_path / "credentials" / "sealpoint.keys", "credential")
    assert KeyRing.load().ids == ("credential",)
    monkeypatch.setenv("SEALPOINT_KEYS", str(named(tmp_path / "env.toml", "env")))
    assert KeyRing.load().ids == ("env",)
    argument = named(tmp_path / "argument.toml", "argument")
    assert KeyRing.load(argument).ids == ("argument",)
    assert KeyRing.load(str(argument)).ids == ("argument",)
    for path in ("", "none"):  # a forgotten setting, not a wish for another ring
        with pytest.raises(KeyRingError):
            KeyRing.load(path)
    monkeypatch.delenv("SEALPOINT_KEYS")
    (tmp_path / "credentials" / "sealpoint.keys").unlink()
    (tmp_path / "credentials" / "sealpoint.keys").symlink_to("nowhere")
    with pytest.raises(SourceError, match=r"sealpoint\.keys cannot be read"):
        KeyRing.load()


def test_a_named_file_that_is_missing_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(tmp_path / "etc" / "keys.toml", "etc")
    monkeypatch.setenv("SEALPOINT_KEYS", str(tmp_path / "none"))
    with pytest.raises(RingFileMissingError, match="none") as caught:
        KeyRing.load()
    assert "not set" not in str(caught.value)
    assert "sealpoint keys init --keys keys.toml" in caught.value.hint
    monkeypatch.delenv("SEALPOINT_KEYS")
    ringfile.SYSTEM_PATH.unlink()
    for name in ("keys.toml", "sealpoint.keys", "keys.example"):  # the current directory is never searched
        named(tmp_path / "here" / name, "here")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(RingFileMissingError, match=r"keys\.toml, and \$SEALPOINT_KEYS is not set"):
        KeyRing.load()
    with pytest.raises(RingFileMissingError) as caught:
        KeyRing.load("of-agent.toml")
    folder = tmp_path / "here"
    assert (
        str(caught.value) == f"no ring file at {folder}/of-agent.toml (of-agent.toml in the current folder)"
    )
    assert "from_key_file(PATH)" in caught.value.hint


def test_a_misspelt_field_names_the_one_that_was_meant(tmp_path: Path) -> None:
    for wrong, hint in {"chekc": "did you mean 'check'?", "colour": RingFileError.hint}.items():
        with pytest.raises(RingFileError, match="unknown field") as caught:
            read_ring_entries(write_ring(tmp_path, ring_text(f"{wrong} = '01234567'")))
        assert caught.value.hint == hint


def test_a_folder_that_this_account_may_not_enter_is_named() -> None:
    """The file in it may be there: a new ring in its place would be the wrong advice."""
    with TemporaryDirectory() as name:
        ring = write_ring(Path(name), ring_text())
        ring.parent.chmod(0)
        was_root = os.geteuid() == 0
        if was_root:
            os.seteuid(65534)
        try:
            with pytest.raises(RingFileMissingError, match="may not enter the folder of") as caught:
                ringfile.find_ring_file(ring)
        finally:
            if was_root:
                os.seteuid(0)
            ring.parent.chmod(0o700)
        assert "sudo -u OWNER" in caught.value.hint
