"""The services of the contract test: real ones, as far as they run on one host without an account."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sealpoint.errors import KeyUnavailableError
from sealpoint.keys.sources import run_command
from sealpoint.keys.wrap import aws
from sealpoint.keys.wrap.command import Wrapper as Command
from sealpoint.keys.wrap.pkcs11 import Wrapper as Pkcs11
from sealpoint.keys.wrap.vault import Wrapper as Vault
from tests.support.keys import transit
from tests.support.keys.wrapping import Service, unanswered, unreachable
from tests.wrap import programs, softhsm
from tests.wrap.softhsm import Token


@dataclass(frozen=True)
class Program:
    """A wrapper of docs/wrapped-keys.md that is set up.

    Attributes:
        folder: What the page calls /etc/sealpoint.
        variables: What it needs in its environment.
        wrapper: The wrapper.
    """

    folder: Path
    variables: dict[str, str]
    wrapper: Command


KINDS = ("aws", "vault", "real_vault", "pkcs11", *programs.NEEDED)


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


ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7CANARY",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYCANARY",
    "AWS_SESSION_TOKEN": "IQoJb3JpZ2luX2VjCANARY",
}


@pytest.fixture(scope="session")
def kms_keys(moto: str) -> tuple[Any, str, str]:
    """A client of the emulator, and two keys."""
    key, secret, token = ACCOUNT.values()
    client = import_module("boto3").client(
        "kms",
        "eu-central-1",
        endpoint_url=moto,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
    )
    one, other = (client.create_key()["KeyMetadata"]["Arn"] for _ in range(2))
    return client, one, other


@pytest.fixture
def kms(moto: str, kms_keys: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch) -> Service:
    client, one, other = kms_keys
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    for name, value in ACCOUNT.items():
        monkeypatch.setenv(name, value)

    def rotate() -> None:
        logging.disable()  # what this client logs is no subject of the test
        try:
            client.rotate_key_on_demand(KeyId=one)
        finally:
            logging.disable(logging.NOTSET)

    silent = {**aws.CONFIG, "read_timeout": 1}
    return Service(
        aws.Wrapper(one),
        aws.Wrapper(other),
        gone=unreachable("AWS_ENDPOINT_URL"),
        silent=unanswered("AWS_ENDPOINT_URL", "sealpoint.keys.wrap.aws.CONFIG", silent),
        rotate=rotate,
        foreign=KeyUnavailableError,  # AccessDenied; KMS says IncorrectKey
        secrets=tuple(ACCOUNT.values())[1:],
        flips=12,  # each is a request
    )


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A stand-in for Vault."""
    with transit.running() as (address, _):
        monkeypatch.setenv("VAULT_ADDR", address)
        monkeypatch.setenv("VAULT_TOKEN", transit.TOKEN)
        yield vault_service()


@pytest.fixture
def real_vault(monkeypatch: pytest.MonkeyPatch) -> Service:
    """A server that is only for tests, e.g. `vault server -dev`: keys are made in it."""
    address = os.environ.get("SEALPOINT_TEST_VAULT_ADDR")
    if address is None:
        pytest.skip("no Vault: set SEALPOINT_TEST_VAULT_ADDR and VAULT_TOKEN")
    monkeypatch.setenv("VAULT_ADDR", address)
    return vault_service()


def vault_service() -> Service:
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
        silent=unanswered("VAULT_ADDR", "sealpoint.keys.wrap.vault.TIMEOUT_SECONDS", (1, 1)),
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


SERVERS = {"tpm": programs.running_tpm, "keyring": programs.running_keyring}


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Program]]:
    """Sets a wrapper of the page up, once: its folder and the variables that it needs."""
    made: dict[str, Program] = {}
    with ExitStack() as stack:

        def set_up(name: str) -> Program:
            if name not in made:
                if lacking := programs.missing(name):
                    pytest.skip(lacking)
                # Short: the path of a socket has at most 107 bytes.
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="wrap-")))
                server = SERVERS.get(name)
                variables = stack.enter_context(server(folder)) if server else {}
                section = programs.read_section(name, folder)
                programs.run_setup(section, variables)
                made[name] = Program(folder, variables, programs.make_wrapper(section, folder))
                programs.record_programs(folder, name)
            return made[name]

        yield set_up


def run_briefly(argv: Sequence[str], _: float, *, text: bytes) -> bytes:
    return run_command(argv, 1, text=text)


def program_service(name: str, program: Program, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service of a program."""
    for variable, value in program.variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PATH", f"{program.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")

    @contextmanager
    def first_on_path(scripts: Path) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
            patch.setattr("sealpoint.keys.wrap.command.run_command", run_briefly)
            yield

    def scripts(line: str) -> Path:
        folder = program.folder / line.partition(" ")[0]
        folder.mkdir(exist_ok=True)
        for needed in programs.NEEDED[name]:
            (folder / needed).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
            (folder / needed).chmod(0o755)
        return folder

    return Service(
        program.wrapper,
        program.wrapper,
        gone=lambda: first_on_path(scripts("false")),
        silent=lambda: first_on_path(scripts("sleep 300")),
        flips=12,  # each starts a process
        damaged=KeyUnavailableError,  # a program that fails does not say why
        record=program.folder / "record",
    )


@pytest.fixture(params=KINDS)
def service(
    request: pytest.FixtureRequest,
    environments: Callable[[str], Program],
    monkeypatch: pytest.MonkeyPatch,
) -> Service:
    if request.param in programs.NEEDED:
        return program_service(request.param, environments(request.param), monkeypatch)
    found: Service = request.getfixturevalue({"aws": "kms"}.get(request.param, request.param))
    return found
