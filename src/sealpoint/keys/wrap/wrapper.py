"""Wrapper: encrypts key material under a key that another service holds, and decrypts it again.

A call has up to `ATTEMPTS` attempts; the last begins at most `AGAIN_SECONDS` after the first. An attempt has
a time limit, 10 seconds by default, so a call ends after 20 seconds at most.

The module of a kind is imported when a ring file has a wrapper of this kind. The SDK of the service, which is
part of an extra, is imported at the first call. Another package can add a kind by an entry point:

    [project.entry-points."sealpoint.wrappers"]
    hsm9 = "its_package:Wrapper"          # kind = "hsm9" in a ring file
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

from sealpoint.errors import KeyUnavailableError, RingFileError, WrappedKeyError, excerpt

# Size of a wrapped key. A wrapped key of 32 bytes has under 300 bytes in AWS KMS and in Vault.
MAX_BLOB_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class WrapContext:
    """The ring and key id to which a wrapped key is bound: for any other it cannot be unwrapped.

    Attributes:
        ring: Name of the ring.
        key: Id of the wrapped key in the ring.
    """

    ring: str
    key: str

    def pairs(self) -> dict[str, str]:
        """Return the context as a dict of names and values, e.g. for an encryption context of AWS."""
        return {"sealpoint:key": self.key, "sealpoint:ring": self.ring}

    def to_bytes(self) -> bytes:
        """Return the context as associated data: compact JSON in UTF-8 with sorted names."""
        import json

        return json.dumps(self.pairs(), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A wrapped key.

    Attributes:
        blob: The encrypted key, as the service returned it: at most `MAX_BLOB_BYTES` bytes.
        version: Version of the wrapping key, if the service named a version.
    """

    blob: bytes
    version: str | None = None


@dataclass(frozen=True, slots=True)
class WrapperState:
    """The state of a wrapping key, as its service describes it.

    Attributes:
        version: Present version of the wrapping key, if the service has versions.
        problem: Reason why the wrapping key cannot unwrap, or soon cannot; e.g. it is disabled.
    """

    version: str | None = None
    problem: str | None = None


class Wrapper(Protocol):
    """A wrapping key and the service that holds it. Equal wrappers unwrap the same blobs.

    An instance contains no credential. A call has a time limit of about 10 seconds, and is repeated if its
    error has ``may_pass``. Messages of errors need not name kind and location, must not contain material, and
    must not have the SDK's exception as context. Several threads, and children after a fork, may call.
    """

    kind: ClassVar[str]
    """The name of the kind in a ring file."""

    @classmethod
    def parse(cls, table: Mapping[str, object], where: str, folder: Path, /) -> Self:
        """Create a wrapper from its table in a ring file. No SDK is imported, and no service is called.

        Args:
            table: The table without the fields ``id`` and ``kind``.
            where: Name of the file and table, for messages.
            folder: Folder of the ring file; relative paths in the table are within this folder.

        Raises:
            RingFileError: If a field is unknown, missing, or of the wrong type.
        """

    @property
    def location(self) -> str:
        """The service and its key, for messages."""

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        """Encrypt key material.

        Args:
            material: The key to encrypt, 32 bytes (LANGGRAPH_AES_KEY: 16, 24 or 32).
            context: The ring and key id to which the service binds the wrapped key.

        Raises:
            KeyUnavailableError: If the service does not answer or refuses.
        """

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        """Decrypt a wrapped key.

        Args:
            blob: The encrypted key that `wrap` returned.
            context: The ring and key id to which the wrapped key is bound.

        Raises:
            KeyUnavailableError: If the service does not answer or refuses.
            WrappedKeyError: If this wrapper did not make ``blob`` for this context.
        """

    def describe(self) -> WrapperState:
        """Ask the service for the state of the wrapping key. Unknown attributes are ``None``.

        Raises:
            KeyUnavailableError: If the service does not answer or refuses.
        """


ATTEMPTS: Final = 3
AGAIN_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.4  # longest pause before the second attempt; before the third attempt, twice as long

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class NamedWrapper:
    """A wrapper with its id in the ring file; repeats failed calls."""

    id: str
    wrapper: Wrapper

    @property
    def name(self) -> str:
        """Id, kind and service of the wrapper, for messages."""
        return f"wrapper {self.id!r} ({self.wrapper.kind}, {self.wrapper.location})"

    def wrap(self, material: bytes, context: WrapContext) -> WrappedKey:
        """Encrypt key material; unwrap the result and compare it with the material."""
        wrapped = self._ask(lambda: self.wrapper.wrap(material, context))
        if not 0 < len(wrapped.blob) <= MAX_BLOB_BYTES:
            size = f"{len(wrapped.blob)} bytes instead of 1 to {MAX_BLOB_BYTES}"
            raise WrappedKeyError(f"{self.name} returned a wrapped key of {size}", hint=_WRONG)
        if self.unwrap(wrapped.blob, context) != material:
            raise WrappedKeyError(f"{self.name} wraps a key, but does not unwrap it again", hint=_WRONG)
        return wrapped

    def unwrap(self, blob: bytes, context: WrapContext) -> bytes:
        """Decrypt a wrapped key, and return its material."""
        try:
            return self._ask(lambda: self.wrapper.unwrap(blob, context))
        except WrappedKeyError as error:
            fits = f"not a wrapped key {context.key!r} of ring {context.ring!r}"
            raise WrappedKeyError(f"{self.name}: {fits}: {error}", hint=error.hint) from None

    def describe(self) -> WrapperState:
        """Ask the service for the state of the wrapping key."""
        return self._ask(self.wrapper.describe)

    def _ask(self, call: Callable[[], _Answer]) -> _Answer:
        started = monotonic()
        for attempt in range(ATTEMPTS):
            try:
                return call()
            except KeyUnavailableError as error:
                refusal = KeyUnavailableError(f"{self.name}: {error}", hint=error.hint)
                may_pass = error.may_pass
            # Random, so that processes that failed together do not ask again together.
            pause = random.uniform(0.5, 1.0) * PAUSE_SECONDS * 2**attempt  # noqa: S311 -- not a secret
            is_last = attempt + 1 == ATTEMPTS or monotonic() + pause - started > AGAIN_SECONDS
            if is_last or not may_pass:
                break
            sleep(pause)
        raise refusal


_WRONG: Final = "correct the wrapper's entry in the ring; no key was changed"

GROUP: Final = "sealpoint.wrappers"  # the entry points of kinds of other packages
# Modules of the built-in kinds, each with a class ``Wrapper``. No package can replace a built-in kind.
BUILT_IN: Final[Mapping[str, str]] = {
    "command": "sealpoint.keys.wrap.command",
    "aws": "sealpoint.keys.wrap.aws",
    "vault": "sealpoint.keys.wrap.vault",
    "pkcs11": "sealpoint.keys.wrap.pkcs11",
}


def parse_wrapper(kind: str, table: Mapping[str, object], where: str, folder: Path) -> Wrapper:
    """Create a wrapper from its table in a ring file; ``kind`` selects the class."""
    if kind in BUILT_IN:
        built_in: type[Wrapper] = import_module(BUILT_IN[kind]).Wrapper
        return built_in.parse(table, where, folder)
    found = entry_points(group=GROUP)
    named = [point for point in found if point.name == kind]
    if len(named) > 1:
        packages = ", ".join(sorted(point.dist.name if point.dist else point.value for point in named))
        raise RingFileError(f"{where}: several packages provide kind {excerpt(kind)}: {packages}")
    if not named:
        known = ", ".join((*BUILT_IN, *sorted({point.name for point in found} - BUILT_IN.keys())))
        hint = f"correct 'kind', or install the package that provides it; installed: {known}"
        raise RingFileError(f"{where}: there is no kind of wrapper {excerpt(kind)}", hint=hint)
    try:
        found_kind: type[Wrapper] = named[0].load()
    except (ImportError, AttributeError) as error:
        problem = f"kind {excerpt(kind)} cannot be loaded from {named[0].value}: {type(error).__name__}"
        raise RingFileError(f"{where}: {problem}", hint="install its package again") from None
    return found_kind.parse(table, where, folder)


CALL_SECONDS: Final = 10.0
SDK_THREAD: Final = "sealpoint-sdk"


def load_sdk(module: str, extra: str) -> Any:
    """Import the module of an SDK; if it is missing, the error names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
    hint = f"pip install 'sealpoint[{extra}]'"
    raise KeyUnavailableError(f"package {missing!r} of the extra {extra!r} is not installed", hint=hint)


def call_in_time(call: Callable[..., _Answer], *given: object, **named: object) -> _Answer:
    """Call a function of an SDK in a thread, with a time limit; return its result, or raise its error.

    Time limits of an SDK apply between two packets, and not to name servers: without the limit here, an
    answer that comes byte by byte could take for ever. After the limit the thread runs until the call ends.
    """
    answer = Future[_Answer]()

    def run() -> None:
        try:
            answer.set_result(call(*given, **named))
        except BaseException as error:  # noqa: BLE001 -- raised by the thread that waits
            answer.set_exception(error)

    Thread(target=run, name=SDK_THREAD, daemon=True).start()
    if wait([answer], CALL_SECONDS).done:
        return answer.result()
    problem = f"no answer in {CALL_SECONDS:g} seconds"
    raise KeyUnavailableError(problem, hint="check the network and the name servers", may_pass=True)
