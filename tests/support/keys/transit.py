"""A small stand-in for the transit engine of Vault: its requests, answers and errors, with real AES-GCM.

    PUT  /v1/sys/mounts/MOUNT               enable an engine
    POST /v1/MOUNT/keys/KEY                 create: {"type": ..}
    GET  /v1/MOUNT/keys/KEY                 type, versions
    POST /v1/MOUNT/keys/KEY/rotate
    POST /v1/MOUNT/keys/KEY/config          {"min_decryption_version": ..}
    POST /v1/MOUNT/encrypt/KEY              {"plaintext": BASE64, "associated_data": BASE64}
    POST /v1/MOUNT/decrypt/KEY              {"ciphertext": "vault:vN:BASE64", "associated_data": BASE64}

The forms are those of https://developer.hashicorp.com/vault/api-docs/secret/transit; the texts of errors are
those of Vault's source. Set SEALPOINT_TEST_VAULT_ADDR to run the same tests with a real server.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.keys.answers import Answer, Request, answering

TOKEN = "hvs.CAESIJx7canaryTOKEN0123456789"


class RefusedError(Exception):
    """An error of the engine."""

    def __init__(self, status: int, text: str) -> None:
        self.answer: Answer = (status, {"errors": [text] if text else []})


@dataclass
class StoredKey:
    """A key of the engine: the material of its versions, from 1 on."""

    type: str
    versions: list[bytes] = field(default_factory=lambda: [os.urandom(32)])
    min_decryption_version: int = 1


@dataclass
class Transit:
    """The engine.

    Attributes:
        keys: Its keys by mount and name.
        is_ancient: Whether it does not know associated data, as Vault before 1.13.
        is_sealed: Whether the server is sealed.
        denied: The operations that the token may not use.
    """

    keys: dict[str, StoredKey] = field(default_factory=dict)
    is_ancient: bool = False
    is_sealed: bool = False
    denied: set[str] = field(default_factory=set)

    def __call__(self, request: Request) -> Answer:
        try:
            return self._answer(request)
        except RefusedError as refused:
            return refused.answer

    def _answer(self, request: Request) -> Answer:
        if self.is_sealed:
            raise RefusedError(503, "Vault is sealed")
        if request.headers.get("x-vault-token") != TOKEN:
            raise RefusedError(403, "permission denied")
        _, _, mount, operation, name, *rest = request.path.split("/")
        if operation in self.denied:
            raise RefusedError(403, "1 error occurred:\n\t* permission denied\n\n")
        sent = json.loads(request.body or b"{}")
        if mount == "sys":
            return 204, b""
        if operation == "keys":
            return self._change(f"{mount}/{name}", rest, sent, is_get=not request.body)
        key = self.keys.get(f"{mount}/{name}")
        if key is None:
            raise RefusedError(400, "encryption key not found")
        known = b"" if self.is_ancient else b64decode(sent.get("associated_data", ""))
        if known and "gcm" not in key.type:
            raise RefusedError(400, f"'[0].associated_data' provided for non-AEAD cipher suite {key.type}")
        found = self._encrypt(key, sent, known) if operation == "encrypt" else self._decrypt(key, sent, known)
        return 200, {"data": found}

    def _change(self, name: str, rest: list[str], sent: Mapping[str, Any], *, is_get: bool) -> Answer:
        if not rest and not is_get:
            self.keys[name] = StoredKey(sent.get("type", "aes256-gcm96"))
        if name not in self.keys:
            raise RefusedError(404, "")
        key = self.keys[name]
        if rest == ["rotate"]:
            key.versions.append(os.urandom(32))
        if rest == ["config"]:
            key.min_decryption_version = sent["min_decryption_version"]
        found = {"type": key.type, "latest_version": len(key.versions), "derived": False}
        return 200, {"data": {**found, "min_decryption_version": key.min_decryption_version}}

    @staticmethod
    def _encrypt(key: StoredKey, sent: Mapping[str, str], known: bytes) -> dict[str, object]:
        nonce = os.urandom(12)
        sealed = nonce + AESGCM(key.versions[-1]).encrypt(nonce, b64decode(sent["plaintext"]), known)
        version = len(key.versions)
        return {"ciphertext": f"vault:v{version}:{b64encode(sealed).decode()}", "key_version": version}

    @staticmethod
    def _decrypt(key: StoredKey, sent: Mapping[str, str], known: bytes) -> dict[str, object]:
        _, number, text = sent["ciphertext"].split(":")
        version = int(number[1:])
        if version > len(key.versions):
            raise RefusedError(400, "invalid ciphertext: version is too new")
        if version < key.min_decryption_version:
            raise RefusedError(400, "ciphertext or signature version is disallowed by policy (too old)")
        try:
            sealed = b64decode(text, validate=True)
            plain = AESGCM(key.versions[version - 1]).decrypt(sealed[:12], sealed[12:], known)
        except InvalidTag:
            raise RefusedError(400, "cipher: message authentication failed") from None
        except ValueError:
            raise RefusedError(400, "invalid ciphertext: could not decode base64") from None
        return {"plaintext": b64encode(plain).decode()}


@contextmanager
def running() -> Iterator[tuple[str, Transit]]:
    """Yield the address of a server, and its engine."""
    transit = Transit()
    with answering(transit) as address:
        yield address, transit
