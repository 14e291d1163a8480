"""Rotation on Postgres in 1, 2 and 4 shards: ``python -m benchmarks.shards URL --values 1000000``.

Not part of ``make bench``: it needs a server of its own, on this host, whose superuser the URL names, and
which lets in roles without passwords. It writes about 600 bytes for each value there, and drops them at the
end. Each round reseals all values under the next key, with a role that has no other rights: for a superuser
one session at a time works on a table.

The bar. For each value the worker takes w seconds of a core and the server s, as the round with one shard
measures; s has the background processes too, which write and flush. There worker and server take turns, so a
value takes t seconds, more than the worker and its session need together. N shards on C cores gain at most
min(N, C * t / (w + s)). At least 80 % of that must be reached: the rest is for switches between more
processes than cores, for the bandwidth of the memory, and for waits for the disk.

Measured on two cores with 10,000,000 values: w = 41 us, s = 36 us, t = 72 us; 2 shards gain 1.88 and 4 gain
1.68 of 1.88 that are possible; 70 MB a process. With 500,000 values: 1.77 and 1.63 of 1.95.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from sealpoint import Key, KeyRing, KeyState, RingCipher

SCHEMA: Final = "sealpoint_benchmark"
VALUE_BYTES: Final = 300
VALUES_A_THREAD: Final = 50
BAR: Final = 0.8
_TICK: Final = os.sysconf("SC_CLK_TCK")
_COPY: Final = """
    COPY checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob)
    FROM STDIN WITH (FORMAT binary)"""


class Round(NamedTuple):
    """A rotation of all values."""

    shards: int
    planned: float  # seconds
    seconds: float
    worker: float  # seconds of a core
    server: float
    peak_mb: float  # of the largest process of a command
    least: int  # values of the smallest shard
    most: int


def fill(connection: psycopg.Connection[Any], values: int) -> None:
    """Write threads under k1, whose ids are in no order."""
    cipher = RingCipher(KeyRing([_key("k1", KeyState.ACTIVE)]))
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(["text", "text", "text", "text", "int4", "text", "text", "bytea"])
        for number in range(values):
            thread = f"{number // VALUES_A_THREAD * 2654435761 % 2**32:08x}-thread"
            tag, blob = cipher.seal("msgpack", os.urandom(VALUE_BYTES))
            copy.write_row((thread, "", f"{number:032x}", "task", 0, "messages", tag, blob))


def _key(key_id: str, state: KeyState) -> Key:
    return Key(key_id, key_id.encode().ljust(32, b"."), state)


def write_ring(file: Path, active: int) -> None:
    """Write a ring in which all keys open and one seals."""
    lines = ["version = 1", f"active = 'k{active}'"]
    for number in range(1, active + 1):
        source = f"{{ file = 'k{number}.key' }}"
        file.with_name(f"k{number}.key").write_bytes(f"k{number}".encode().ljust(32, b"."))
        file.with_name(f"k{number}.key").chmod(0o600)
        state = "active" if number == active else "decrypt-only"
        lines += ["[[key]]", f"id = 'k{number}'", f"state = '{state}'", f"source = {source}"]
    file.write_text("\n".join([*lines, ""]))
    file.chmod(0o600)


def server_seconds(postmaster: int) -> float:
    """Seconds of a core that all processes of a server have taken, also those that have ended."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == postmaster:
                total += sum(map(int, fields[11:15]))
            elif int(fields[1]) == postmaster:
                total += sum(map(int, fields[11:13]))
    return total / _TICK


def rotate(url: str, ring: Path, shards: int, postmaster: int) -> Round:
    """Rotate in so many shards at once."""
    command = [sys.executable, "-m", "sealpoint"]
    environment = {**os.environ, "SEALPOINT_KEYS": str(ring), "DB": url}
    start = perf_counter()
    planning = [*command, "shards", "--db-env", "DB", "--count", str(shards), "--json"]
    planned = subprocess.run(planning, env=environment, stdout=subprocess.PIPE, check=True).stdout
    begun, server = perf_counter(), server_seconds(postmaster)
    running, files = [], list[Path]()
    for number, each in enumerate(json.loads(planned)["ranges"]):
        files.append(ring.with_name(f"{number}.json"))
        words = [*command, "rotate", "--db-env", "DB", "--apply", "--json", *each["arguments"]]
        with files[-1].open("wb") as out:
            running.append(subprocess.Popen(words, env=environment, stdout=out))
    used = [os.wait4(process.pid, 0) for process in running]
    seconds = perf_counter() - begun
    results = [json.loads(file.read_bytes()) for file in files]
    if not all(result["ok"] for result in results):
        raise SystemExit(f"error: {[result['reasons'] for result in results]}")
    resealed = [result["resealed"] for result in results]
    return Round(
        len(files),
        begun - start,
        seconds,
        sum(usage.ru_utime + usage.ru_stime for _, _, usage in used),
        server_seconds(postmaster) - server,
        max(usage.ru_maxrss for _, _, usage in used) / 1024,
        min(resealed),
        max(resealed),
    )


@contextmanager
def filled(url: str, values: int) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A schema with values, which is dropped at the end, and a session of it."""
    options = f"-csearch_path={SCHEMA}"
    named = f"{url}{'&' if '?' in url else '?'}options={quote(options, safe='')}"
    with psycopg.connect(named, autocommit=True, row_factory=dict_row) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        try:
            PostgresSaver(connection).setup()
            fill(connection, values)
            connection.execute(f"CREATE ROLE {SCHEMA} LOGIN")
            connection.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {SCHEMA}")
            connection.execute(f"GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA {SCHEMA} TO {SCHEMA}")
            yield f"{named}&user={SCHEMA}", connection
        finally:
            connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
            connection.execute(f"DROP ROLE IF EXISTS {SCHEMA}")


def main() -> None:
    """Measure, and say whether the bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 2, 4])
    asked = parser.parse_args()
    cores, first, is_reached = len(os.sched_getaffinity(0)), None, True
    with filled(asked.url, asked.values) as (url, connection), tempfile.TemporaryDirectory() as folder:
        pid = connection.info.backend_pid
        postmaster = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        for number, shards in enumerate(asked.shards, 2):
            connection.execute("VACUUM ANALYZE checkpoint_writes")
            connection.execute("CHECKPOINT")
            write_ring(Path(folder) / "keys.toml", number)
            done = rotate(url, Path(folder) / "keys.toml", shards, postmaster)
            first = first or done
            gain = first.seconds / done.seconds
            most = min(done.shards, cores * first.seconds / (first.worker + first.server))
            is_reached = is_reached and gain >= BAR * most
            micro = [1e6 * part / asked.values for part in (done.seconds, done.worker, done.server)]
            print(
                f"{done.shards} shards: {done.seconds:.1f} s, for a value {micro[0]:.1f} us (core of workers"
                f" {micro[1]:.1f}, of the server {micro[2]:.1f}); gain {gain:.2f} of {most:.2f} possible;"
                f" {done.peak_mb:.0f} MB; {done.least} to {done.most} values in a shard;"
                f" planned in {done.planned:.1f} s",
                flush=True,
            )
    print("the bar is reached" if is_reached else "the bar is not reached")
    raise SystemExit(not is_reached)


if __name__ == "__main__":
    main()
