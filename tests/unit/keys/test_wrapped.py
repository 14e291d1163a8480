"""Wrapped keys in a ring file: what is parsed and refused, and when a service is asked."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import (
    KeyIdError,
    KeyUnavailableError,
    RingFileError,
    WrappedKeyError,
)
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.wrap import wrapper as ask
from sealpoint.keys.wrap.wrapper import AGAIN_SECONDS, ATTEMPTS, MAX_BLOB_BYTES
from tests.support.keys.rings import material_of, write
from tests.support.keys.wrappers import NAME, Service, blob_of, key_text, wrapper_text
from tests.unit.keys.conftest import VALUE


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch, service: Service) -> list[float]:
    """The pauses between attempts; none is waited for."""
    found: list[float] = []
    monkeypatch.setattr(ask, "sleep", found.append)
    return found


def ring_text(*tables: str, name: str = f"name = '{NAME}'", active: str = "k1") -> str:
    head = ["version = 1", name, f"active = '{active}'" if active else ""]
    return "\n".join([*head, wrapper_text(), *tables])


def load(folder: Path, text: str) -> KeyRing:
    return KeyRing.load(write(folder / "keys.toml", text))


def test_first_seal_costs_one_round_trip_and_then_none(tmp_path: Path, service: Service) -> None:
    text = ring_text(key_text("k1", "active"))
    service.calls.clear()
    KeyRing.of_file(RingFile(write(tmp_path / "keys.toml", text)))
    assert not service.calls
    ring = load(tmp_path, text)
    assert service.calls == [("unwrap", "k1")]
    assert ring.require_active().material == material_of("k1")
    cipher = RingCipher(ring)
    for _ in range(100):
        cipher.open(*cipher.seal(*VALUE))
    assert service.calls == [("unwrap", "k1")]


BAD = {
    "no such wrapper": ("by = 'w'", "by = 'v'", "has no wrapper 'v' (held: w)"),
    "no wrapper": (", by = 'w'", "", "lacks the field 'by'"),
    "unknown field": ("by = 'w'", "by = 'w', key = 'x'", "unknown field 'key'"),
    "version": ("by = 'w'", "by = 'w', version = 3", "'version' is not one line of text"),
    "no name": (f"name = '{NAME}'", "", "no 'name'"),
    "empty name": (f"name = '{NAME}'", "name = ''", "'name' is not a valid name of a ring"),
    "name with spaces": (f"name = '{NAME}'", "name = 'a b'", "'name' is not a valid name of a ring"),
    "name that is no text": (f"name = '{NAME}'", "name = 1", "'name' is not a valid name of a ring"),
    "kind": ("kind = 'fake'", "kind = 'none'", "there is no kind of wrapper 'none'"),
    "kind that is no text": ("kind = 'fake'", "kind = 1", "'kind' is not one line of text"),
    "no kind": ("kind = 'fake'", "", "lacks the field 'kind'"),
    "no id": ("id = 'w'", "", "lacks the field 'id'"),
    "id": ("id = 'w'", "id = 'W w'", "does not have the form of a key id"),
    "field of the kind": ("key = 'one'", "key = 'one'\nport = 1", "unknown field 'port'"),
    "no blob": ("wrapped = '", "wrapped = '', by = 'w' } # ", "'wrapped' is not one line of text"),
    "blob that is no base64": ("wrapped = '", "wrapped = '?", "is not base64"),
    "blob with a space": ("wrapped = '", "wrapped = ' ", "is not base64"),
    "large blob": (
        "wrapped = '",
        f"wrapped = '{b64encode(bytes(MAX_BLOB_BYTES + 1)).decode()}', by = 'w' }} # ",
        "has 4097 bytes",
    ),
    "two of one id": ("[[key]]", f"{wrapper_text()}[[key]]", "two wrappers are called 'w'"),
    "id of a key": ("[[key]]", f"{wrapper_text('k1')}[[key]]", "a key and a wrapper are both called 'k1'"),
    "one table": ("[[wrapper]]", "[wrapper]", "'wrapper' must be an array of tables, [[wrapper]]"),
}


@pytest.mark.parametrize(("old", "new", "problem"), BAD.values(), ids=BAD)
def test_ring_that_is_refused(tmp_path: Path, service: Service, old: str, new: str, problem: str) -> None:
    text = ring_text(key_text("k1", "active"))
    assert old in text
    with pytest.raises((RingFileError, KeyIdError)) as caught:
        load(tmp_path, text.replace(old, new, 1))
    assert problem in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("name", [NAME, "agents-2"])
def test_blob_of_another_key_or_ring(tmp_path: Path, service: Service, name: str) -> None:
    """Also that of this key, after the ring was renamed: the error says which name it looked for."""
    blob = blob_of("k0") if name == NAME else blob_of("k1")
    text = ring_text(key_text("k1", "active", blob=blob), name=f"name = '{name}'")
    wanted = rf"wrapper 'w' \(fake, one\): not a wrapped key 'k1' of ring '{name}'"
    with pytest.raises(WrappedKeyError, match=wanted) as caught:
        load(tmp_path, text)
    assert "'name'" in caught.value.hint
    assert service.count("unwrap", "k1") == 1  # a refusal is not repeated


def test_attempts_are_bounded(
    tmp_path: Path, service: Service, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In number, and in time: none begins after `AGAIN_SECONDS`."""
    text = ring_text(key_text("k1", "active"))
    service.answers_at = ATTEMPTS - 1
    load(tmp_path, text)
    assert service.count("unwrap", "k1") == ATTEMPTS
    assert 0 < pauses[0] <= ask.PAUSE_SECONDS < 2 * pauses[1]
    service.calls.clear()
    service.away.add("one")
    with pytest.raises(KeyUnavailableError, match=r"'k1': wrapper 'w' \(fake, one\): connection refused"):
        load(tmp_path, text)
    assert service.count("unwrap", "k1") == ATTEMPTS
    times = iter([0.0, AGAIN_SECONDS])
    monkeypatch.setattr(ask, "monotonic", lambda: next(times))
    with pytest.raises(KeyUnavailableError):
        load(tmp_path, text)
    assert service.count("unwrap", "k1") == ATTEMPTS + 1


PACKAGE = """
from tests.support.keys.wrappers import Wrapper as Other
class Wrapper(Other):
    pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that provides kinds."""
    info = tmp_path / "site" / "hsm9-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hsm9\nVersion: 1.0\n")
    points = "hsm9 = hsm9:Wrapper\nfake = hsm9:Nothing\nbroken = hsm9:Nothing\nmissing = hsm8:Wrapper\n"
    points += "twice = hsm9:Wrapper\n"
    (info / "entry_points.txt").write_text(f"[{ask.GROUP}]\n{points}")
    (tmp_path / "site" / "hsm9.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def test_kind_of_another_package(tmp_path: Path, service: Service, package: Path) -> None:
    """A kind that is built in is never replaced by one."""
    text = ring_text(key_text("k1", "active"))
    assert load(tmp_path, text.replace("'fake'", "'hsm9'")).require_active().material == material_of("k1")
    assert load(tmp_path, text).require_active().material == material_of("k1")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("broken", "kind 'broken' cannot be loaded from hsm"),
        ("missing", "kind 'missing' cannot be loaded from hsm"),
        ("twice", "several packages provide kind 'twice': hsm10, hsm9"),
        ("none", "installed: command, aws, vault, pkcs11, fake, broken, hsm9, missing, twice"),
    ],
)
def test_kind_that_cannot_be_loaded(
    tmp_path: Path, service: Service, package: Path, kind: str, problem: str
) -> None:
    info = package / "hsm10-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hsm10\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ask.GROUP}]\ntwice = hsm9:Wrapper\n")
    with pytest.raises(RingFileError) as caught:
        load(tmp_path, ring_text().replace("'fake'", f"'{kind}'"))
    assert problem in f"{caught.value} {caught.value.hint}"


def test_ring_without_wrappers_loads_no_kind(tmp_path: Path) -> None:
    """A ring of files pays for none of it."""
    write(tmp_path / "keys.toml", "version = 1\n")
    code = (
        "import sys; from sealpoint.crypto import KeyRing; KeyRing.load(sys.argv[1]);"
        " print([name for name in sys.modules if name.startswith(('sealpoint.keys.wrap.c', 'boto', 'hvac'))])"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "keys.toml")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
