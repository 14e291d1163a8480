"""The services of the contract test: real ones, as far as they run on one host without an account."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module

import pytest

from sealpoint.errors import KeyUnavailableError
from sealpoint.keys.wrap import aws
from tests.support.wrapping import Service, unanswered, unreachable

KINDS = ("aws",)


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

    short = {**aws.CONFIG, "read_timeout": 0.1, "retries": {"total_max_attempts": 1}}
    monkeypatch.setattr(aws, "CONFIG", short)
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


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue({"aws": "kms"}.get(request.param, request.param))
    return found
