"""One call of a PKCS#11 token, in a process of its own, which `sealpoint.keys.wrap.pkcs11` starts.

This process loads the vendor's library, as OpenSSH does in ssh-pkcs11-helper. The library may hang or crash,
cannot be used after a fork (PKCS#11 2.20, 6.6.1), and a login applies to its whole process. Standard input
is a JSON object, standard output another. ``iv``, ``context`` and ``text`` are base64.

    {"module": PATH, "token": LABEL, "key": LABEL, "pin": .., "operation": "encrypt", "iv": .., ...}
    {"text": ..} or {"error": "PinIncorrect"}

No other module of sealpoint is imported: that would take longer than the call.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

FOREIGN: Final = "Foreign"  # the text was not encrypted by this key, or for another context
DENIED: Final = "NotPermitted"  # the token does not allow the operation with this key
LAST_ATTEMPT: Final = "LastAttempt"  # one more wrong PIN would lock the token, for all who use it
MISSING: Final = "Missing"  # python-pkcs11 is not installed

_PROBE: Final = bytes(16)


def run(request: Mapping[str, str]) -> dict[str, str]:
    """Log in and find the key; then encrypt or decrypt a text, unless the operation is ``find``."""
    try:
        import pkcs11
    except ImportError:
        return {"error": MISSING}
    try:
        token = pkcs11.lib(request["module"]).get_token(token_label=request["token"])
        if token.flags & pkcs11.TokenFlag.USER_PIN_FINAL_TRY:
            return {"error": LAST_ATTEMPT}
        with token.open(user_pin=request["pin"]) as session:
            secret, aes = pkcs11.ObjectClass.SECRET_KEY, pkcs11.KeyType.AES
            return _use(session.get_key(secret, aes, label=request["key"]), request)
    except pkcs11.PKCS11Error as error:
        return {"error": type(error).__name__}


def _use(key: Any, request: Mapping[str, str]) -> dict[str, str]:
    import pkcs11
    from pkcs11.mechanisms import GCMParams

    # python-pkcs11 provides the methods that the attributes of the key permit.
    if not (hasattr(key, "encrypt") and hasattr(key, "decrypt")):
        return {"error": DENIED}
    if request["operation"] == "find":
        return {"text": ""}

    def call(operation: str, text: bytes, iv: bytes, context: bytes) -> bytes:
        crypt = getattr(key, operation)
        done: bytes = crypt(text, mechanism=pkcs11.Mechanism.AES_GCM, mechanism_param=GCMParams(iv, context))
        return done

    text, iv, context = (b64decode(request[name]) for name in ("text", "iv", "context"))
    try:
        return {"text": b64encode(call(request["operation"], text, iv, context)).decode()}
    except pkcs11.PKCS11Error as error:
        failed = {"error": type(error).__name__}
    if request["operation"] == "decrypt":
        # Tokens name a wrong tag differently (SoftHSM: GeneralError): if another text passes, it was the tag.
        with suppress(pkcs11.PKCS11Error):
            other = os.urandom(len(iv))
            if call("decrypt", call("encrypt", _PROBE, other, context), other, context) == _PROBE:
                return {"error": FOREIGN}
    return failed


def main() -> None:
    """Read a JSON request from standard input, and write the JSON answer to standard output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would contain the PIN and the key
    # The library may print, too: only this descriptor leads to the original standard output.
    output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.write(output, json.dumps(run(json.load(sys.stdin))).encode())


if __name__ == "__main__":
    main()
