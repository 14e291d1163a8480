"""The kind `vault`: its fields, which addresses it accepts, and what it says of each error of the server."""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sealpoint.errors import KeyUnavailableError, RingFileError, WrappedKeyError
from sealpoint.keys.wrap import WrapperState
from sealpoint.keys.wrap.vault import Wrapper
from tests.support.keys import transit
from tests.support.keys.answers import Answer, Request, answering, refused
from tests.support.keys.transit import TOKEN, StoredKey, Transit
from tests.support.keys.wrapping import CANARY, CONTEXT, Forms, shown

HERE = Path("/etc/sealpoint")
TEXT = base64.b64encode(CANARY).decode()


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("VAULT_ADDR", "VAULT_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transit]:
    with transit.running() as (address, found):
        monkeypatch.setenv("VAULT_ADDR", address)
        found.keys["transit/agents"] = StoredKey("aes256-gcm96")
        yield found


AGENTS = Wrapper("agents")


@pytest.mark.parametrize(
    ("table", "wrapper"),
    [
        ({"key": "agents"}, AGENTS),
        (
            {"key": "agents", "mount": "kv", "address": "https://vault.example:8200", "namespace": "team"},
            Wrapper("agents", "kv", "https://vault.example:8200", "team"),
        ),
        *(
            (
                {"key": "agents", "address": f"http://{host}:8200"},
                Wrapper("agents", address=f"http://{host}:8200"),
            )
            for host in ("localhost", "127.0.0.1", "127.8.0.1", "[::1]")
        ),
        ({"key": "agents", "ca_file": "ca.pem"}, Wrapper("agents", ca_file="/etc/sealpoint/ca.pem")),
        ({"key": "agents", "ca_file": "/ca.pem"}, Wrapper("agents", ca_file="/ca.pem")),
    ],
)
def test_fields(table: dict[str, object], wrapper: Wrapper) -> None:
    assert Wrapper.parse(table, "[[wrapper]]", HERE) == wrapper
    wrong: dict[str, dict[str, object]] = {
        "lacks the field 'key'": {},
        "unknown field 'token'\n": {"key": "a", "token": TOKEN},
        "'namespace' is not one line of text": {"key": "a", "namespace": ""},
    }
    for problem, fields in wrong.items():
        with pytest.raises(RingFileError, match=f"a wrapper.*{problem}"):
            Wrapper.parse(fields, "a wrapper", HERE)


ADDRESSES = {
    "http://vault.example:8200": "plain http",
    "http://localhost.example": "plain http",
    "http://0.0.0.0:8200": "plain http",
    "vault.example": "not an https:// URL",
    "file:///etc/passwd": "not an https:// URL",
    "https://": "not an https:// URL",
    "https://[": "not a URL",
    "https://user:password@vault.example": "more than a host",
    "https://vault.example?x=y": "more than a host",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_wrong_addresses(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in the ring, where it is an error of the ring, and in the environment."""
    with pytest.raises(RingFileError, match=ADDRESSES[address]):
        Wrapper.parse({"key": "agents", "address": address}, "[[wrapper]]", HERE)
    monkeypatch.setenv("VAULT_ADDR", address)
    with pytest.raises(KeyUnavailableError, match=ADDRESSES[address]) as caught:
        AGENTS.describe()
    assert "https://HOST:8200" in caught.value.hint
    assert "password" not in "".join(shown(caught.value))
    monkeypatch.delenv("VAULT_ADDR")
    with pytest.raises(KeyUnavailableError, match="the address of the server is not set") as caught:
        AGENTS.describe()
    assert "VAULT_ADDR" in caught.value.hint


def test_plain_http_goes_through_no_proxy(engine: Transit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token would go to another host."""
    with refused() as nowhere:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, nowhere)
        assert AGENTS.describe().version == "1"


def test_requests_name_namespace_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect is not followed: it would take the token to any other host."""
    seen: list[Request] = []

    def answer(request: Request) -> Answer:
        seen.append(request)
        return 200, {"data": {}}

    with (
        answering(answer) as address,
        answering(lambda _: (307, b""), Location=f"{address}/v1/transit") as elsewhere,
    ):
        monkeypatch.setenv("VAULT_ADDR", elsewhere)
        with pytest.raises(KeyUnavailableError, match="status 307"):
            AGENTS.describe()
        assert not seen
        monkeypatch.setenv("VAULT_ADDR", address)
        monkeypatch.setenv("VAULT_NAMESPACE", "of-environment")
        AGENTS.describe()
        Wrapper("agents", namespace="of-ring").describe()
    assert [request.headers["x-vault-namespace"] for request in seen] == ["of-environment", "of-ring"]
    assert {request.headers["x-vault-token"] for request in seen} == {TOKEN}
    assert {request.path for request in seen} == {"/v1/transit/keys/agents"}


def test_server_that_ignores_associated_data(engine: Transit) -> None:
    """Vault before 1.13, or a key of such a type: a blob would open for any key of any ring."""
    engine.is_ancient = True
    with pytest.raises(KeyUnavailableError, match="ignores associated data") as caught:
        AGENTS.wrap(CANARY, CONTEXT)
    assert "1.13" in caught.value.hint
    engine.is_ancient = False
    engine.keys["transit/agents"].type = "rsa-4096"
    assert AGENTS.describe() == WrapperState("1", "is of the type 'rsa-4096', which takes no associated data")
    with pytest.raises(KeyUnavailableError, match="non-AEAD"):
        AGENTS.wrap(CANARY, CONTEXT)


def test_sealed_server_and_token_without_rights(engine: Transit) -> None:
    """One that may not describe the key may still use it; no key exists for another name."""
    engine.is_sealed = True
    with pytest.raises(KeyUnavailableError, match="Vault is sealed") as caught:
        AGENTS.describe()
    assert caught.value.may_pass
    assert "unseal" in caught.value.hint
    engine.is_sealed = False
    blob = AGENTS.wrap(CANARY, CONTEXT).blob
    engine.denied = {"keys"}
    assert AGENTS.describe() == WrapperState()
    engine.denied = {"decrypt"}
    with pytest.raises(KeyUnavailableError, match="permission denied") as caught:
        AGENTS.unwrap(blob, CONTEXT)
    assert not caught.value.may_pass
    assert "policy" in caught.value.hint
    with pytest.raises(KeyUnavailableError, match="permission denied"):
        AGENTS.wrap(CANARY, CONTEXT)
    engine.denied = set()
    other = Wrapper("none")
    for call in (lambda: other.wrap(CANARY, CONTEXT), lambda: other.unwrap(blob, CONTEXT), other.describe):
        with pytest.raises(KeyUnavailableError):
            call()


@pytest.mark.parametrize("token", ["", "hvs.other-CANARY", TOKEN + "\n", "ü" + TOKEN])
def test_wrong_tokens(engine: Transit, monkeypatch: pytest.MonkeyPatch, token: str, tmp_path: Path) -> None:
    """That of the home folder serves if there is none in the environment."""
    monkeypatch.setenv("VAULT_TOKEN", token)
    with pytest.raises(KeyUnavailableError) as caught:
        AGENTS.wrap(CANARY, CONTEXT)
    Forms.of(CANARY, TOKEN, "other-CANARY").require_absent(*shown(caught.value))
    monkeypatch.delenv("VAULT_TOKEN")
    (tmp_path / ".vault-token").write_text(TOKEN + "\n", encoding="utf-8")
    assert AGENTS.describe().version == "1"


@pytest.mark.parametrize(
    ("status", "said", "problem"),
    [
        (400, {"errors": [f"cannot parse {TEXT}", f"X-Vault-Token: {TOKEN}"]}, "InvalidRequest"),
        (400, {"errors": [{"token": TOKEN}]}, "TypeError"),
        (400, {"errors": ["; ".join(TEXT), CANARY.hex()]}, "InvalidRequest"),
        (403, {"errors": [f"permission denied for {TEXT}: {TOKEN}"]}, "Forbidden: permission denied"),
        (400, [TOKEN, TEXT], "AttributeError"),
        (500, {"errors": [f"1 error occurred: {TEXT[:12]}..."]}, "InternalServerError"),
        (502, f"<html>{TOKEN} {TEXT}".encode(), "BadGateway"),
        (200, f"<html>{TOKEN} {TEXT}".encode(), None),
        (200, b"[" * 100_000, "RecursionError"),
        (200, {"data": [TEXT]}, None),
        (200, {"data": {"ciphertext": TEXT, "plaintext": 5}}, None),
        (200, {"data": {"ciphertext": 5, "plaintext": f"!{TEXT}"}}, None),
        (418, {"errors": []}, None),
    ],
)
def test_no_more_is_shown_than_the_known_part_of_a_text(
    status: int,
    said: object,
    problem: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever the rest is: a key that a text quotes may be known to the server alone, in any form."""
    caplog.set_level(logging.DEBUG)
    with answering(lambda _: (status, said)) as address:
        monkeypatch.setenv("VAULT_ADDR", address)
        for call in (lambda: AGENTS.wrap(CANARY, CONTEXT), lambda: AGENTS.unwrap(b"vault:v1:AAAA", CONTEXT)):
            with pytest.raises(KeyUnavailableError) as caught:
                call()
            Forms.of(TEXT.encode()[:-1], TOKEN).require_absent(*shown(caught.value), caplog.text)
            assert problem is None or str(caught.value) == problem
            assert problem != "InvalidRequest" or "log" in caught.value.hint


@pytest.mark.parametrize(
    "blob", [b"vault:v0:AAAA", b"vault:v1:", b"vault:v1:A A", b"vault:v1:AAAA\n", b"VAULT:v1:AAAA"]
)
def test_blob_of_another_form_is_not_sent(blob: bytes) -> None:
    with pytest.raises(WrappedKeyError, match="not a ciphertext of transit"):
        AGENTS.unwrap(blob, CONTEXT)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, *form) + made.public_bytes(pem))
    return file


def test_certificate_of_the_server(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    engine = Transit({"transit/agents": StoredKey("aes256-gcm96")})
    with answering(engine, tls=context) as address:
        assert address.startswith("https:")
        wrapper = Wrapper("agents", address=address, ca_file=str(certificate))
        assert wrapper.unwrap(wrapper.wrap(CANARY, CONTEXT).blob, CONTEXT) == CANARY
        with pytest.raises(KeyUnavailableError, match="SSLError") as caught:
            Wrapper("agents", address=address).describe()
        assert "ca_file" in caught.value.hint
        with pytest.raises(KeyUnavailableError):
            Wrapper("agents", address=address, ca_file="/nowhere.pem").describe()
