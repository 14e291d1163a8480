"""Processes that work on a whole database, until they are killed or have done; and agents that write to it.

    python rotator.py

It says when it is ready. Each line on standard input then has one or more acts, with semicolons between
them: its name, the path of a database, and arguments. For each a process is forked that does it, and
writes lines about it; when all are gone, a line with their exit statuses follows on standard output.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.rebind import RebindOptions, rebind, sealing_sentinels
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.results.events import Event, Failure
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealpointError
from sealpoint.langgraph import SealedStore
from sealpoint.sealed import SealedSaver
from sealpoint.serde import EncryptedSerializer
from sealpoint.sqlite import SqliteSaver

BATCH = Batch(rows=20)
TEXT = "x" * 2000
HOT = 5  # checkpoints that are written again and again
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
GATES: list[socket.socket] = []
"""Where this process asks after each batch whether it may go on, if anywhere."""


def make_cipher(active: str) -> RingCipher:
    """Seals under one of the keys k1, k2 and k3, and opens with all of them."""
    keys = [
        Key(key, key.encode() * 16, KeyState.ACTIVE if key == active else KeyState.DECRYPT_ONLY)
        for key in ("k1", "k2", "k3")
    ]
    return RingCipher(KeyRing(keys))


def at(thread_id: str, checkpoint_id: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


def make_checkpoint(checkpoint_id: str, number: int) -> Any:
    values = {"n": number, "text": TEXT}
    return {**empty_checkpoint(), "id": checkpoint_id, "channel_values": values}


def say(*words: object) -> None:
    """Write a line in one piece, past every buffer."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


# --- acts that go over everything -----------------------------------------------------------------


def tell(events: Iterator[Event]) -> None:
    """Say which values fail, and when it is all done; wait at the gate after each batch, if there is one."""
    for event in events:
        if isinstance(event, Failure):
            say("failure", event.table, type(event.error).__name__)
        for gate in GATES:
            gate.send(b".")
            gate.recv(1)
    say("done")


def rotating(path: str, name: str) -> None:
    """Put everything under the key ``name``."""
    with closing(kind_of(path).open(path, writable=True)) as store, store.hold():
        tell(rotate(store, make_cipher(name), batch=BATCH))


def sealing(path: str, name: str) -> None:
    """Seal everything for the first time, under the key ``name``."""
    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        tell(rotate(store, make_cipher(name), allow_plaintext=True, batch=BATCH))


def binding(path: str, name: str) -> None:
    """Bind everything to its place, under the key ``name``."""
    _rebinding(path, name, RebindOptions(batch=BATCH))


def unbinding(path: str, name: str) -> None:
    """The reverse."""
    _rebinding(path, name, RebindOptions(batch=BATCH, unbind=True))


def sealing_items(path: str, name: str) -> None:
    """Bind everything, also items that are not sealed, under the key ``name``."""
    _rebinding(path, name, RebindOptions(batch=BATCH, allow_plaintext=True))


def _rebinding(path: str, name: str, options: RebindOptions) -> None:
    cipher = make_cipher(name)
    opened = kind_of(path).open_whole(path, writable=True, sentinel=sealing_sentinels(cipher))
    with closing(opened) as store, store.hold():
        tell(rebind(store, cipher, options))


def decrypting(path: str, name: str) -> None:
    """Write a copy with nothing sealed in it to the file ``name``."""
    tell(decrypt(path, Path(path).with_name(name), make_cipher("k3"), batch=BATCH))


def cramped(path: str, name: str, act: str, limit: str) -> None:
    """Do another act, where no file can grow beyond so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    ACTS[act](path, name)


def full(path: str, name: str, act: str, spare: str) -> None:
    """Do another act on a disk of our own with so many bytes to spare; then make room, and do it again.

    Nobody else sees that disk, which is gone with this process; the file goes back to where it was.
    """
    disk = Path(path).with_name("disk")
    disk.mkdir()
    size = Path(path).stat().st_size + int(spare)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)]
    subprocess.run(mount, check=True)
    here = shutil.copy(path, str(disk))
    do(act, here, name)
    say("left", *sorted(file.name for file in disk.iterdir()))
    subprocess.run(["mount", "-o", f"remount,size={8 * size}", str(disk)], check=True)
    ACTS[act](here, name)
    with closing(sqlite3.connect(here)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(disk / name if act == "decrypt" else here, path)


def stealthy(path: str, name: str, act: str) -> None:
    """Do another act without the right to pass over the modes of files, which root has."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, __file__, act, path, name])  # noqa: S606


def doomed(path: str, batches: str, seconds: str, act: str, *arguments: str) -> None:
    """Let another process do an act, and kill it so long after so many batches: it does one more at most."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            pid = fork(act, path, *arguments, gate=(ours, theirs))
        for _ in range(int(batches)):
            ours.recv(1)
            ours.send(b".")
        time.sleep(float(seconds))  # not to wait for anything: any moment will do
        os.kill(pid, signal.SIGKILL)  # not waited for yet, so that the id is still its own
        say("killed", os.waitpid(pid, 0)[1] == signal.SIGKILL)


# --- acts of agents -------------------------------------------------------------------------------


class Upserter:
    """A saver that changes rows in place, as those of other databases do; SQLite's two replace them."""

    STATEMENT = """
        INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata)
        VALUES (?, '', ?, ?, ?, '{}')
        ON CONFLICT DO UPDATE SET type = excluded.type, checkpoint = excluded.checkpoint"""

    def __init__(self, saver: Theirs) -> None:
        self.get_tuple, self.list, self.put_writes = saver.get_tuple, saver.list, saver.put_writes
        self.saver = saver

    def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> None:
        row = config["configurable"]["thread_id"], checkpoint["id"], *self.saver.serde.dumps_typed(checkpoint)
        with self.saver.lock, self.saver.conn:
            self.saver.conn.execute(self.STATEMENT, row)


@contextmanager
def make_saver(path: str, name: str) -> Iterator[Any]:
    """Ours, LangGraph's, one that upserts, or one that is wrapped; it seals under the key after the dash."""
    kind, _, key = name.partition("-")
    serde = EncryptedSerializer(make_cipher(key))
    if kind == "ours":
        with SqliteSaver.from_conn_string(path, serde=serde) as saver:
            yield saver
    else:
        with closing(sqlite3.connect(path, check_same_thread=False, timeout=60)) as connection:
            theirs = Theirs(connection, serde=serde)
            if kind.startswith("wrapped"):
                yield SealedSaver(theirs, serde=serde, unbound="allow")
            else:
                yield Upserter(theirs) if kind == "upsert" else theirs


def writing(path: str, name: str, count: str) -> None:
    """Put and overwrite checkpoints, and writes on them, without a pause.

    Before one is overwritten, and at the end, what was written last must stand.
    """
    moments, waits = random.Random(name), []
    last: dict[str, tuple[int, int | None]] = {}
    with make_saver(path, name) as saver:
        lost = 0
        for number in range(int(count)):
            among = HOT if number % 2 or isinstance(saver, Upserter) else max(HOT, number)
            checkpoint_id = f"{moments.randrange(among):06}"
            lost += checkpoint_id in last and _found(saver, name, checkpoint_id) != last[checkpoint_id]
            put, _ = last.get(checkpoint_id, (None, None))
            start = perf_counter()
            if put is not None and number % 3 == 0:
                saver.put_writes(at(name, checkpoint_id), [("__error__", number)], "task")
                last[checkpoint_id] = put, number
            else:
                saver.put(at(name), make_checkpoint(checkpoint_id, number), {}, {})
                last[checkpoint_id] = number, last.get(checkpoint_id, (0, None))[1]
            waits.append(perf_counter() - start)
        lost += sum(_found(saver, name, each) != last[each] for each in last)
        listed = {found.checkpoint["id"] for found in saver.list(at(name))}
    Path(path).with_name(f"{name}.waits").write_text("\n".join(map(str, waits)))
    say("end", name, count, lost + len(listed ^ last.keys()))


def _found(saver: Any, name: str, checkpoint_id: str) -> tuple[int, int | None]:
    """The numbers of the checkpoint and of the write on it."""
    found = saver.get_tuple(at(name, checkpoint_id))
    if found is None:
        return -1, None
    written = [number for _, _, number in found.pending_writes or ()]
    return found.checkpoint["channel_values"]["n"], written[-1] if written else None


# --- agents that remember -------------------------------------------------------------------------


@contextmanager
def open_memory(database: str, name: str, unbound: str = "allow") -> Iterator[Any]:
    """LangGraph's store of a file or a URL, sealed under the key after the dash; or written as it is."""
    kind, _, key = name.partition("-")
    serde = EncryptedSerializer(make_cipher(key), plaintext="allow")
    is_plain = kind.startswith("plain")
    with ExitStack() as stack:
        if "://" in database:
            store: Any = stack.enter_context(PostgresStore.from_conn_string(database))
        else:
            connection = sqlite3.connect(database, check_same_thread=False, timeout=60, isolation_level=None)
            stack.enter_context(closing(connection))
            connection.execute("PRAGMA synchronous = OFF")
            store = SqliteStore(connection)
        yield SealedStore(store, serde=serde, unbound=unbound, allow_write_plain=is_plain)  # type: ignore[arg-type]


def remembering(database: str, name: str, count: str) -> None:
    """Put, overwrite and delete items without a pause; what was done last must stand."""
    moments, lost = random.Random(name), 0
    last = dict[str, int | None]()
    with open_memory(database, name) as store:
        namespace = "memories", name
        for number in range(int(count)):
            key = str(moments.randrange(HOT if number % 2 else 10 * HOT))
            lost += key in last and _remembered(store.get(namespace, key)) != last[key]
            if last.get(key) is not None and number % 7 == 0:
                store.delete(namespace, key)
                last[key] = None
            else:
                store.put(namespace, key, {"n": number, "text": "x" * 500})
                last[key] = number
        found = {item.key: _remembered(item) for item in store.search(namespace, limit=1000)}
    kept = {key: number for key, number in last.items() if number is not None}
    say("end", name, count, lost + (found != kept))


def _remembered(item: Any) -> int | None:
    return None if item is None else item.value["n"]


# --- processes ------------------------------------------------------------------------------------

ACTS: dict[str, Callable[..., None]] = {
    "rotate": rotating,
    "seal": sealing,
    "bind": binding,
    "unbind": unbinding,
    "seal-items": sealing_items,
    "decrypt": decrypting,
    "cramped": cramped,
    "full": full,
    "stealthy": stealthy,
    "doomed": doomed,
    "write": writing,
    "remember": remembering,
}


def do(act: str, path: str, *arguments: str) -> int:
    """Do an act; what sealpoint raises is a way for it to end, all else a bug."""
    try:
        ACTS[act](path, *arguments)
    except SealpointError as error:
        say("stopped", type(error).__name__, error)
    except BaseException:  # noqa: BLE001 -- this process ends here
        traceback.print_exc()
        return 1
    return 0


def fork(act: str, path: str, *arguments: str, gate: tuple[socket.socket, ...] = ()) -> int:
    """Do an act in a process of its own, which asks at the second end of ``gate``; return its id."""
    pid = os.fork()
    if pid == 0:
        for end in gate[:1]:
            end.close()
        GATES.extend(gate[1:])
        os._exit(do(act, path, *arguments))
    return pid


def main() -> None:
    say("ready")
    for line in sys.stdin:
        acts = [words.split() for words in line.split(";")]
        pids = [fork(*act) for act in acts]
        say("gone", *(os.waitpid(pid, 0)[1] for pid in pids))


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(do(*sys.argv[1:]))
    main()
