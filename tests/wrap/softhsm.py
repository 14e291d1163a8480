"""Tokens of SoftHSM, the software HSM of the DNSSEC tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIBRARIES: Final = [
    Path("/usr/lib/softhsm/libsofthsm2.so"),  # Debian, Ubuntu
    Path("/usr/lib64/pkcs11/libsofthsm2.so"),  # Fedora
    Path("/opt/homebrew/lib/softhsm/libsofthsm2.so"),
]
MODULE: Final = next((library for library in LIBRARIES if library.is_file()), None)
MISSING: Final = None if MODULE and shutil.which("softhsm2-util") else "no SoftHSM: apt install softhsm2"

LABEL: Final = "sealpoint-test"
PIN: Final = "8641-canary-pin"


@dataclass(frozen=True)
class Token:
    """A token with a user PIN, in a folder of its own.

    Attributes:
        config: The configuration of SoftHSM that has it.
        empty: One that has no token.
        hanging: One that lets the library hang when it is initialized: a pipe without a writer.
    """

    config: Path
    empty: Path
    hanging: Path

    def run(self, code: str) -> None:
        """Run Python with a ``session`` in which the user is logged in."""
        opening = (
            f"import pkcs11; token = pkcs11.lib({str(MODULE)!r}).get_token(token_label={LABEL!r})\n"
            f"with token.open(rw=True, user_pin={PIN!r}) as session:\n    {code}"
        )
        environment = os.environ | {"SOFTHSM2_CONF": str(self.config)}
        subprocess.run([sys.executable, "-c", opening], env=environment, check=True)

    def generate(self, *labels: str) -> None:
        """Generate keys that never leave the token."""
        kept = "{pkcs11.Attribute.SENSITIVE: True, pkcs11.Attribute.EXTRACTABLE: False}"
        made = f"session.generate_key(pkcs11.KeyType.AES, 256, label=label, store=True, template={kept})"
        self.run(f"for label in {labels!r}: {made}")

    def permit_decrypt(self, label: str, is_permitted: bool) -> None:
        """Let a key decrypt, or not."""
        self.run(f"session.get_key(label={label!r})[pkcs11.Attribute.DECRYPT] = {is_permitted}")


def make_token(folder: Path) -> Token:
    """Make a token in an empty folder."""
    token = Token(folder / "softhsm2.conf", folder / "empty.conf", folder / "hanging.conf")
    for config in (token.config, token.empty):
        tokens = folder / config.stem
        tokens.mkdir()
        config.write_text(f"directories.tokendir = {tokens}\nlog.level = ERROR\n", encoding="utf-8")
    os.mkfifo(token.hanging)
    argv = ["softhsm2-util", "--init-token", "--free", "--label", LABEL, "--pin", PIN, "--so-pin", PIN]
    environment = os.environ | {"SOFTHSM2_CONF": str(token.config)}
    subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
    return token
