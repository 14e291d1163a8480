"""Rings and keys in volumes as Kubernetes mounts them, and files that a process cannot follow."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealpoint.crypto import KeyRing, RingCipher, cipher
from sealpoint.errors import FileLinkError, SealpointError, SourceError
from sealpoint.keys import files, watch
from sealpoint.keys.change import lock_ring
from sealpoint.keys.files import Origin, why_fixed
from sealpoint.keys.watch import LOOK_SECONDS
from tests.support.forks import in_child
from tests.support.kubelet import Volume
from tests.support.rings import NEW, ring_text, states_text, write

ACCOUNT, FS_GROUP, OTHER_GROUP = 12345, 23456, 34567
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


def ring_of(**states: str) -> bytes:
    return states_text(**states).encode()


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    mounted = Volume(tmp_path / "mounted", mode=0o400)
    mounted.write({"keys.toml": ring_of(k1="active")})
    return mounted


def test_ring_of_a_mounted_volume_is_read_by_its_plain_name(volume: Volume) -> None:
    ring = KeyRing.load(volume.folder / "keys.toml")
    assert ring.active_id == "k1"
    assert ring.path == volume.folder / "keys.toml"


def test_replaced_data_link_is_noticed(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link `keys.toml` itself does not change: its target does."""
    now = [1000.0]
    for module in (cipher, watch):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    running = RingCipher(KeyRing.load(volume.folder / "keys.toml"))
    volume.write({"keys.toml": ring_of(k1="decrypt-only", k2="active")})
    now[0] += LOOK_SECONDS
    assert running.seal("msgpack", b"value")[0].endswith("@k2")


def test_volume_that_is_replaced_while_it_is_read(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier folder is gone between finding the target and opening it."""
    find, swaps = files._require_within, list[Path]()

    def swapped(path: Path) -> Path:
        target = find(path)
        if not swaps:
            swaps.append(path)
            volume.write({"keys.toml": ring_of(k1="decrypt-only", k2="active")})
        return target

    monkeypatch.setattr(files, "_require_within", swapped)
    assert KeyRing.load(volume.folder / "keys.toml").active_id == "k2"
    assert swaps


def test_volume_that_is_replaced_again_and_again(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that can be handled, and not one of the interpreter."""
    find, swaps = files._require_within, list[Path]()

    def swapped(path: Path) -> Path:
        target = find(path)
        swaps.append(path)
        volume.write({"keys.toml": ring_of(k1="active")})
        return target

    monkeypatch.setattr(files, "_require_within", swapped)
    with pytest.raises(SourceError, match=f"was replaced {files.MAX_ATTEMPTS} times meanwhile") as caught:
        KeyRing.load(volume.folder / "keys.toml")
    assert len(swaps) == files.MAX_ATTEMPTS
    assert "try again" in caught.value.hint


def test_removed_ring_is_missing(volume: Volume) -> None:
    (volume.folder / "..data" / "keys.toml").unlink()
    assert Origin.of(volume.folder / "keys.toml").stamp is None
    with pytest.raises(SealpointError, match="cannot be read"):
        KeyRing.load(volume.folder / "keys.toml")


@pytest.mark.parametrize("target", ["../else.toml", "/etc/hostname", "..data/keys.toml"])
def test_ring_whose_link_leads_out_of_its_folder(tmp_path: Path, target: str) -> None:
    write(tmp_path / "else.toml", ring_of(k1="active"))
    write(tmp_path / "keys.toml", ring_of(k1="active"))
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "..data").symlink_to("..")
    (tmp_path / "mounted" / "keys.toml").symlink_to(target)
    with pytest.raises(FileLinkError, match="out of its folder") as caught:
        KeyRing.load(tmp_path / "mounted" / "keys.toml")
    assert "within its own folder" in caught.value.hint


def test_commands_do_not_replace_a_link(volume: Volume) -> None:
    with (
        pytest.raises(FileLinkError, match="is a symbolic link") as caught,
        lock_ring(volume.folder / "keys.toml"),
    ):
        pass
    assert "change the original" in caught.value.hint


# --- other accounts --------------------------------------------------------------------------


def outcome_as(account: int, groups: list[int], work: Callable[[], object]) -> str:
    """The class of the error that ``work`` raises in a process of another account, or ``ok``."""

    def as_other() -> str:
        os.setgroups(groups)
        os.setgid(account)
        os.setuid(account)
        work()
        return "ok"

    return in_child(as_other).partition(":")[0]


LAYOUTS = [
    # defaultMode, fsGroup of the pod, groups of the process, inline keys, outcome for a non-root account
    (0o400, FS_GROUP, [FS_GROUP], False, "ok"),
    (0o440, FS_GROUP, [FS_GROUP], False, "ok"),
    (0o440, FS_GROUP, [FS_GROUP, OTHER_GROUP], False, "ok"),
    (0o400, FS_GROUP, [OTHER_GROUP], False, "SourceError"),
    (0o400, None, [FS_GROUP], False, "SourceError"),
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


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_fixed", set())


@pytest.mark.usefixtures("warned")
def test_ring_in_a_folder_is_followed_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    RingCipher(KeyRing.load(write(tmp_path / "keys.toml", ring_of(k1="active"))))
    assert not caplog.records


@pytest.mark.usefixtures("warned")
def test_copy_by_systemd_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "sealpoint.keys", ring_of(k1="active"))
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


def test_file_in_the_folder_of_a_link_is_followed(volume: Volume) -> None:
    assert why_fixed(volume.folder / "keys.toml") is None
    assert why_fixed(volume.folder / "none.toml") is None
