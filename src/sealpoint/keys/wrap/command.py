"""Kind ``command``: two programs that encrypt and decrypt, from standard input to standard output.

    [[wrapper]]
    id = "age"
    kind = "command"
    wrap = ["age", "--encrypt", "--recipient", "age1..."]
    unwrap = ["age", "--decrypt", "--identity", "/etc/sealpoint/age.txt"]
    timeout_seconds = 10                  # of each call

Few programs take associated data, so they encrypt one line of ASCII with the context and the material:

    {"material":"BASE64","sealpoint:key":"k27a","sealpoint:ring":"agents"}
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import ClassVar, Final

from sealpoint.errors import KeyUnavailableError, SourceError, WrappedKeyError, excerpt
from sealpoint.keys.sources import TIMEOUT_SECONDS, get_seconds, require_fields, require_words, run_command
from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, WrapperState

MAX_TIMEOUT_SECONDS: Final = 60.0

_MATERIAL: Final = "material"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Wraps a key by one program, and unwraps it by another program."""

    kind: ClassVar = "command"
    wrap_argv: tuple[str, ...] = field(repr=False, compare=False)
    unwrap_argv: tuple[str, ...] = field(repr=False)
    timeout_seconds: float = field(default=TIMEOUT_SECONDS, compare=False)

    @classmethod
    def parse(cls, table: Mapping[str, object], where: str, _: Path, /) -> Wrapper:
        """Create a wrapper from its table in a ring file."""
        require_fields(table, {"wrap", "unwrap", "timeout_seconds"}, {"wrap", "unwrap"}, where)
        seconds = get_seconds(table, "timeout_seconds", where, TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
        wrap, unwrap = (require_words(table[name], f"{where}: '{name}'") for name in ("wrap", "unwrap"))
        return cls(wrap, unwrap, seconds)

    @property
    def location(self) -> str:
        """The program that unwraps, without its arguments, which may contain a token."""
        return self.unwrap_argv[0]

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        """Encrypt key material by the program ``wrap``."""
        return WrappedKey(self._run(self.wrap_argv, format_bound(material, context)))

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        """Decrypt a wrapped key by the program ``unwrap``, and return its material."""
        return parse_bound(self._run(self.unwrap_argv, blob), context)

    def describe(self) -> WrapperState:
        """Return a state without attributes: no program describes the wrapping key."""
        return WrapperState()

    def _run(self, argv: tuple[str, ...], text: bytes) -> bytes:
        try:
            return run_command(argv, self.timeout_seconds, text=text)
        except SourceError as error:
            # Not repeated: a program that waits for a network has retries of its own.
            hint = "run the command by hand, as the same account, to see why"
            raise KeyUnavailableError(str(error), hint=hint) from None


def format_bound(material: bytes, context: WrapContext) -> bytes:
    """Return material and its context as one line of ASCII, for a program to encrypt."""
    pairs = {**context.pairs(), _MATERIAL: b64encode(material).decode()}
    return json.dumps(pairs, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def parse_bound(text: bytes, context: WrapContext) -> bytes:
    """Return the material in a line of `format_bound`; raise if the line contains another context."""
    material, found = b"", context
    with suppress(ValueError, RecursionError, TypeError, LookupError):
        pairs = json.loads(text)
        material = b64decode(pairs[_MATERIAL], validate=True)
        found = WrapContext(str(pairs.get("sealpoint:ring")), str(pairs.get("sealpoint:key")))
    # The whole line is compared, not its parts: it may contain nothing else.
    if material and compare_digest(format_bound(material, context), text.rstrip(b"\r\n") + b"\n"):
        return material
    if material and found != context:
        raise WrappedKeyError(f"it was wrapped for key {excerpt(found.key)} of ring {excerpt(found.ring)}")
    raise WrappedKeyError("the command's output is not a key that sealpoint wrapped")
