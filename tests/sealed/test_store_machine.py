"""The same operations on a store of LangGraph, and on one within SealedStore: the results are equal.

Both databases get the same times: the order of items that were stored at one time is not promised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from langgraph.store.base import GetOp, PutOp, SearchOp

from tests.sealed.stores import FORMS, STORES, Execute, Sync, beside, opened
from tests.support.runs.extent import by_extent

namespaces = st.sampled_from([("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b", "a"), ("é_%", "[x]*")])
prefixes = st.just(()) | namespaces
keys = st.sampled_from(["k", "K", "k2", "a b", "é", "%"])
languages = st.sampled_from(["en", "de", "e", "10", "9"])
counts = st.sampled_from([0, 1, 2, 9, 10, 0.5, -3])
values = st.fixed_dictionaries(
    {},
    optional={
        "lang": languages | counts | st.booleans() | st.none() | st.lists(languages, max_size=2),
        "user": st.sampled_from(["u1", "u2", "ü", 7]),
        "n": counts,
        "text": languages,
        "meta": st.dictionaries(st.sampled_from(["x", "y"]), counts, max_size=2),
    },
)
orders = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), counts, min_size=1, max_size=2)
texts = st.sampled_from(["$eq", "$ne"]).flatmap(lambda name: st.fixed_dictionaries({name: languages}))
plain_conditions = languages | counts | texts | orders | st.none() | st.lists(languages, max_size=2)
own_conditions: dict[str, Any] = {
    "user": st.sampled_from(["u1", "u2", 7]) | st.just({"$eq": "u1"}) | st.just({"$ne": "u1"}),
    "n": counts | orders,
    "text": languages | texts,
    "meta.x": counts | orders,
}
filters = st.none() | st.fixed_dictionaries({}, optional={"lang": plain_conditions, **own_conditions})
pages = st.fixed_dictionaries(
    {"limit": st.sampled_from([0, 1, 2, 10]), "offset": st.sampled_from([0, 0, 1, 3])}
)

ORDERS: Final = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def is_met(value: dict[str, Any], name: str, condition: Any) -> bool:
    """Whether a field that the bare store is not asked for meets a condition."""
    found: Any = value
    for part in name.split("."):
        found = (found or {}).get(part)
    if not isinstance(condition, dict):
        return bool(found == condition)
    return all(
        (found == wanted) is (name == "$eq")
        if name in ("$eq", "$ne")
        else found is not None and ORDERS[name](found, wanted)
        for name, wanted in condition.items()
    )


def said(call: Callable[[], Any]) -> Any:
    """What a call returns, without the times, or that it raises."""
    try:
        return _said(call())
    except (TypeError, ValueError):
        return "raised"


def _said(found: Any) -> Any:
    if isinstance(found, list):
        return [_said(each) for each in found]
    return (found.namespace, found.key, found.value) if hasattr(found, "key") else found


class TwoStores(RuleBasedStateMachine):
    """A bare and a sealed store on two empty databases."""

    def __init__(self, bare: Sync, sealed: Sync, databases: list[Execute], form: str) -> None:
        super().__init__()
        self.stores, self.databases, self.form, self.time = (bare, sealed), databases, form, 0
        self.bare, self.sealed = bare, sealed
        self.model: dict[tuple[Any, Any], Any] = {}
        self.is_memory = not databases
        for execute in databases:
            execute("DELETE FROM store")

    def both(self, method: str, *arguments: Any, **named: Any) -> None:
        one, other = (said(lambda: getattr(each, method)(*arguments, **named)) for each in self.stores)  # noqa: B023
        assert other == one

    def stamp(self) -> None:
        """Give what was just stored the same time in both databases."""
        self.time += 1
        time = f"2001-01-01 00:{self.time // 60:02}:{self.time % 60:02}"
        for execute in self.databases:
            execute(f"UPDATE store SET updated_at = '{time}' WHERE updated_at > '2010-01-01'")

    @rule(namespace=namespaces, key=keys, value=values, ttl=st.none() | st.just(5))
    def put(self, namespace: Any, key: str, value: Any, ttl: Any) -> None:
        if self.is_memory:
            ttl = None
        self.both("put", namespace, key, value, ttl=ttl)
        self.model[namespace, key] = value
        self.stamp()

    @rule(namespace=namespaces, key=keys)
    def delete(self, namespace: Any, key: str) -> None:
        self.both("delete", namespace, key)
        self.model.pop((namespace, key), None)

    @rule(namespace=namespaces, key=keys)
    def get(self, namespace: Any, key: str) -> None:
        self.both("get", namespace, key)

    @rule(prefix=prefixes, wanted=filters, page=pages)
    def search(self, prefix: Any, wanted: Any, page: Any) -> None:
        plain = {"lang": wanted["lang"]} if wanted and "lang" in wanted and self.form != "sealed" else {}
        own = {name: each for name, each in (wanted or {}).items() if name not in plain and name != "lang"}
        wanted = {**plain, **own} or None if wanted is not None else None
        expected = said(lambda: self.bare.search(prefix, filter=plain or None, limit=1000))
        found = said(lambda: self.sealed.search(prefix, filter=wanted, **page))
        if expected == "raised":  # the bare store for any item
            assert found == "raised" or own
            return
        expected = [each for each in expected if all(is_met(each[2], *one) for one in own.items())]
        assert found == expected[page["offset"] :][: page["limit"]]

    @rule(
        prefix=st.none() | namespaces | st.just(("*", "b")),
        suffix=st.none() | st.sampled_from([("c",), ("b", "*"), ("a",)]),
        depth=st.none() | st.integers(1, 2),
        page=st.just({}) | pages,
    )
    def list_namespaces(self, prefix: Any, suffix: Any, depth: Any, page: Any) -> None:
        options = {"prefix": prefix, "suffix": suffix, "max_depth": depth}
        if self.form != "all options":
            return self.both("list_namespaces", **options, **page)
        full = {namespace[:depth] for namespace, _ in self.model}  # those without an item have no name
        found = self.sealed.list_namespaces(**options)
        assert len({*found}) == len(found)
        bare = {*self.bare.list_namespaces(**options)}
        assert full & bare <= {*found} <= bare
        return None

    @rule(namespace=namespaces, key=keys, value=st.none() | values, prefix=prefixes)
    def batch(self, namespace: Any, key: str, value: Any, prefix: Any) -> None:
        """What is read is what was stored before, and the last put of a key wins."""
        put = PutOp(namespace, key, value)
        before = PutOp(namespace, key, {"lang": "before"})
        self.both("batch", [before, GetOp(namespace, key), put, SearchOp(prefix), GetOp(("none",), "k")])
        self.model.pop((namespace, key), None)
        if value is not None:
            self.model[namespace, key] = value
        self.stamp()


CASES: Final = [(name, form) for name in STORES for form in FORMS]


@pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")  # LangGraph's, by TTL
@pytest.mark.broad
@pytest.mark.parametrize(("name", "form"), CASES)
def test_results_are_those_of_the_bare_store(name: str, form: str, place: Any) -> None:
    kind = STORES[name].kind
    places = [place(kind), place(kind)]
    with opened(name, *places) as (bare, inner), ExitStack() as stack:
        databases = [] if kind == "memory" else [stack.enter_context(beside(each)) for each in places]
        sealed = inner.sealed(**FORMS[form])

        def machine() -> TwoStores:
            if kind != "memory":
                return TwoStores(bare, sealed, databases, form)
            one, other = (
                Sync(type(each.store)(), each.runner, awaited=each.awaited) for each in (bare, inner)
            )
            return TwoStores(one, other.sealed(**FORMS[form]), databases, form)

        run_state_machine_as_test(
            cast("Any", machine),
            settings=settings(
                max_examples=by_extent(8, 60),
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=[*HealthCheck],
            ),
        )
