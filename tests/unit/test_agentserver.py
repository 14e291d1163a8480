"""What the Agent Server stores, through handlers of the real SDK: it comes back, or is refused."""

from __future__ import annotations

import asyncio
import json
import os
import string
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.agentserver import PREFIX, Rules, ServerCipher
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    ConfigError,
    DecodeError,
    IntegrityError,
    KeyDisabledError,
    NoActiveKeyError,
    PlaintextError,
    SealedValueError,
    SealpointError,
    TagError,
    UnknownKeyError,
    UnsupportedTypeError,
)
from sealpoint.langgraph import encryption
from sealpoint.seal.places import encode_value
from tests.support.keys.rings import NEW, OLD, OTHER, states_text, write

sdk: Final = pytest.importorskip("langgraph_sdk")
if not hasattr(sdk, "DecryptResult"):
    pytest.skip("this langgraph-sdk has no DecryptResult", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:The Encryption API is in beta")

RING: Final = KeyRing([Key("new", NEW, KeyState.ACTIVE), Key("old", OLD, KeyState.DECRYPT_ONLY)])
BEFORE: Final = KeyRing([Key("old", OLD, KeyState.ACTIVE)])
TENANT: Final[dict[str, Any]] = {"tenant_id": "a", "request": 1}
KEYS: Final = st.text(st.characters(exclude_categories=["Cs"]))
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def at(model: str = "thread", field: str = "values", **context: Any) -> Any:
    return sdk.EncryptionContext(model=model, field=field, metadata=context)


class Server:
    """Calls handlers as the server does: an object is stored as JSON between the two."""

    def __init__(self, ring: KeyRing | RingCipher = RING, **options: Any) -> None:
        self.handlers = encryption(ring, **options)

    def seal(self, data: Mapping[str, Any], ctx: Any = None) -> dict[str, Any]:
        encrypt: Any = self.handlers.get_json_encryptor()
        return dict(json.loads(json.dumps(asyncio.run(encrypt(ctx or at(), data)))))

    def read(self, data: Any, ctx: Any = None) -> Any:
        decrypt: Any = self.handlers.get_json_decryptor()
        return asyncio.run(decrypt(ctx or at(), data))

    def seal_blob(self, blob: bytes, ctx: Any = None) -> bytes:
        encrypt: Any = self.handlers._blob_encryptor
        return bytes(asyncio.run(encrypt(ctx or at(), blob)))

    def read_blob(self, blob: Any, ctx: Any = None) -> Any:
        decrypt: Any = self.handlers._blob_decryptor
        return asyncio.run(decrypt(ctx or at(), blob))


# --- objects ----------------------------------------------------------------------------------


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_object_comes_back(data: dict[str, Any]) -> None:
    server = Server()
    sealed = server.seal(data)
    assert list(sealed) == list(data)
    assert all(value.startswith("sealpoint:json+cobblestone256.row@new:") for value in sealed.values())
    assert server.read(sealed, at("run", "metadata")) == data  # the server merges an object into another's


@given(st.dictionaries(KEYS, JSON, min_size=1, max_size=3), st.data())
def test_any_changed_character_is_refused(data: dict[str, Any], draw: Any) -> None:
    server = Server(RING)
    sealed = server.seal(data)
    key = draw.draw(st.sampled_from(sorted(sealed)))
    text = sealed[key]
    at_ = draw.draw(st.integers(len(PREFIX), len(text) - 1))
    other = draw.draw(st.sampled_from([c for c in string.ascii_letters + ":+/=@" if c != text[at_]]))
    with pytest.raises(SealpointError):
        server.read({**sealed, key: text[:at_] + other + text[at_ + 1 :]})


def test_a_value_belongs_to_its_key_and_is_no_blob() -> None:
    server = Server()
    sealed = server.seal({"limit": 10, "spent": 3})
    with pytest.raises(IntegrityError):
        server.read({"limit": sealed["spent"], "spent": sealed["limit"]})
    value = server.seal({"key": "value"})["key"]
    with pytest.raises(SealpointError):
        server.read_blob(value.encode())
    tag, blob = RingCipher(RING).seal("json", b"1", row={"server": "blob"})
    with pytest.raises(IntegrityError):
        server.read({"key": f"{PREFIX}{tag}:{encode_value(blob)}"})
    tag, blob = RingCipher(RING).seal("json", b"1")  # as the serializer does, under the same ring
    with pytest.raises(SealpointError):
        server.read({"key": f"{PREFIX}{tag}:{encode_value(blob)}"})


@pytest.mark.parametrize("value", ["text", 1, None, [], {}, {"__encryption_context__": {}, "a": 1}])
def test_plaintext_is_refused_by_default_and_replaced_if_it_is_allowed(value: Any) -> None:
    cipher = RingCipher(RING)
    server, lax = Server(), Server(cipher, plaintext="allow")
    sealed = server.seal({"a": 1})
    with pytest.raises(PlaintextError):
        server.read({**sealed, "key": value})
    result = lax.read({**sealed, "key": value})
    assert result.plaintext == {"a": 1, "key": value}
    assert result.replacement["a"] == sealed["a"]
    assert server.read(result.replacement) == result.plaintext
    for blob in (b"", b"plain", b"sealpoint", b"\x80msgpack"):
        with pytest.raises(PlaintextError):
            server.read_blob(blob)
        result = lax.read_blob(blob)
        assert result.plaintext == blob
        assert server.read_blob(result.replacement) == blob
    assert cipher.stats().plaintext == 5


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (PREFIX, TagError),
        (f"{PREFIX}json+cobblestone256.row@new", TagError),
        (f"{PREFIX}{'a' * 100}:", TagError),
        (f"{PREFIX}json+cobblestone256.row@new:", SealedValueError),
        (f"{PREFIX}json+cobblestone256.row@new:é", SealedValueError),
        (f"{PREFIX}json+cobblestone256.row@new:AAAA AAAA", SealedValueError),
        (f"{PREFIX}json+cobblestone256.row@else:AAAA", UnknownKeyError),
        (f"{PREFIX}json:AAAA", TagError),
    ],
)
def test_malformed_values(value: str, error: type[SealpointError]) -> None:
    cipher = RingCipher(RING)
    with pytest.raises(error) as met:
        Server(cipher).read({"key": value})
    assert cipher.stats().refused == {met.type.__name__: 1}


def test_what_is_not_json_is_refused() -> None:
    for value in (object(), {1, 2}, b"bytes", {("a",): 1}, {"a": object()}):
        with pytest.raises(UnsupportedTypeError):
            Server().seal({"key": value})
    for key in ("\ud800", 1):
        with pytest.raises(UnsupportedTypeError):
            Server().seal({key: 1})  # type: ignore[dict-item]
    tag, blob = RingCipher(RING).seal("json", b"{", row={"server": "value", "key": "key"})
    with pytest.raises(DecodeError):
        Server().read({"key": f"{PREFIX}{tag}:{encode_value(blob)}"})


# --- what stays readable ----------------------------------------------------------------------


def test_plain_metadata_stays_readable_in_metadata_alone() -> None:
    server = Server(plain_metadata=["owner"])
    metadata, values = at(field="metadata"), at(field="values")
    sealed = server.seal({"owner": "alice", "note": "n"}, metadata)
    assert sealed["owner"] == "alice"
    assert sealed["note"].startswith(PREFIX)
    assert server.read(sealed, metadata) == {"owner": "alice", "note": "n"}
    assert server.seal({"owner": "alice"}, values)["owner"].startswith(PREFIX)
    with pytest.raises(PlaintextError):
        server.read(sealed, values)
    before = Server().seal({"owner": "alice"}, metadata)  # before the key became plain
    assert server.read(before, metadata) == {"owner": "alice"}


def test_plain_metadata_that_looks_sealed_is_sealed() -> None:
    """A client may send any text: it must not stop the server from reading the row, nor be opened for it."""
    server, metadata = Server(plain_metadata=["owner"]), at(field="metadata")
    stolen = Server().seal({"owner": "of another row"}, metadata)["owner"]
    for text in (PREFIX, f"{PREFIX}x", stolen):
        sealed = server.seal({"owner": text}, metadata)
        assert sealed["owner"] != text
        assert server.read(sealed, metadata) == {"owner": text}


TEXTS: Final = (
    PREFIX,
    f"{PREFIX}x",
    f"{PREFIX}x:y",
    f"{PREFIX}json:AAAA",
    f"{PREFIX}json+cobblestone256.row@new:AAAA",
)
FORGED: Final = f"{PREFIX}json+cobblestone256.row@new:{'AAAA' * 40}"


@pytest.mark.parametrize("text", [*TEXTS, FORGED])
def test_text_of_a_client_under_a_key_that_the_server_never_encrypts(text: str) -> None:
    """The server merges it into the row that it passes to the handler."""
    rules = Rules(frozenset({"graph_id"}), frozenset({"run.kwargs.temporary"}), {})
    server = ServerCipher(RingCipher(RING), rules)
    for ctx, key in ((at("thread", "metadata"), "graph_id"), (at("run", "kwargs"), "temporary")):
        row = {**server.seal_object(ctx, {"note": text}), key: text}
        assert server.open_object(ctx, row) == ({"note": text, key: text}, None)
    with pytest.raises(SealpointError):
        server.open_object(at("thread", "kwargs"), {"temporary": text})


def test_a_value_that_the_server_stores_readable_by_one_path_and_passes_by_another() -> None:
    """It does so with a run's `recursion_limit`: the context names a model and a field, and no path."""
    rules = Rules(paths=frozenset({"run.kwargs.config.recursion_limit"}))
    server, config = ServerCipher(RingCipher(RING), rules), at("run", "config")
    sealed = server.seal_object(config, {"recursion_limit": 30})
    assert sealed["recursion_limit"].startswith(PREFIX)
    assert server.open_object(config, sealed) == ({"recursion_limit": 30}, None)
    before = ServerCipher(RingCipher(BEFORE), rules).seal_object(config, {"recursion_limit": 30})
    opened = server.open_object(config, before)
    assert opened.plain == {"recursion_limit": 30}
    assert server.open_object(config, opened.replacement) == (opened.plain, None)


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_client_from_before_the_migration(text: str) -> None:
    assert Server(plaintext="allow").read({"a": text}).plaintext == {"a": text}
    with pytest.raises(SealpointError):
        Server().read({"a": text})


def test_text_that_may_be_sealed_is_never_taken_for_plain() -> None:
    with pytest.raises(IntegrityError):
        Server(plaintext="allow").read({"a": FORGED})


def test_what_the_server_stores_readable() -> None:
    """Only where it does: the same keys elsewhere are sealed, and refused if they are not."""
    rules = Rules(
        keys=("thread_id",),
        paths=("run.kwargs.config.recursion_limit", "checkpoint.metadata.step"),
        nested={("run", "config"): ["configurable"]},
    )
    at_run = at("run", "config")
    assert rules.is_readable(at("any", "field"), "thread_id", "t")
    assert rules.is_readable(at_run, "recursion_limit", 25)
    assert not rules.is_readable(at("thread", "config"), "recursion_limit", 25)
    assert rules.is_readable(at("checkpoint", "metadata"), "step", 1)
    assert not rules.is_readable(at("thread", "metadata"), "step", 1)
    assert rules.is_readable(at_run, "configurable", {})
    assert not rules.is_readable(at_run, "configurable", "text")
    assert not rules.is_readable(at("thread", "config"), "configurable", {})


def test_the_installed_server_lists_what_it_stores_readable() -> None:
    pytest.importorskip("langgraph_api")
    server = Server()
    stored = {**server.seal({"a": 1}, at("run", "config")), "thread_id": "t", "recursion_limit": 25}
    assert server.read(stored, at("run", "config")) == {"a": 1, "thread_id": "t", "recursion_limit": 25}
    with pytest.raises(PlaintextError):
        server.read({**stored, "other": 1}, at("run", "config"))


def test_a_server_that_lists_nothing_is_refused_when_the_file_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "langgraph_api", ModuleType("langgraph_api"))
    monkeypatch.setitem(sys.modules, "langgraph_api.schema", ModuleType("langgraph_api.schema"))
    with pytest.raises(ConfigError, match="NEVER_ENCRYPT_FIELDS_GLOBAL"):
        encryption(RING)


def test_an_sdk_without_encryption_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sdk, "Encryption")
    with pytest.raises(ImportError, match="pip install -U langgraph-sdk"):
        encryption(RING)


# --- blobs ------------------------------------------------------------------------------------


@given(st.binary(), st.integers(min_value=0))
def test_any_blob_comes_back_and_with_any_flipped_bit_does_not(blob: bytes, bit: int) -> None:
    server = Server()
    sealed = bytearray(server.seal_blob(blob))
    assert server.read_blob(bytes(sealed)) == blob
    sealed[bit // 8 % len(sealed)] ^= 1 << bit % 8
    with pytest.raises(SealpointError):
        server.read_blob(bytes(sealed))


# --- keys -------------------------------------------------------------------------------------


def test_values_under_an_older_key_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object may hold values under several keys: those under the active one are kept as they are."""
    server, before = Server(), Server(BEFORE)
    stored = {**before.seal({"a": 1, "b": 2}), **server.seal({"c": 3})}
    result = server.read(stored)
    assert isinstance(result, sdk.DecryptResult)
    assert result.plaintext == {"a": 1, "b": 2, "c": 3}
    assert result.replacement.keys() == stored.keys()
    assert result.replacement["c"] == stored["c"]
    assert server.read(result.replacement) == result.plaintext  # a dict: nothing is left to replace
    result = server.read_blob(before.seal_blob(b"blob"))
    assert result.plaintext == b"blob"
    assert server.read_blob(result.replacement) == b"blob"
    monkeypatch.delattr(sdk, "DecryptResult")  # an SDK without replacements gets the content
    assert Server().read(before.seal({"a": 1})) == {"a": 1}


def test_a_ring_without_an_active_key_reads_and_replaces_nothing() -> None:
    server = Server(KeyRing([Key("old", OLD, KeyState.DECRYPT_ONLY)]), plaintext="allow")
    assert server.read(Server(BEFORE).seal({"a": 1})) == {"a": 1}
    assert server.read({"a": 1}) == {"a": 1}
    assert server.read_blob(Server(BEFORE).seal_blob(b"blob")) == b"blob"
    with pytest.raises(NoActiveKeyError):
        server.seal({"a": 1})


@pytest.mark.parametrize(
    ("ring", "error"),
    [
        (KeyRing([Key("other", OTHER, KeyState.ACTIVE)]), UnknownKeyError),
        (KeyRing([Key("new", NEW, KeyState.DISABLED)]), KeyDisabledError),
        (KeyRing([Key("new", OTHER, KeyState.ACTIVE)]), IntegrityError),
    ],
)
def test_keys_that_do_not_open(ring: KeyRing, error: type[SealpointError]) -> None:
    sealed, blob = Server().seal({"a": 1}), Server().seal_blob(b"blob")
    cipher = RingCipher(ring)
    with pytest.raises(error):
        Server(cipher).read(sealed)
    with pytest.raises(error):
        Server(cipher).read_blob(blob)
    assert cipher.stats().refused == {error.__name__: 2}


# --- the encryption context -------------------------------------------------------------------


def test_values_are_bound_to_the_context_that_is_named() -> None:
    server = Server(bound_context=["tenant_id"])
    sealed = server.seal({"a": 1}, at(**TENANT))
    blob = server.seal_blob(b"blob", at(**TENANT))
    same = at(tenant_id="a", request=2)
    assert server.read(sealed, same) == {"a": 1}
    assert server.read_blob(blob, same) == b"blob"
    assert Server().read(Server().seal({"a": 1}, at(**TENANT)), at()) == {"a": 1}  # no name is given
    old = Server(BEFORE, bound_context=["tenant_id"]).seal({"a": 1}, at(**TENANT))
    replaced = server.read(old, same).replacement
    assert server.read(replaced, same) == {"a": 1}
    for other in (at(tenant_id="b"), at(), at(tenant_id=["a"])):
        for value in (sealed, replaced):
            with pytest.raises(IntegrityError):
                server.read(value, other)
        with pytest.raises(IntegrityError):
            server.read_blob(blob, other)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, {"a": b"x"}, {1: 1, "a": 2}],
    ids=["object", "set", "bytes", "keys"],
)
def test_a_context_that_is_not_json_is_refused(value: Any) -> None:
    """By each handler; the error names its key and its type, and not the value."""
    server = Server(bound_context=["tenant_id"])
    sealed, blob = server.seal({"a": 1}, at(**TENANT)), server.seal_blob(b"blob", at(**TENANT))
    ctx = at(tenant_id=value)
    shown = f"'tenant_id' of the encryption context is {type(value).__name__}, which JSON cannot represent"
    calls: list[tuple[Any, Any]] = [
        (server.seal, {"a": 1}),
        (server.read, sealed),
        (server.seal_blob, b"blob"),
        (server.read_blob, blob),
    ]
    for call, data in calls:
        with pytest.raises(UnsupportedTypeError, match=shown) as caught:
            call(data, ctx)
        assert caught.value.hint


@pytest.mark.parametrize(
    "options", [{"plaintext": "maybe"}, {"plain_metadata": "owner"}, {"bound_context": [1]}]
)
def test_arguments_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        encryption(RING, **options)


def test_an_event_loop_does_not_wait_for_a_key(tmp_path: Any) -> None:
    """A slow source is read on a worker thread."""
    gate = tmp_path / "gate"
    slow = f"id = 'slow'\nstate = 'decrypt-only'\nsource = {{ command = ['cat', '{gate}'] }}\n"
    text = f"{states_text(k1='active')}[[key]]\n{slow}"
    sealed = Server(KeyRing([Key("slow", OTHER, KeyState.ACTIVE)])).seal({"a": 1})
    os.mkfifo(gate)
    server = Server(KeyRing.load(write(tmp_path / "keys.toml", text)))

    async def both() -> Any:
        decrypt: Any = server.handlers.get_json_decryptor()
        reading = asyncio.create_task(decrypt(at(), sealed))
        await asyncio.to_thread(gate.write_bytes, OTHER.hex().encode())  # the loop runs meanwhile
        return await reading

    assert asyncio.run(both()).plaintext == {"a": 1}
