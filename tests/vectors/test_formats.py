"""Every format that sealpoint stores has a vector: a new one without a vector is noticed here.

Formats are found in the source by what they need: a version, a domain of keys or contexts, a purpose of the
index key, a record of bytes, coordinates of a row, a table, a function that packs, and what the code lists:
suites, flags of tags, kinds of wrapped keys, schemas of results.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Final

import pytest

from sealpoint.keys.wrap.wrapper import BUILT_IN
from sealpoint.seal.keys import LEGACY
from sealpoint.seal.suites import SUITES
from sealpoint.seal.tag import FLAGS
from tests.vectors.releases import FOLDER, RELEASES
from tests.vectors.write import SCHEMAS

SOURCE: Final = SCHEMAS.parent

FORMATS: Final[dict[str, set[str]]] = {
    # keys, tags and values
    "crypto.json tags": {"flag row", "flag zst"},
    "crypto.json contexts": {
        "seal.context: 'sealpoint\\x00\\x01'",
        "seal.context: pack_row",
        "seal.context: pack_tag",
    },
    "crypto.json subkeys": {"seal.keys: 'sealpoint v1 '"},
    "crypto.json sealed": {"suite aes", "suite cobblestone256", "suite xaes256gcm"},
    "whole/keys.toml": {"keys.ringfile: VERSION"},
    # rows
    "values.json checkpoint_headers": {"seal.rows: pack_header"},
    "values.json header_values": {"seal.jsontext: pack_json"},
    "values.json claims": {
        "seal.calls: _CLAIMS",
        "seal.calls: _HEAD",
        "seal.calls: _SPECIAL",
        "seal.calls: pack_claims",
    },
    "values.json made": {"seal.calls: _RECORD", "seal.calls: pack_made"},
    "values.json item_headers": {"seal.items: pack_item"},
    "values.json tokens": {"index key metadata"},
    "values.json pseudonyms": {"index key thread_id", "seal.tokens: _make_pseudonym"},
    "values.json item_names": {"seal.items: label_pseudonym", "seal.items: pseudonym_of"},
    "whole/state.db": {
        "seal.places: CHECKPOINT",
        "seal.places: ITEM",
        "seal.places: METADATA",
        "seal.places: WRITE",
        "seal.places: make_frame",
    },
    "whole/cache.db": {"seal.places: CACHED"},
    "postgres.json checkpoint_blobs": {"seal.places: VALUE", "seal.rows: SENTINEL_VERSION"},
    "values.json server_objects": {
        "agentserver: 'sealpoint:'",
        r"agentserver: 'sealpoint:[^:]*\\+[^:]*@[^:]*:[A-Za-z0-9+/]{95,}={0,2}'",  # what is read as one
    },
    # thread stores
    "values.json heads": {"sealed.heads: PURPOSE", "seal.heads: pack_spot"},
    "values.json thread_log": {"threads.store: line_of"},
    "whole/threads.pin": {"admin.maintenance.heads: _PIN_VERSION", "admin.maintenance.heads: make_pin"},
    "whole/threads.db": {
        "threads.sqlitefile: VERSION",
        *(f"threads.sqlitefile: table {each}" for each in ("adopted", "heads", "identities")),
        *(f"threads.sqlitefile: table {each}" for each in ("specials", "store")),
    },
    "threads.sql": {
        "threads.pgstatements: VERSION",
        *(f"threads.pgstatements: table {{schema}}{each}" for each in ("adopted", "heads", "identities")),
        *(f"threads.pgstatements: table {{schema}}{each}" for each in ("specials", "store")),
    },
    # wrapped keys
    "values.json wrap_contexts": {
        "keys.wrap.wrapper: 'sealpoint:key'",
        "keys.wrap.wrapper: 'sealpoint:ring'",
        "wrapped by aws",  # the service makes the rest
        "wrapped by vault",
    },
    "values.json wrapped_by_command": {
        "keys.wrap.command: 'sealpoint:key'",
        "keys.wrap.command: 'sealpoint:ring'",
        "keys.wrap.command: format_bound",
        "wrapped by command",
    },
    "values.json wrapped_by_pkcs11": {"keys.wrap.pkcs11: _FORMAT", "wrapped by pkcs11"},
    # the ledger
    "values.json ledger_entries": {"admin.evidence.folder: VERSION", "admin.evidence.folder: line"},
    "values.json ledger_names": {"index key ledger"},
    "whole/ledger/checkpoint": {"admin.evidence.note: format_note"},
    "whole/ledger/documents": {"admin.evidence.erasure: VERSION"},
    # results
    "result-1.json": {"schema result-1.json"},
    "report-1.json": {"schema report-1.json", "index key report"},
}

# What is found and is not stored by sealpoint, or is shown only
OTHERS: Final = {
    "admin.databases.postgres.newschema: table {}": "LangGraph's tables",
    "admin.databases.postgres.tables: _VERSION": "a statement",
    "admin.evidence.note: line": "a signer's answer",
    "admin.maintenance.items: format_item": "LangGraph's JSON",
    "base.checkpoint: LATEST_VERSION": "LangGraph's number",
    "base.sealing: _CHECKPOINT_VERSION": "LangGraph's number",
    "keys.files: _ENTRY": "access lists of Linux",
    "sqlite.database: _VERSION": "a statement",
    "sqlite.schema: table IF": "LangGraph's tables",
    "sqlite.schema: table main.store": "LangGraph's tables",
    "sqlite.schema: table main.store_migrations": "LangGraph's tables",
    "utc: format_utc": "shown",
}

_NUMBERED: Final = re.compile(r"\w*(VERSION|FORMAT|PURPOSE)")
_PACKING: Final = re.compile(r"(pack|format)_\w+|line(_of)?|make_(frame|pin)|\w*pseudonym(_of)?")
_RECORD: Final = re.compile(r"\b(Struct|Coordinates)$")
_DOMAIN: Final = re.compile(r"sealpoint(:|\0| v\d)")


def marks_of(module: str, tree: ast.AST) -> Iterator[str]:
    """Yield what of a module makes a format."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_number = isinstance(node.value, ast.Constant) and _NUMBERED.fullmatch(node.target.id)
            is_record = isinstance(node.value, ast.Call) and _RECORD.search(ast.unparse(node.value.func))
            if is_number or is_record:
                yield f"{module}: {node.target.id}"
        elif isinstance(node, ast.FunctionDef) and _PACKING.fullmatch(node.name):
            yield f"{module}: {node.name}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            (purpose,) = node.args
            if node.func.attr in {"index_key", "key"} and isinstance(purpose, ast.Constant):
                yield f"index key {purpose.value!s}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield from (f"{module}: table {each}" for each in re.findall(r"CREATE TABLE (\S+)", text))
            if _DOMAIN.match(text) and "\n" not in text:
                yield f"{module}: {text!r}"


def found() -> set[str]:
    """All marks of formats in the source."""
    marks = {f"flag {flag}" for flag in FLAGS} | {f"suite {suite}" for suite in (LEGACY, *SUITES)}
    marks |= {f"wrapped by {kind}" for kind in BUILT_IN}
    marks |= {f"schema {file.name}" for file in SCHEMAS.glob("*.json")}
    for file in SOURCE.rglob("*.py"):
        module = file.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
        marks |= {*marks_of(module, ast.parse(file.read_text(encoding="utf-8")))}
    return marks


@pytest.mark.claim("v2")
def test_every_format_has_a_vector() -> None:
    """A mark that is new here: add a vector to the folder `unreleased`, and both to `FORMATS`."""
    marks, listed = found(), set[str]().union(*FORMATS.values(), OTHERS)
    assert marks - listed == set(), "found, and not listed"
    assert listed - marks == set(), "listed, and not found"


@pytest.mark.parametrize("vector", FORMATS)
def test_vector_is_there(vector: str) -> None:
    name, _, part = vector.partition(" ")
    files = [file for release in RELEASES if (file := FOLDER / release / name).exists()]
    assert files
    assert not part or any(json.loads(file.read_bytes()).get(part) for file in files)


@pytest.mark.parametrize(
    "text",
    [
        "VERSION: Final = 3",
        "_RECORD: Final = struct.Struct('>I')",
        "PLACE: Final = Coordinates((), ())",
        "def pack_shard(): ...",
        "create('CREATE TABLE shards (n INTEGER)')",
        "expand(b'sealpoint v2 shard')",
        "ring.index_key('shards')",
    ],
)
def test_a_new_format_is_noticed(text: str) -> None:
    assert [*marks_of("new", ast.parse(text))]
