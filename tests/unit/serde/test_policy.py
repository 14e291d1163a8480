"""Strict, permissive and raw: what is imported, called, raised and logged."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import DecodeError, SealpointError
from sealpoint.serde import SAFE_TYPES, Allowlist, JsonPlusSerializer
from tests.support.sample_types import Point
from tests.support.values.forge import envelope, extension, record

CODES = range(6)


@pytest.fixture
def strict() -> JsonPlusSerializer:
    return JsonPlusSerializer(allowed_msgpack_modules=None)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name a module that can be imported and is not."""
    (tmp_path / "sealpoint_trap.py").write_text("class Bait:\n    def __init__(self, *a, **k): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sealpoint_trap", raising=False)
    return "sealpoint_trap"


@pytest.mark.claim("f9")
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("on_blocked", ["raise", "raw"])
def test_a_blocked_module_is_not_imported(trap: str, code: int, on_blocked: Any) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[Point], on_blocked=on_blocked)
    for row in (record(code, trap, "Bait", {}), envelope(trap, "Bait")):
        try:
            assert on_blocked == "raw", serde.loads_typed(row)
            serde.loads_typed(row)
        except SealpointError:
            assert on_blocked == "raise"
    assert trap not in sys.modules


def test_the_same_module_is_imported_once_it_is_allowed(trap: str) -> None:
    """So the trap of the test above is one."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(trap, "Bait")])
    assert type(serde.loads_typed(record(2, trap, "Bait", {}))).__name__ == "Bait"


def test_raw_gives_back_what_a_function_would_have_got() -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=True, on_blocked="raw")
    assert serde.loads_typed(record(0, "os", "system", "echo")) == "echo"


@pytest.mark.parametrize(
    "method", ["now", "__reduce__", "fromisoformat", "model_validate_json", "model_construct"]
)
@pytest.mark.parametrize("code", CODES)
def test_only_the_method_of_its_code_is_taken(strict: JsonPlusSerializer, code: int, method: str) -> None:
    """Also once the type is known: what a row means does not depend on those before it."""
    strict.loads_typed(record(3, "datetime", "datetime", "2020-01-01T00:00:00", "fromisoformat"))
    strict.loads_typed(record(1, "datetime", "date", [2020, 1, 1]))
    if (code, method) in ((3, "fromisoformat"), (5, "model_validate_json")):
        return
    with pytest.raises(DecodeError):
        strict.loads_typed(record(code, "datetime", "date", "2020-01-01", method))


@pytest.mark.parametrize(
    "payload", [{0: "builtins", 1: "set", 2: [1]}, ["builtins", "set", [1], "pop"], "abc"]
)
def test_a_known_type_does_not_make_a_malformed_record_readable(
    strict: JsonPlusSerializer, payload: Any
) -> None:
    for _ in range(2):
        with pytest.raises(DecodeError):
            strict.loads_typed(extension(0, payload))
        strict.loads_typed(record(0, "builtins", "set", [1]))


def test_permissive_rebuilds_and_warns_once_per_type(caplog: pytest.LogCaptureFixture) -> None:
    """Once in a process, however many serializers and values there are."""

    class Fresh:
        pass

    Fresh.__module__, Fresh.__qualname__ = __name__, "Fresh"
    vars(sys.modules[__name__])["Fresh"] = Fresh
    with caplog.at_level(logging.WARNING, "sealpoint.serde"):
        for _ in range(3):
            serde = JsonPlusSerializer(allowed_msgpack_modules=True)
            assert isinstance(serde.loads_typed(record(2, __name__, "Fresh", {})), Fresh)
    assert [entry.levelname for entry in caplog.records] == ["WARNING"]
    assert f"allowed_msgpack_modules=[({__name__!r}, 'Fresh')]" in caplog.text


def test_raw_warns_once_per_type_and_not_of_a_listed_one(caplog: pytest.LogCaptureFixture) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[Point], on_blocked="raw")
    row = record(2, "only.warned.once", "Thing", {"a": 1})
    with caplog.at_level(logging.DEBUG):
        assert serde.loads_typed(serde.dumps_typed(Point(1))) == Point(1)
        assert not caplog.records
        assert [serde.loads_typed(row) for _ in range(3)] == [{"a": 1}] * 3
    assert len(caplog.records) == 1
    assert "only.warned.once.Thing" in caplog.text


def test_with_msgpack_allowlist_extends_a_copy() -> None:
    """Of the same class and policy; a permissive serializer has nothing to add."""

    class Mine(JsonPlusSerializer):
        pass

    serde = Mine(pickle_fallback=True, allowed_msgpack_modules=None, on_blocked="raw")
    extended = serde.with_msgpack_allowlist([Point])
    assert (type(extended), extended.pickle_fallback, extended.on_blocked) == (Mine, True, "raw")
    assert extended.loads_typed(serde.dumps_typed(Point(1))) == Point(1)
    assert isinstance(serde.loads_typed(serde.dumps_typed(Point(1))), dict)
    assert extended.with_msgpack_allowlist([("tests.support.sample_types", "Point")]) is extended
    permissive = JsonPlusSerializer(allowed_msgpack_modules=True)
    assert permissive.with_msgpack_allowlist([Point]) is permissive


@pytest.mark.parametrize("on_blocked", ["ignore", None, True])
def test_on_blocked_knows_two_words(on_blocked: Any) -> None:
    with pytest.raises(ValueError, match="on_blocked must be 'raise' or 'raw'"):
        JsonPlusSerializer(on_blocked=on_blocked)


def test_an_own_extension_hook_is_used_and_kept() -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, __unpack_ext_hook__=lambda code, _: code)
    row = record(2, "any", "Thing", {})
    assert serde.loads_typed(row) == 2
    assert serde.with_msgpack_allowlist([Point]).loads_typed(row) == 2


@pytest.mark.parametrize("data", [b"\x91" * 100 + b"\xc0", b"\x82\x01\x00\x01\x00", b"\xdd\xff\xff\xff\xff"])
def test_an_own_extension_hook_leaves_the_bounds_of_unsealed_bytes(data: bytes) -> None:
    for allowed in (None, True):
        serde = JsonPlusSerializer(allowed_msgpack_modules=allowed, __unpack_ext_hook__=lambda code, _: code)
        with pytest.raises(DecodeError):
            serde.loads_unsealed("msgpack", data)


# --- allowlists -----------------------------------------------------------------------------------

POINT = ("tests.support.sample_types", "Point")


@pytest.mark.parametrize(
    "entry",
    [Point, POINT, ["tests.support.sample_types", "Point"], ("tests", "support", "sample_types", "Point")],
)
def test_a_type_and_every_way_to_write_its_name_allow_it(entry: Any) -> None:
    assert Allowlist.of([entry]).types == SAFE_TYPES | {POINT}
    allowed = Allowlist.of([POINT])
    assert allowed.extended([entry]) is allowed


@pytest.mark.parametrize("entry", ["tests", ("tests",), (), (1, 2), ("a", None), None, b"ab"])
def test_anything_else_is_no_entry(entry: Any) -> None:
    with pytest.raises(TypeError, match="an allowlist holds types and tuples of strings"):
        Allowlist.of([entry])
