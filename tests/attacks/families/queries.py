"""What a caller hands on from strangers: ids, filters and limits that are SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.attacks.case import Case, Read, Reading, Scene
from tests.attacks.sides import opened
from tests.attacks.stores import at, honest

TEXTS: Final = (
    "' OR '1'='1",
    "x' OR 1=1 --",
    "t' --",
    "'; DROP TABLE checkpoints; --",
    "x' UNION SELECT * FROM checkpoints --",
    "%",
    "*",
    "T",
    "t\0",
    "t ",
    "\ud800",
    "x" * 1_000_000,
)
OTHERS: Final[tuple[Any, ...]] = (None, ["t"], {"t": 1}, b"t", 1.5, float("nan"), True, 10**30, object())

Act = Callable[[Any], Any]


def _case(name: str, act: Act, *, shared: bool = True) -> Case:
    """Make a case of an act that must find nothing and change nothing."""

    def forge(scene: Scene) -> Read:
        path, serde, before = honest(scene, _dump)

        def read() -> Reading:
            with opened(scene.side, path, serde) as saver:
                value = act(saver)
                return Reading(value, value in (None, [], {}) and _dump(saver) == before)

        return read

    return Case("queries", name, forge, shared)


def _with(value: Any, act: Callable[[Any, Any], Any]) -> Act:
    return lambda saver: act(saver, value)


def _dump(saver: Any) -> list[Any]:
    rows: list[Any] = []
    for table in ("checkpoints", "writes"):
        rows += saver.conn.execute(f"SELECT * FROM main.{table} ORDER BY 1, 2, 3, 4, 5, 6").fetchall()
    return rows


def _label(value: Any) -> str:
    return ascii(value)[:30] if isinstance(value, str | int | float | None) else type(value).__name__


def ids() -> Iterator[Case]:
    """Threads, namespaces and checkpoints."""
    for value in (*TEXTS, *OTHERS):
        shown = _label(value)
        yield _case(f"thread_id {shown}: get_tuple", _with(value, lambda saver, v: saver.get_tuple(at(v))))
        yield _case(
            f"checkpoint_id {shown}: get_tuple",
            _with(value, lambda saver, v: v and saver.get_tuple(at(checkpoint_id=v))),
        )
    for value in TEXTS:
        shown = _label(value)
        yield _case(f"thread_id {shown}: list", _with(value, lambda saver, v: list(saver.list(at(v)))))
        yield _case(
            f"checkpoint_ns {shown}: list",
            _with(value, lambda saver, v: list(saver.list(at(checkpoint_ns=v)))),
        )
        yield _case(f"delete_thread {shown}", _with(value, lambda saver, v: saver.delete_thread(v)))
    for label, config in (
        ("no config", {}),
        ("no thread", {"configurable": {}}),
        ("text", "t"),
        ("a list", [1]),
    ):
        yield _case(f"{label}: get_tuple", _with(config, lambda saver, c: saver.get_tuple(c)))


def filters() -> Iterator[Case]:
    """Keys and values of a filter."""
    keys: tuple[Any, ...] = (
        *TEXTS,
        "step') OR 1=1 --",
        "step' = 2 OR '1'='1",
        "step') IS NOT NULL OR json_extract('{}', '$.x",
        '"step"',
        "$.step",
        "a[0]",
        "a[#-1]",
        "",
        ".",
        "step.",
        None,
        5,
        ("a",),
    )
    for key in keys:
        yield _case(
            f"filter key {_label(key)}", _with(key, lambda saver, k: list(saver.list(at(), filter={k: "x"})))
        )
    values: tuple[Any, ...] = (
        *TEXTS,
        "x' OR '1'='1' --",
        b"x",
        10**30,
        -(10**30),
        float("inf"),
        float("nan"),
        object(),
        {1},
        {"a": object()},
        {"a": float("nan")},
        ["' OR 1=1 --"],
        {"a": "' OR 1=1 --"},
        {"\ud800": 1},
    )
    for number, value in enumerate(values):
        yield _case(
            f"filter value {number}: {_label(value)}",
            _with(value, lambda saver, v: list(saver.list(at(), filter={"step": v}))),
        )
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    yield _case("filter value of 100,000 lists", lambda saver: list(saver.list(at(), filter={"step": deep})))


def others() -> Iterator[Case]:
    """``before`` and ``limit``."""
    for value in ("' OR '1'='1", "\0", "\ud800", 5, b"x", ["x"], None):
        config = {"configurable": {"checkpoint_id": value}}
        if value not in ("' OR '1'='1", "\0", 5):
            yield _case(
                f"before {_label(value)}", _with(config, lambda saver, c: list(saver.list(at(), before=c)))
            )
        else:
            yield _case(
                f"before {_label(value)}",
                _with(config, lambda saver, c: list(saver.list(at("none"), before=c))),
            )
    odd: tuple[Any, ...] = ({}, {"configurable": {}}, "c2", 5)
    for config in odd:
        yield _case(
            f"before the config {config}",
            _with(config, lambda saver, c: list(saver.list(at("none"), before=c))),
        )
    for limit in (
        "1; DROP TABLE checkpoints",
        "1 UNION SELECT 1",
        1.5,
        10**30,
        -(10**30),
        [1],
        b"1",
        float("nan"),
    ):
        yield _case(f"limit {_label(limit)}", _with(limit, lambda saver, n: list(saver.list(at(), limit=n))))


def upkeep() -> Iterator[Case]:
    """What LangGraph's saver does not have."""
    for run in ("r' OR '1'='1", "%", "\ud800", None, 5):
        act = _with(run, lambda saver, r: saver.delete_for_runs([r]))
        yield _case(f"delete_for_runs {_label(run)}", act, shared=False)
    for thread in ("' OR 1=1 --", "\ud800"):
        pruned = _with(thread, lambda saver, t: saver.prune([t]))
        yield _case(f"prune {_label(thread)}", pruned, shared=False)
        copied = _with(thread, lambda saver, t: saver.copy_thread(t, "x"))
        yield _case(f"copy_thread {_label(thread)}", copied, shared=False)


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (ids, filters, others, upkeep):
        yield from family()
