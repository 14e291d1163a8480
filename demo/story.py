"""The parts of the demo. Everything printed is a result of this run."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from demo import agent
from demo.attacks import ATTACKS, Attack, Outcome, Side, attempt, messages, read
from demo.claims import Claims
from demo.keys import write_ring
from demo.rotation import show_rotation
from demo.search import Database
from sealpoint.langgraph import EncryptedSerializer
from sealpoint.sqlite import SqliteSaver

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

OpenSerializer = Callable[[Path], "SerializerProtocol"]

SEALED: Final = {
    "customer, in a message": agent.NAME,
    "amount, in a tool's arguments": agent.AMOUNT,
    "account number, in the same": agent.IBAN,
    "diagnosis, in the interrupt": agent.DIAGNOSIS,
    "approver, in the human's answer": agent.APPROVER,
}
READABLE: Final = {
    "member, in config['configurable']": agent.MEMBER,
    "thread id": agent.THREAD_ID,
}
UNSEALED: Final = """\
   Metadata, ids and the names of channels and nodes never reach a serializer: keep secrets out of
   them. A later release adds a wrapper around the saver that also seals metadata."""
LANGGRAPH_MISSING: Final = """\
   LangGraph's own EncryptedSerializer is left out: it needs pycryptodome, which is not installed."""
LANGGRAPH_READ: Final = """\
   On the right: LangGraph's EncryptedSerializer (AES), under the same attacks. What it read:"""
HELD: Final = """
Without the keys, an attacker who reads the file cannot read messages, arguments, questions or
answers, and an attacker who writes it cannot change or forge them. Metadata and ids are readable;
rows can be moved, replaced by older ones and deleted. SECURITY.md has the full table.
All {count} claims of this demo hold."""


def run_demo(folder: Path, open_serializer: OpenSerializer = EncryptedSerializer.from_key_file) -> bool:
    """Run the demo in ``folder`` and print it; return whether every claim held.

    Args:
        folder: An empty folder, private to its owner.
        open_serializer: Makes the serializer of this process from a ring file.
    """
    claims = Claims()
    database, ring = folder / "state.db", folder / "keys.toml"
    print("A LangGraph agent pays a medical claim. LangGraph's own SqliteSaver stores its state in a file:")
    print('   SqliteSaver(connection, serde=EncryptedSerializer.from_key_file("keys.toml"))')
    with (
        closing(sqlite3.connect(database, check_same_thread=False)) as connection,
        TemporaryDirectory(prefix="sealpoint-demo-") as scratch,
    ):
        _show_run(connection, database, ring, open_serializer, claims)
        found = Database.look(database)
        _show_rows(found, claims)
        _show_search(found, _run_unsealed(Path(scratch) / "unsealed.db"), claims)
        serde = open_serializer(ring)
        _show_reading(database, serde, claims)
        without_k1 = write_ring(folder, "without-k1.toml", active="k2")
        ours = Side(database, serde, open_serializer(without_k1))
        _show_attacks(ours, _run_langgraph(Path(scratch) / "langgraph.db"), claims)
        without_k1.unlink()
        show_rotation(database, ring, claims)
    _show_end(claims)
    return not claims.broken


def _show_run(
    connection: sqlite3.Connection,
    database: Path,
    ring: Path,
    open_serializer: OpenSerializer,
    claims: Claims,
) -> None:
    print("\n1. One thread, two processes")
    write_ring(ring.parent, ring.name, active="k1")
    question = agent.ask(connection, open_serializer(ring))
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


def _show_reading(database: Path, serde: SerializerProtocol, claims: Claims) -> None:
    print("\n4. The same thread, read by sealpoint's own SqliteSaver (same file, same tables)")
    theirs = messages(read(database, serde)[0])
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        value = SqliteSaver(connection, serde=serde).get_tuple(agent.THREAD)
    ours = value.checkpoint["channel_values"]["messages"] if value else []
    same = bool(ours) and ours == theirs
    claims.check("sealpoint's own saver reads the same messages", same)
    kinds = ", ".join(type(message).__name__ for message in ours)
    print(f"   {len(ours)} messages, {'the same' if same else 'NOT THE SAME'}: {kinds}")


def _show_attacks(ours: Side, langgraph: Side | None, claims: Claims) -> None:
    print("\n5. Attacks by SQL, each on a copy that LangGraph's SqliteSaver then reads")
    print(f"   {'':21}{'sealpoint':67}{'LangGraph' if langgraph else ''}")
    accepted = []
    for attack in ATTACKS:
        here = attempt(attack, ours)
        claims.check(_expected(attack), type(here.error) is (attack.refusal or type(None)))
        there = attempt(attack, langgraph) if langgraph else None
        print(f"   {attack.name:21}{_shown(here, attack):67}{there.verdict if there else ''}".rstrip())
        if there and here.error and not there.error:
            accepted.append(f"   {attack.name:21}{there.effect}")
    if langgraph is None:
        print(LANGGRAPH_MISSING)
    elif accepted:
        print(LANGGRAPH_READ)
        print("\n".join(accepted))


def _expected(attack: Attack) -> str:
    expected = attack.refusal.__name__ if attack.refusal else "accepted, as SECURITY.md says"
    return f"{attack.name}: {expected}"


def _shown(outcome: Outcome, attack: Attack) -> str:
    if outcome.error is None:
        return f"ACCEPTED: {attack.why or outcome.effect}"
    return f"{type(outcome.error).__name__}: {outcome.error}".splitlines()[0]


def _run_unsealed(path: Path) -> Database:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent.ask(connection, None)
        agent.resume(connection, None)
        return Database.look(path)


def _run_langgraph(path: Path) -> Side | None:
    """Run the same agent under LangGraph's EncryptedSerializer; ``None`` if pycryptodome is missing."""
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphSerializer

    try:
        serde, other = (LangGraphSerializer.from_pycryptodome_aes(key=os.urandom(32)) for _ in range(2))
    except ImportError:
        return None
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent.ask(connection, serde)
        agent.resume(connection, serde)
    return Side(path, serde, other)


def _show_end(claims: Claims) -> None:
    if claims.broken:
        print(f"\n{len(claims.broken)} of {claims.count} claims do NOT hold:")
        print("\n".join(f"   {claim}" for claim in claims.broken))
    else:
        print(HELD.format(count=claims.count))
