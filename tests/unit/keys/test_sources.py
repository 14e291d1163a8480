"""Sources of key material: what a file, a variable or a credential must be, and what material is."""

from __future__ import annotations

import base64
import os
import pwd
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealpoint.errors import (
    FileLinkError,
    FilePermissionsError,
    KeyMaterialError,
    KeyRingError,
    RingFileError,
    SourceError,
)
from sealpoint.keys.files import MAX_FILE_BYTES, read_private
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import parse_source
from tests.support.rings import NEW, write

HEX = NEW.hex().encode()
BASE64 = base64.b64encode(NEW)


@pytest.mark.parametrize(
    "text",
    [NEW, HEX, HEX.upper(), BASE64, HEX + b"\n", BASE64 + b"\n", HEX + b"\r\n", b"\n" * 32, b" " * 32],
)
def test_material(text: bytes) -> None:
    """32 raw bytes are taken as they are, whatever they are."""
    assert parse_material(text, "key") == (text if len(text) == 32 else NEW)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"correct horse battery staple",
        NEW[:31],
        NEW + b"\n",
        NEW + b"\0",
        HEX[:-1],
        HEX[:-2],
        HEX + b"00",
        b"g" * 64,
        b"\xff" * 64,
        b"0x" + HEX[2:],
        BASE64[:-1],
        BASE64.replace(b"=", b"-"),
        base64.b64encode(bytes(31)),
        base64.b64encode(bytes(33)),
        base64.b64encode(HEX),
        b"=" * 44,
    ],
)
def test_what_is_no_material(text: bytes) -> None:
    with pytest.raises(KeyMaterialError, match="not a key") as caught:
        parse_material(text, "key")
    assert "32 raw bytes, or base64 or hex" in caught.value.hint


@pytest.mark.parametrize("key", [HEX, BASE64])
@pytest.mark.parametrize("around", ["{} ", " {}", "{} \n", "{}\t", "{}\n\n", "\n{}", "{}\r\r\n"])
def test_white_space_around_material_has_an_error_of_its_own(key: bytes, around: str) -> None:
    with pytest.raises(KeyMaterialError) as caught:
        parse_material(around.format(key.decode()).encode(), "key")
    assert "remove the white space" in caught.value.hint


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_private_file(tmp_path: Path, mode: int) -> None:
    assert read_private(write(tmp_path / "k", NEW, mode)) == NEW


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o660, 0o666, 0o777])
def test_file_with_open_permissions(tmp_path: Path, mode: int) -> None:
    with pytest.raises(FilePermissionsError, match=f"{mode:04o}") as caught:
        read_private(write(tmp_path / "k", NEW, mode))
    assert "chmod 600" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_account(tmp_path: Path) -> None:
    path = write(tmp_path / "k", NEW)
    os.chown(path, 12345, 12345)
    with pytest.raises(FilePermissionsError, match="belongs to user 12345") as caught:
        read_private(path)
    assert "sudo -u '#12345' sealpoint" in caught.value.hint
    os.chown(path, pwd.getpwnam("nobody").pw_uid, 12345)
    with pytest.raises(FilePermissionsError) as caught:
        read_private(path)
    assert "sudo -u nobody sealpoint" in caught.value.hint
    assert "own it" not in caught.value.hint


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
    (ACCOUNT, OTHER_GROUP, 0o440, False),
    (ACCOUNT, 0, 0o440, False),
    (OTHER_GROUP, OWN_GROUP, 0o440, False),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
@pytest.mark.parametrize("source", ["file", "credential"])
@pytest.mark.parametrize(("owner", "group", "mode", "allowed"), GROUP_RULE)
def test_rule_for_another_account(source: str, owner: int, group: int, mode: int, allowed: bool) -> None:
    """The same for a file and a credential, as a pod with ``fsGroup`` has it, through its links."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "..day1").mkdir(mode=0o755)
        os.chown(write(folder / "..day1" / "k1", NEW, mode), owner, group)
        (folder / "..data").symlink_to("..day1")
        (folder / "k1").symlink_to("..data/k1")
        folder.chmod(0o755)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([OWN_GROUP])
                os.setgid(ACCOUNT)
                os.setuid(ACCOUNT)
                os.environ["CREDENTIALS_DIRECTORY"] = name
                code = 0 if parse_source({source: "k1"}).read(folder) == NEW else 2
            except FilePermissionsError:
                code = 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if allowed else 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(("group", "allowed"), [(0, True), (OTHER_GROUP, False)])
def test_group_that_may_read_a_file_of_root(tmp_path: Path, group: int, allowed: bool) -> None:
    path = write(tmp_path / "k", NEW, 0o440)
    os.chown(path, 0, group)
    if allowed:
        assert read_private(path) == NEW
    else:
        with pytest.raises(FilePermissionsError, match="others can read it"):
            read_private(path)


@pytest.mark.parametrize("target", ["/etc/hostname", "../k", "..data/k"])
@pytest.mark.parametrize("source", ["file", "credential"])
def test_link_that_leads_out_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, source: str
) -> None:
    write(tmp_path / "k", NEW)
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "..data").symlink_to("..")
    (tmp_path / "mount" / "link").symlink_to(target)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "mount"))
    with pytest.raises(FileLinkError, match="out of its folder"):
        parse_source({source: "link"}).read(tmp_path / "mount")


def test_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(FileLinkError):
        parse_source({"file": "link"}).read(tmp_path)


def test_symbolic_link(tmp_path: Path) -> None:
    write(tmp_path / "k", NEW)
    (tmp_path / "link").symlink_to("k")
    with pytest.raises(FileLinkError, match="symbolic link") as caught:
        read_private(tmp_path / "link")
    assert "name the file itself" in caught.value.hint


def test_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileLinkError):
        read_private(tmp_path / "link")


def test_pipe_does_not_hang(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to would wait for ever."""
    os.mkfifo(tmp_path / "k", 0o600)
    with pytest.raises(FileLinkError, match="not a regular file"):
        read_private(tmp_path / "k")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(FileLinkError, match="not a regular file"):
        read_private(tmp_path)


def test_device() -> None:
    with pytest.raises(FileLinkError, match="not a regular file"):
        read_private(Path(os.devnull))


def test_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("k")
        with pytest.raises(KeyRingError):
            read_private(Path("k"))


@pytest.mark.parametrize("name", ["missing", "k/k", "x" * 5000, "nul\0"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    write(tmp_path / "k", NEW)
    with pytest.raises(SourceError) as caught:
        read_private(tmp_path / name)
    assert caught.value.hint


def test_file_too_large_is_not_cut_short(tmp_path: Path) -> None:
    assert len(read_private(write(tmp_path / "k", bytes(MAX_FILE_BYTES)))) == MAX_FILE_BYTES
    with pytest.raises(SourceError, match="over 1048576 bytes"):
        read_private(write(tmp_path / "k", bytes(MAX_FILE_BYTES + 1)))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that opens and cannot be read")
def test_file_that_opens_and_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read_private(Path("/proc/self/mem"))


def test_refusals_leave_no_descriptor_open(tmp_path: Path) -> None:
    write(tmp_path / "open", NEW, 0o644)
    for path in (tmp_path, tmp_path / "open", Path(os.devnull)):
        before = os.dup(0)
        os.close(before)
        with pytest.raises(KeyRingError):
            read_private(path)
        after = os.dup(0)
        os.close(after)
        assert before == after


def test_file_stands_beside_the_ring(tmp_path: Path) -> None:
    write(tmp_path / "k", NEW)
    assert parse_source({"file": "k"}).read(tmp_path) == NEW
    assert parse_source({"file": str(tmp_path / "k")}).read(Path("/nowhere")) == NEW


def test_env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEALPOINT_KEY", NEW.hex())
    assert parse_source({"env": "SEALPOINT_KEY"}).read(tmp_path) == HEX


def test_env_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SEALPOINT_KEY", raising=False)
    with pytest.raises(SourceError, match="SEALPOINT_KEY is not set") as caught:
        parse_source({"env": "SEALPOINT_KEY"}).read(tmp_path)
    assert caught.value.hint


def test_inline(tmp_path: Path) -> None:
    assert parse_source({"inline": NEW.hex()}).read(tmp_path) == HEX


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_credential(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int) -> None:
    """With ``User=``, systemd shows a credential as mode 0440: the access list stands in the group bits."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    write(tmp_path / "k1", NEW, mode)
    assert parse_source({"credential": "k1"}).read(Path("/nowhere")) == NEW


@pytest.mark.parametrize("mode", [0o444, 0o460, 0o604, 0o602])
def test_credential_with_open_permissions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    write(tmp_path / "k1", NEW, mode)
    with pytest.raises(FilePermissionsError):
        parse_source({"credential": "k1"}).read(tmp_path)


def test_credential_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(SourceError, match="k1"):
        parse_source({"credential": "k1"}).read(tmp_path)


def test_credential_outside_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    write(tmp_path / "k1", NEW)
    with pytest.raises(SourceError, match="CREDENTIALS_DIRECTORY") as caught:
        parse_source({"credential": "k1"}).read(tmp_path)
    assert "LoadCredential=" in caught.value.hint


@pytest.mark.parametrize("name", ["../k1", "/etc/passwd", "a/b", ".", ".."])
def test_credential_is_a_plain_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / "c").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "c"))
    write(tmp_path / "k1", NEW)
    with pytest.raises(RingFileError, match="plain name"):
        parse_source({"credential": name}).read(tmp_path)


@pytest.mark.parametrize(
    "source", [None, "x", [], 5, {}, {"file": "a", "env": "B"}, {"vault": "x"}, {"": ""}]
)
def test_a_source_is_exactly_one(tmp_path: Path, source: object) -> None:
    with pytest.raises(RingFileError, match="file, env, command, credential, inline") as caught:
        parse_source(source).read(tmp_path)
    assert "keys.example" in caught.value.hint


@pytest.mark.parametrize("kind", ["file", "env", "credential", "inline", "command"])
@pytest.mark.parametrize("value", [None, 5, "", [], ["a", 5], {}])
def test_each_source_checks_its_type(tmp_path: Path, kind: str, value: object) -> None:
    with pytest.raises(RingFileError, match=kind):
        parse_source({kind: value}).read(tmp_path)


def test_command_is_a_list_of_words(tmp_path: Path) -> None:
    """A line for a shell is refused, not split."""
    with pytest.raises(RingFileError, match="no shell"):
        parse_source({"command": "cat key"}).read(tmp_path)
