"""What bytes may name: things that act when they are imported, called or looked at."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.blobs import cases
from tests.attacks.canaries import VARIABLE
from tests.attacks.case import Case, Scene
from tests.support.values.forge import ext, named, pack
from tests.support.values.wire import extension

ALL: Final = "strict plaintext inert"
TOUCH: Final = f'touch "${VARIABLE}"'
WRITE: Final = f"open(__import__('os').environ['{VARIABLE}'], 'w').write('x')"

# What a call would need to leave the marker, by what it names.
_ACTS: Final[dict[tuple[str, str], Any]] = {
    ("canary", "Thing"): "x",
    ("canary", "run"): "x",
    ("canary_package.inner", "Thing"): "x",
    ("os", "system"): TOUCH,
    ("posix", "system"): TOUCH,
    ("subprocess", "Popen"): ["sh", "-c", TOUCH],
    ("subprocess", "getoutput"): TOUCH,
    ("builtins", "eval"): WRITE,
    ("builtins", "exec"): WRITE,
    ("builtins", "__import__"): "canary",
    ("importlib", "import_module"): "canary",
    ("pickle", "loads"): pickle.dumps(eval).replace(b"eval", b"exit"),
}
_FIELDS: Final = {
    ("os", "system"): {"command": TOUCH},
    ("posix", "system"): {"command": TOUCH},
    ("subprocess", "Popen"): {"args": ["sh", "-c", TOUCH]},
    ("subprocess", "getoutput"): {"cmd": TOUCH},
    ("builtins", "__import__"): {"name": "canary"},
    ("importlib", "import_module"): {"name": "canary"},
}

# Named in many ways, with an argument that any of them takes.
_ODD: Final = (
    ("functools", "partial"),
    ("functools", "reduce"),
    ("operator", "methodcaller"),
    ("operator", "attrgetter"),
    ("types", "FunctionType"),
    ("types", "CodeType"),
    ("types", "SimpleNamespace"),
    ("importlib.util", "module_from_spec"),
    ("runpy", "run_module"),
    ("runpy", "run_path"),
    ("ctypes", "CDLL"),
    ("ctypes", "c_char_p"),
    ("shutil", "rmtree"),
    ("os", "remove"),
    ("os", "putenv"),
    ("builtins", "open"),
    ("builtins", "compile"),
    ("builtins", "getattr"),
    ("builtins", "type"),
    ("builtins", "object"),
    ("builtins", "bytearray"),
    ("builtins", "memoryview"),
    ("builtins", "range"),
    ("builtins", "str"),
    ("builtins", "input"),
    ("builtins", "breakpoint"),
    ("builtins", "exit"),
    ("sys", "exit"),
    ("os", "_exit"),
    ("os", "abort"),
    ("signal", "raise_signal"),
    ("faulthandler", "_sigsegv"),
    ("socket", "create_connection"),
    ("urllib.request", "urlopen"),
    ("webbrowser", "open"),
    ("logging.config", "dictConfig"),
    ("code", "interact"),
    ("timeit", "timeit"),
    ("this", "s"),
    ("antigravity", "fly"),
    ("__main__", "main"),
    ("tests.attacks.canaries", "place"),
    ("langchain_core.load.load", "loads"),
    ("langchain_core.prompts.prompt", "PromptTemplate"),
    ("langchain_core.prompts.loading", "load_prompt"),
    ("langgraph.pregel.remote", "RemoteGraph"),
    ("langgraph.checkpoint.serde.jsonplus", "JsonPlusSerializer"),
    ("langgraph.cache.sqlite", "SqliteCache"),
    ("sealpoint.serde.jsonplus", "JsonPlusSerializer"),
    ("sealpoint.keys.ring", "KeyRing"),
)

# What is near to an allowed name, and is not it.
_NEAR: Final = (
    ("re", "template"),
    ("re", "sub"),
    ("re", "purge"),
    ("re", "enum"),
    ("re", "Pattern"),
    ("re", "compile.__call__"),
    ("re", "__loader__"),
    ("uuid", "getnode"),
    ("uuid", "os"),
    ("uuid", "UUID.__class__"),
    ("uuid", "UUID.__init__"),
    ("pathlib", "os"),
    ("pathlib", "Path.touch"),
    ("pathlib", "Path.cwd"),
    ("pathlib", "PurePath"),
    ("pathlib._local", "os"),
    ("zoneinfo", "reset_tzpath"),
    ("zoneinfo", "sys"),
    ("zoneinfo._tzpath", "reset_tzpath"),
    ("decimal", "getcontext"),
    ("decimal", "Context"),
    ("datetime", "sys"),
    ("datetime", "__loader__"),
    ("datetime", "datetime.__class__"),
    ("datetime", "tzinfo"),
    ("collections", "abc"),
    ("collections", "namedtuple"),
    ("collections", "defaultdict"),
    ("collections.deque", "__init__"),
    ("builtins", "set.__class__"),
    ("builtins.set", "__class__"),
    ("builtins", "__dict__"),
    ("builtins", ""),
    ("", "set"),
    ("", ""),
    (".datetime", "date"),
    ("..os", "system"),
    ("datetime.", "date"),
    (" datetime", "date"),
    ("datetime\n", "date"),
    ("datetime\0", "date"),
    ("datetime", "date\0"),
    ("DateTime", "date"),
    ("d\u0430tetime", "date"),
    ("\uff44atetime", "date"),
    ("langchain_core.messages.ai", "json"),
    ("langchain_core.messages.ai", "AIMessage.__class__"),
    ("langchain_core.messages.ai", "AIMessage.parse_file"),
    ("langchain_core.messages", "AIMessage"),
    ("langchain_core.messages.base", "merge_content"),
    ("langgraph.types", "sys"),
    ("langgraph.types", "interrupt"),
    ("langgraph.types", "Command.__class__"),
    ("langgraph.store.base", "BaseStore"),
    ("m" * 1_000_000, "n"),
    ("m", "n" * 1_000_000),
    ("a." * 100_000 + "a", "n"),
)


def argument(code: int, module: str, name: str) -> Any:
    """Return what a record of a kind needs to act."""
    act = _ACTS.get((module, name), "x")
    if code in (0, 3):
        return act
    if code == 1:
        return [act]
    return _FIELDS.get((module, name), {})


def _method(code: int) -> tuple[str, ...]:
    return {3: ("fromisoformat",), 5: ("model_validate_json",)}.get(code, ())


def names() -> Iterator[Case]:
    """Every kind of record that calls, with what must not be called."""
    for module, name in _ACTS:
        for code in range(6):
            blob = pack(named(code, module, name, argument(code, module, name), *_method(code)))
            readers = ALL if code == 0 else "strict"
            yield from cases("names", f"{module}.{name} by {code}", blob, readers=readers)
    for number, (module, name) in enumerate(_ODD):
        code = (0, 1, 2, 5)[number % 4]
        blob = pack(named(code, module, name, argument(code, module, name), *_method(code)))
        yield from cases("names", f"{module}.{name} by {code}", blob)
    for number, (module, name) in enumerate(_NEAR):
        code = (0, 1, 2)[number % 3]
        blob = pack(named(code, module, name, argument(code, module, name)))
        label = ascii(f"{module[:30]}.{name[:30]}")
        yield from cases("near names", f"{label} by {code}", blob)
    for label in ("m", "n"):
        blob = pack(named(0, label * 1_000_000, "n", 1))
        yield from cases(
            "near names", f"a name of a million {label} as data", blob, readers="inert inventory"
        )


def methods() -> Iterator[Case]:
    """Methods that a record asks for beside the two that honest ones do."""
    for module, name, value, *method in (
        ("datetime", "datetime", "x", "__init__"),
        ("datetime", "datetime", [0], "fromtimestamp"),
        ("datetime", "date", 1, "fromordinal"),
        ("datetime", "datetime", None, None),
        ("datetime", "datetime", "2024-01-01T00:00:00", ["fromisoformat"]),
        ("pathlib", "Path", "x", "touch"),
        ("pathlib", "Path", "x", "fromisoformat"),
        ("pathlib", "Path", [], "cwd"),
        ("builtins", "set", [[1]], "pop"),
        ("builtins", "set", "x", "fromisoformat"),
        ("uuid", "UUID", "x", "fromisoformat"),
        ("decimal", "Decimal", 0.1, "from_float"),
        ("re", "compile", "x", "fromisoformat"),
        ("langchain_core.messages.ai", "AIMessage", {"content": "x"}, "parse_file"),
        ("langchain_core.messages.ai", "AIMessage", {"content": "x"}, "__reduce__"),
        ("langchain_core.messages.ai", "AIMessage", {"content": 1}, "model_construct"),
    ):
        for code in (3, 5):
            blob = pack(named(code, module, name, value, *method))
            yield from cases("methods", f"{module}.{name}.{method[0]} by {code}", blob)


def codes() -> Iterator[Case]:
    """Extension codes that nobody writes, and payloads that no code has."""
    payload = pack(["os", "system", TOUCH])
    for code in (8, 9, 42, 127, -1, -2, -128):
        yield from cases("codes", f"code {code}", extension(code, payload), readers=ALL, malformed=True)
    for size in (0, 4, 8, 12):
        blob = extension(-1, b"\xff" * size)
        yield from cases("codes", f"timestamp of {size} bytes", blob, readers=ALL, malformed=True)
    for label, value in (
        ("nothing", b""),
        ("nil", pack(None)),
        ("a string", pack("os.system")),
        ("an empty list", pack([])),
        ("one name", pack(["os"])),
        ("two names", pack(["os", "system"])),
        ("a map", pack({"os": "system"})),
        ("numbers for names", pack([1, 2, 3])),
        ("nil for names", pack([None, None, None])),
        ("lists for names", pack([["os"], ["system"], TOUCH])),
        ("a record for a name", pack([ext(0, ["os", "system", TOUCH]), "x", 1])),
        ("binaries for names", pack([b"os", b"system", TOUCH])),
        ("five elements", pack(["os", "system", TOUCH, "x", "y"])),
        ("two values", pack(["builtins", "set", [1]]) + pack(["os", "system", TOUCH])),
        ("half a value", pack(["builtins", "set", [1]])[:-1]),
    ):
        for code in (0, 5):
            yield from cases("codes", f"code {code} holds {label}", extension(code, value), malformed=True)
        yield from cases("codes", f"code 0 holds {label}", extension(0, value), readers="inventory")


def nested() -> Iterator[Case]:
    """A dangerous record in every place where a value may stand."""
    bad = named(0, "os", "system", TOUCH)
    canary = named(0, "canary", "Thing", "x")
    message = "langchain_core.messages.ai", "AIMessage"
    for label, value in (
        ("a list", [bad]),
        ("a map", {"a": bad}),
        ("a checkpoint", {"v": 1, "id": "x", "channel_values": {"a": canary}}),
        ("a set", named(0, "builtins", "set", [bad])),
        (
            "a frozenset in a deque",
            named(0, "collections", "deque", [named(0, "builtins", "frozenset", [canary])]),
        ),
        ("the content of a message", named(5, *message, {"content": bad}, "model_validate_json")),
        ("the fields of a message", named(5, *message, bad, "model_validate_json")),
        (
            "the extras of a message",
            named(5, *message, {"content": "", "additional_kwargs": {"a": canary}}, "model_validate_json"),
        ),
        (
            "a document",
            named(
                5,
                "langchain_core.documents.base",
                "Document",
                {"page_content": "", "metadata": {"a": bad}},
                "model_validate_json",
            ),
        ),
        ("a Send", named(1, "langgraph.types", "Send", ["node", bad])),
        ("an Interrupt", named(2, "langgraph.types", "Interrupt", {"value": canary, "id": "x"})),
        ("a Command", named(2, "langgraph.types", "Command", {"update": {"a": bad}})),
        ("a timedelta", named(1, "datetime", "timedelta", [bad, 0, 0])),
        ("a regex", named(1, "re", "compile", [canary, 0])),
        ("the arguments of a date", named(1, "datetime", "date", bad)),
        ("a delta snapshot", ext(7, pack(bad))),
        ("the dtype of an array", ext(6, [bad, [1], "C", b"\0"])),
        ("the shape of an array", ext(6, ["|u1", canary, "C", b"\0"])),
        ("ten snapshots", _wrapped(canary, 10)),
    ):
        yield from cases("nested names", label, pack(value), readers=ALL)
    key = b"\x81" + pack(bad) + b"\x01"
    yield from cases("nested names", "the key of a map", key, readers=ALL, malformed=True)
    keyed = b"\x81" + b"\x91" + pack(canary) + b"\x01"
    yield from cases("nested names", "a list that is the key of a map", keyed, readers=ALL, malformed=True)


def _wrapped(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = ext(7, pack(value))
    return value


def pickles() -> Iterator[Case]:
    """Rows of pickle, also where pickle is read if the ring vouches for it."""

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            import os

            return os.system, (TOUCH,)

    blob = pickle.dumps(Evil())
    honest = pickle.dumps({"a": 1})
    for kind in ("pickle", "msgpack", "json", "bytearray+pickle", "PICKLE", "pickle "):
        yield from cases("pickle", f"labelled {kind!r}", blob, kind=kind, readers="strict plaintext")
    yield from cases("pickle", "labelled 'pickle'", blob, kind="pickle", readers="inert inventory")
    for label, data in (("an evil one", blob), ("a harmless one", honest)):
        yield _asked_for("strict", label, data)
        yield _asked_for("plaintext", label, data)


def _asked_for(reader: str, label: str, data: bytes) -> Case:
    """pickle_fallback=True is for what the ring has opened; nobody vouches for these bytes."""
    from tests.attacks.case import Read, Reading

    def forge(scene: Scene) -> Read:
        side = scene.side
        strict = side.strict(pickle_fallback=True)
        serde = strict if reader == "strict" else side.sealing(plaintext=True, pickle_fallback=True)
        return lambda: Reading(serde.loads_typed(("pickle", data)), whole=False)

    return Case("pickle", f"{label}, with pickle_fallback [{reader}]", forge)


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (names, methods, codes, nested, pickles):
        yield from family()
