"""Tests of LangGraph's suites that fail with SealedStore, each with its reason."""

from __future__ import annotations

from typing import Final

_ORDER: Final = {
    f"test_store::test_list_namespaces_{name}": "namespaces come in the order of their pseudonyms"
    for name in ("basic", "pagination")
}
_UNSAFE: Final = {
    r"test_store::test_sql_injection_vulnerability\[(file|memory)\]": (
        "wants an error for the name of a field that is unsafe in SQL; here it never comes into SQL"
    )
}

_EXPIRED: Final = {
    rf"test_(async_)?store::test_omit_expired_{name}\[(default|pipe|pool)\]": (
        "sets and reads the expiry of an item by SQL, under a name that has a pseudonym"
    )
    for name in ("filters_read_paths", "refresh_ttl_only_refreshes_live_rows", "search_pagination")
}

# By package and form: a pattern for names of tests, and the reason
DEVIATIONS: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("langgraph-checkpoint", "all"): _ORDER,
    ("langgraph-checkpoint-sqlite", "open"): _UNSAFE,
    ("langgraph-checkpoint-sqlite", "all"): _UNSAFE,
    ("langgraph-checkpoint-postgres", "all"): _EXPIRED,
}

# Fail now and then without SealedStore, too: SQLite's times have whole seconds
FLAKY: Final = frozenset({"test_ttl::test_async_asearch_refresh_ttl"})
