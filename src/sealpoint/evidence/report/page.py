"""The page: one HTML file that loads nothing and runs nothing, made from the object alone.

Text from databases and rings is escaped by Jinja2. What does not print, such as a mark that reverses the
direction of text, is shown as its code, and long texts are shortened. The object stands at the end of the
page, byte for byte, so the page alone is enough to check its digest.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import MissingExtraError
from sealpoint.evidence.report.document import digest_of, text_of

if TYPE_CHECKING:
    from jinja2 import Template

_SHOWN_CHARS: Final = 120
_SHORT_CHARS: Final = 16
_DASH: Final = "\N{EN DASH}"


def render_page(document: dict[str, Any]) -> str:
    """Return the page of a report.

    Raises:
        MissingExtraError: If Jinja2 is not installed.
    """
    text = text_of(document)
    return load_template().render(report=document, text=text, digest=digest_of(text))


@cache
def load_template() -> Template:
    """Load the template, and compile it once.

    Raises:
        MissingExtraError: If Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtraError("jinja2", "evidence") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "plain": plain,
        "visible": visible,
        "short": short,
        "number": number,
        "moment": moment,
    }
    source = resources.files("sealpoint.evidence.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source)


def plain(text: object) -> str:
    """Return a text without characters that do not print, and not too long."""
    whole = str(text)
    return visible(whole if len(whole) <= _SHOWN_CHARS else f"{whole[: _SHOWN_CHARS - 1]}…")


def visible(text: object) -> str:
    """Return a text with the codes of characters that do not print."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(text))


def short(text: object) -> str:
    """Return the beginning of an id or a digest, marked as shortened."""
    whole = plain(text)
    return whole if len(whole) <= _SHORT_CHARS else f"{whole[:_SHORT_CHARS]}…"


def number(value: int | None) -> str:
    """Return a number with its thousands apart; a dash for none."""
    return _DASH if value is None else f"{value:,}".replace(",", "\u202f")


def moment(text: str | None) -> str:
    """Return a time for people; a dash for none."""
    return _DASH if text is None else text.replace("T", " ").removesuffix("Z")
