"""Signed notes: text with signatures below it, and the keys that verify them.

    note    text that ends with a newline, an empty line, signature lines
    line    em dash, space, name, space, base64(key id, 4 bytes | signature, 64 bytes)
    key id  SHA-256(name | 0A | 01 | public key)[:4]
    vkey    name + key id in hex + base64(01 | public key), with a plus sign between them

Source: C2SP signed-note.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sealpoint.crypto.signing import PUBLIC_BYTES, SIGNATURE_BYTES, is_signed
from sealpoint.errors import NoteError, SignatureError, excerpt

MAX_BYTES: Final = 1 << 16
MAX_NAME_CHARS: Final = 255
_ED25519: Final = b"\x01"
_ID_BYTES: Final = 4
# Those of ASCII, which C2SP refuses; of Latin-1, and those that change the order or the form of what follows.
_CONTROLS: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_KEY: Final = re.compile(r"([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)")


def require_name(name: str) -> str:
    """Return the name of a key, or the origin of a ledger."""
    # ASCII: two names that look the same are the same.
    if re.fullmatch(r"[!-*,-~]{1,255}", name) is None:
        raise NoteError(
            f"{excerpt(name)} is not a name for a ledger",
            hint="use a name like example.org/agents: letters, digits and punctuation without spaces and '+'",
        )
    return name


def _decode_canonical(text: str) -> bytes:
    """Return the bytes of base64; none if it has another form than `base64.b64encode` gives it."""
    with suppress(ValueError):
        data = base64.b64decode(text, validate=True)
        # Python ignores the last bits of the last character: one value would have several forms.
        if base64.b64encode(data).decode() == text:
            return data
    return b""


def decode_base64(text: str, size: int, what: str) -> bytes:
    """Return the bytes of canonical base64."""
    data = _decode_canonical(text)
    if len(data) != size:
        raise NoteError(f"{what} is not base64 of {size} bytes")
    return data


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """The public key of a signer, with its name.

    Attributes:
        name: The name; for a ledger, its origin.
        public: The public key of Ed25519, 32 bytes.
    """

    name: str
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The 4 bytes by which a signature line names the key."""
        return sha256(self.name.encode() + b"\n" + _ED25519 + self.public).digest()[:_ID_BYTES]

    def __str__(self) -> str:
        encoded = base64.b64encode(_ED25519 + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Parse a verifier key.

        Raises:
            NoteError: If it is none, or its parts do not belong together.
        """
        found = _KEY.fullmatch(text)
        if found is None:
            raise NoteError(f"{excerpt(text)} is not a verifier key: NAME+ID+KEY")
        encoded = decode_base64(found[3], 1 + PUBLIC_BYTES, "the verifier key")
        if encoded[:1] != _ED25519:
            raise NoteError(f"the verifier key is of algorithm {encoded[0]}, not 1, which is Ed25519")
        key = cls(require_name(found[1]), encoded[1:])
        if key.key_id.hex() != found[2]:
            raise NoteError(f"the verifier key says id {found[2]}, and has {key.key_id.hex()}")
        return key


def format_note(text: str, key: VerifierKey, signature: bytes) -> bytes:
    """Return a note with one signature."""
    line = base64.b64encode(key.key_id + signature).decode()
    return f"{text}\n— {key.name} {line}\n".encode()


def open_note(note: bytes, key: VerifierKey) -> str:
    """Return the text of a note that a key has signed. Signatures of other keys are not checked."""
    text, lines = _split(note)
    data = text.encode()
    own = [signature for name, key_id, signature in lines if (name, key_id) == (key.name, key.key_id)]
    if not own:
        raise SignatureError(f"the note has no signature of {key.name}+{key.key_id.hex()}")
    if not all(len(one) == SIGNATURE_BYTES and is_signed(key.public, one, data) for one in own):
        raise SignatureError(f"the signature of {key.name}+{key.key_id.hex()} is wrong")
    return text


def _split(note: bytes) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """Return the text of a note, and of each signature line the name, the key id and the signature."""
    if len(note) > MAX_BYTES:
        raise NoteError(f"a signed note has at most {MAX_BYTES} bytes, and this has {len(note)}")
    try:
        whole = note.decode()
    except UnicodeDecodeError:
        raise NoteError("the note is not UTF-8") from None
    if _CONTROLS.search(whole):
        raise NoteError("the note has control characters")
    text, separator, signatures = whole.rpartition("\n\n")
    if not separator or not signatures.endswith("\n"):
        raise NoteError("the note has no signatures below an empty line")
    return text + "\n", [_parse_line(line) for line in signatures[:-1].split("\n")]


def _parse_line(line: str) -> tuple[str, bytes, bytes]:
    dash, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    data = _decode_canonical(encoded)
    if dash != "—" or not name or len(data) <= _ID_BYTES:
        raise NoteError(f"{excerpt(line)} is not a signature line")
    return name, data[:_ID_BYTES], data[_ID_BYTES:]
