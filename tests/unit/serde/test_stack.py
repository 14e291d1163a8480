"""A deep value ends no process: a thread with a small stack reads it, or refuses it by an error."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from pydantic import BaseModel

from sealpoint.errors import DecodeError
from sealpoint.serde import JsonPlusSerializer, stack
from sealpoint.serde.inert import read_outline
from tests.support.values.wire import deep_values

MiB = 1024 * 1024

IN_A_THREAD = """
import sys, threading
from sealpoint.errors import SealpointError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import decode_inert, read_outline
from sealpoint.serde.limits import Limits
from tests.support.values.wire import NIL, deep_values, mapping, record, text
from tests.unit.serde.test_stack import Node

size, trusted = int(sys.argv[1]), sys.argv[2] == "sealed"
limits = Limits(depth=255)
serde = JsonPlusSerializer(allowed_msgpack_modules=True, allowed_json_modules=True, limits=limits)
rows = {}
for depth in (12, 64, 65, 100, 180, 254, 255):
    for kind, data in deep_values(depth).items():
        rows[kind, depth] = data
    fields = (b"\\x81" + text("child")) * (depth - 2) + NIL
    rows["model", depth] = record(5, Node.__module__, "Node", fields, text("model_validate_json"))
of_sealed = [lambda data: serde.loads_sealed("msgpack", data), read_outline]
of_others = [
    lambda data: serde.loads_unsealed("msgpack", data, allow_any_type=True),
    lambda data: decode_inert("msgpack", data, limits),
]

def run():
    for (kind, depth), data in rows.items():
        for read in of_sealed if trusted else of_others:
            try:
                read(data)
                print(depth, "read", kind)
            except SealpointError as error:
                print(depth, "refused", kind, flush=True)

threading.stack_size(size)
thread = threading.Thread(target=run)
thread.start()
threading.stack_size(0)  # what a thread has is not what the next ones will have
thread.join()
"""


class Node(BaseModel):
    """A model in which pydantic recurses, at some 5 kB a level."""

    child: Node | None = None


@pytest.mark.parametrize("seal", ["sealed", "not sealed"])
@pytest.mark.parametrize("kibibytes", [128, 256, 1024, 8192])
def test_no_deep_value_ends_a_process(kibibytes: int, seal: str) -> None:
    command = [sys.executable, "-c", IN_A_THREAD, str(kibibytes * 1024), seal]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 2 * 7 * (len(deep_values(1)) + 1)
    refused = [(int(depth), kind) for depth, what, kind in lines if what == "refused"]
    # The 64 levels that any value may have are read, but for models where pydantic recurses. A scan refuses
    # deeper keys: they are hashed, which recurses.
    assert kibibytes < 8192 or {kind for _, kind in refused} == ({"key"} if seal == "not sealed" else set())
    assert not [each for each in refused if each[0] <= 64 and each[1] != "model"] or sys.version_info >= (
        3,
        14,
    )
    assert kibibytes > 256 or {kind for depth, kind in refused if depth == 255} >= {"array", "map", "model"}


def test_the_error_names_the_stack_and_how_to_get_a_larger_one() -> None:
    found: list[DecodeError] = []

    def run() -> None:
        for read in (lambda data: JsonPlusSerializer().loads_sealed("msgpack", data), read_outline):
            with pytest.raises(DecodeError, match="131,072 bytes") as caught:
                read(deep_values(255)["array"])
            found.append(caught.value)

    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert ["threading.stack_size" in error.hint for error in found] == [True, True]


def test_without_the_c_library_what_is_set_for_threads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "_libc", None)
    monkeypatch.setattr(threading, "stack_size", lambda: 0)
    assert stack._stack_bytes() == MiB
    monkeypatch.setattr(threading, "stack_size", lambda: 3 * MiB)
    assert stack._stack_bytes() == 3 * MiB
