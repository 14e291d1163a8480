"""Evidence: a ledger of what happened to keys and databases, in formats that other tools check.

`sealpoint.admin.evidence.ledger` writes it, `sealpoint.admin.evidence.verify` checks it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sealpoint.admin.evidence.folder import Entry
    from sealpoint.admin.evidence.ledger import Ledger
    from sealpoint.admin.evidence.note import Checkpoint, VerifierKey
    from sealpoint.admin.evidence.verify import Proof, verify_ledger

__all__ = ["Checkpoint", "Entry", "Ledger", "Proof", "VerifierKey", "verify_ledger"]

_MODULES: Final = {"Entry": "folder", "Ledger": "ledger", "Checkpoint": "note", "VerifierKey": "note"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'verify')}"), name)
