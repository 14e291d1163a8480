"""KeyState: what may be done with a key, and its possible transitions.

States follow NIST SP 800-57 part 1, section 7:

    staged -> active <-> decrypt-only <-> disabled -> destroyed
    staged, decrypt-only, disabled <-> compromised -> destroyed

A compromised key can be disabled and enabled again. It is then compromised as before, and never active or
decrypt-only again.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from sealpoint.errors import KeyIdError, KeyTransitionError, excerpt

KEY_BYTES: Final = 32

LEGACY: Final = "aes"  # the suite of LANGGRAPH_AES_KEY, which only opens LangGraph's own rows
LEGACY_KEY_BYTES: Final = (16, 24, 32)

KEY_ID: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,23}")


def require_key_id(key_id: object) -> str:
    """Return ``key_id``, if it is 1 to 24 of ``a-z``, ``0-9``, ``.`` and ``-``; the first is no sign."""
    if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
        raise KeyIdError(f"{excerpt(key_id)} is not a key id")
    return key_id


class KeyState(Enum):
    """What may be done with a key.

    Example:
        >>> from sealpoint import KeyState
        >>> KeyState("decrypt-only").opens
        True
        >>> [state.value for state in KeyState.ACTIVE.transitions]
        ['decrypt-only']
    """

    STAGED = "staged"
    ACTIVE = "active"
    DECRYPT_ONLY = "decrypt-only"
    DISABLED = "disabled"
    COMPROMISED = "compromised"
    DESTROYED = "destroyed"

    @property
    def opens(self) -> bool:
        """Whether values under a key in this state may be opened."""
        return self not in (KeyState.DISABLED, KeyState.DESTROYED)

    @property
    def transitions(self) -> tuple[KeyState, ...]:
        """The states that can follow this one in one step."""
        return _TRANSITIONS[self]

    def reaches(self, to: KeyState) -> bool:
        """Whether a key in this state is in state ``to``, or can reach it in any number of steps."""
        found = {self}
        while more := {after for state in found for after in state.transitions} - found:
            found |= more
        return to in found


_TRANSITIONS: Final = {
    KeyState.STAGED: (KeyState.ACTIVE, KeyState.COMPROMISED, KeyState.DESTROYED),
    # Only promoting another key ends this state: no command leaves a ring without an active key.
    KeyState.ACTIVE: (KeyState.DECRYPT_ONLY,),
    # Disabled before destroyed: a row that was missed raises an error while `enable` can still undo it.
    KeyState.DECRYPT_ONLY: (KeyState.ACTIVE, KeyState.DISABLED, KeyState.COMPROMISED),
    KeyState.DISABLED: (KeyState.DECRYPT_ONLY, KeyState.COMPROMISED, KeyState.DESTROYED),
    KeyState.COMPROMISED: (KeyState.DISABLED, KeyState.DESTROYED),
    KeyState.DESTROYED: (),
}

# The command of ``sealpoint keys`` that leads to a state.
COMMANDS: Final = {
    KeyState.ACTIVE: "promote",
    KeyState.DECRYPT_ONLY: "enable",
    KeyState.DISABLED: "disable",
    KeyState.COMPROMISED: "compromise",
    KeyState.DESTROYED: "destroy",
}


def require_suite_state(key_id: str, suite: str | None, state: KeyState) -> None:
    """Refuse a state that is not valid for keys of ``suite``."""
    if suite == LEGACY and state in (KeyState.ACTIVE, KeyState.STAGED):
        raise KeyTransitionError(
            f"key {key_id!r}: a key for suite 'aes' cannot be {state.value}; it only opens",
            hint='give it state = "decrypt-only", and let another key be active',
        )
