"""What ordinary objects are written as: the arguments that make them again.

Here stand those for which there is a faster way than Python's own, with the same result.
"""

from __future__ import annotations

import datetime
import socket
from typing import Any


def time_arguments(obj: datetime.time) -> dict[str, Any]:
    """Return what `datetime.time` is called with."""
    return {
        "hour": obj.hour,
        "minute": obj.minute,
        "second": obj.second,
        "microsecond": obj.microsecond,
        "tzinfo": obj.tzinfo,
        "fold": obj.fold,
    }


def timezone_arguments(obj: Any) -> tuple[Any, ...]:
    """Return what `datetime.timezone` is called with: the offset, and the name if it has one."""
    arguments: tuple[Any, ...] = obj.__getinitargs__()
    return arguments


def address_text(obj: Any) -> str:
    """Return ``str(obj)``, which takes Python 2 to 10 us, and the system 1 or 2."""
    address = getattr(obj, "network_address", obj)
    packed = address.packed
    if len(packed) == 4:
        text = socket.inet_ntoa(packed)
    else:
        text = socket.inet_ntop(socket.AF_INET6, packed)
        if "." in text or address.scope_id:  # which the two write in different ways
            return str(obj)
    network = obj if address is not obj else getattr(obj, "network", None)
    return text if network is None else f"{text}/{network.prefixlen}"
