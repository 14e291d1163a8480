"""Nothing secret is shown: not by a repr, an error with all that hangs on it, a log line, or a pickle.

The planted key is text, so that its raw form would be seen as easily as its hex and base64. A
window of ten characters of any form counts as found.
"""

from __future__ import annotations

import base64
import copy
import json
import logging
import pickle
from functools import partial
from pathlib import Path

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import KeyRingError
from sealpoint.keys import sources
from sealpoint.keys.material import check_value
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.sources import parse_source, run_command
from tests.support.keys.rings import OTHER, ring_text, write, write_ring
from tests.support.keys.wrapping import CANARY, Forms, shown

PLANTED = CANARY
HEX = PLANTED.hex()
BASE64 = base64.b64encode(PLANTED).decode()
assert_hidden = Forms.of(PLANTED, HEX.upper()).require_absent


def assert_error_hides(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    assert_hidden(*shown(error), caplog.text, *(repr(vars(record)) for record in caplog.records))


MATERIAL: dict[str, bytes] = {
    "cut": PLANTED[:-1],
    "twice": PLANTED * 2,
    "hex, cut": HEX[:-2].encode(),
    "hex, damaged": b"g" + HEX[1:].encode(),
    "hex, not ASCII": HEX[:-2].encode() + b"\xff\xff",
    "base64 with spaces": b" " + BASE64.encode(),
    "base64, not ASCII": BASE64[:-1].encode() + b"\xff",
}


@pytest.mark.parametrize("name", MATERIAL)
def test_wrong_material(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(KeyRingError) as caught:
        KeyRing.load(write_ring(tmp_path, ring_text(), material=MATERIAL[name]))
    assert_error_hides(caught.value, caplog)


INLINE = f"version = 1\n[[key]]\nid = 'k1'\nstate = 'staged'\nsource = {{ inline = '{HEX}' }}\n"
NOT_TOML = {
    "string without end": INLINE.replace(f"{HEX}'", HEX),
    "rest of a line": INLINE.replace(" }\n", f" }} {BASE64}\n"),
    "escape in the key": INLINE.replace(f"'{HEX}'", f'"{PLANTED.decode()}\\q"'),
    "key as a name, twice": f"version = 1\n{HEX} = 1\n{HEX} = 2\n",
    "key as a table, twice": f"version = 1\n[{HEX}]\n[{HEX}]\n",
    "parenthesis in the key": f"version = 1\nx = ({HEX}\n",
}


@pytest.mark.parametrize("name", NOT_TOML)
def test_what_is_not_toml(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Nor UTF-8: the codec's own error would hold the whole file."""
    caplog.set_level(logging.DEBUG)
    for data, problem in ((NOT_TOML[name].encode(), "not TOML"), (INLINE.encode() + b"\xff", "not UTF-8")):
        with pytest.raises(KeyRingError, match=problem) as caught:
            KeyRing.load(write(tmp_path / "keys.toml", data))
        assert_error_hides(caught.value, caplog)


def command(*argv: str) -> str:
    return ring_text(source=f"{{ command = {json.dumps(argv)} }}")


SOURCES = {
    "check value": ring_text(f"check = '{check_value(OTHER)}'"),
    "missing": ring_text(source="{ file = 'none' }"),
    "command fails": command("sh", "-c", f"echo {HEX}; echo {BASE64} >&2; exit 3", HEX),
    "command prints too much": command("sh", "-c", f"yes {HEX}", HEX),
    "command prints no key": command("sh", "-c", f"echo {HEX}{HEX}", HEX),
    "command hangs": command("sh", "-c", f"echo {HEX}; sleep 300", HEX),
    "command is not there": command("/nowhere", HEX),
}


@pytest.mark.parametrize("name", SOURCES)
def test_wrong_sources(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(sources, "run_command", partial(run_command, timeout_seconds=1))
    with pytest.raises(KeyRingError) as caught:
        KeyRing.load(write_ring(tmp_path, SOURCES[name], material=PLANTED))
    assert_error_hides(caught.value, caplog)
    assert_hidden(*capfd.readouterr())


def holders() -> list[object]:
    """One of everything that holds key material, after it has been used."""
    ring = KeyRing([Key("k1", PLANTED, KeyState.ACTIVE)], index=PLANTED)
    cipher = RingCipher(ring)
    cipher.open(*cipher.seal("msgpack", b"value"))
    return [ring.require_active(), ring, cipher, ring.keys]


@pytest.mark.claim("e2")
@pytest.mark.parametrize("holder", holders(), ids=lambda holder: type(holder).__name__)
def test_holders(holder: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("test").warning("%s %r", holder, holder)
    assert_hidden(str(holder), repr(holder), f"{holder}", ascii(holder), caplog.text)
    assert_hidden(repr(getattr(holder, "__dict__", None)))


@pytest.mark.parametrize("loads", [False, True])
def test_ring_file_and_lazy_material(tmp_path: Path, caplog: pytest.LogCaptureFixture, loads: bool) -> None:
    """What a ring with an inline key is parsed into, before and after its material is loaded."""
    caplog.set_level(logging.DEBUG)
    file = RingFile(write(tmp_path / "keys.toml", INLINE))
    ring = KeyRing.of_file(file)
    if loads:
        ring.load_material()
    (key,) = ring.keys
    source = parse_source({"inline": HEX})
    never_pickled = [file, ring, key, *ring.materials]
    for holder in [*never_pickled, *file.entries, source, [source], ring.keys, ring.materials]:
        logging.getLogger("test").warning("%s %r", holder, holder)
        assert_hidden(str(holder), repr(holder), caplog.text)
    for holder in never_pickled:
        with pytest.raises(KeyRingError, match="never pickled"):
            pickle.dumps(holder)
        with pytest.raises(KeyRingError, match="never pickled"):
            copy.deepcopy(holder)


@pytest.mark.parametrize("material", [PLANTED[:-1], PLANTED * 2, HEX, BASE64, bytearray(PLANTED)])
def test_keys_made_by_hand(material: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyRingError) as caught:
        Key("k1", material, KeyState.ACTIVE)
    assert_error_hides(caught.value, caplog)
    with pytest.raises(KeyRingError) as caught:
        KeyRing([], index=material)
    assert_error_hides(caught.value, caplog)
