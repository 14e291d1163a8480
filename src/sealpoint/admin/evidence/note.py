"""Signed notes: text with signatures below it, verifier keys, and the signers of ledgers.

    note    text that ends with a newline, an empty line, signature lines
    line    em dash, space, name, space, base64(key id, 4 bytes | signature, 64 bytes)
    key id  SHA-256(name | 0A | 01 | public key)[:4]
    vkey    name + key id in hex + base64(01 | public key), with a plus sign between them

A checkpoint of a ledger (not of LangGraph) is the text of a note: size and root of the ledger, signed with
the ledger's own key, which agents do not have.

    origin  name of the ledger and of its signing key
    size    number of entries, decimal
    root    base64 of the root, see `sealpoint.merkle`

Sources: C2SP signed-note, tlog-checkpoint.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from sealpoint.admin.keys.files import fsync_path, write_private
from sealpoint.crypto.signing import PUBLIC_BYTES, SIGNATURE_BYTES, SigningKey, is_signed
from sealpoint.errors import LedgerSignerError, NoteError, SignatureError, excerpt
from sealpoint.keys.entry import LedgerTable
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import CommandSource, FileSource, run_command
from sealpoint.merkle import HASH_BYTES, Tree
from sealpoint.seal.keys import KEY_BYTES
from sealpoint.seal.places import decode_value

MAX_BYTES: Final = 1 << 16
_ED25519: Final = b"\x01"
_ID_BYTES: Final = 4
# Control characters of ASCII (refused by C2SP) and Latin-1, and characters that change the order of text.
_CONTROLS: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_KEY: Final = re.compile(r"([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)")


def require_name(name: str) -> str:
    """Return ``name`` if it is valid as the origin of a ledger, which is also the name of its key."""
    # ASCII only, so that two different names do not look the same.
    if re.fullmatch(r"[!-*,-~]{1,255}", name) is None:
        raise NoteError(
            f"{excerpt(name)} is not a valid name for a ledger",
            hint="use a name like example.org/agents: letters, digits and punctuation without spaces and '+'",
        )
    return name


def decode_base64(text: str, size: int, what: str) -> bytes:
    """Decode canonical base64 to ``size`` bytes; ``what`` names the value in errors."""
    data = decode_value(text)
    if data is None or len(data) != size:
        raise NoteError(f"{what} is not base64 of {size} bytes")
    return data


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """The public key of a signer, and the name of the key.

    Attributes:
        name: Name of the key: the origin of its ledger.
        public: Ed25519 public key, 32 bytes.
    """

    name: str
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that identify the key in a signature line."""
        return sha256(self.name.encode() + b"\n" + _ED25519 + self.public).digest()[:_ID_BYTES]

    def __str__(self) -> str:
        encoded = base64.b64encode(_ED25519 + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Parse a verifier key.

        Args:
            text: One line: ``<name>+<key id>+<key>``.

        Raises:
            NoteError: If the text is not a verifier key, or its key id does not match its public key.
        """
        found = _KEY.fullmatch(text)
        if found is None:
            raise NoteError(f"{excerpt(text)} is not a verifier key: NAME+ID+KEY")
        encoded = decode_base64(found[3], 1 + PUBLIC_BYTES, "the verifier key")
        if encoded[:1] != _ED25519:
            raise NoteError(f"the verifier key is of algorithm {encoded[0]}, not 1 (Ed25519)")
        key = cls(require_name(found[1]), encoded[1:])
        if key.key_id.hex() != found[2]:
            raise NoteError(f"the verifier key names the id {found[2]}, but its id is {key.key_id.hex()}")
        return key


def format_note(text: str, key: VerifierKey, signature: bytes) -> bytes:
    """Return the bytes of a note: the text with one signature line."""
    line = base64.b64encode(key.key_id + signature).decode()
    return f"{text}\n— {key.name} {line}\n".encode()


def open_note(note: bytes, key: VerifierKey) -> str:
    """Verify the signature of ``key`` in a note, and return the text. Ignores signatures of other keys."""
    text, lines = _split(note)
    data = text.encode()
    own = [signature for name, key_id, signature in lines if (name, key_id) == (key.name, key.key_id)]
    if not own:
        raise SignatureError(f"the note has no signature of {key.name}+{key.key_id.hex()}")
    if not all(len(one) == SIGNATURE_BYTES and is_signed(key.public, one, data) for one in own):
        raise SignatureError(f"the signature of {key.name}+{key.key_id.hex()} is invalid")
    return text


def _split(note: bytes) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    if len(note) > MAX_BYTES:
        raise NoteError(f"a signed note may have {MAX_BYTES} bytes, but this one has {len(note)}")
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
    data = decode_value(encoded)
    if dash != "—" or not name or data is None or len(data) <= _ID_BYTES:
        raise NoteError(f"{excerpt(line)} is not a signature line")
    return name, data[:_ID_BYTES], data[_ID_BYTES:]


_MAX_DIGITS: Final = 19  # 2^63 - 1


class KeySigner(SigningKey):
    """Signs with a private key in the memory of this process.

    Attributes:
        key: The verifier key of the private key.

    Args:
        origin: Name of the ledger.
        seed: Ed25519 private key, 32 bytes.
    """

    def __init__(self, origin: str, seed: bytes) -> None:
        super().__init__(seed)
        self.key: Final = VerifierKey(require_name(origin), self.public)


class CommandSigner:
    """Signs by a command that reads the text from stdin and prints the signature, raw or in base64.

    Attributes:
        key: The verifier key of the command's signatures.

    Args:
        argv: The program and its arguments.
        key: The verifier key of the command's signatures.
    """

    def __init__(self, argv: Sequence[str], key: VerifierKey) -> None:
        self._argv = tuple(argv)
        self.key: Final = key

    def sign(self, text: bytes, /) -> bytes:
        """Return a signature over ``text``, 64 bytes.

        Raises:
            LedgerSignerError: If the command does not print a valid signature of the key.
            KeyRingError: If the command fails.
        """
        signature = run_command(self._argv, text=text)
        if len(signature) != SIGNATURE_BYTES:
            with suppress(ValueError):
                signature = base64.b64decode(signature.strip(), validate=True)
        if not is_signed(self.key.public, signature, text):
            raise LedgerSignerError(f"the signing command printed no valid signature of {self.key}")
        return signature


Signer = KeySigner | CommandSigner


def open_signer(table: LedgerTable, key: VerifierKey | None) -> Signer:
    """Return the signer that ``[ledger]`` in a ring file names; raise if its key is not ``key``."""
    source = table.signer
    if source is None:
        raise LedgerSignerError(
            "[ledger] of the ring file names no signer",
            hint='add signer = { file = "ledger.key" } to [ledger], if this account may read the signing key',
        )
    if isinstance(source, CommandSource):
        if key is None:
            raise LedgerSignerError(
                "the verifier key of the signing command is not known",
                hint="give the verifier key: sealpoint ledger init --vkey NAME+ID+KEY",
            )
        return CommandSigner(source.argv, key)
    material = parse_material(source.read(table.base), f"signer {source.location}")
    signer = KeySigner(table.origin, material)
    if key is not None and key != signer.key:
        raise LedgerSignerError(f"the ledger belongs to {key}, but the signer is {signer.key}")
    return signer


def make_signing_key(table: LedgerTable) -> Path | None:
    """Write a new signing key if the file that ``[ledger]`` names is missing; return its path or ``None``."""
    if not isinstance(table.signer, FileSource):
        return None
    file = table.base / table.signer.location
    if os.path.lexists(file):
        return None
    write_private(file, base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
    fsync_path(file.parent)
    return file


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a ledger.

    Attributes:
        origin: Name of the ledger.
        size: Number of entries.
        root: Root of the hash tree over the entries, 32 bytes.
    """

    origin: str
    size: int
    root: bytes

    @classmethod
    def of(cls, origin: str, tree: Tree) -> Checkpoint:
        """Return the head of a ledger with the size and root of a tree.

        Args:
            origin: Name of the ledger.
            tree: Hash tree over the ledger entries.
        """
        return cls(origin, tree.size, tree.root())

    @property
    def text(self) -> str:
        """The text to sign: three lines with origin, size and root."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @property
    def line(self) -> str:
        """Origin, size and root on one line, which can be kept elsewhere as a pin."""
        return self.text.strip().replace("\n", " ")

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Parse the text of a ledger's head. Ignores lines after the third, as C2SP tlog-checkpoint requires.

        Args:
            text: The lines of the head, without signature lines.

        Raises:
            NoteError: If ``text`` is not the text of a ledger's head.
        """
        origin, size, root, *_ = [*text.split("\n"), "", "", ""]
        if not text.endswith("\n") or not root:
            raise NoteError("a checkpoint has three lines: origin, size and root")
        return cls(require_name(origin), parse_decimal(size), decode_base64(root, HASH_BYTES, "the root"))

    def sign(self, signer: Signer) -> bytes:
        """Return the head of the ledger (its size and root hash) as a signed note.

        Args:
            signer: Signer of the ledger.

        Raises:
            LedgerSignerError: If the signer returns an invalid signature.
            KeyRingError: If the signing key is not available.
        """
        return format_note(self.text, signer.key, signer.sign(self.text.encode()))


def open_checkpoint(note: bytes, key: VerifierKey) -> Checkpoint:
    """Verify the signature of ``key`` in a note, and return the head of the ledger in the note."""
    checkpoint = Checkpoint.parse(open_note(note, key))
    if checkpoint.origin != key.name:
        raise NoteError(f"the checkpoint is of {excerpt(checkpoint.origin)}, but the key is of {key.name}")
    return checkpoint


def read_pin(data: bytes, key: VerifierKey) -> Checkpoint:
    """Parse a pin: an earlier head of a ledger, as a signed note or as the one line that commands print.

    The one line is not signed: trust the pin only as far as the place where the line was kept.
    """
    lines = data.strip().split(b"\n")
    if len(lines) > 1:
        return open_checkpoint(data, key)
    words = lines[0].decode(errors="replace").split(" ")
    if len(words) != 3:
        raise NoteError("a pin is a checkpoint, or one line: ORIGIN SIZE ROOT")
    pin = Checkpoint.parse("\n".join([*words, ""]))
    if pin.origin != key.name:
        raise NoteError(f"the pin is of {excerpt(pin.origin)}, but the ledger is {key.name}")
    return pin


def parse_decimal(text: str) -> int:
    """Parse a number of entries: decimal digits without leading zeros."""
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS or (text[0] == "0" and text != "0"):
        raise NoteError(f"{excerpt(text)} is not a number of entries")
    return int(text)
