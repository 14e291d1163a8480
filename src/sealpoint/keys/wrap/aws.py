"""Keys wrapped by AWS KMS, with the `WrapContext` as KMS encryption context.

    [[wrapper]]
    id = "aws-prod"
    kind = "aws"
    key = "arn:aws:kms:eu-central-1:111122223333:key/..."   # or key id, or alias/NAME
    region = "eu-central-1"                                 # by default that of the ARN, or of the SDK
    profile = "agents"                                      # by default that of the SDK

Credentials and the endpoint (AWS_ENDPOINT_URL) are resolved by botocore.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from sealpoint.errors import KeyUnavailableError, WrappedKeyError, excerpt
from sealpoint.keys.sources import get_text, require_fields, require_text
from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, WrapperState, call_in_time, load_sdk
from sealpoint.utc import format_utc

# One attempt: `sealpoint.keys.wrap.wrapper` repeats it.
CONFIG: Final = {"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 1}}
_FOREIGN: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
# Errors whose text names the caller or the key. Texts of other errors may quote the request, e.g. its headers
# with a session token (SignatureDoesNotMatch).
_QUOTED: Final = frozenset(
    {
        "AccessDeniedException",
        "DisabledException",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
        "ThrottlingException",
    }
)
# The code of an error of AWS, or the HTTP status of an answer without a code.
_CODE: Final = re.compile(r"[A-Z][A-Za-z]*|[0-9]{3}")
_HINTS: Final = {
    "AccessDeniedException": "allow kms:Decrypt for the key to this role, and kms:Encrypt to wrap keys",
    "ConnectTimeoutError": "check the network of this process, and the region of the key",
    "EndpointConnectionError": "check the network of this process, and the region of the key",
    "NoCredentialsError": "give this process a role or a profile of AWS; the ring contains no credentials",
    "NoRegionError": "name the key by its ARN, or add region to the [[wrapper]]",
}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A symmetric key of AWS KMS."""

    kind: ClassVar = "aws"
    key: str  # ARN, id or alias (``alias/NAME``)
    region: str | None = None  # by default the region in the ARN, or in the SDK's configuration
    profile: str | None = None

    @classmethod
    def parse(cls, table: Mapping[str, object], where: str, _: Path) -> Self:
        """Check the fields of a ``[[wrapper]]`` table other than ``id`` and ``kind``."""
        require_fields(table, {"key", "region", "profile"}, {"key"}, where)
        key = require_text(table, "key", where)
        return cls(key, get_text(table, "region", where), get_text(table, "profile", where))

    @property
    def location(self) -> str:
        """The ARN, id or alias of the KMS key, for messages."""
        return self.key

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        """Encrypt key material, at most 4096 bytes."""
        parameters = {"KeyId": self.key, "Plaintext": material, "EncryptionContext": context.pairs()}
        return WrappedKey(call_in_time(self._ask, "encrypt", "CiphertextBlob", bytes, parameters))

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        """Decrypt a wrapped key, and return its material."""
        if not blob:
            raise WrappedKeyError("the wrapped key is empty")
        # KeyId: without it the service uses whatever key the blob names.
        parameters = {"KeyId": self.key, "CiphertextBlob": blob, "EncryptionContext": context.pairs()}
        material: bytes = call_in_time(self._ask, "decrypt", "Plaintext", bytes, parameters)
        return material

    def describe(self) -> WrapperState:
        """Ask for the state of the KMS key. Without the right to ask, all attributes are ``None``."""
        key = call_in_time(self._ask, "describe_key", "KeyMetadata", dict, {"KeyId": self.key})
        version = key.get("CurrentKeyMaterialId")
        return WrapperState(version if isinstance(version, str) else None, _find_problem(key))

    def _ask(self, operation: str, member: str, form: type, parameters: Mapping[str, object]) -> Any:
        exceptions = load_sdk("botocore.exceptions", "aws")
        unreadable = load_sdk("botocore.parsers", "aws").ResponseParserError
        text, may_pass = "", False
        try:
            with _without_debug_log():
                call = getattr(self._make_client(), operation)
            with _without_debug_log():  # again: botocore has created more loggers
                answer = call(**parameters)
            found = answer.get(member)
            if isinstance(found, form):
                return found
            code = f"the answer of AWS KMS has no {member}"
        except exceptions.ClientError as failed:
            error = failed.response.get("Error", {})
            code, text = str(error.get("Code")), str(error.get("Message", ""))
            code = code if _CODE.fullmatch(code) else "an error without a code"
            status = failed.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            may_pass = status >= 500 or code == "ThrottlingException"
        # ValueError: an endpoint that is not a URL. The other errors: an answer that is not from KMS or STS.
        # Their texts may quote configuration, or the answer.
        except (
            exceptions.BotoCoreError,
            unreadable,
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as failed:
            code = type(failed).__name__
            may_pass = isinstance(failed, exceptions.ConnectionError | exceptions.HTTPClientError)
        if operation == "describe_key" and code == "AccessDeniedException":
            return form()
        if code in _FOREIGN:
            raise WrappedKeyError(f"the KMS key did not encrypt this key for this ring and key id ({code})")
        shown = f"{code}: {excerpt(text)}" if text and code in _QUOTED else code
        raise KeyUnavailableError(shown, hint=_HINTS.get(code), may_pass=may_pass)

    def _make_client(self) -> Any:
        # A new client for each call: a client keeps credentials, and connections that a fork would share.
        # Set on the session, the limits also apply to STS, which issues some credentials.
        session = load_sdk("botocore.session", "aws").Session(profile=self.profile)
        session.set_default_client_config(load_sdk("botocore.config", "aws").Config(**CONFIG))
        session.register_component("data_loader", _get_loader(session.get_config_variable("data_path")))
        parts = self.key.split(":")
        region = self.region or (parts[3] if len(parts) > 5 else "")
        return session.create_client("kms", region_name=region or None)


@cache
def _get_loader(data_path: str | None) -> Any:
    """Return a loader that caches the SDK's descriptions of services, which are megabytes of JSON."""
    return load_sdk("botocore.loaders", "aws").create_loader(data_path)


def _find_problem(key: Mapping[str, Any]) -> str | None:
    """Return the reason why a KMS key with this metadata cannot decrypt; ``None`` if it can."""
    state = key.get("KeyState", "Enabled")
    if state in ("PendingDeletion", "PendingReplicaDeletion"):
        date = key.get("DeletionDate")
        return f"waits for deletion at {format_utc(date)}" if date else "waits for deletion"
    if state != "Enabled":
        return f"is in the state {excerpt(state)}"
    if key.get("KeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
        return f"is not a symmetric key for encryption: {excerpt(key['KeySpec'])}"
    return None


_calls: Final = threading.local()


@contextmanager
def _without_debug_log() -> Iterator[None]:
    """Drop this thread's DEBUG log records of botocore, which contain the bodies of requests and answers."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("botocore"):
            logging.getLogger(name).addFilter(_is_logged)  # never removed, and added once
    _calls.are_quiet = True
    try:
        yield
    finally:
        _calls.are_quiet = False


def _is_logged(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG or not getattr(_calls, "are_quiet", False)
