"""The lookup of a builder inside the function that ormsgpack calls, which saves a call per record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ormsgpack

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde.learned import Learned
from sealpoint.serde.packing import UNPACK

# Looked up once: it is called for every extension.
_unpackb: Final = ormsgpack.unpackb

Hook = Callable[[int, bytes], Any]


def make_hook(
    learned: dict[tuple[Any, ...], Learned],
    latest_call: list[object],
    rebuild: Callable[[int, Any], Any],
    as_unbuildable: Callable[[Exception, str, str], UnbuildableValueError],
    note: Callable[[BaseException], None],
) -> Hook:
    """Return the function that ormsgpack calls for every extension; it looks up no attributes.

    Args:
        learned: Known kinds of records, by code, names, and method if there is one.
        latest_call: The latest call of any thread to the decoder, in a list of one.
        rebuild: Builds unknown kinds, or raises an error.
        as_unbuildable: Converts the exception of a constructor.
        note: Records an exception, which ormsgpack does not pass on.
    """

    def extension(code: int, data: bytes) -> Any:
        try:
            record = _unpackb(data, ext_hook=extension, option=UNPACK)
            known = None
            try:
                if len(record) == 3:
                    module, name, argument = record
                    found = learned[code, module, name]
                else:
                    module, name, argument, method = record
                    found = learned[code, module, name, method]
                # A kind is current if it was found current since the latest call of any thread began.
                if found.seen is not (call := latest_call[0]):
                    found.require_current(name, call)
                known = found
            except (KeyError, TypeError, ValueError):  # unknown, or not a record
                pass
            if known is None:
                return rebuild(code, record)
            try:
                build = known.build_from_bytes
                return known.build(argument) if build is None else build(data, record)
            except Exception as error:  # noqa: BLE001 -- see `as_unbuildable`
                raise as_unbuildable(error, module, name) from None
        except BaseException as error:
            note(error)
            raise

    return extension
