"""The kinds of wrappers: those built in, and those of other packages by the entry point group `GROUP`.

The module of a kind is imported when a ring has a wrapper of it, and the SDK of its service at the first
call: parsing a ring asks no service. A package that provides a kind declares its class:

    [project.entry-points."sealpoint.wrappers"]
    hsm9 = "its_package:Wrapper"          # kind = "hsm9" in a ring file
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol, cast

from sealpoint.errors import RingFileError, excerpt
from sealpoint.keys.wrap.wrapper import Wrapper

GROUP: Final = "sealpoint.wrappers"

BUILT_IN: Final[Mapping[str, str]] = {
    "command": "sealpoint.keys.wrap.command",
    "aws": "sealpoint.keys.wrap.aws",
    "vault": "sealpoint.keys.wrap.vault",
    "pkcs11": "sealpoint.keys.wrap.pkcs11",
}
"""The module of each kind that is built in. Its class is called ``Wrapper``. No package replaces one."""


class WrapperKind(Protocol):
    """What a kind provides: a class whose instances are wrappers."""

    def parse(self, table: Mapping[str, object], where: str, folder: Path, /) -> Wrapper:
        """Make a wrapper of its table in a ring file (a classmethod). No SDK is imported, no service asked.

        Args:
            table: The fields of the kind: the table without ``id`` and ``kind``.
            where: Names the table in messages.
            folder: The folder of the ring file, for relative paths.

        Raises:
            RingFileError: If a field is unknown, missing, or of the wrong type.
        """


def parse_wrapper(kind: str, table: Mapping[str, object], where: str, folder: Path) -> Wrapper:
    """Make the wrapper that a table of a ring file describes.

    Args:
        kind: Its kind.
        table: The fields of the kind.
        where: Names the table in messages.
        folder: The folder of the ring file.

    Raises:
        RingFileError: If the kind is not known, or a field is unknown, missing, or of the wrong type.
    """
    return _find_kind(kind, where).parse(table, where, folder)


def _find_kind(kind: str, where: str) -> WrapperKind:
    if kind in BUILT_IN:
        return cast("WrapperKind", import_module(BUILT_IN[kind]).Wrapper)
    found = entry_points(group=GROUP)
    named = [point for point in found if point.name == kind]
    if len(named) > 1:
        packages = ", ".join(sorted(point.dist.name if point.dist else point.value for point in named))
        raise RingFileError(f"{where}: several packages provide kind {excerpt(kind)}: {packages}")
    if not named:
        known = ", ".join((*BUILT_IN, *sorted({point.name for point in found} - BUILT_IN.keys())))
        hint = f"correct 'kind', or install the package that provides it; installed: {known}"
        raise RingFileError(f"{where}: there is no kind of wrapper {excerpt(kind)}", hint=hint)
    try:
        return cast("WrapperKind", named[0].load())
    except (ImportError, AttributeError) as error:
        problem = f"kind {excerpt(kind)} cannot be loaded from {named[0].value}: {type(error).__name__}"
        raise RingFileError(f"{where}: {problem}", hint="install its package again") from None
