"""Rings and keys in volumes as Kubernetes mounts them, and files that a process cannot follow."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import SealpointError, SourceError
from sealpoint.keys import files, watch
from sealpoint.keys.files import why_fixed
from sealpoint.keys.watch import LOOK_SECONDS
from tests.support.keys.kubelet import Volume
from tests.support.keys.rings import states_text, write

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


# --- other accounts --------------------------------------------------------------------------


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


def test_file_that_is_itself_a_mount(tmp_path: Path) -> None:
    """As with subPath, and with `docker run --volume FILE:FILE`."""
    ring, original = (
        write(tmp_path / "my keys\\n.toml", b"mounted over"),
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
