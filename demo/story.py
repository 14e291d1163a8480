"""The parts of the demo. Everything printed is a result of this run."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.sqlite import SqliteSaver

from demo import agent
from demo.attacks import ATTACKS, Attack, Outcome, Side, attempt, messages, read
from demo.claims import Claims
from demo.keys import write_ring
from demo.planted import Seal, show_planted
from demo.rotation import show_rotation
from demo.search import Database
from sealpoint.langgraph import EncryptedSerializer
from sealpoint.sqlite import SqliteSaver as SealpointSqliteSaver

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

SEALED: Final = {
    "customer, in a message": agent.NAME,
    "amount, in a tool's arguments": agent.AMOUNT,
    "account number, in the same": agent.IBAN,
    "diagnosis, in the interrupt": agent.DIAGNOSIS,
    "approver, in the human's answer": agent.APPROVER,
    "member, in config['configurable']": agent.MEMBER,
}
READABLE: Final = {"thread id": agent.THREAD_ID}
UNSEALED: Final = """\
   Names of channels and nodes, and ids, are readable. Part 7 also replaces the thread ids."""
LANGGRAPH_MISSING: Final = """\
   LangGraph's own EncryptedSerializer is left out: it needs pycryptodome, which is not installed."""
COLUMNS: Final = ("SealedSaver", "serializer alone", "LangGraph's EncryptedSerializer")
READ: Final = """\
   A missing row is detected by the thread store, which is kept apart from the file.
   What the saver of the last column read:"""
HELD: Final = """
Without the keys, an attacker who reads the files finds no state, no metadata, nothing that the
agent remembers and, with pseudonyms, no thread ids; an attacker who writes them cannot change,
forge or move a value unnoticed, nor with a thread store delete or restore a checkpoint. Other ids,
names, sizes and times are readable.
See docs/sealed-saver.md, docs/memory.md and docs/threads.md.
All {count} claims of this demo hold."""


def run_demo(folder: Path, seal: Seal = agent.seal) -> bool:
    """Run the demo in ``folder`` and print it; return whether every claim held.

    Args:
        folder: An empty folder, private to its owner.
        seal: Wraps a saver of this process with the keys of a ring file.
    """
    claims = Claims()
    database, ring = folder / "state.db", folder / "keys.toml"
    print("A LangGraph agent pays a medical claim. LangGraph's own SqliteSaver stores its state in a file:")
    print('   serde = EncryptedSerializer.from_key_file("keys.toml")')
    print('   SealedSaver(SqliteSaver(connection), serde=serde, threads=SqliteThreadStore("threads.db"))')
    with (
        closing(sqlite3.connect(database, check_same_thread=False)) as connection,
        TemporaryDirectory(prefix="sealpoint-demo-") as scratch,
    ):
        others = Path(scratch)
        _show_run(connection, database, ring, seal, claims)
        found = Database.look(database)
        _show_rows(found, claims)
        _show_search(found, _run_unsealed(others / "unsealed.db"), claims)
        _show_reading(database, ring, seal, claims)
        without_k1 = write_ring(folder, "without-k1.toml", active="k2")
        ours = Side(database, *(partial(_open, seal, used) for used in (ring, without_k1)))
        only_k1 = write_ring(folder, "k1.toml", active="k1")
        alone = _run_alone(others / "alone.db", only_k1, without_k1)
        _show_attacks(ours, alone, _run_langgraph(others / "langgraph.db"), claims)
        only_k1.unlink()  # not earlier: a serializer follows its ring file
        without_k1.unlink()
        show_rotation(database, ring, ours.saver, claims)
        show_planted(others, ring, seal, claims)
    _show_end(claims)
    return not claims.broken


def _open(seal: Seal, ring: Path, connection: sqlite3.Connection) -> BaseCheckpointSaver[Any]:
    return seal(SqliteSaver(connection), ring)


def _show_run(connection: sqlite3.Connection, database: Path, ring: Path, seal: Seal, claims: Claims) -> None:
    print("\n1. One thread, two processes")
    write_ring(ring.parent, ring.name, active="k1")
    question = agent.ask(_open(seal, ring, connection))
    print(f'   process 1   seals with key k1; the agent asks a human: "{question}"')
    # Part 3 then finds one half of the thread in the file and the other half in its log.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    write_ring(ring.parent, ring.name, active="k2", decrypt_only=("k1",))
    print("   operator    adds key k2, which seals from now on; k1 only opens; no row is rewritten")
    command = [sys.executable, "-m", "demo.agent", os.fspath(database), os.fspath(ring)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- ourselves
    claims.check("another process resumes the thread", done.returncode == 0)
    if done.returncode:
        print(f"   process 2   FAILED\n{done.stderr}")
    else:
        print(f'   process 2   opens both; after approval: "{done.stdout.strip()}"')


def _show_rows(found: Database, claims: Claims) -> None:
    print("\n2. What is readable without a key: SELECT type, count(*) ... GROUP BY type")
    for table, kind, count in found.rows:
        print(f"   {table:11}   {kind:34} {count:3}")
    keys = [kind.partition("@")[2] for _, kind, _ in found.rows]
    claims.check("every row names its key", all(key in ("k1", "k2") for key in keys))
    claims.check("both keys have sealed rows", {"k1", "k2"} <= set(keys))


def _show_search(found: Database, unsealed: Database, claims: Claims) -> None:
    print("\n3. Where the agent's data is found             in values   in file   in WAL   without sealpoint")
    for what, text in (SEALED | READABLE).items():
        places = found.holds(text)
        without = any(unsealed.holds(text))
        verdict = "READABLE" if any(places) else "sealed"
        print(f"   {what:34}{verdict:12}{''.join(map(_found, (*places, without)))}".rstrip())
        claims.check(f"the search can find the {what}", without)
        if text in SEALED.values():
            claims.check(f"the {what}: sealed", not any(places))
        else:
            claims.check(f"the {what}: in no value, but readable", places == (False, True, True))
    print(UNSEALED)


def _found(place: bool) -> str:
    return f"{'found' if place else '-':10}"


def _show_reading(database: Path, ring: Path, seal: Seal, claims: Claims) -> None:
    print("\n4. The same thread, read by sealpoint's own SqliteSaver in SealedSaver (same file, same tables)")
    theirs = messages(read(database, partial(_open, seal, ring))[0])
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        value = seal(SealpointSqliteSaver(connection), ring).get_tuple(agent.THREAD)
    ours = messages(value) if value else []
    same = bool(ours) and ours == theirs
    claims.check("sealpoint's own saver reads the same messages", same)
    kinds = ", ".join(type(message).__name__ for message in ours)
    print(f"   {len(ours)} messages, {'the same' if same else 'NOT THE SAME'}: {kinds}")


def _show_attacks(ours: Side, alone: Side, langgraph: Side | None, claims: Claims) -> None:
    print("\n5. Attacks by SQL, each on a copy of the file: the error of the saver that then reads it")
    columns = COLUMNS if langgraph else COLUMNS[:-1]
    print(f"   {'':24}{''.join(f'{column:18}' for column in columns)}")
    accepted = []
    for attack in ATTACKS:
        outcomes = [attempt(attack, side) for side in (ours, alone, langgraph) if side]
        for outcome, expected, who in zip(outcomes, (attack.sealed, attack.alone), COLUMNS, strict=False):
            claims.check(_expected(attack, expected, who), type(outcome.error) is (expected or type(None)))
        cells = [_shown(outcome) for outcome in outcomes[:2]] + [outcome.verdict for outcome in outcomes[2:]]
        print(f"   {attack.name:24}{''.join(f'{cell:18}' for cell in cells)}".rstrip())
        if outcomes[0].error and not outcomes[-1].error:
            accepted.append(f"   {attack.name:24}{outcomes[-1].effect}")
    if langgraph is None:
        print(LANGGRAPH_MISSING)
    print(READ)
    print("\n".join(accepted))


def _expected(attack: Attack, error: type[Exception] | None, who: str) -> str:
    return f"{attack.name}, {who}: {error.__name__ if error else 'accepted, as documented'}"


def _shown(outcome: Outcome) -> str:
    return type(outcome.error).__name__ if outcome.error else outcome.verdict


def _run_unsealed(path: Path) -> Database:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        _run(SqliteSaver(connection))
        return Database.look(path)


def _run_alone(path: Path, ring: Path, without_k1: Path) -> Side:
    """Run the same agent with sealpoint's serializer, without the wrapper."""
    serde, other = (EncryptedSerializer.from_key_file(used) for used in (ring, without_k1))
    return _run_with(path, serde, other)


def _run_langgraph(path: Path) -> Side | None:
    """Run the same agent under LangGraph's EncryptedSerializer; ``None`` if pycryptodome is missing."""
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphSerializer

    try:
        serde, other = (LangGraphSerializer.from_pycryptodome_aes(key=os.urandom(32)) for _ in range(2))
    except ImportError:
        return None
    return _run_with(path, serde, other)


def _run_with(path: Path, serde: SerializerProtocol, other: SerializerProtocol) -> Side:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        _run(SqliteSaver(connection, serde=serde))
    return Side(path, *(partial(SqliteSaver, serde=used) for used in (serde, other)))


def _run(saver: BaseCheckpointSaver[Any]) -> None:
    agent.ask(saver)
    agent.resume(saver)


def _show_end(claims: Claims) -> None:
    if claims.broken:
        print(f"\n{len(claims.broken)} of {claims.count} claims do NOT hold:")
        print("\n".join(f"   {claim}" for claim in claims.broken))
    else:
        print(HELD.format(count=claims.count))
