"""The kind `aws`: its fields, what it asks, and what it says of each error of the service.

The errors come from a server on this host, in the form that KMS documents. tests/wrap has an emulator.
"""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest

from sealpoint.errors import KeyUnavailableError, RingFileError, WrappedKeyError
from sealpoint.keys.wrap import WrapperState
from sealpoint.keys.wrap import wrapper as sdk
from sealpoint.keys.wrap.aws import Wrapper
from tests.support.keys.answers import Answer, Request, answering, refused, silent
from tests.support.keys.wrapping import CANARY, CONTEXT, Forms, shown

ARN = "arn:aws:kms:eu-west-3:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TOKEN = "IQoJb3JpZ2luX2VjCANARY"
HERE = Path()


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7CANARY",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYCANARY",
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def service(status: int, said: object, seen: list[Request] | None = None) -> Iterator[None]:
    """A service that answers every request so."""

    def answer(request: Request) -> Answer:
        if seen is not None:
            seen.append(request)
        return status, said

    with answering(answer) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        yield


def error_of(code: str, text: str = "") -> dict[str, str]:
    return {"__type": code, "message": text}


def test_fields() -> None:
    table = {"key": "alias/agents", "region": "eu-west-3", "profile": "agents"}
    assert Wrapper.parse(table, "[[wrapper]]", HERE) == Wrapper("alias/agents", "eu-west-3", "agents")
    assert Wrapper.parse({"key": ARN}, "[[wrapper]]", HERE) == Wrapper(ARN)
    wrong: dict[str, dict[str, object]] = {
        "lacks the field 'key'": {},
        "unknown field 'endpoint'": {"key": ARN, "endpoint": "http://x"},
        "'region' is not one line of text": {"key": ARN, "region": True},
    }
    for problem, fields in wrong.items():
        with pytest.raises(RingFileError, match=f"a wrapper.*{problem}"):
            Wrapper.parse(fields, "a wrapper", HERE)


def test_requests_name_the_key_and_the_context() -> None:
    """On decryption too: without the key KMS would use whatever key the blob names."""
    seen: list[Request] = []
    encoded = base64.b64encode(CANARY).decode()
    with service(200, {"CiphertextBlob": "YmxvYg==", "Plaintext": encoded}, seen):
        assert Wrapper(ARN).wrap(CANARY, CONTEXT).blob == b"blob"
        assert Wrapper(ARN).unwrap(b"blob", CONTEXT) == CANARY
    context = {"sealpoint:ring": "agents", "sealpoint:key": "k1"}
    assert [json.loads(request.body) for request in seen] == [
        {"KeyId": ARN, "Plaintext": encoded, "EncryptionContext": context},
        {"KeyId": ARN, "CiphertextBlob": "YmxvYg==", "EncryptionContext": context},
    ]
    assert all("/eu-west-3/kms/" in request.headers["authorization"] for request in seen)
    for code in ("InvalidCiphertextException", "IncorrectKeyException"):
        with service(400, error_of(code)), pytest.raises(WrappedKeyError, match=code):
            Wrapper(ARN).unwrap(b"blob", CONTEXT)
    with service(200, {"KeyMetadata": {}}, seen):
        Wrapper(ARN, region="us-east-2").describe()
    assert "/us-east-2/kms/" in seen[-1].headers["authorization"]


QUOTED = f"{TOKEN} {CANARY.decode()} {CANARY.hex()} {base64.b64encode(CANARY).decode()}"
ANSWERS: list[tuple[int, object]] = [
    (400, error_of("SignatureDoesNotMatch", f"x-amz-security-token:{QUOTED}")),
    (500, error_of("KMSInternalException", QUOTED)),
    (400, error_of(CANARY.decode())),
    (400, error_of(CANARY.hex())),
    (502, f"<html>{QUOTED}".encode()),
    (200, f"<html>{QUOTED}".encode()),
    (200, {"error": CANARY.hex()}),
    (200, [1]),
    (200, b"[" * 100_000),
    (200, {"Plaintext": 5, "CiphertextBlob": [1], "KeyMetadata": "text"}),
    (200, {"Plaintext": None, "CiphertextBlob": {}, "KeyMetadata": [1]}),
    (200, {"KeyMetadata": {"KeyState": "PendingDeletion", "DeletionDate": 1e300}}),
    (400, {"__type": ["text"]}),
    (400, {"__type": 5}),
]


@pytest.mark.parametrize(("status", "said"), ANSWERS)
def test_answer_of_another_form_shows_nothing(
    status: int, said: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of an error may quote the request."""
    caplog.set_level(logging.DEBUG)
    wrapper = Wrapper(ARN)
    with service(status, said):
        for call in (
            lambda: wrapper.wrap(CANARY, CONTEXT),
            lambda: wrapper.unwrap(b"blob", CONTEXT),
            wrapper.describe,
        ):
            with pytest.raises(KeyUnavailableError) as caught:
                call()
            assert caught.value.__context__ is None
            Forms.of(CANARY, TOKEN).require_absent(*shown(caught.value), caplog.text)


@pytest.mark.parametrize(
    "said",
    [f"<AssumeRoleWithWebIdentityResponse><Token>{TOKEN}</Token></AssumeRoleWithWebIdentityResponse>", TOKEN],
)
def test_answer_with_credentials_that_cannot_be_read(
    said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A host whose role comes from STS, in XML: botocore's errors quote the whole answer."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    (tmp_path / "identity").write_text("CANARY-identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/agents")
    with service(200, said.encode()), pytest.raises(KeyUnavailableError) as caught:
        Wrapper(ARN).unwrap(b"blob", CONTEXT)
    Forms.of(CANARY, TOKEN, "CANARY-identity").require_absent(*shown(caught.value))


def test_debug_records_of_other_threads_remain(caplog: pytest.LogCaptureFixture) -> None:
    """Those of this library's calls contain the key; what a program logs of its own calls is its own."""
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("botocore.endpoint")

    def answer(_: Request) -> Answer:
        thread = Thread(target=logger.debug, args=("of another thread",))
        thread.start()
        thread.join()
        return 200, {"KeyMetadata": {}}

    with answering(answer) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        Wrapper(ARN).describe()
    logger.debug("after the call")
    shown = [record.getMessage() for record in caplog.records if record.name.startswith("botocore.e")]
    assert shown == ["of another thread", "after the call"]


DELETION = datetime(2026, 12, 24, 12, tzinfo=UTC).timestamp()
STATES: dict[str, tuple[dict[str, object], WrapperState]] = {
    "enabled": ({"KeyState": "Enabled"}, WrapperState()),
    "material": ({"KeyState": "Enabled", "CurrentKeyMaterialId": "ab" * 32}, WrapperState(version="ab" * 32)),
    "disabled": ({"KeyState": "Disabled"}, WrapperState(problem="is in the state 'Disabled'")),
    "pending": (
        {"KeyState": "PendingDeletion", "DeletionDate": DELETION},
        WrapperState(problem="waits for deletion at 2026-12-24T12:00:00Z"),
    ),
    "pending, no date": ({"KeyState": "PendingDeletion"}, WrapperState(problem="waits for deletion")),
    "a list": ({"KeyState": ["text"]}, WrapperState(problem="is in the state 'list'")),
    "material of another form": ({"CurrentKeyMaterialId": {"a": 1}}, WrapperState()),
    "asymmetric": (
        {"KeyState": "Enabled", "KeySpec": "RSA_4096"},
        WrapperState(problem="is not a symmetric key for encryption: 'RSA_4096'"),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_states(name: str) -> None:
    """An account that may not describe the key may still use it."""
    metadata, state = STATES[name]
    with service(200, {"KeyMetadata": {"KeyId": "1234", **metadata}}):
        assert Wrapper(ARN).describe() == state
    with service(400, error_of("AccessDeniedException", "not authorized")):
        assert Wrapper(ARN).describe() == WrapperState()


@pytest.mark.parametrize(
    ("wrapper", "unset", "problem", "hint"),
    [
        *(
            (Wrapper(ARN), f"AWS_ENDPOINT_URL={endpoint}", "ValueError|ConnectionError|Invalid", "")
            for endpoint in ("nowhere", "http://[", "http://user:hunter2CANARY@127.0.0.1:1")
        ),
        (Wrapper(ARN), "AWS_ACCESS_KEY_ID", "NoCredentialsError", "role or a profile"),
        (Wrapper("alias/agents"), "AWS_REGION", "NoRegionError", "add region"),
        (Wrapper(ARN, profile="none"), "AWS_REGION", "ProfileNotFound", ""),
    ],
)
def test_settings_that_are_missing(
    wrapper: Wrapper, unset: str, problem: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = unset.partition("=")
    monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    with pytest.raises(KeyUnavailableError, match=problem) as caught:
        wrapper.unwrap(b"blob", CONTEXT)
    assert hint in caught.value.hint
    Forms.of(CANARY, "hunter2CANARY").require_absent(*shown(caught.value))


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(KeyUnavailableError, match="'botocore' of the extra 'aws' is not installed") as caught:
        Wrapper(ARN).unwrap(b"blob", CONTEXT)
    assert caught.value.hint == "pip install 'sealpoint[aws]'"


def test_service_that_is_silent_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a call waits for: a name server, or an answer that comes byte by byte."""
    monkeypatch.setattr(sdk, "CALL_SECONDS", 0.05)
    for situation, problem in ((silent, r"no answer in 0\.05 seconds"), (refused, "EndpointConnectionError")):
        with situation() as address:
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)
            with pytest.raises(KeyUnavailableError, match=problem) as caught:
                Wrapper(ARN).unwrap(b"blob", CONTEXT)
        assert caught.value.may_pass
        monkeypatch.setattr(sdk, "CALL_SECONDS", 10)


@pytest.mark.parametrize(
    ("status", "code", "text", "may_pass"),
    [
        (400, "ThrottlingException", "Rate exceeded", True),
        (500, "KMSInternalException", None, True),
        (400, "AccessDeniedException", f"User: arn:aws:iam::1:user/u is not authorized on {ARN}", False),
        (400, "DisabledException", f"{ARN} is disabled.", False),
        (400, "KMSInvalidStateException", f"{ARN} is pending deletion.", False),
        (400, "NotFoundException", f"Key '{ARN}' does not exist", False),
        (503, "", None, True),
    ],
)
def test_service_that_refuses(status: int, code: str, text: str | None, may_pass: bool) -> None:
    """What is said, and what is asked again."""
    seen: list[Request] = []
    said = error_of(code, text or "") if code else b"<html>"
    calls: list[Callable[[], object]] = [
        lambda: Wrapper(ARN).wrap(CANARY, CONTEXT),
        lambda: Wrapper(ARN).unwrap(b"blob", CONTEXT),
    ]
    if code == "NotFoundException":
        calls.append(Wrapper(ARN).describe)
    with service(status, said, seen):
        for call in calls:
            with pytest.raises(KeyUnavailableError) as caught:
                call()
            assert caught.value.may_pass is may_pass
            if text is not None:
                assert str(caught.value).startswith(f"{code}: ")
                assert str(caught.value).endswith(ascii(text))
    assert len(seen) == len(calls)


def test_models_are_read_once_for_each_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are megabytes of JSON."""
    loaders = pytest.importorskip("botocore.loaders")
    with service(200, {"KeyMetadata": {}}), monkeypatch.context() as patch:
        Wrapper(ARN).describe()
        patch.setattr(loaders.JSONFileLoader, "load_file", lambda *_: pytest.fail("read again"))
        Wrapper(ARN).describe()
        patch.setenv("AWS_DATA_PATH", str(tmp_path))
        with pytest.raises(BaseException, match="read again"):
            Wrapper(ARN).describe()


@pytest.mark.claim("k7")
def test_first_call_of_a_process_logs_no_key() -> None:
    """Before it no module of botocore is imported, and none of its loggers exists."""
    code = (
        "import logging; logging.basicConfig(level=logging.DEBUG)\n"
        "from sealpoint.keys.wrap import WrapContext\n"
        "from sealpoint.keys.wrap.aws import Wrapper\n"
        f"assert Wrapper({ARN!r}).unwrap(b'blob', WrapContext('agents', 'k1')) == {CANARY!r}\n"
    )
    with service(200, {"Plaintext": base64.b64encode(CANARY).decode()}):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "botocore" in done.stderr
    Forms.of(CANARY, TOKEN).require_absent(done.stderr)
