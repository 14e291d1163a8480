"""The look-up of a builder within the function that msgpack calls, which saves a call for every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ormsgpack

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde.learned import Learned
from sealpoint.serde.packing import UNPACK

# Looked up once: an extension is a call of it.
_unpackb: Final = ormsgpack.unpackb

Hook = Callable[[int, bytes], Any]


def make_hook(
    learned: dict[tuple[Any, ...], Learned],
    latest_call: list[object],
    rebuild: Callable[[int, Any], Any],
    as_unbuildable: Callable[[Exception, str, str], UnbuildableValueError],
    note: Callable[[BaseException], None],
) -> Hook:
    """Return what msgpack calls for every extension: a function, which looks nothing up on an object.

    Args:
        learned: What is known, by the code of a record, its names, and its method if it has one.
        latest_call: The latest call of any thread to the decoder, in a list of one.
        rebuild: Builds what is not known, or says what is wrong with it.
        as_unbuildable: Makes an error from what a constructor raised.
        note: Notes what was raised, which msgpack does not pass on.
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
                # A kind is current if it was so after the latest call of any thread began.
                if found.seen is not (call := latest_call[0]):
                    found.require_current(name, call)
                known = found
            except (KeyError, TypeError, ValueError):  # not known, or not a record
                pass
            if known is None:
                return rebuild(code, record)
            try:
                build = known.build_from_bytes
                return known.build(argument) if build is None else build(data, record)
            except Exception as error:  # noqa: BLE001 -- a constructor may raise anything
                raise as_unbuildable(error, module, name) from None
        except BaseException as error:
            note(error)
            raise

    return extension
