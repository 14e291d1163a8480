"""Everything about keys: ids, states, material, and the ring file that lists them.

Sealing values is the task of `sealpoint.crypto`, the layer above.
"""

from sealpoint.keys.key import Key, check_value
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.state import KeyState

__all__ = ["Key", "KeyRing", "KeyState", "check_value"]
