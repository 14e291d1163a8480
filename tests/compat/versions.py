"""What the installed LangGraph has: the one place where tests ask for its version.

The tests run on the newest release and on the oldest that is supported (`make test-oldest`).
On the newest all of them do; on an older one those in `NEWEST_ONLY` are left out.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

LANGGRAPH: Final = tuple(int(part) for part in version("langgraph").split(".")[:2])

IS_NEW: Final = LANGGRAPH >= (1, 2)
"""Delta channels with their snapshots and histories, timeout policies, paths of writes in SQLite."""

NEWEST_ONLY: Final = {
    "test_base.py::test_the_order_of_writes_is_the_same",
    "test_base_history.py",
    "test_base_replay.py",
    "test_bridge_classes.py",  # builds a delta snapshot when it is imported
    "test_bridge_refusals.py::test_one_write_that_a_delta_channel_needs_is_enough",
    "test_conformance.py::test_langgraphs_postgres_saver_passes_with_our_serializer_what_it_passes_without",
    "test_conformance.py::test_our_savers_find_langgraphs_delta_histories_over_forks",
    "test_serde_differences.py::test_raw_gives_the_bare_arguments",
    "test_serde_differences.py::test_what_langgraph_turns_into_raw_data_or_none_is_refused",
    "test_serde_policy.py::test_raw_is_what_strict_langgraph_gives",
    "test_serde_policy.py::test_the_safe_types_are_langgraphs",
    "test_signatures.py",
    "test_sqlite_both_ways.py::test_the_columns_are_the_same",
    "test_sqlite_delta.py",
    "test_sqlite_machine.py",
    "test_sqlite_older.py::test_it_goes_on_under_langgraph_after_ours_added_the_column",
    "test_sqlite_older.py::test_it_reads_the_same",
}
"""They compare signatures, delta histories, tables to the byte, or what LangGraph makes of bad rows."""
