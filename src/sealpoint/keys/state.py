"""KeyState: what may be done with a key, and its possible transitions.

States follow NIST SP 800-57 part 1, section 7:

    staged -> active <-> decrypt-only <-> disabled -> destroyed
    staged, decrypt-only, disabled <-> compromised -> destroyed

A compromised key can be disabled and enabled again. It is then compromised as before, and never active or
decrypt-only again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from sealpoint.errors import KeyTransitionError
from sealpoint.keys.ids import LEGACY


class KeyState(Enum):
    """What may be done with a key."""

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

COMMANDS: Final = {
    KeyState.ACTIVE: "promote",
    KeyState.DECRYPT_ONLY: "enable",
    KeyState.DISABLED: "disable",
    KeyState.COMPROMISED: "compromise",
    KeyState.DESTROYED: "destroy",
}
"""The command of ``sealpoint keys`` that leads to a state."""


def require_suite_state(key_id: str, suite: str | None, state: KeyState) -> None:
    """Refuse a state that is not valid for keys of ``suite``.

    Raises:
        KeyTransitionError: If a key for the suite ``aes``, which only opens, is active or staged.
    """
    if suite == LEGACY and state in (KeyState.ACTIVE, KeyState.STAGED):
        raise KeyTransitionError(
            f"key {key_id!r}: a key for suite 'aes' cannot be {state.value}; it only opens",
            hint='give it state = "decrypt-only", and let another key be active',
        )
