"""Wrapped keys: the material of a ring key, encrypted by a key that a KMS, an HSM or a command holds.

One module per kind of wrapper, and `kinds` finds them. The SDK of a kind is imported at its first use.
"""

from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, Wrapper, WrapperState

__all__ = ["WrapContext", "WrappedKey", "Wrapper", "WrapperState"]
