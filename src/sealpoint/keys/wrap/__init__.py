"""Wrapped keys: the material of a ring key, encrypted by a key that a KMS, an HSM or a command holds.

Each kind of wrapper has a module, and `kinds` finds them. The SDK of a kind is imported at its first use.
"""

from sealpoint.keys.wrap.wrapper import WrapContext, WrappedKey, Wrapper, WrapperState

__all__ = ["WrapContext", "WrappedKey", "Wrapper", "WrapperState"]
