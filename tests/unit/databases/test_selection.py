"""Cells: which a selection takes, and the names of their places, in any database."""

from __future__ import annotations

from typing import Any

import pytest

from sealpoint.admin.databases.cells import Cell, Selection, Where
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS, WRITES
from sealpoint.errors import RowError

TAGS: dict[str, tuple[Any, str]] = {
    "sealed": ("msgpack+cobblestone256@k1", "other key"),
    "sealed in another suite": ("msgpack+xaes256gcm@k1", "other key"),
    "bound": ("msgpack+cobblestone256.row@k1", "other key"),
    "a key that ends alike": ("msgpack+cobblestone256@ak2", "other key"),
    "under the key": ("msgpack+cobblestone256@k2", "key"),
    "under the key, bound": ("bytes+xaes256gcm.row@k2", "key"),
    "plaintext": ("msgpack", "plaintext"),
    "plaintext that names a key": ("msgpack@k2", "plaintext"),
    "plaintext that looks bound": ("msgpack.row@k2", "plaintext"),
    "a type that looks bound": ("a.row@b+xaes256gcm@k1", "other key"),
    "nothing": (None, "plaintext"),
    "empty": ("", "plaintext"),
    "number": (7, "plaintext"),
    "legacy": ("msgpack+aes", "legacy"),
    "legacy without a type": ("+aes", "legacy"),
    "no tag at all": ("a+b+c", "other key"),
}


@pytest.mark.parametrize(("tag", "kind"), TAGS.values(), ids=TAGS)
def test_a_selection_takes_what_it_says(tag: Any, kind: str) -> None:
    assert Selection(without_key="k2").takes(tag) == (kind != "key")
    assert Selection(plaintext=False).takes(tag) == (kind != "plaintext")
    assert Selection(legacy=False).takes(tag) == (kind != "legacy")
    assert Selection("k2", plaintext=False, legacy=False).takes(tag) == (kind == "other key")
    is_bound = tag in ("msgpack+cobblestone256.row@k1", "bytes+xaes256gcm.row@k2")
    assert Selection(bound=True).takes(tag) == is_bound
    assert Selection(bound=False).takes(tag) == (not is_bound)


def test_coordinates_are_those_of_the_design() -> None:
    """Frozen: values that are bound to rows open by them for ever."""
    assert Cell(b"", "", Where(CHECKPOINTS, ("t", "n", "c"))).where.row == {
        "table": "checkpoints", "column": "checkpoint",
        "thread_id": "t", "checkpoint_ns": "n", "checkpoint_id": "c",
    }  # fmt: skip
    assert Cell(b"", "", Where(WRITES, ("t", "n", "c", "k", 3, "ch"))).where.row == {
        "table": "writes", "thread_id": "t", "checkpoint_ns": "n", "checkpoint_id": "c",
        "task_id": "k", "channel": "ch",
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [b"t", 7, None])
def test_coordinates_are_text(wrong: Any) -> None:
    with pytest.raises(RowError, match="'checkpoints'"):
        _ = Cell(b"", "", Where(CHECKPOINTS, (wrong, "", "1"))).where.row


def test_a_place_names_the_columns() -> None:
    assert Cell(b"", "", Where(WRITES, ("t", "", "1", "k", 0, "c"))).where.names == {
        "thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1", "task_id": "k", "idx": 0, "channel": "c"
    }  # fmt: skip
