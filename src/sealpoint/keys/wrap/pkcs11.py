"""Keys wrapped by an AES key of a PKCS#11 token, with the `WrapContext` as associated data of AES-GCM.

    [[wrapper]]
    id = "hsm"
    kind = "pkcs11"
    module = "/usr/lib/softhsm/libsofthsm2.so"    # the vendor's library
    token = "sealpoint"                           # label of the token
    key = "agents"                                # label of the key
    pin = { file = "hsm.pin" }                    # or env, credential, command; never the PIN itself

A wrapped key:

    format  1 byte, 1
    iv      12 bytes, random
    text    ciphertext, as long as the material, and the tag of 16 bytes
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Self

from sealpoint.errors import (
    KeyRingError,
    KeyUnavailableError,
    RingFileError,
    SourceError,
    SourceTimeoutError,
    WrappedKeyError,
    excerpt,
)
from sealpoint.keys.sources import (
    CommandSource,
    CredentialSource,
    EnvSource,
    FileSource,
    Source,
    parse_source,
    require_fields,
    require_text,
    run_command,
)
from sealpoint.keys.wrap import pkcs11helper
from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, WrapperState

TIMEOUT_SECONDS: Final = 10.0

_PINS: Final = tuple(source.kind for source in (FileSource, EnvSource, CredentialSource, CommandSource))
_FORMAT: Final = b"\x01"
_IV_BYTES: Final = 12
_TAG_BYTES: Final = 16
# No such token, or a general error. Both also occur while the slot is out of reach, or while another process
# writes the file of a SoftHSM token.
_MAY_PASS: Final = frozenset(
    {"DeviceError", "DeviceRemoved", "FunctionFailed", "GeneralError", "NoSuchToken", "TokenNotPresent"}
)
_OTHER_FORM: Final = "the helper process of the library gave an invalid answer"
_HINTS: Final = {
    pkcs11helper.DENIED: "the key needs the attributes CKA_ENCRYPT and CKA_DECRYPT",
    pkcs11helper.LAST_ATTEMPT: "correct the PIN, and log in to the token once with its vendor's tool",
    pkcs11helper.MISSING: "pip install 'sealpoint[pkcs11]'",
    "MechanismInvalid": "the token must support AES-GCM (CKM_AES_GCM)",
    "MultipleObjectsReturned": "the label of the key must be unique in the token",
    "NoSuchKey": "generate an AES key of 256 bits with this label in the token",
    "NoSuchToken": "check the label of the token, and that its slot is reachable",
    "PKCS11Error": "check the path of the vendor's library, and its configuration",
    "PinIncorrect": "correct the PIN; tokens lock themselves after some wrong PINs",
    "PinLocked": "unlock the token with its vendor's tool",
}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """An AES key of a PKCS#11 token."""

    kind: ClassVar = "pkcs11"
    module: str  # path of the vendor's library
    token: str  # label
    key: str  # label
    pin: Source = field(repr=False)
    folder: Path  # of the ring file, for a relative path of the PIN

    @classmethod
    def parse(cls, table: Mapping[str, object], where: str, folder: Path) -> Self:
        """Check the fields of a ``[[wrapper]]`` table other than ``id`` and ``kind``."""
        names = ("module", "token", "key")
        require_fields(table, {*names, "pin"}, {*names, "pin"}, where)
        texts = [require_text(table, name, where) for name in names]
        pin = table["pin"]
        if not isinstance(pin, dict) or len(pin) != 1 or not pin.keys() <= set(_PINS):
            hint = 'write pin = { file = "PATH" }; the ring file contains no secrets'
            raise RingFileError(f"{where}: 'pin' is not one of {', '.join(_PINS)}", hint=hint)
        return cls(str(folder / texts[0]), texts[1], texts[2], parse_source(pin), folder)

    @property
    def location(self) -> str:
        """The labels of the token and of its key, for messages."""
        return f"{self.token}/{self.key}"

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        """Encrypt key material."""
        iv = os.urandom(_IV_BYTES)
        text = self._call("encrypt", material, iv, context)
        if len(text) != len(material) + _TAG_BYTES:
            raise KeyUnavailableError(f"the token encrypted {len(material)} bytes to {len(text)} bytes")
        return WrappedKey(_FORMAT + iv + text)

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        """Decrypt a wrapped key, and return its material."""
        if not blob.startswith(_FORMAT) or len(blob) <= 1 + _IV_BYTES + _TAG_BYTES:
            raise WrappedKeyError("the wrapped key does not have the form of kind pkcs11")
        return self._call("decrypt", blob[1 + _IV_BYTES :], blob[1 : 1 + _IV_BYTES], context)

    def describe(self) -> WrapperState:
        """Log in to the token and find the key. Returns no version: keys of tokens have no versions."""
        self._call("find")
        return WrapperState()

    def _call(
        self, operation: str, text: bytes = b"", iv: bytes = b"", context: WrapContext | None = None
    ) -> bytes:
        request = {
            "module": self.module,
            "token": self.token,
            "key": self.key,
            "pin": self._read_pin(),
            "operation": operation,
            "text": b64encode(text).decode(),
            "iv": b64encode(iv).decode(),
            "context": b64encode(b"" if context is None else context.to_bytes()).decode(),
        }
        answer = _run(json.dumps(request).encode())
        error = answer.get("error")
        if error is None:
            with suppress(ValueError):
                return b64decode(str(answer.get("text")), validate=True)
            raise KeyUnavailableError(_OTHER_FORM)
        if error == pkcs11helper.FOREIGN:
            raise WrappedKeyError("the wrapping key did not encrypt this key for this ring and key id")
        hint, may_pass = _HINTS.get(error), error in _MAY_PASS
        raise KeyUnavailableError(f"the library says {excerpt(error)}", hint=hint, may_pass=may_pass)

    def _read_pin(self) -> str:
        try:
            pin = self.pin.read(self.folder)
            return pin.removesuffix(b"\n").removesuffix(b"\r").decode()
        except KeyRingError as error:
            problem, hint = str(error), error.hint
        except UnicodeDecodeError:
            problem, hint = "the PIN is not UTF-8", "write the PIN as text"
        raise KeyUnavailableError(f"the PIN of the token is not available: {problem}", hint=hint)


def _run(request: bytes) -> dict[str, str]:
    # -P: otherwise modules in the helper's folder would hide packages with the same names.
    argv = (sys.executable, "-P", pkcs11helper.__file__)
    try:
        answer = json.loads(run_command(argv, TIMEOUT_SECONDS, text=request))
        if isinstance(answer, dict):
            return answer
        problem = _OTHER_FORM
    except SourceTimeoutError:
        problem = f"the library did not answer in {TIMEOUT_SECONDS:g} seconds"
    except SourceError as error:
        problem = f"the helper process of the library failed: {error}"
    except ValueError:
        problem = "the helper process of the library did not answer"
    raise KeyUnavailableError(problem, hint=_HINTS["PKCS11Error"])
