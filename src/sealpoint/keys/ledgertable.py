"""The table ``[ledger]`` of a ring file: where the ledger is, and who signs for it.

    [ledger]
    dir = "ledger"                        # relative to the folder of the ring file
    origin = "example.org/agents"         # name of the ledger, without spaces and '+'; never changes
    signer = { file = "ledger.key" }      # or credential or command; not on hosts that only read

The signing key belongs to the account that runs maintenance, never to one that runs agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import RingFileError, excerpt
from sealpoint.keys.fields import require_fields
from sealpoint.keys.sources import CommandSource, CredentialSource, FileSource, Source, parse_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FIELDS: Final = frozenset({"dir", "origin", "signer"})
_SIGNERS: Final = (FileSource.kind, CredentialSource.kind, CommandSource.kind)


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """The ledger that a ring file names.

    Attributes:
        folder: Of the ledger.
        origin: Name of the ledger, not yet checked to be one.
        signer: Where its signing key is, or the command that signs; ``None`` on hosts that only read.
        base: The folder of the ring file.
    """

    folder: Path
    origin: str
    signer: Source | None
    base: Path


def read_ledger_table(table: Mapping[str, Any], file: Path) -> LedgerTable | None:
    """Return what a ring file says about its ledger; ``None`` if it names none.

    Raises:
        RingFileError: If it does so in another form than above.
    """
    ledger = table.get("ledger")
    if ledger is None:
        return None
    where = f"{file}: [ledger]"
    if not isinstance(ledger, dict):
        raise RingFileError(f"{file}: 'ledger' is written as [ledger]")
    require_fields(ledger, _FIELDS, {"dir", "origin"}, where)
    for field in ("dir", "origin"):
        if not isinstance(ledger[field], str) or not ledger[field] or not ledger[field].isprintable():
            raise RingFileError(f"{where}: {field!r} is not one line of text")
    signer = parse_source(ledger["signer"]) if "signer" in ledger else None
    if signer is not None and signer.kind not in _SIGNERS:
        raise RingFileError(f"{where}: signer {excerpt(signer.kind)} is not one of {', '.join(_SIGNERS)}")
    return LedgerTable(file.parent / ledger["dir"], ledger["origin"], signer, file.parent)
