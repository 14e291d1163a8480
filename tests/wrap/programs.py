"""Programs that wrap keys, set up and called as docs/wrapped-keys.md says, in a folder of the test.

Each stands behind a script of its name that records with which arguments and variables it was started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealpoint.keys.wrap.command import Wrapper

PAGE: Final = Path(__file__).parents[2] / "docs" / "wrapped-keys.md"

NEEDED: Final = {
    "age": ("age", "age-keygen"),
    "systemd-creds": ("systemd-creds",),
    "tpm": ("swtpm", "tpm2_rsaencrypt", "tpm2_rsadecrypt"),
    "keyring": ("age", "secret-tool", "gnome-keyring-daemon", "dbus-daemon", "dbus-send"),
}
"""The programs that each wrapper of the page needs."""

# What the page needs, by the packages of Debian; .ci/run installs them.
PACKAGES: Final = {
    "age": "age",
    "age-keygen": "age",
    "systemd-creds": "systemd",
    "swtpm": "swtpm",
    "tpm2_rsadecrypt": "tpm2-tools",
    "tpm2_rsaencrypt": "tpm2-tools",
    "secret-tool": "libsecret-tools",
    "gnome-keyring-daemon": "gnome-keyring",
    "dbus-daemon": "dbus",
    "dbus-send": "dbus",
    "softhsm2-util": "softhsm2",
}

_RECORD: Final = """\
#!/bin/sh
tr '\\0' ' ' < /proc/$$/cmdline >> {record}
tr '\\0' '\\n' < /proc/$$/environ >> {record}
exec {program} "$@"
"""


def missing(wrapper: str) -> str | None:
    """Return which programs of a wrapper are not installed; ``None`` if all are."""
    if wrapper == "systemd-creds" and os.geteuid():
        return "systemd-creds uses the key of the host as root alone"
    gone = [program for program in NEEDED[wrapper] if shutil.which(program) is None]
    packages = " ".join(sorted({PACKAGES[program] for program in gone}))
    return f"no {', '.join(gone)}: apt install {packages}" if gone else None


@dataclass(frozen=True)
class Section:
    """A wrapper of the page.

    Attributes:
        setup: What a shell runs first.
        table: Its ``[[wrapper]]``, without id and kind.
    """

    setup: str
    table: dict[str, object]


def read_section(wrapper: str, folder: Path) -> Section:
    """Return the section with a wrapper of this id, in a folder."""
    text = PAGE.read_text(encoding="utf-8").replace("/etc/sealpoint", str(folder))
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE):
        found = re.search(r"^```toml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        tables = tomllib.loads(found[1]).get("wrapper", []) if found else []
        if [table["id"] for table in tables] == [wrapper]:
            setup = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
            del tables[0]["id"], tables[0]["kind"]
            return Section(setup[1] if setup else "", tables[0])
    raise LookupError(wrapper)


def run_setup(section: Section, environment: dict[str, str]) -> None:
    """Run what the page says before the table."""
    code = ["/bin/sh", "-e", "-c", section.setup]
    subprocess.run(code, env=os.environ | environment, check=True, stderr=subprocess.DEVNULL)


def make_wrapper(section: Section, folder: Path) -> Wrapper:
    """Make the wrapper of a section."""
    return Wrapper.parse(section.table, "a test", folder)


def record_programs(folder: Path, wrapper: str) -> Path:
    """Put the scripts into ``bin``, and return the file that they record in."""
    record, scripts = folder / "record", folder / "bin"
    record.touch()
    scripts.mkdir()
    for program in NEEDED[wrapper]:
        script = scripts / program
        script.write_text(_RECORD.format(record=record, program=shutil.which(program)), encoding="utf-8")
        script.chmod(0o755)
    return record


@contextmanager
def running_tpm(folder: Path) -> Iterator[dict[str, str]]:
    """Run a TPM in software, and yield the variables that name it."""
    state, socket = folder / "state", folder / "socket"
    state.mkdir()
    argv = [
        "swtpm",
        "socket",
        "--tpm2",
        "--tpmstate",
        f"dir={state}",
        "--flags",
        "not-need-init,startup-clear",
    ]
    argv += ["--server", f"type=unixio,path={socket}", "--ctrl", f"type=unixio,path={socket}.ctrl"]
    argv += ["--flags", "not-need-init,startup-clear"]
    # With --daemon the first process ends when the sockets are there.
    subprocess.run([*argv, "--daemon", "--pid", f"file={folder / 'pid'}"], check=True)
    try:
        yield {"TPM2TOOLS_TCTI": f"swtpm:path={socket}"}
    finally:
        os.kill(int((folder / "pid").read_text(encoding="utf-8")), 15)


_HAS_OWNER: Final = (
    *("dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"),
    *("org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"),
)


@contextmanager
def running_keyring(folder: Path) -> Iterator[dict[str, str]]:
    """Run a session bus with an unlocked keyring, and yield the variables that name it."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "XDG_RUNTIME_DIR": str(runtime)}
    bus = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | own,
        text=True,
    )
    keyring = None
    try:
        assert bus.stdout is not None
        own["DBUS_SESSION_BUS_ADDRESS"] = bus.stdout.readline().strip()
        keyring = subprocess.Popen(
            ["gnome-keyring-daemon", "--unlock", "--foreground", "--components=secrets"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | own,
            text=True,
        )
        assert keyring.stdin is not None
        keyring.stdin.write("password of the keyring\n")
        keyring.stdin.close()
        # A client that comes before would start another one, which is locked.
        asked = subprocess.run([*_HAS_OWNER], capture_output=True, env=os.environ | own, check=True)
        while b"boolean true" not in asked.stdout:
            time.sleep(0.05)
            asked = subprocess.run([*_HAS_OWNER], capture_output=True, env=os.environ | own, check=True)
        yield own
    finally:
        for process in (keyring, bus):
            if process is not None:
                process.kill()
                process.wait()
        if bus.stdout is not None:
            bus.stdout.close()
