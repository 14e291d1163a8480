"""Formats around sealed values, which ``values.json`` of each release has; most are computed here again.

What is computed here uses plain ``hmac`` and ``struct``, from the definitions of the formats.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from base64 import b32encode, b64encode
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from sealpoint.admin.evidence.erasure import hmac_of
from sealpoint.admin.evidence.folder import Entry, read_members
from sealpoint.agentserver import Rules, ServerCipher
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.wrap import pkcs11helper
from sealpoint.keys.wrap.command import format_bound, parse_bound
from sealpoint.keys.wrap.pkcs11 import Wrapper
from sealpoint.keys.wrap.wrapper import WrapContext
from sealpoint.merkle import Tree
from sealpoint.seal.calls import (
    Claims,
    StoredWrite,
    pack_claims,
    pack_made,
    places_of,
    require_made,
    require_whole,
    split_claims,
)
from sealpoint.seal.heads import Head, Kind, Special, mac_of, parse_claim
from sealpoint.seal.items import ItemName, pack_item, pseudonym_of, split_item
from sealpoint.seal.jsontext import pack_json, unpack_json
from sealpoint.seal.keys import KeyedHash
from sealpoint.seal.places import Spot
from sealpoint.seal.rows import digest_of, split_header
from sealpoint.seal.tokens import Tokens
from sealpoint.threads.store import Event, line_of, parse_specials
from tests.support.databases.headers import packed_header
from tests.support.keys.rings import states_text, write
from tests.vectors.releases import read_set

REBOUND: Final = "000102030405060708090a0b"


def each(name: str) -> pytest.MarkDecorator:
    """Run a test with each entry of a set."""
    return pytest.mark.parametrize("entry", read_set("values.json", name))


def index_key(entry: dict[str, Any], purpose: str) -> bytes:
    """HKDF-Expand of RFC 5869 from the index key of an entry."""
    info = f"sealpoint v1 index {purpose}".encode() + b"\x01"
    return hmac.digest(bytes.fromhex(entry["index"]), info, "sha512")[:32]


def tokens_of(entry: dict[str, Any]) -> Tokens:
    ring = KeyRing([], index=bytes.fromhex(entry["index"]))
    return Tokens(lambda: ring)


def packed(*texts: str) -> bytes:
    return b"".join(len(text.encode()).to_bytes(4, "big") + text.encode() for text in texts)


def plain_pseudonym(entry: dict[str, Any], name: str) -> str:
    digest = hmac.digest(index_key(entry, "thread_id"), name.encode(), "sha256")
    return f"t-{b32encode(digest).decode().lower()[:32]}"


def context_of(entry: dict[str, Any]) -> WrapContext:
    return WrapContext(entry["ring"], entry["key"])


# --- under the index key ----------------------------------------------------------------------------


@each("tokens")
def test_token(entry: dict[str, Any]) -> None:
    key, value = entry["key"], entry["value"]
    assert tokens_of(entry).token(key, value) == entry["token"]
    text = f"s:{value}" if isinstance(value, str) else repr(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = f"n:{int(Decimal(repr(value)))}" if value == int(value) else f"n:{value!r}"
    digest = hmac.digest(index_key(entry, "metadata"), packed(key, text), "sha256")
    assert f"sp{digest[:16].hex()}" == entry["token"]


@each("pseudonyms")
def test_pseudonym(entry: dict[str, Any]) -> None:
    assert tokens_of(entry).pseudonym(entry["thread_id"]) == entry["pseudonym"]
    assert plain_pseudonym(entry, entry["thread_id"]) == entry["pseudonym"]


@each("item_names")
def test_item_name(entry: dict[str, Any]) -> None:
    namespace, key, (labels, stored) = entry["namespace"], entry["key"], entry["stored"]
    found = pseudonym_of(ItemName(tuple(namespace), key), tokens_of(entry))
    assert found == ItemName(tuple(labels), stored)
    assert [plain_pseudonym(entry, f"label\0{label}") for label in namespace] == labels
    assert plain_pseudonym(entry, "\0".join(("key", *namespace, key))) == stored


@each("ledger_names")
def test_ledger_name(entry: dict[str, Any], tmp_path: Path) -> None:
    key = b64encode(bytes.fromhex(entry["index"])).decode()
    text = f'\n[[index]]\nid = "index"\nsource = {{ inline = "{key}" }}\n'
    ring = write(tmp_path / "keys.toml", states_text(k1="active") + text)
    ring.chmod(0o600)
    assert hmac_of(RingFile(ring))(entry["text"]) == entry["hmac"]
    digest = hmac.digest(index_key(entry, "ledger"), entry["text"].encode(), "sha256")
    assert f"hmac-sha256:{digest.hex()}" == entry["hmac"]


@each("heads")
def test_head(entry: dict[str, Any]) -> None:
    claim, inner, data = entry["claim"], entry["inner"], bytes.fromhex(entry["data"])
    keyed = KeyedHash(index_key(entry, "heads"))
    assert mac_of(keyed, Spot(*entry["spot"]), digest_of(claim, inner, data)).hex() == entry["mac"]
    digest = hashlib.sha256(claim.encode() if claim else f"{inner}\0".encode() + data).digest()
    message = packed(*entry["spot"]) + digest
    assert hmac.digest(index_key(entry, "heads"), message, "sha256")[:16].hex() == entry["mac"]


# --- in front of a value ----------------------------------------------------------------------------


@each("checkpoint_headers")
def test_checkpoint_header(entry: dict[str, Any]) -> None:
    data, header = bytes.fromhex(entry["packed"]), entry["header"]
    assert packed_header(header) == data
    assert split_header(data + b"document") == (header, b"document")
    assert json.loads(data[4:]) == header
    assert len(data) == 4 + int.from_bytes(data[:4], "big")
    if claim := header.get("store"):
        assert ":".join(map(str, parse_claim(claim))) == claim.rpartition(":")[0]


@each("item_headers")
def test_item_header(entry: dict[str, Any]) -> None:
    name = entry["name"] and ItemName(tuple(entry["name"][0]), entry["name"][1])
    data = bytes.fromhex(entry["packed"])
    assert pack_item(name) == data
    assert split_item(data + b"value") == (name, b"value")


@each("header_values")
def test_header_value(entry: dict[str, Any]) -> None:
    """What strict JSON lacks, in metadata and inline values."""
    value = json.loads(entry["text"])
    assert pack_json(value) == entry["sealed"]
    assert repr(unpack_json(entry["sealed"])) == repr(value)
    header: Any = {"metadata": value, "parent": None, "channels": ["a"], "inline": value, "rebound": REBOUND}
    data = bytes.fromhex(entry["packed"])
    assert packed_header(header) == data
    assert repr(split_header(data + b"document")) == repr((header, b"document"))
    found = json.loads(data[4:].decode(), parse_constant=pytest.fail)
    assert found["metadata"] == found["inline"] == entry["sealed"]


@each("claims")
def test_claims(entry: dict[str, Any]) -> None:
    call, head = bytes.fromhex(entry["call"]), bytes.fromhex(entry["packed"])
    claims = Claims(entry["path"], entry["idx"], call) if call else Claims(entry["path"], entry["idx"])
    assert pack_claims(claims) == head
    assert split_claims(head + b"value") == (claims, b"value")
    path = entry["path"].encode()
    assert struct.pack(">iI", entry["idx"], len(path) + 2**31 * bool(call)) + path + call == head


@each("made")
def test_made(entry: dict[str, Any]) -> None:
    """Also the places of the call, of a node that was resumed: ``[__resume__, __resume__, a, b]``."""
    call = bytes.fromhex(entry["call"])
    ordinary, special = places_of(call)
    assert ([*ordinary], [*special]) == ([2, 3], [-4])
    writes = [
        StoredWrite(
            Claims("", idx) if number is None else Claims("", idx, call),
            task,
            "__resume__" if idx < 0 else "a",
            "",
            b"",
        )
        for task, idx, number in entry["writes"]
    ]
    require_whole(writes)
    assert pack_made(writes) == entry["made"]
    require_made(entry["made"], writes)
    records = [
        hashlib.sha256(b"task-1").digest()[:8] + call[:8] + struct.pack(">I", 2),
        hashlib.sha256(b"task-2").digest()[:8] + bytes(8) + struct.pack(">I", 1),
    ]
    assert b64encode(b"".join(sorted(records))).decode() == entry["made"]


# --- logs -------------------------------------------------------------------------------------------


@each("thread_log")
def test_thread_log(entry: dict[str, Any]) -> None:
    events = [
        Event(seq, Head(Spot(*spot), Kind(kind), bytes.fromhex(mac)), at)
        for seq, kind, mac, *spot, at in entry["events"]
    ]
    lines = [line_of(event).decode() for event in events]
    assert lines == entry["lines"]
    assert [json.loads(line) for line in lines] == entry["events"]
    assert Tree.of(line.encode() for line in lines).root().hex() == entry["root"]


@each("specials")
def test_specials(entry: dict[str, Any]) -> None:
    wanted = [
        Special(seq, task, idx, bytes.fromhex(call), since)
        for seq, task, idx, call, since in entry["specials"]
    ]
    assert parse_specials(entry["records"]) == wanted


@each("ledger_entries")
def test_ledger_entry(entry: dict[str, Any]) -> None:
    line = Entry(**entry["entry"]).line()
    assert line.decode() == entry["line"]
    assert read_members(line, entry["entry"]["seq"]) == {**entry["entry"], "v": 1}


# --- the Agent Server -------------------------------------------------------------------------------


def server_of(entry: dict[str, Any]) -> tuple[ServerCipher, Any]:
    ring = KeyRing([Key("k1", bytes.fromhex(entry["key"]), KeyState.ACTIVE)])
    context = SimpleNamespace(model="thread", field="values", metadata=entry["context"])
    return ServerCipher(RingCipher(ring), Rules(), bound_context=tuple(entry["context"])), context


@each("server_objects")
def test_server_object(entry: dict[str, Any]) -> None:
    cipher, context = server_of(entry)
    assert cipher.open_object(context, entry["sealed"]).plain == entry["plain"]


@each("server_blobs")
def test_server_blob(entry: dict[str, Any]) -> None:
    cipher, context = server_of(entry)
    assert cipher.open_blob(context, bytes.fromhex(entry["sealed"])).plain.hex() == entry["plain"]


# --- wrapped keys -----------------------------------------------------------------------------------


@each("wrap_contexts")
def test_wrap_context(entry: dict[str, Any]) -> None:
    assert context_of(entry).to_bytes().decode() == entry["context"]
    assert json.loads(entry["context"]) == context_of(entry).pairs()


@each("wrapped_by_command")
def test_wrapped_by_command(entry: dict[str, Any]) -> None:
    material = bytes.fromhex(entry["material"])
    assert format_bound(material, context_of(entry)).decode() == entry["line"]
    assert parse_bound(entry["line"].encode(), context_of(entry)) == material


@each("wrapped_by_pkcs11")
def test_wrapped_by_pkcs11(entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is a program that has its key: ``01 | iv | AES-256-GCM(material, context)``."""
    helper = tmp_path / "helper.py"
    helper.write_text(
        "import base64, json, sys\n"
        "from cryptography.hazmat.primitives.ciphers.aead import AESGCM\n"
        "request = json.load(sys.stdin)\n"
        "iv, text, context = (base64.b64decode(request[name]) for name in ('iv', 'text', 'context'))\n"
        f"text = AESGCM(bytes.fromhex({entry['aes']!r})).decrypt(iv, text, context)\n"
        "print(json.dumps({'text': base64.b64encode(text).decode()}))\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(pkcs11helper, "__file__", str(helper))
    monkeypatch.setenv("PIN_OF_TEST", "1234")
    table = {"module": "m", "token": "t", "key": "k", "pin": {"env": "PIN_OF_TEST"}}
    wrapper = Wrapper.parse(table, "[[wrapper]]", tmp_path)
    assert wrapper.unwrap(bytes.fromhex(entry["blob"]), context_of(entry)).hex() == entry["material"]
