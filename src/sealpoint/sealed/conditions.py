"""Conditions: the filter of a search in LangGraph's Store. No I/O.

A filter is divided: the wrapped store applies the conditions on readable fields; this process opens the items
and applies all other conditions. A condition is a value, or a mapping of operators such as ``$gt``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sealpoint.errors import ConfigError, excerpt
from sealpoint.seal.items import Items

# Some stores take other names as paths; this process applies conditions on such names
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")

_SEQUENCES: Final = (list, tuple)
_EQUALITY: Final = ("$eq", "$ne")
_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class Conditions(NamedTuple):
    """The conditions of a search.

    Attributes:
        stored: The filter for the wrapped store: fields with their conditions, and tokens.
        own: Conditions that only this process applies.
        again: Conditions of ``stored`` that this process checks again on the opened item.
    """

    stored: dict[str, Any]
    own: dict[str, Any]
    again: dict[str, Any]

    def are_met(self, value: Mapping[str, Any]) -> bool:
        """Whether the opened value of an item meets all conditions that this process applies or checks again.

        The wrapped store may return a wrong item, because of a duplicate field in JSON, or a damaged index.
        So equality (``$eq``, ``$ne`` and a value alone) is checked again, on the sealed value. The four order
        operators are not checked again: stores compare text with numbers differently. An attacker who can
        write to the database may add an item to such a search, hide an item from any search, or make a page
        begin too early, but cannot change an item.
        """
        return all(matches(field_of(value, name), wanted) for name, wanted in self.own.items()) and not any(
            _is_refuted(field_of(value, name), wanted) for name, wanted in self.again.items()
        )


def divide(items: Items, wanted: Mapping[str, Any]) -> Conditions:
    """Divide the filter of a search into conditions for the wrapped store and for this process.

    During a migration the wrapped store applies no condition: items lack fields that became readable later.

    Raises:
        ConfigError: If an operator of ``own`` is unknown; the wrapped store checks those of ``stored``.
    """
    stored, own, again = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for name, condition in wanted.items():
        if items.allow_unbound:
            own[name] = condition
        elif name in items.plain and _SIMPLE.match(name):
            stored[name] = again[name] = condition
        elif name in items.indexed and (token := _token(items, name, condition)):
            stored[token] = 1
            is_one = not _is_operators(condition) or len(condition) == 1
            (again if is_one else own)[name] = condition
        else:
            own[name] = condition
    for condition in own.values():
        if _is_operators(condition):
            for operator_name, value in condition.items():
                _applies(None, operator_name, value)  # refuses an unknown operator, whatever items are found
    return Conditions(stored, own, again)


def _token(items: Items, name: str, condition: Any) -> str | None:
    """Return the token of the value that a field must equal; ``None`` if the condition names no such value.

    The condition ``None`` also finds items without the field, which have no token, so it has no token either.
    """
    value = condition.get("$eq") if _is_operators(condition) else condition
    return None if value is None else items.tokens.token(name, value)


def field_of(value: Mapping[str, Any], name: str) -> Any:
    """Return an item's field ``name``, or the value at the path ``name``; ``None`` if there is neither."""
    if name in value:
        return value[name]
    found: Any = value
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def matches(found: Any, condition: Any) -> bool:
    """Whether the value of a field meets a condition, compared as `InMemoryStore` does.

    Numbers are ordered as numbers, texts as texts, and a number is compared with a text that spells a number.
    Values without an order do not match; `InMemoryStore` raises an error. A mapping without operators is a
    condition on each of its fields. Lists and tuples are equal.

    Raises:
        ConfigError: If an operator is unknown.
    """
    if _is_operators(condition):
        return all(_applies(found, name, wanted) for name, wanted in condition.items())
    if isinstance(condition, Mapping):
        return isinstance(found, Mapping) and all(
            matches(found.get(name), wanted) for name, wanted in condition.items()
        )
    if isinstance(condition, _SEQUENCES):
        return _is_paired(found, condition) and all(map(matches, found, condition))
    return bool(found == condition)


def _is_operators(condition: Any) -> bool:
    return isinstance(condition, Mapping) and any(str(name).startswith("$") for name in condition)


def _is_paired(found: Any, wanted: Any) -> bool:
    return isinstance(found, _SEQUENCES) and len(found) == len(wanted)


def _applies(found: Any, name: str, wanted: Any) -> bool:
    if name in _EQUALITY:
        return _is_equal(found, wanted) is (name == "$eq")
    compare = _ORDERS.get(name)
    if compare is None:
        raise ConfigError(
            f"the filter has the unknown operator {excerpt(str(name))}",
            hint=f"the operators are {', '.join((*_EQUALITY, *_ORDERS))}",
        )
    try:
        return bool(compare(found, wanted))
    except TypeError:
        pass
    try:
        return bool(compare(float(found), float(wanted)))
    except (TypeError, ValueError, OverflowError):
        return False


def _is_equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, _SEQUENCES):
        return _is_paired(found, wanted) and all(map(_is_equal, found, wanted))
    return bool(found == wanted)


def _is_refuted(found: Any, condition: Any) -> bool:
    """Whether the sealed value of a field contradicts an equality condition on every kind of store."""
    if not _is_operators(condition):
        return not matches(found, condition)
    return any(
        not _is_equal(found, wanted)
        if name == "$eq"
        else name == "$ne" and type(found) is type(wanted) and _is_equal(found, wanted)
        for name, wanted in condition.items()
    )
