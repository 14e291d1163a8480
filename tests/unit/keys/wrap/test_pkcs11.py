"""The kind `pkcs11`: its fields, its PIN, and a library that fails. tests/wrap has a real token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pkcs11
import pytest

from sealpoint.errors import KeyUnavailableError, RingFileError, WrappedKeyError
from sealpoint.keys.sources import CredentialSource, EnvSource, FileSource
from sealpoint.keys.wrap import pkcs11helper
from sealpoint.keys.wrap.pkcs11 import Wrapper
from tests.support.keys.wrapping import CANARY, CONTEXT, Forms, shown

MODULE = "/usr/lib/softhsm/libsofthsm2.so"
TABLE: dict[str, object] = {"module": MODULE, "token": "t", "key": "k", "pin": {"env": "PIN_OF_TEST"}}
PIN = "8641-canary-pin"
HERE = Path("/etc/sealpoint")


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Wrapper:
    monkeypatch.setenv("PIN_OF_TEST", PIN)
    return Wrapper.parse(TABLE, "[[wrapper]]", tmp_path)


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A program in the place of the helper, which a test writes."""
    file = tmp_path / "helper.py"
    monkeypatch.setattr(pkcs11helper, "__file__", str(file))
    return file


@pytest.mark.parametrize(
    ("pin", "source"),
    [
        ({"file": "pin"}, FileSource("pin")),
        ({"env": "PIN"}, EnvSource("PIN")),
        ({"credential": "pin"}, CredentialSource("pin")),
    ],
)
def test_fields(pin: object, source: object) -> None:
    made = Wrapper.parse({**TABLE, "module": "hsm.so", "pin": pin}, "[[wrapper]]", HERE)
    assert made == Wrapper("/etc/sealpoint/hsm.so", "t", "k", source, HERE)  # type: ignore[arg-type]
    with pytest.raises(RingFileError, match="unknown field 'slot'"):
        Wrapper.parse({**TABLE, "slot": 0}, "here", HERE)
    for name in TABLE:
        with pytest.raises(RingFileError, match=f"lacks the field '{name}'"):
            Wrapper.parse({field: value for field, value in TABLE.items() if field != name}, "here", HERE)


@pytest.mark.parametrize(
    "pin", [PIN, 864121, {}, {"inline": PIN}, {"file": "pin", "env": "PIN"}, {"file": ""}, {"command": PIN}]
)
def test_the_ring_never_contains_the_pin(pin: object) -> None:
    with pytest.raises(RingFileError) as caught:
        Wrapper.parse({**TABLE, "pin": pin}, "here", HERE)
    assert PIN not in "".join(shown(caught.value))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_request(
    helper: Path, wrapper: Wrapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """All goes through the standard input: arguments and variables show nothing."""
    monkeypatch.setenv("PIN_OF_TEST", PIN + end)
    helper.write_text(
        f"import json, os, pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(json.dumps([json.load(sys.stdin),"
        f" pathlib.Path('/proc/self/cmdline').read_text(), {{**os.environ, 'PIN_OF_TEST': ''}}]))\n"
        f"print(json.dumps({{'text': 'YQ=='}}))\n",
        encoding="utf-8",
    )
    assert wrapper.unwrap(b"\x01" + bytes(12) + CANARY, CONTEXT) == b"a"
    request, argv, environment = json.loads((tmp_path / "seen").read_text(encoding="utf-8"))
    assert request["pin"] == PIN
    assert request["operation"] == "decrypt"
    Forms.of(CANARY, PIN).require_absent(argv, json.dumps(environment))


def test_without_the_pin(wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIN_OF_TEST")
    with pytest.raises(KeyUnavailableError, match="PIN_OF_TEST is not set"):
        wrapper.describe()
    monkeypatch.setenv("PIN_OF_TEST", os.fsdecode(b"\xff"))
    with pytest.raises(KeyUnavailableError, match="not UTF-8"):
        wrapper.describe()


FAILURES = {
    "crashes": ("import os; os.abort()", "process of the library failed"),
    "exits": ("import sys; sys.exit(3)", "exited with 3"),
    "says nothing": ("", "did not answer"),
    "prints text": ("print('Welcome to the token')", "did not answer"),
    "prints a list": ("print('[]')", "an invalid answer"),
    "prints numbers": ("print('{\"text\": [5]}')", "an invalid answer"),
    "prints no base64": ('print(\'{"text": "?"}\')', "an invalid answer"),
    "prints endlessly": ("while True: print('x' * 4096)", "over 4096 bytes"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_library_that_fails(name: str, helper: Path, wrapper: Wrapper) -> None:
    code, problem = FAILURES[name]
    helper.write_text(code, encoding="utf-8")
    with pytest.raises(KeyUnavailableError, match=problem) as caught:
        wrapper.wrap(CANARY, CONTEXT)
    Forms.of(CANARY, PIN).require_absent(*shown(caught.value))


@pytest.mark.parametrize(
    ("error", "hint", "may_pass"),
    [
        ("PinIncorrect", "tokens lock themselves", False),
        ("NoSuchKey", "generate an AES key", False),
        (pkcs11helper.LAST_ATTEMPT, "log in to the token once", False),
        (pkcs11helper.MISSING, "sealpoint[pkcs11]", False),
        ("DeviceRemoved", "keys check", True),
    ],
)
def test_errors(error: str, hint: str, may_pass: bool, helper: Path, wrapper: Wrapper) -> None:
    """A wrong PIN is not tried again: the token would lock itself."""
    helper.write_text(f"print('{json.dumps({'error': error})}')", encoding="utf-8")
    with pytest.raises(KeyUnavailableError, match=error) as caught:
        wrapper.describe()
    assert hint in caught.value.hint
    assert caught.value.may_pass is may_pass


@pytest.mark.parametrize("blob", [b"", b"\x01", b"\x01" + bytes(28), b"\x02" + bytes(60), bytes(60)])
def test_blob_of_another_form_is_not_sent(blob: bytes, wrapper: Wrapper) -> None:
    with pytest.raises(WrappedKeyError, match="form of kind pkcs11"):
        wrapper.unwrap(blob, CONTEXT)


@pytest.mark.parametrize("module", ["/nowhere.so", "/etc/passwd", "/lib/x86_64-linux-gnu/libc.so.6"])
def test_module_that_is_no_library_of_a_token(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN_OF_TEST", PIN)
    made = Wrapper.parse({**TABLE, "module": module}, "here", HERE)
    with pytest.raises(KeyUnavailableError, match="PKCS11Error") as caught:
        made.describe()
    assert "path of the vendor's library" in caught.value.hint


def test_helper_imports_little_and_reports_a_missing_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start is most of the time of a call."""
    code = (
        f"import runpy, sys; runpy.run_path({pkcs11helper.__file__!r}, run_name='helper')\n"
        "print(*(name for name in sys.modules if name.startswith(('sealpoint', 'pkcs11'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    assert pkcs11helper.run({}) == {"error": pkcs11helper.MISSING}


def test_last_attempt_is_left_to_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong PIN more would lock the token: nothing logs in."""
    flags = SimpleNamespace(flags=1 << 17)
    library = SimpleNamespace(
        lib=lambda _: SimpleNamespace(get_token=lambda token_label: flags),
        TokenFlag=pkcs11.TokenFlag,
        PKCS11Error=pkcs11.PKCS11Error,
    )
    monkeypatch.setitem(sys.modules, "pkcs11", library)
    assert flags.flags == pkcs11.TokenFlag.USER_PIN_FINAL_TRY
    assert pkcs11helper.run({"module": "m", "token": "t"}) == {"error": pkcs11helper.LAST_ATTEMPT}
