"""The check that unauthenticated bytes pass before they are decoded."""

from sealpoint.serde.scan.costly import read_names, require_counts, require_few_costly
from sealpoint.serde.scan.walk import scan

__all__ = ["read_names", "require_counts", "require_few_costly", "scan"]
