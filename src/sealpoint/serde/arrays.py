"""Arrays: whether untrusted bytes are values of the dtype that they name.

numpy accepts any bytes for any dtype: a bool of 7 counts as 7, a code point outside Unicode raises an error
when it is read, and a date without a unit has no value.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from sealpoint.serde.guards import RefusedError

_LAST_CODE_POINT: Final = 0x10FFFF
_X87_MANTISSA_BITS: Final = 63
_X87_BYTES: Final = 16


def require_array(array: Any, payload: Any) -> None:
    """Refuse an array that would not be written as it was stored, or whose bytes are not values of its dtype.

    Args:
        array: The array.
        payload: The dtype, shape, order and bytes that it was created from.

    Raises:
        RefusedError: If it is one.
    """
    dtype, shape, order, _ = payload
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    if (array.dtype.str, list(array.shape), "F" if is_fortran else "C") != (dtype, shape, order):
        raise RefusedError("its dtype, shape or order is not in the form that is written")
    if bool in map(type, shape):
        raise RefusedError("its shape does not consist of integers")
    if not _has_values(array):
        raise RefusedError("its bytes are not values of its dtype")


def _has_values(array: Any) -> bool:
    numpy: Any = import_module("numpy")
    dtype = array.dtype
    flat = array.reshape(-1, order="A")  # no copy of a whole array
    if dtype.kind == "b":
        return bool((flat.view("u1") <= 1).all())
    if dtype.kind == "U" and flat.size:
        return bool((flat.view(numpy.dtype("u4").newbyteorder(dtype.byteorder)) <= _LAST_CODE_POINT).all())
    if dtype.kind in "mM":
        unit, count = numpy.datetime_data(dtype)
        has_unit = unit != "generic" or dtype.kind == "m"
        return count > 0 and (has_unit or bool(numpy.isnat(flat).all()))
    if dtype.kind in "fc" and dtype.itemsize >= _X87_BYTES and numpy.finfo(dtype).nmant == _X87_MANTISSA_BITS:
        return _are_x87(flat.view("u1").reshape(-1, _X87_BYTES), is_big=dtype.byteorder == ">")
    return True


def _are_x87(numbers: Any, *, is_big: bool) -> bool:
    """Whether the explicit leading bit of extended floats agrees with their exponent."""
    low_first = numbers[:, ::-1] if is_big else numbers
    has_exponent = (low_first[:, 8] | (low_first[:, 9] & 0x7F)) != 0
    return bool((has_exponent == (low_first[:, 7] >> 7)).all())
