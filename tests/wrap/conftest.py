"""The services of the contract test: real ones, as far as they run on one host without an account."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import pytest

from sealpoint.errors import KeyUnavailableError
from sealpoint.keys.wrap import aws
from sealpoint.keys.wrap.pkcs11 import Wrapper as Pkcs11
from sealpoint.keys.wrap.vault import Wrapper as Vault
from tests.support import softhsm, transit
from tests.support.softhsm import Token
from tests.support.wrapping import Service, unanswered, unreachable

KINDS = ("aws", "vault", "real_vault", "pkcs11")


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The address of an emulator of AWS within this process."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def kms(moto: str, monkeypatch: pytest.MonkeyPatch) -> Service:
    secret = "wJalrXUtnFEMIK7MDENGbPxRfiCYCANARY"
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7CANARY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "IQoJb3JpZ2luX2VjCANARY")
    client = import_module("boto3").client("kms", region_name="eu-central-1")
    one, other = (client.create_key()["KeyMetadata"]["Arn"] for _ in range(2))

    def rotate() -> None:
        logging.disable()  # what this client logs is no subject of the test
        client.rotate_key_on_demand(KeyId=one)
        logging.disable(logging.NOTSET)

    monkeypatch.setattr(aws, "CONFIG", {**aws.CONFIG, "read_timeout": 1})
    return Service(
        aws.Wrapper(one),
        aws.Wrapper(other),
        gone=unreachable("AWS_ENDPOINT_URL"),
        silent=unanswered("AWS_ENDPOINT_URL"),
        rotate=rotate,
        foreign=KeyUnavailableError,  # AccessDenied; KMS says IncorrectKey
        secrets=(secret, "IQoJb3JpZ2luX2VjCANARY"),
        flips=8,  # each is a request
    )


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A stand-in for Vault."""
    with transit.running() as (address, _):
        monkeypatch.setenv("VAULT_ADDR", address)
        monkeypatch.setenv("VAULT_TOKEN", transit.TOKEN)
        yield vault_service(monkeypatch)


@pytest.fixture
def real_vault(monkeypatch: pytest.MonkeyPatch) -> Service:
    """A server that is only for tests, e.g. `vault server -dev`: keys are made in it."""
    address = os.environ.get("SEALPOINT_TEST_VAULT_ADDR")
    if address is None:
        pytest.skip("no Vault: set SEALPOINT_TEST_VAULT_ADDR and VAULT_TOKEN")
    monkeypatch.setenv("VAULT_ADDR", address)
    return vault_service(monkeypatch)


def vault_service(monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr("sealpoint.keys.wrap.vault.TIMEOUT_SECONDS", (1, 1))
    hvac = import_module("hvac")
    client = hvac.Client()
    with suppress(hvac.exceptions.InvalidRequest):  # it is enabled
        client.sys.enable_secrets_engine("transit", path="sealpoint-test")
    keys = {"mount_point": "sealpoint-test"}
    one, other = f"one-{secrets.token_hex(4)}", f"other-{secrets.token_hex(4)}"
    for name in (one, other):
        client.secrets.transit.create_key(name, **keys)

    @contextmanager
    def disabled() -> Iterator[None]:
        client.secrets.transit.rotate_key(one, **keys)
        client.secrets.transit.update_key_configuration(one, min_decryption_version=2, **keys)
        yield
        client.secrets.transit.update_key_configuration(one, min_decryption_version=1, **keys)

    return Service(
        Vault(one, "sealpoint-test"),
        Vault(other, "sealpoint-test"),
        gone=unreachable("VAULT_ADDR"),
        silent=unanswered("VAULT_ADDR"),
        disabled=disabled,
        rotate=lambda: client.secrets.transit.rotate_key(one, **keys),
        secrets=(client.token,),
    )


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> Token:
    if softhsm.MISSING:
        pytest.skip(softhsm.MISSING)
    made = softhsm.make_token(tmp_path_factory.mktemp("softhsm"))
    made.generate("one", "other")
    return made


@pytest.fixture
def pkcs11(token: Token, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """SoftHSM."""
    pin = tmp_path / "pin"
    pin.touch(0o600)
    pin.write_text(f"{softhsm.PIN}\n", encoding="utf-8")
    table = {"module": str(softhsm.MODULE), "token": softhsm.LABEL, "pin": {"file": "pin"}}
    one, other = (Pkcs11.parse({**table, "key": key}, "a test", tmp_path) for key in ("one", "other"))
    monkeypatch.setenv("SOFTHSM2_CONF", str(token.config))

    @contextmanager
    def configured(config: Path, timeout_seconds: float) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SOFTHSM2_CONF", str(config))
            patch.setattr("sealpoint.keys.wrap.pkcs11.TIMEOUT_SECONDS", timeout_seconds)
            yield

    @contextmanager
    def disabled() -> Iterator[None]:
        token.permit_decrypt("one", False)
        yield
        token.permit_decrypt("one", True)

    return Service(
        one,
        other,
        gone=lambda: configured(token.empty, 20),
        silent=lambda: configured(token.hanging, 1),
        disabled=disabled,
        secrets=(softhsm.PIN,),
        flips=6,  # each starts a process
    )


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue({"aws": "kms"}.get(request.param, request.param))
    return found
