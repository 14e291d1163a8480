"""docs/wrapped-keys.md: its commands with other keys, its policies, and what it says of programs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sealpoint.admin.cli.app import run
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import KeyUnavailableError, WrappedKeyError
from sealpoint.keys.wrap import WrapContext
from sealpoint.keys.wrap.wrapper import BUILT_IN, parse_wrapper
from tests.support.keys.wrapping import CANARY, CONTEXT, Forms
from tests.wrap import programs, softhsm
from tests.wrap.conftest import Program

PAGE = programs.PAGE.read_text(encoding="utf-8")


def tables() -> dict[str, dict[str, object]]:
    """The wrappers of the page by their ids."""
    ids = re.findall(r'^\[\[wrapper\]\]\nid = "([\w-]+)"\nkind = "(\w+)"', PAGE, re.MULTILINE)
    found = {}
    for name, kind in ids:
        try:
            found[name] = {"kind": kind, **programs.read_section(name, Path("/etc/sealpoint")).table}
        except LookupError:
            continue
    return found


TABLES = tables()


def test_page_has_every_kind() -> None:
    assert {str(table["kind"]) for table in TABLES.values()} == BUILT_IN.keys()
    assert programs.NEEDED.keys() < TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_the_page(name: str) -> None:
    table = dict(TABLES[name])
    kind = str(table.pop("kind"))
    wrapper = parse_wrapper(kind, table, "the page", Path("/etc/sealpoint"))
    assert wrapper.kind == kind


def test_policy_of_the_page() -> None:
    """Its condition is the encryption context that is sent."""
    (policy,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    decrypt, describe = json.loads(policy)["Statement"]
    assert (decrypt["Action"], describe["Action"]) == ("kms:Decrypt", "kms:DescribeKey")
    ((condition, ring),) = decrypt["Condition"]["StringEquals"].items()
    assert WrapContext(ring, "k1").pairs()[condition.removeprefix("kms:EncryptionContext:")] == ring
    assert decrypt["Resource"] == describe["Resource"] == TABLES["aws-prod"]["key"]


@pytest.mark.skipif(bool(softhsm.MISSING), reason=str(softhsm.MISSING))
def test_token_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script_path: str) -> None:
    section = programs.read_section("hsm", tmp_path)
    programs.run_setup(section, {"PATH": script_path})
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm2.conf"))
    wrapper = parse_wrapper("pkcs11", section.table, "the page", tmp_path)
    assert wrapper.unwrap(wrapper.wrap(CANARY, CONTEXT).blob, CONTEXT) == CANARY


def test_identity_of_another(environments: Callable[[str], Program], tmp_path: Path) -> None:
    program = environments("age")
    blob = program.wrapper.wrap(CANARY, CONTEXT).blob
    section = programs.read_section("age", tmp_path)
    programs.run_setup(section, {})
    other = programs.make_wrapper(section, tmp_path)
    with pytest.raises(KeyUnavailableError, match="'age' exited with 1"):
        other.unwrap(blob, CONTEXT)


def test_blob_that_anybody_can_make(environments: Callable[[str], Program]) -> None:
    """The recipient is public: what was not wrapped by sealpoint is refused all the same."""
    program = environments("age")
    argv = ["age", "--encrypt", "--recipients-file", str(program.folder / "age.pub")]
    blob = subprocess.run(argv, input=CANARY, capture_output=True, check=True).stdout
    with pytest.raises(WrappedKeyError, match="not a key that sealpoint wrapped"):
        program.wrapper.unwrap(blob, CONTEXT)


def test_arguments_and_variables_are_recorded(
    environments: Callable[[str], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the programs that wrap: without this the contract would look into an empty file."""
    program = environments("age")
    monkeypatch.setenv("PATH", str(program.folder / "bin"), prepend=":")
    monkeypatch.setenv("PLANTED", "8641-canary-variable")
    program.wrapper.wrap(CANARY, CONTEXT)
    record = (program.folder / "record").read_text(encoding="utf-8")
    assert "--recipients-file" in record
    with pytest.raises(AssertionError):
        Forms.of(CANARY, "8641-canary-variable").require_absent(record)
    (program.folder / "record").write_text("", encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-creds") is None, reason="no systemd-creds: apt install systemd")
def test_systemd_creds_with_a_tpm(environments: Callable[[str], Program], tmp_path: Path) -> None:
    """`--with-key=tpm2`, which the page mentions, with the TPM that is emulated."""
    device = environments("tpm").variables["TPM2TOOLS_TCTI"]
    table = programs.read_section("systemd-creds", tmp_path).table
    wrap, unwrap = (list(map(str, table[name])) for name in ("wrap", "unwrap"))  # type: ignore[call-overload]
    wrap[wrap.index("--with-key=host")] = "--with-key=tpm2"
    for argv in (wrap, unwrap):
        argv.insert(2, f"--tpm2-device={device}")
    wrapper = parse_wrapper("command", {"wrap": wrap, "unwrap": unwrap}, "a test", tmp_path)
    assert wrapper.unwrap(wrapper.wrap(CANARY, CONTEXT).blob, CONTEXT) == CANARY


def make_ring(folder: Path, name: str) -> Path:
    """A ring file that has a wrapper of the page, and no key yet."""
    ring = folder / "keys.toml"
    table = programs.read_section(name, folder).table
    fields = "".join(f"{field} = {json.dumps(value)}\n" for field, value in table.items())
    kind = TABLES[name]["kind"]
    ring.write_text(f'version = 1\n[[wrapper]]\nid = "{name}"\nkind = "{kind}"\n{fields}', encoding="utf-8")
    return ring


@pytest.mark.parametrize("name", programs.NEEDED)
def test_key_of_a_ring(
    name: str,
    environments: Callable[[str], Program],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From an empty ring to the first sealed value, with the commands of the page."""
    program = environments(name)
    for variable, value in program.variables.items():
        monkeypatch.setenv(variable, value)
    ring = make_ring(program.folder, name)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    for words in (["generate", "k1", "--wrap-with", name], ["promote", "k1"], ["check"]):
        assert run(["keys", *words]) == 0, capsys.readouterr()
    cipher = RingCipher(KeyRing.load(ring))
    assert cipher.open(*cipher.seal("msgpack", b"value")).typed == ("msgpack", b"value")
    assert run(["keys", "rewrap", "k1"]) == 0
    assert KeyRing.load(ring).require_active().material == cipher.ring.require_active().material
