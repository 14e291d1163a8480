"""Keys wrapped by the transit engine of HashiCorp Vault or OpenBao; the `WrapContext` is associated data.

    [[wrapper]]
    id = "vault-prod"
    kind = "vault"
    key = "agents"                            # of an AEAD type, e.g. aes256-gcm96
    mount = "transit"                         # of the engine; this is the default
    address = "https://vault.example:8200"    # by default $VAULT_ADDR
    namespace = "team-a"                      # by default $VAULT_NAMESPACE, if it is set
    ca_file = "ca.pem"                        # relative to the ring's folder; by default $VAULT_CACERT

The token is $VAULT_TOKEN, or the contents of ~/.vault-token. Plain HTTP is allowed only to this host itself.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from sealpoint.errors import KeyUnavailableError, RingFileError, WrappedKeyError, excerpt
from sealpoint.keys.sources import get_text, require_fields, require_text
from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, WrapperState, call_in_time, load_sdk

# To connect, and between two packets of the answer.
TIMEOUT_SECONDS: Final = (2.0, 5.0)

_BLOB: Final = re.compile(rb"vault:v([1-9][0-9]{0,8}):[A-Za-z0-9+/]+={0,2}")
# Texts of the engine's errors for a blob of another key or with other associated data.
_FOREIGN: Final = ("message authentication failed", "invalid ciphertext")
# Parts of an error's text that are shown. Others may quote the request or the answer, with a token or a key.
_SHOWN: Final = (
    "permission denied",
    "Vault is sealed",
    "encryption key not found",
    "version is disallowed by policy",
    "provided for non-AEAD cipher suite",
    "no handler for route",
    "namespace not found",
    "rate limit quota exceeded",
)
_AEAD: Final = ("aes256-gcm96", "aes128-gcm96", "chacha20-poly1305", "xchacha20-poly1305")
_MAY_PASS: Final = frozenset(
    {"BadGateway", "InternalServerError", "RateLimitExceeded", "UnexpectedError", "VaultDown"}
)
_ADDRESS_HINT: Final = (
    "write https://HOST:8200; plain http is for 127.0.0.1 and localhost, e.g. a Vault Proxy"
)
_HINTS: Final = {
    "Forbidden": "check the token; its policy must allow update on MOUNT/encrypt/KEY and MOUNT/decrypt/KEY",
    "SSLError": "name the certificate authority of the server: ca_file in the [[wrapper]]",
    "VaultDown": "unseal the server, or wait until it has started",
}
_HIDDEN_HINT: Final = "see the log of the server: the text of its answer may quote a key, and is not shown"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A key of the transit engine."""

    kind: ClassVar = "vault"
    key: str
    mount: str = "transit"
    address: str | None = None
    namespace: str | None = None
    ca_file: str | None = None

    @classmethod
    def parse(cls, table: Mapping[str, object], where: str, folder: Path) -> Self:
        """Check the fields of a ``[[wrapper]]`` table other than ``id`` and ``kind``."""
        require_fields(table, {"key", "mount", "address", "namespace", "ca_file"}, {"key"}, where)
        address, ca_file = get_text(table, "address", where), get_text(table, "ca_file", where)
        problem = None if address is None else _find_fault(address)
        if problem is not None:
            raise RingFileError(f"{where}: 'address' {problem}", hint=_ADDRESS_HINT)
        return cls(
            require_text(table, "key", where),
            get_text(table, "mount", where) or "transit",
            address,
            get_text(table, "namespace", where),
            None if ca_file is None else str(folder / ca_file),
        )

    @property
    def location(self) -> str:
        """The mount of the engine and the name of the transit key, for messages."""
        return f"{self.mount}/{self.key}"

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        """Encrypt key material; check that the server binds the wrapped key to the context."""
        answer = self._crypt("encrypt_data", context, plaintext=b64encode(material).decode())
        blob = str(answer.get("ciphertext")).encode()
        found = _BLOB.fullmatch(blob)
        if found is None:
            raise KeyUnavailableError("the server's answer is not a ciphertext of transit")
        try:
            self.unwrap(blob, WrapContext(f"not {context.ring}", context.key))
        except WrappedKeyError:
            return WrappedKey(blob, found[1].decode())
        # Vault before 1.13 does not know associated data, and answers as if there were none.
        raise KeyUnavailableError(
            "the server ignores associated data: the wrapped key would not be bound to its ring",
            hint="use Vault 1.13 or later, or OpenBao",
        )

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        """Decrypt a wrapped key, and return its material."""
        if not _BLOB.fullmatch(blob):
            raise WrappedKeyError("the wrapped key is not a ciphertext of transit (vault:vN:...)")
        answer = self._crypt("decrypt_data", context, ciphertext=blob.decode())
        with suppress(TypeError, ValueError):
            return b64decode(answer.get("plaintext", "-"), validate=True)
        raise KeyUnavailableError("the server's answer is not a plaintext of transit")

    def describe(self) -> WrapperState:
        """Ask for version and type of the transit key. Without the right to ask, both are unknown."""
        key = call_in_time(self._ask, "read_key")
        version = key.get("latest_version")
        return WrapperState(None if version is None else str(version), _find_problem(key))

    def _crypt(self, method: str, context: WrapContext, **sent: str) -> dict[str, Any]:
        associated = b64encode(context.to_bytes()).decode()
        return call_in_time(self._ask, method, associated_data=associated, **sent)

    def _ask(self, method: str, **sent: str) -> dict[str, Any]:
        exceptions = load_sdk("hvac", "vault").exceptions
        address = self._find_address()
        requests = load_sdk("requests", "vault")
        text, may_pass = "", False
        try:
            transit = getattr(self._make_client(address).secrets.transit, method)
            answer = transit(name=self.key, mount_point=self.mount, **sent)
            if isinstance(answer, dict) and isinstance(answer.get("data"), dict):
                data: dict[str, Any] = answer["data"]
                return data
            # A redirect is not followed: requests would send the token to any other host.
            code = f"an answer with status {getattr(answer, 'status_code', 200)} and without data"
        except exceptions.VaultError as failed:
            code, text = type(failed).__name__, str(failed.errors or "")
            may_pass = code in _MAY_PASS
        # The last three: hvac read an answer that is not from Vault. The texts may quote a token.
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as failed:
            code = type(failed).__name__
            may_pass = isinstance(failed, requests.ConnectionError | requests.Timeout)
        if code == "Forbidden" and method == "read_key":
            return {}
        if method == "decrypt_data" and any(known in text for known in _FOREIGN):
            raise WrappedKeyError("the wrapping key did not encrypt this key for this ring and key id")
        shown = next((known for known in _SHOWN if known in text), None)
        hint = _HINTS.get(code) or (_HIDDEN_HINT if text and shown is None else None)
        raise KeyUnavailableError(f"{code}: {shown}" if shown else code, hint=hint, may_pass=may_pass)

    def _find_address(self) -> str:
        address = self.address or os.environ.get("VAULT_ADDR")
        if not address:
            hint = "set VAULT_ADDR for this process, or add address to the [[wrapper]]"
            raise KeyUnavailableError("the address of the server is not set", hint=hint)
        fault = _find_fault(address)
        if fault is not None:
            raise KeyUnavailableError(f"$VAULT_ADDR {fault}", hint=_ADDRESS_HINT)
        return address

    def _make_client(self, address: str) -> Any:
        return load_sdk("hvac", "vault").Client(
            url=address,
            verify=self.ca_file,
            timeout=TIMEOUT_SECONDS,
            allow_redirects=False,
            # Plain HTTP is allowed to this host only: a proxy of the environment would be another host.
            proxies={"http": None, "all": None} if address.startswith("http:") else None,
            namespace=self.namespace or os.environ.get("VAULT_NAMESPACE"),
        )


def _find_fault(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"} or not host:
        return "is not an https:// URL"
    if parts.username is not None or parts.query or parts.fragment:
        return "has more than a host, a port and a path"
    if parts.scheme == "http" and not _is_this_host(host):
        return "is plain http to another host"
    return None


def _is_this_host(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _find_problem(key: Mapping[str, Any]) -> str | None:
    """Return the reason why a transit key of this description cannot decrypt; ``None`` if it can."""
    if key.get("type", _AEAD[0]) not in _AEAD:
        return f"is of the type {excerpt(key['type'])}, which takes no associated data"
    if key.get("derived"):
        return "is a derived key, which needs more than associated data"
    return None
