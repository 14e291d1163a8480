"""Evidence: a ledger of changes to keys and databases, in formats that other tools can verify.

`sealpoint.admin.evidence.ledger` writes the ledger, `sealpoint.admin.evidence.verify` verifies it.
"""

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.admin.evidence.folder import Entry
    from sealpoint.admin.evidence.ledger import Ledger
    from sealpoint.admin.evidence.note import Checkpoint, VerifierKey
    from sealpoint.admin.evidence.verify import Proof, verify_ledger
else:
    __getattr__ = on_demand(
        __name__,
        {
            "admin.evidence.folder": "Entry",
            "admin.evidence.ledger": "Ledger",
            "admin.evidence.verify": "Proof verify_ledger",
        },
        others="admin.evidence.note",
    )

__all__ = ["Checkpoint", "Entry", "Ledger", "Proof", "VerifierKey", "verify_ledger"]
