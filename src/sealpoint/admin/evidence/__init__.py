"""Evidence: a ledger of what happened to keys and databases, in formats that other tools check.

`sealpoint.admin.evidence.ledger` writes it, `sealpoint.admin.evidence.verify` checks it.
"""

from sealpoint.admin.evidence.folder import Entry
from sealpoint.admin.evidence.ledger import Ledger
from sealpoint.admin.evidence.note import Checkpoint, VerifierKey
from sealpoint.admin.evidence.verify import Proof, verify_ledger

__all__ = ["Checkpoint", "Entry", "Ledger", "Proof", "VerifierKey", "verify_ledger"]
