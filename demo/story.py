"""What the demo does and shows, part by part. What it prints is what it observed."""

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
from demo.rotation import tell_rotation
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
   them. A later release adds a wrapper around the saver that seals metadata as well."""
RIVAL_MISSING: Final = """\
   LangGraph's own EncryptedSerializer is left out: it needs pycryptodome, which is not installed."""
RIVAL_READ: Final = """\
   On the right: LangGraph's EncryptedSerializer (AES), attacked the same way. What it then read:"""
HELD: Final = """
Whoever reads the file sees no message, argument, question or answer. Whoever writes to it cannot
change or forge one. Metadata and ids are readable; rows can be moved, put back and deleted.
SECURITY.md has the whole table. All {count} claims of this demo hold."""


def tell(folder: Path, open_serializer: OpenSerializer = EncryptedSerializer.from_key_file) -> bool:
    """Run the demo in ``folder`` and print it; return whether every claim held.

    Args:
        folder: An empty folder, private to its owner.
        open_serializer: Makes the serializer of this process from a ring file.
    """
    claims = Claims()
    database, ring = folder / "state.db", folder / "keys.toml"
    print("A LangGraph agent settles a medical claim. LangGraph's own SqliteSaver keeps its state in a file:")
    print('   SqliteSaver(connection, serde=EncryptedSerializer.from_key_file("keys.toml"))')
    with (
        closing(sqlite3.connect(database, check_same_thread=False)) as connection,
        TemporaryDirectory(prefix="sealpoint-demo-") as scratch,
    ):
        _tell_run(connection, database, ring, open_serializer, claims)
        found = Database.look(database)
        _tell_rows(found, claims)
        _tell_search(found, _run_unsealed(Path(scratch) / "unsealed.db"), claims)
        serde = open_serializer(ring)
        _tell_reading(database, serde, claims)
        without_k1 = write_ring(folder, "without-k1.toml", active="k2")
        ours = Side(database, serde, open_serializer(without_k1))
        _tell_attacks(ours, _run_rival(Path(scratch) / "langgraph.db"), claims)
        without_k1.unlink()
        tell_rotation(database, ring, claims)
    _tell_end(claims)
    return not claims.broken


def _tell_run(
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
    # So that the search finds one half of the thread in the file and the other half in its log.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    write_ring(ring.parent, ring.name, active="k2", decrypt_only=("k1",))
    print("   operator    adds key k2, which seals from now on; k1 only opens; no row is rewritten")
    command = [sys.executable, "-m", "demo.agent", os.fspath(database), os.fspath(ring)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- ourselves
    claims.check("another process resumes the thread", done.returncode == 0)
    if done.returncode:
        print(f"   process 2   FAILED\n{done.stderr}")
    else:
        print(f'   process 2   opens both; approved, it ends: "{done.stdout.strip()}"')


def _tell_rows(found: Database, claims: Claims) -> None:
    print("\n2. What the database shows to everybody: SELECT type, count(*) ... GROUP BY type")
    for table, kind, count in found.rows:
        print(f"   {table:11}   {kind:34} {count:3}")
    keys = [kind.partition("@")[2] for _, kind, _ in found.rows]
    claims.check("every row names its key", all(key in ("k1", "k2") for key in keys))
    claims.check("both keys have sealed rows", {"k1", "k2"} <= set(keys))


def _tell_search(found: Database, unsealed: Database, claims: Claims) -> None:
    print("\n3. A search for what was planted               in values   in file   in WAL   without sealpoint")
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


def _tell_reading(database: Path, serde: SerializerProtocol, claims: Claims) -> None:
    print("\n4. The thread once more, through sealpoint's own SqliteSaver (same file, same tables)")
    theirs = messages(read(database, serde)[0])
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        value = SqliteSaver(connection, serde=serde).get_tuple(agent.THREAD)
    ours = value.checkpoint["channel_values"]["messages"] if value else []
    same = bool(ours) and ours == theirs
    claims.check("sealpoint's own saver reads the same messages", same)
    kinds = ", ".join(type(message).__name__ for message in ours)
    print(f"   {len(ours)} messages, {'the same' if same else 'NOT THE SAME'}: {kinds}")


def _tell_attacks(ours: Side, rival: Side | None, claims: Claims) -> None:
    print("\n5. Attacks by SQL, each on a copy that LangGraph's SqliteSaver then reads")
    print(f"   {'':21}{'sealpoint':67}{'LangGraph' if rival else ''}")
    read_by_rival = []
    for attack in ATTACKS:
        mine = attempt(attack, ours)
        claims.check(_expected(attack), type(mine.error) is (attack.refusal or type(None)))
        theirs = attempt(attack, rival) if rival else None
        print(f"   {attack.name:21}{_shown(mine, attack):67}{theirs.verdict if theirs else ''}".rstrip())
        if theirs and mine.error and not theirs.error:
            read_by_rival.append(f"   {attack.name:21}{theirs.effect}")
    if rival is None:
        print(RIVAL_MISSING)
    elif read_by_rival:
        print(RIVAL_READ)
        print("\n".join(read_by_rival))


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


def _run_rival(path: Path) -> Side | None:
    """Run the same agent under LangGraph's EncryptedSerializer; ``None`` if pycryptodome is missing."""
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as Rival

    try:
        serde, other = (Rival.from_pycryptodome_aes(key=os.urandom(32)) for _ in range(2))
    except ImportError:
        return None
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent.ask(connection, serde)
        agent.resume(connection, serde)
    return Side(path, serde, other)


def _tell_end(claims: Claims) -> None:
    if claims.broken:
        print(f"\n{len(claims.broken)} of {claims.count} claims do NOT hold:")
        print("\n".join(f"   {claim}" for claim in claims.broken))
    else:
        print(HELD.format(count=claims.count))
