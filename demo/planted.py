"""Part 7 of the demo: random values in every place that a user can fill, and a search of all files."""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore

from demo import agent
from demo.attacks import messages
from demo.claims import Claims

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

Seal = Callable[..., "BaseCheckpointSaver[Any]"]
Stores = tuple["BaseCheckpointSaver[Any]", "BaseStore"]
Wrap = Callable[[Stores], Stores]
Values = dict[str, str | int]

PLACES: Final = (
    "message",
    "text of the state",
    "number of the state",
    "config['configurable']",
    "config['metadata']",
    "thread id",
    "item of the Store",
    "namespace of the item",
)
SAVERS: Final = ("bare", "sealed")
SEARCHED: Final = """\
   Searched: every file, with the write-ahead logs, for the value as text, hex, base64 and binary.
   SealedSaver(saver, serde=serde, pseudonyms=True) also replaces the thread ids, and
   SealedStore(store, serde=serde, pseudonyms=True) the names of what the agent remembers."""


class PostgresMissingError(Exception):
    """Postgres cannot be started here."""


def show_planted(folder: Path, ring: Path, seal: Seal, claims: Claims) -> None:
    """Run the agent on SQLite and Postgres, bare and sealed, and search all files of both for its values."""
    print("\n7. The agent with random values, on SQLite and Postgres: are they found in the files?")

    def wrap(stores: Stores) -> Stores:
        saver, store = stores
        return seal(saver, ring, pseudonyms=True), agent.seal_store(store, ring)

    found = {"SQLite": _on_sqlite(folder / "planted.db", wrap, claims)}
    missing = ""
    try:
        found["Postgres"] = _on_postgres(wrap, claims)
    except PostgresMissingError as error:
        missing = f"   Postgres is LEFT OUT: {error}"
    print(f"   {'':25}{''.join(f'{database:26}' for database in found)}".rstrip())
    print(f"   {'':25}{''.join(f'{saver:13}' for _ in found for saver in SAVERS)}".rstrip())
    for place in PLACES:
        cells = ["found" if place in each else "-" for both in found.values() for each in both]
        print(f"   {place:25}{''.join(f'{cell:13}' for cell in cells)}".rstrip())
        for database, (bare, sealed) in found.items():
            claims.check(f"the search of {database} can find the {place}", place in bare)
            claims.check(f"the {place}: not in the files of {database}", place not in sealed)
    print(SEARCHED)
    if missing:
        print(missing)


def _on_sqlite(path: Path, wrap: Wrap, claims: Claims) -> tuple[set[str], set[str]]:
    """Return the places found of a bare run and of a sealed run, in the same file."""
    with (
        closing(sqlite3.connect(path, check_same_thread=False)) as connection,
        SqliteStore.from_conn_string(str(path)) as store,
    ):
        store.setup()
        bare, sealed = _plant((SqliteSaver(connection), store), wrap, claims)
        # Copies the log into the file, and leaves it: both contain everything.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        files = [path, path.with_name(f"{path.name}-wal")]
        return search(files, bare), search(files, sealed)


def _on_postgres(wrap: Wrap, claims: Claims) -> tuple[set[str], set[str]]:
    """Do the same on a server of its own; it is stopped before the search, so its files are complete."""
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
        from langgraph.store.postgres import PostgresStore
    except ImportError as error:
        raise PostgresMissingError(error) from error
    # The package of the server lets other users into the folders above its data: use a folder without more.
    with TemporaryDirectory(prefix="sealpoint-demo-") as folder:
        with (
            _server(folder) as address,
            PostgresSaver.from_conn_string(address) as saver,
            PostgresStore.from_conn_string(address) as store,
        ):
            saver.setup()
            store.setup()
            bare, sealed = _plant((saver, store), wrap, claims)
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        return search(files, bare), search(files, sealed)


@contextmanager
def _server(folder: str) -> Iterator[str]:
    """Start Postgres in another process, and yield the server's address."""
    command = [sys.executable, "-m", "demo.server", folder]
    environment = os.environ | {"TMPDIR": folder, "XDG_RUNTIME_DIR": folder}  # for its lock file
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 -- ourselves
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as server:
        address = server.stdout.readline().strip() if server.stdout else ""
        if not address:
            raise PostgresMissingError(server.communicate()[1].strip().rpartition("\n")[2])
        yield address
        server.communicate()


def _plant(bare: Stores, wrap: Wrap, claims: Claims) -> tuple[Values, Values]:
    """Run the agent on the bare saver and store and on the wrapped ones; return the random values of each."""
    runs = _random_values(), _random_values()
    for values, (used, store) in zip(runs, (bare, wrap(bare)), strict=True):
        thread: RunnableConfig = {
            "configurable": {"thread_id": values["thread id"], "member": values["config['configurable']"]},
            "metadata": {"note": values["config['metadata']"]},
        }
        # So long that Postgres stores it in a TOAST table, and random, so that it is not compressed.
        text = f"{values['message']} {secrets.token_urlsafe(6000)}"
        claim: agent.Claim = {
            "messages": [HumanMessage(text)],
            "office": str(values["text of the state"]),
            "number": int(values["number of the state"]),
        }
        memory = agent.Memory(str(values["namespace of the item"]), str(values["item of the Store"]))
        agent.ask(used, thread, claim, store, memory)
        agent.resume(used, thread)
        stored = used.get_tuple(thread)
        claims.check(
            "what was planted is read back", stored is not None and messages(stored)[0].content == text
        )
        item = store.get(("members", memory.member), "note")
        claims.check(
            "what was remembered is read back", item is not None and item.value["note"] == memory.note
        )
    return runs


def _random_values() -> Values:
    return {
        place: secrets.randbits(60) | 1 << 60 if place.startswith("number") else secrets.token_urlsafe(24)
        for place in PLACES
    }


def search(files: Iterable[Path], values: Values) -> set[str]:
    """Return the places of the values that are found in any of the files."""
    sought = {place: forms(value) for place, value in values.items()}
    found: set[str] = set()
    for file in files:
        data = file.read_bytes()
        found |= {place for place, texts in sought.items() if any(text in data for text in texts)}
    return found


def forms(value: str | int) -> Collection[bytes]:
    """Return the bytes that a file may contain for a value: text, hex, base64 at each offset, binary."""
    text = str(value).encode()
    found = {text, text.hex().encode(), text.hex().upper().encode()}
    for offset in range(3):
        whole = (len(text) - offset) // 3 * 3
        found.add(b64encode(text[offset : offset + whole]))
    if isinstance(value, int):
        digits = str(value).zfill(20)
        jsonb = struct.pack("<5h", *(int(digits[at : at + 4]) for at in range(0, 20, 4)))
        found |= {struct.pack(">q", value), struct.pack("<q", value), jsonb}
    return found
