"""A replica of a Postgres server, or, once it is promoted, a physical copy of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

_PLACES: Final = """
    SELECT current_setting('data_directory'), current_setting('unix_socket_directories'),
        (SELECT setting FROM pg_config WHERE name = 'BINDIR')"""
LAG: Final = "SELECT pg_current_wal_lsn() - replay_lsn FROM pg_stat_replication"


class Standby:
    """A replica of a server on this machine, which takes its files and then all that is written."""

    def __init__(self, primary: str, folder: Path) -> None:
        self._primary, self._data = primary, folder / "data"
        self.url = make_conninfo(primary, host=str(self._data))
        with psycopg.connect(primary, autocommit=True) as connection:
            source, address, programs = connection.execute(_PLACES).fetchone() or ("", "", "")
            connection.execute("SELECT pg_backup_start('replica', true)")
            shutil.copytree(source, self._data, ignore=shutil.ignore_patterns("postmaster.*", ".s.PGSQL*"))
            (label,) = connection.execute("SELECT labelfile FROM pg_backup_stop(false)").fetchone() or ("",)
        self._program = Path(programs) / "pg_ctl"
        (self._data / "backup_label").write_text(label, encoding="utf-8")
        (self._data / "standby.signal").touch()
        with (self._data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"primary_conninfo = 'host={address} user=postgres'\nrestart_after_crash = off\n")
            settings.write(f"unix_socket_directories = '{self._data}'\nfsync = off\nrestore_command = ''\n")
            settings.write("wal_retrieve_retry_interval = '100ms'\nlisten_addresses = ''\n")
        self._owner = Path(source).stat()
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, self._owner.st_uid, self._owner.st_gid, follow_symlinks=False)
        self._data.chmod(0o700)
        self.start()

    def start(self) -> None:
        log = self._data.with_suffix(".log")
        try:
            self._control("-l", str(log), "start")
        except subprocess.CalledProcessError:
            pytest.fail(f"the replica does not start: {log.read_text(encoding='utf-8')}")
        self.catch_up()

    def catch_up(self) -> None:
        """Wait until it has replayed all."""
        with psycopg.connect(self._primary, autocommit=True) as connection:
            while connection.execute(LAG).fetchone() != (0,):
                time.sleep(0.05)

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    def promote(self) -> None:
        self._control("promote")

    def replays(self, *, paused: bool) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"SELECT pg_wal_replay_{'pause' if paused else 'resume'}()".encode())

    def _control(self, *words: str) -> None:
        subprocess.run(
            [self._program, "-D", str(self._data), "-w", *words],
            check=True,
            user=self._owner.st_uid,
            group=self._owner.st_gid,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
