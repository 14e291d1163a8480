"""Sources of key material: what a file, a variable or a credential must be, and what material is."""

from __future__ import annotations

import base64
import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealpoint.errors import FilePermissionsError, KeyMaterialError, KeyRingError, SourceError
from sealpoint.keys.files import MAX_FILE_BYTES
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import FileSource, parse_source
from tests.support.keys.rings import NEW, write
from tests.unit.keys.conftest import needs_root, outcome_as

HEX = NEW.hex().encode()
BASE64 = base64.b64encode(NEW)


def read(path: Path | str, folder: Path = Path()) -> bytes:
    """Read a key file."""
    return parse_source({"file": str(path)}).read(folder)


@pytest.mark.parametrize(
    "text", [NEW, HEX, HEX.upper(), BASE64, HEX + b"\n", BASE64 + b"\n", HEX + b"\r\n", b"\n" * 32]
)
def test_material(text: bytes) -> None:
    """32 raw bytes are taken as they are, whatever they are."""
    assert parse_material(text, "key") == (text if len(text) == 32 else NEW)


WORD = "32 raw bytes, or base64 or hex"
NO_MATERIAL = [
    *((text, WORD) for text in (b"", NEW[:31], NEW + b"\n", HEX[:-1], HEX[:-2], HEX + b"00", b"g" * 64)),
    *((text, WORD) for text in (b"\xff" * 64, BASE64[:-1], BASE64.replace(b"=", b"-"), b"=" * 44)),
    *((base64.b64encode(text), WORD) for text in (bytes(31), bytes(33), HEX)),
    *(
        (around % key, "remove the white space")
        for key in (HEX, BASE64)
        for around in (b"%s ", b" %s", b"%s\t", b"%s\n\n", b"%s\r\r\n")
    ),
]


@pytest.mark.parametrize(("text", "hint"), NO_MATERIAL)
def test_what_is_no_material(text: bytes, hint: str) -> None:
    with pytest.raises(
        KeyMaterialError, match="expected 32 bytes" if hint is WORD else "white space"
    ) as caught:
        parse_material(text, "key")
    assert hint in caught.value.hint


@pytest.mark.claim("k1")
@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_file_with_open_permissions(tmp_path: Path, mode: int) -> None:
    for private in (0o600, 0o400):
        assert read(write(tmp_path / str(private), NEW, private)) == NEW
    with pytest.raises(FilePermissionsError, match=f"{mode:04o}") as caught:
        read(write(tmp_path / "k", NEW, mode))
    assert "chmod 600" in caught.value.hint


@needs_root
def test_file_of_another_account(tmp_path: Path) -> None:
    path = write(tmp_path / "k", NEW)
    for owner, name in ((12345, "'#12345'"), (pwd.getpwnam("nobody").pw_uid, "nobody")):
        os.chown(path, owner, 12345)
        with pytest.raises(FilePermissionsError, match=f"belongs to user {owner}") as caught:
            read(path)
        assert f"sudo -u {name} sealpoint" in caught.value.hint
        assert "its owner must be" not in caught.value.hint
    os.chown(path, 0, 0)
    path.chmod(0o440)
    assert read(path) == NEW
    os.chown(path, 0, OTHER_GROUP)
    with pytest.raises(FilePermissionsError, match="others can read it"):
        read(path)


ACCOUNT, OWN_GROUP, OTHER_GROUP = 12345, 23456, 34567
GROUP_RULE = [
    # owner, group, mode, whether the account above may use it; root and its group are 0
    (0, OWN_GROUP, 0o440, True),
    (0, OWN_GROUP, 0o640, True),
    (0, OWN_GROUP, 0o460, False),
    (0, OWN_GROUP, 0o444, False),
    (0, OWN_GROUP, 0o450, False),
    (ACCOUNT, OWN_GROUP, 0o400, True),
    (ACCOUNT, OWN_GROUP, 0o440, False),
    (ACCOUNT, 0, 0o440, False),
    (OTHER_GROUP, OWN_GROUP, 0o440, False),
]


@needs_root
@pytest.mark.parametrize("source", ["file", "credential"])
@pytest.mark.parametrize(("owner", "group", "mode", "allowed"), GROUP_RULE)
def test_rule_for_another_account(
    source: str, owner: int, group: int, mode: int, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a file and a credential, as a pod with ``fsGroup`` has it, through its links."""
    with TemporaryDirectory() as name:  # the folders above a pytest folder are root's alone
        folder = Path(name)
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", name)
        (folder / "..day1").mkdir(mode=0o755)
        os.chown(write(folder / "..day1" / "k1", NEW, mode), owner, group)
        (folder / "..data").symlink_to("..day1")
        (folder / "k1").symlink_to("..data/k1")
        folder.chmod(0o755)
        outcome = outcome_as(ACCOUNT, [OWN_GROUP], lambda: parse_source({source: "k1"}).read(folder))
    assert outcome == ("ok" if allowed else "FilePermissionsError")


@pytest.mark.claim("k2")
@pytest.mark.parametrize("target", ["/etc/hostname", "../k", "..data/k", "link"])
@pytest.mark.parametrize("source", ["file", "credential"])
def test_link_that_leads_out_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, source: str
) -> None:
    """Or to itself."""
    write(tmp_path / "k", NEW)
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "..data").symlink_to("..")
    (tmp_path / "mount" / "link").symlink_to(target)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "mount"))
    with pytest.raises(
        FilePermissionsError, match="symbolic link" if target == "link" else "out of its folder"
    ):
        parse_source({source: "link"}).read(tmp_path / "mount")


def bind(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as server:
        patch.chdir(path.parent)  # the path of a socket is short
        server.bind(path.name)


NO_FILES: dict[str, tuple[Callable[[Path], object], type[KeyRingError], str]] = {
    "pipe": (lambda path: os.mkfifo(path, 0o600), FilePermissionsError, "not a regular file"),
    "folder": (Path.mkdir, FilePermissionsError, "not a regular file"),
    "device": (
        lambda path: os.mknod(path, 0o20600, os.makedev(1, 3)),
        FilePermissionsError,
        "not a regular file",
    ),
    "socket": (bind, SourceError, "cannot be read"),
    "missing": (lambda _: None, SourceError, "cannot be read"),
    "large": (lambda path: write(path, bytes(MAX_FILE_BYTES + 1)), SourceError, "over 1048576 bytes"),
    "open": (lambda path: write(path, NEW, 0o644), FilePermissionsError, "others can read"),
}


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_key_file(tmp_path: Path, name: str) -> None:
    """Opening a pipe that no process writes to would wait for ever. No descriptor stays open."""
    make, error, problem = NO_FILES[name]
    if name == "device" and os.geteuid() != 0:
        pytest.skip("only root can make a device")
    make(tmp_path / "k")
    before = os.dup(0)
    os.close(before)
    with pytest.raises(error, match=problem) as caught:
        read(tmp_path / "k")
    assert caught.value.hint
    after = os.dup(0)
    os.close(after)
    assert before == after


@pytest.mark.parametrize("name", ["k/k", "x" * 5000, "nul\0"])
def test_path_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    write(tmp_path / "k", bytes(MAX_FILE_BYTES))
    assert len(read(tmp_path / "k")) == MAX_FILE_BYTES
    with pytest.raises(SourceError) as caught:
        FileSource(name).read(tmp_path)
    assert caught.value.hint


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that opens and cannot be read")
def test_file_that_opens_and_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read("/proc/self/mem")


def test_what_each_source_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path of a file is from the folder of the ring."""
    monkeypatch.setenv("SEALPOINT_KEY", NEW.hex())
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    write(tmp_path / "k", NEW)
    assert read("k", tmp_path) == NEW
    assert read(tmp_path / "k", Path("/nowhere")) == NEW
    assert parse_source({"credential": "k"}).read(Path("/nowhere")) == NEW
    assert parse_source({"env": "SEALPOINT_KEY"}).read(tmp_path) == HEX
    assert parse_source({"inline": NEW.hex()}).read(tmp_path) == HEX


def test_source_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(SourceError, match="k1"):
        parse_source({"credential": "k1"}).read(tmp_path)
    for kind, variable, hint in (
        ("env", "SEALPOINT_KEY", "set the variable for this process"),
        ("credential", "CREDENTIALS_DIRECTORY", "LoadCredential="),
    ):
        monkeypatch.delenv(variable, raising=False)
        with pytest.raises(SourceError, match=rf"{variable} is not set") as caught:
            parse_source({kind: "SEALPOINT_KEY"}).read(tmp_path)
        assert hint in caught.value.hint
