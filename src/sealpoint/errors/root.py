"""The root of all errors, and what their messages may quote of untrusted data."""

from __future__ import annotations

from typing import Any, Final, NoReturn

EXCERPT_CHARS: Final = 200


def excerpt(text: object) -> str:
    """Quote untrusted text for a message: escaped and cut to ``EXCERPT_CHARS`` characters."""
    # Cut before, too: a text may have many megabytes.
    shown = ascii(text[: EXCERPT_CHARS + 1] if isinstance(text, str) else type(text).__name__)
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."


class SealpointError(Exception):
    """Base class of all exceptions of sealpoint.

    Attributes:
        hint: What to do, in one sentence; empty if there is no advice.
        is_counted: Whether it is one of the refusals that a cipher counts.
    """

    hint: str = ""
    is_counted: bool = False

    def __init__(self, *args: Any, hint: str | None = None) -> None:
        super().__init__(*args)
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(f"hint: {self.hint}")


class OmittedAttributeError(SealpointError, AttributeError):
    """An attribute of LangGraph's class is deliberately missing from sealpoint's."""


class Omitted:
    """Class attribute in place of one of LangGraph's: reading it raises `OmittedAttributeError`.

    ``hasattr`` returns False for it, and ``getattr`` returns its default.
    """

    def __init__(self, hint: str) -> None:
        """Create the attribute; ``hint`` names what to use instead."""
        self._hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise OmittedAttributeError(f"sealpoint has no {self._name}", hint=self._hint)
