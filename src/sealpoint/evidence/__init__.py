"""Evidence: a ledger of what happened to keys and databases, in formats that other tools check.

`sealpoint.evidence.ledger` and `writer` write it, `sealpoint.evidence.verify` checks it.
"""

from sealpoint.evidence.checkpoint import Checkpoint
from sealpoint.evidence.entry import Entry
from sealpoint.evidence.ledger import Ledger
from sealpoint.evidence.note import VerifierKey
from sealpoint.evidence.proof import Proof
from sealpoint.evidence.verify import verify_ledger

__all__ = ["Checkpoint", "Entry", "Ledger", "Proof", "VerifierKey", "verify_ledger"]
