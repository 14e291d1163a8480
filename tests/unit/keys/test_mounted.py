"""Rings and keys in volumes as Kubernetes mounts them, and files that a process cannot follow."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealpoint.admin.keys.change import lock_ring
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import FilePermissionsError, SealpointError, SourceError
from sealpoint.keys import files, watch
from sealpoint.keys.files import why_fixed
from sealpoint.keys.watch import LOOK_SECONDS
from tests.support.keys.kubelet import Volume
from tests.support.keys.rings import NEW, ring_text, states_text, write
from tests.unit.keys.conftest import needs_root, outcome_as

ACCOUNT, FS_GROUP, OTHER_GROUP = 12345, 23456, 34567


def ring_of(**states: str) -> bytes:
    return states_text(**states).encode()


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    mounted = Volume(tmp_path / "mounted", mode=0o400)
    mounted.write({"keys.toml": ring_of(k1="active")})
    return mounted


def test_replaced_data_link_is_noticed(volume: Volume, clock: list[float]) -> None:
    """The link `keys.toml` itself does not change: its target does."""
    ring = KeyRing.load(volume.folder / "keys.toml")
    assert ring.path == volume.folder / "keys.toml"
    running = RingCipher(ring)
    volume.write({"keys.toml": ring_of(k1="decrypt-only", k2="active")})
    clock[0] += LOOK_SECONDS
    assert running.seal("msgpack", b"value")[0].endswith("@k2")
    (volume.folder / "..data" / "keys.toml").unlink()
    with pytest.raises(SealpointError, match="cannot be read"):
        KeyRing.load(volume.folder / "keys.toml")


@pytest.mark.parametrize("times", [1, files.MAX_ATTEMPTS - 1, files.MAX_ATTEMPTS])
def test_volume_that_is_replaced_while_it_is_read(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The earlier folder is gone between finding the target and opening it.

    If it is replaced again and again, the error is one that can be handled, and not of the interpreter.
    """
    find, swaps = files._require_within, list[Path]()

    def swapped(path: Path) -> Path:
        target = find(path)
        if len(swaps) < times:
            swaps.append(path)
            volume.write({"keys.toml": ring_of(k1="decrypt-only", k2="active")})
        return target

    monkeypatch.setattr(files, "_require_within", swapped)
    if times < files.MAX_ATTEMPTS:
        assert KeyRing.load(volume.folder / "keys.toml").active_id == "k2"
    else:
        with pytest.raises(SourceError, match=f"was replaced {times} times meanwhile") as caught:
            KeyRing.load(volume.folder / "keys.toml")
        assert "try again" in caught.value.hint
    assert len(swaps) == times


@pytest.mark.parametrize("target", ["../else.toml", "/etc/hostname", "..data/keys.toml"])
def test_ring_whose_link_leads_out_of_its_folder(tmp_path: Path, target: str) -> None:
    write(tmp_path / "else.toml", ring_of(k1="active"))
    write(tmp_path / "keys.toml", ring_of(k1="active"))
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "..data").symlink_to("..")
    (tmp_path / "mounted" / "keys.toml").symlink_to(target)
    with pytest.raises(FilePermissionsError, match="out of its folder") as caught:
        KeyRing.load(tmp_path / "mounted" / "keys.toml")
    assert "within its own folder" in caught.value.hint


def test_commands_do_not_replace_a_link(volume: Volume) -> None:
    with (
        pytest.raises(FilePermissionsError, match="is a symbolic link") as caught,
        lock_ring(volume.folder / "keys.toml"),
    ):
        pass
    assert "change the original" in caught.value.hint


# --- other accounts --------------------------------------------------------------------------


LAYOUTS = [
    # defaultMode, fsGroup of the pod, groups of the process, inline keys, outcome for a non-root account
    (0o400, FS_GROUP, [FS_GROUP], False, "ok"),
    (0o440, FS_GROUP, [FS_GROUP], False, "ok"),
    (0o400, FS_GROUP, [OTHER_GROUP], False, "SourceError"),
    (0o644, FS_GROUP, [FS_GROUP], False, "FilePermissionsError"),
    (0o444, None, [], False, "FilePermissionsError"),
    (0o400, FS_GROUP, [FS_GROUP], True, "ok"),
    (0o644, FS_GROUP, [FS_GROUP], True, "FilePermissionsError"),
]


@needs_root
@pytest.mark.parametrize(("mode", "fs_group", "groups", "is_inline", "outcome"), LAYOUTS)
def test_secret_for_another_account(
    mode: int, fs_group: int | None, groups: list[int], is_inline: bool, outcome: str
) -> None:
    """Ring and key in one Secret, read by an account that owns nothing."""
    text = ring_text(source=f'{{ inline = "{NEW.hex()}" }}' if is_inline else '{ file = "k1.key" }')
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        secret = Volume(Path(name) / "keys", mode=mode, fs_group=fs_group)
        secret.write({"keys.toml": text.encode(), "k1.key": NEW})
        ring = secret.folder / "keys.toml"
        assert outcome_as(ACCOUNT, groups, lambda: RingCipher(KeyRing.load(ring))) == outcome


@needs_root
def test_ring_in_a_config_map_and_key_in_a_secret() -> None:
    """All accounts may read a ring file without keys; the default mode of a ConfigMap is 0644."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        Volume(folder / "keys", mode=0o400, fs_group=FS_GROUP).write({"k1.key": NEW})
        text = ring_text(source=f'{{ file = "{name}/keys/k1.key" }}')
        ring = Volume(folder / "ring", fs_group=FS_GROUP)
        ring.write({"keys.toml": text.encode()})
        assert outcome_as(ACCOUNT, [FS_GROUP], lambda: KeyRing.load(ring.folder / "keys.toml")) == "ok"
        assert outcome_as(ACCOUNT, [], lambda: KeyRing.load(ring.folder / "keys.toml")) == "SourceError"


# --- files that cannot be followed -----------------------------------------------------------


def test_copy_by_systemd_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_fixed", set())
    file = write(tmp_path / "sealpoint.keys", ring_of(k1="active"))
    RingCipher(KeyRing.load(file))  # any other folder is followed silently
    assert not caplog.records
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for _ in range(2):
        RingCipher(KeyRing.load())
    RingCipher(KeyRing.load(), follow=False)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("sealpoint.crypto", logging.WARNING)
    assert record.getMessage() == (
        f"ring file {file} cannot be followed: systemd copied it when the service started;"
        " restart after a change"
    )


@pytest.mark.parametrize("name", ["keys.toml", "my keys\\n.toml"])
def test_file_that_is_itself_a_mount(tmp_path: Path, name: str) -> None:
    """As with subPath, and with `docker run --volume FILE:FILE`."""
    ring, original = (
        write(tmp_path / name, b"mounted over"),
        write(tmp_path / "original", ring_of(k1="active")),
    )
    code = "import sys; from sealpoint.keys.files import why_fixed; from pathlib import Path; "
    code += "print(why_fixed(Path(sys.argv[1])))"
    script = 'mount --bind "$1" "$2" && exec "$0" -c "$3" "$2"'
    words = ["unshare", "--mount", "sh", "-c", script, sys.executable, str(original), str(ring), code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace: {done.stderr.strip()}")
    assert "single file" in done.stdout, done.stderr
    assert why_fixed(ring) is None
    assert why_fixed(ring.with_name("none.toml")) is None
