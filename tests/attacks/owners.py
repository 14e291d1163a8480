"""The role that owns a saver's tables in Postgres, and all that it can do to them while an operator works.

Its steps fall between the operator's statements. Whatever of it runs in the operator's session sends
that session a warning: also in a transaction that is read-only, or that is rolled back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from random import Random
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import Composable

OWNER: Final = "sealpoint_owner"
OPERATOR: Final = "sealpoint"
"""What the sessions of a store call themselves; see `postgres_connection.connect`."""
CALLED: Final = "a function of the owner was called"
_LOOK_SECONDS: Final = 0.001

TOOLS: Final = f"""
    CREATE FUNCTION tools.record() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = '{OPERATOR}' THEN RAISE WARNING '{CALLED}'; END IF;
    END $$;
    CREATE FUNCTION tools.act(value text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN PERFORM tools.record(); RETURN value; END $$;
    CREATE FUNCTION tools.act(value bytea) RETURNS bytea IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN PERFORM tools.record(); RETURN value; END $$;
    CREATE FUNCTION tools.compare(one text, other text) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN PERFORM tools.record(); RETURN true; END $$;
    CREATE FUNCTION tools.fire() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM tools.record(); RETURN NEW; END $$;
    CREATE TYPE tools.mine AS (a text);
    CREATE FUNCTION tools.cast_to(text) RETURNS tools.mine IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN PERFORM tools.record(); RETURN ROW($1)::tools.mine; END $$;
    CREATE FUNCTION tools.cast_from(tools.mine) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN PERFORM tools.record(); RETURN $1.a; END $$;
    CREATE DOMAIN tools.checked AS bytea CHECK (tools.act(VALUE) IS NOT NULL);
    CREATE DOMAIN tools.word AS text CHECK (tools.act(VALUE) IS NOT NULL);
    GRANT USAGE ON SCHEMA tools TO PUBLIC"""

_VIEW: Final = (
    "CREATE VIEW agents.checkpoint_blobs AS SELECT tools.act(thread_id) AS thread_id, checkpoint_ns,"
    " channel, version, tools.act(type) AS type, tools.act(blob) AS blob FROM {}.{} LIMIT 1"
)
_COPY: Final = (
    "CREATE TABLE agents.{0} (LIKE {1}.{2} INCLUDING ALL);"
    " CREATE TRIGGER t BEFORE UPDATE ON agents.{0} EXECUTE FUNCTION tools.fire();"
    " CREATE INDEX ON agents.{0} ((tools.act('x'::text) || thread_id))"
)
_AWAY: Final = "ALTER SCHEMA agents RENAME TO away; CREATE SCHEMA agents; "
_BACK: Final = "DROP SCHEMA agents CASCADE; ALTER SCHEMA away RENAME TO agents"


@dataclass(frozen=True, slots=True)
class Attack:
    """What the owner does and undoes; the statements of each run one after another.

    Attributes:
        begin: Does it.
        end: Undoes it.
        runs: Whether a superuser that reads or changes the table by its name calls what it holds.
    """

    begin: tuple[str, ...]
    end: str
    runs: bool = False


ATTACKS: Final = {
    "a view in place of the table": Attack(
        ("ALTER TABLE checkpoint_blobs RENAME TO b; " + _VIEW.format("agents", "b"),),
        "DROP VIEW checkpoint_blobs; ALTER TABLE b RENAME TO checkpoint_blobs",
        runs=True,
    ),
    "a view in place of the table in another schema": Attack(
        ("ALTER TABLE checkpoint_blobs SET SCHEMA tools; " + _VIEW.format("tools", "checkpoint_blobs"),),
        "DROP VIEW agents.checkpoint_blobs; ALTER TABLE tools.checkpoint_blobs SET SCHEMA agents",
        runs=True,
    ),
    "a table in place of the table": Attack(
        ("ALTER TABLE checkpoint_blobs RENAME TO b; " + _COPY.format("checkpoint_blobs", "agents", "b"),),
        "DROP TABLE checkpoint_blobs; ALTER TABLE b RENAME TO checkpoint_blobs",
        runs=True,
    ),
    "a schema in place of the schema, with a view": Attack(
        (_AWAY + _VIEW.format("away", "checkpoint_blobs"),), _BACK, runs=True
    ),
    "a schema in place of the schema, with tables": Attack(
        (
            _AWAY
            + "; ".join(
                _COPY.format(name, "away", name)
                for name in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
            ),
        ),
        _BACK,
        runs=True,
    ),
    "a table that inherits, with a trigger": Attack(
        (
            "CREATE TABLE child (LIKE checkpoint_blobs INCLUDING ALL);"
            " CREATE TRIGGER t BEFORE UPDATE ON child FOR EACH ROW EXECUTE FUNCTION tools.fire();"
            " CREATE INDEX ON child ((tools.act('x'::text) || thread_id));"
            " INSERT INTO child SELECT thread_id, 'child', channel, version, type, blob"
            " FROM checkpoint_blobs LIMIT 3; ALTER TABLE child INHERIT checkpoint_blobs",
        ),
        "ALTER TABLE child NO INHERIT checkpoint_blobs; DROP TABLE child",
        runs=True,
    ),
    "a trigger": Attack(
        ("CREATE TRIGGER t BEFORE UPDATE ON checkpoint_blobs FOR EACH ROW EXECUTE FUNCTION tools.fire()",),
        "DROP TRIGGER t ON checkpoint_blobs",
        runs=True,
    ),
    "a trigger for each statement": Attack(
        ("CREATE TRIGGER t AFTER UPDATE ON checkpoint_writes EXECUTE FUNCTION tools.fire()",),
        "DROP TRIGGER t ON checkpoint_writes",
        runs=True,
    ),
    "a deferred trigger": Attack(
        (
            "CREATE CONSTRAINT TRIGGER t AFTER UPDATE ON checkpoint_blobs DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION tools.fire()",
        ),
        "DROP TRIGGER t ON checkpoint_blobs",
        runs=True,
    ),
    "a rule": Attack(
        ("CREATE RULE r AS ON UPDATE TO checkpoint_blobs DO ALSO SELECT tools.act(old.type)",),
        "DROP RULE r ON checkpoint_blobs",
        runs=True,
    ),
    "a policy": Attack(
        (
            "CREATE POLICY p ON checkpoint_blobs USING (tools.act(type) IS NOT NULL);"
            " ALTER TABLE checkpoint_blobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        ),
        "ALTER TABLE checkpoint_blobs NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;"
        " DROP POLICY p ON checkpoint_blobs",
    ),
    "a check": Attack(
        ("ALTER TABLE checkpoint_blobs ADD CONSTRAINT c CHECK (tools.act(type) IS NOT NULL) NOT VALID",),
        "ALTER TABLE checkpoint_blobs DROP CONSTRAINT c",
        runs=True,
    ),
    "a domain with a check": Attack(
        ("ALTER TABLE checkpoint_blobs ALTER blob TYPE tools.checked",),
        "ALTER TABLE checkpoint_blobs ALTER blob TYPE bytea",
        runs=True,
    ),
    "a domain of text with a check": Attack(
        ("ALTER TABLE checkpoint_blobs ALTER type TYPE tools.word",),
        "ALTER TABLE checkpoint_blobs ALTER type TYPE text",
        runs=True,
    ),
    "a generated column": Attack(
        ("ALTER TABLE checkpoint_blobs ADD g text GENERATED ALWAYS AS (tools.act(type)) STORED",),
        "ALTER TABLE checkpoint_blobs DROP g",
        runs=True,
    ),
    "a default": Attack(
        ("ALTER TABLE checkpoint_blobs ALTER type SET DEFAULT tools.act('x'::text)",),
        "ALTER TABLE checkpoint_blobs ALTER type DROP DEFAULT",
    ),
    "an index over an expression": Attack(
        ("CREATE INDEX i ON checkpoint_blobs ((tools.act('x'::text) || type))",), "DROP INDEX i", runs=True
    ),
    "an index over an expression, made beside other work": Attack(
        ("CREATE INDEX CONCURRENTLY i ON checkpoint_blobs ((tools.act('x'::text) || type))",),
        "DROP INDEX i",
        runs=True,
    ),
    "an index over a part of the rows": Attack(
        ("CREATE INDEX i ON checkpoint_writes (idx) WHERE tools.act('x'::text) = type",),
        "DROP INDEX i",
        runs=True,
    ),
    "statistics over an expression": Attack(
        ("CREATE STATISTICS s ON (tools.act('x'::text) || type), channel FROM checkpoint_blobs",),
        "DROP STATISTICS s",
        runs=True,
    ),
    "statistics over an expression of checkpoints": Attack(
        ("CREATE STATISTICS s ON (tools.act('x'::text) || thread_id), type FROM checkpoints",),
        "DROP STATISTICS s",
        runs=True,
    ),
    "operators and functions": Attack(
        (
            "CREATE OPERATOR agents.= (LEFTARG = text, RIGHTARG = text, FUNCTION = tools.compare);"
            " CREATE OPERATOR agents.> (LEFTARG = text, RIGHTARG = text, FUNCTION = tools.compare);"
            " CREATE OPERATOR agents.~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = tools.compare);"
            " CREATE FUNCTION agents.length(text) RETURNS text LANGUAGE sql AS 'SELECT tools.act($1)';"
            " CREATE FUNCTION agents.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT tools.act($1)'",
        ),
        "DROP OPERATOR agents.= (text, text), agents.> (text, text), agents.~~ (text, text);"
        " DROP FUNCTION agents.length, agents.sha256",
    ),
    "casts": Attack(
        (
            "CREATE CAST (text AS tools.mine) WITH FUNCTION tools.cast_to(text) AS IMPLICIT;"
            " CREATE CAST (tools.mine AS text) WITH FUNCTION tools.cast_from(tools.mine) AS IMPLICIT",
        ),
        "DROP CAST (text AS tools.mine); DROP CAST (tools.mine AS text)",
    ),
    "a foreign key": Attack(
        (
            "CREATE TABLE other (channel text PRIMARY KEY);"
            " CREATE TRIGGER t BEFORE UPDATE ON other EXECUTE FUNCTION tools.fire();"
            " ALTER TABLE checkpoint_blobs ADD CONSTRAINT f FOREIGN KEY (channel) REFERENCES other NOT VALID",
        ),
        "DROP TABLE other CASCADE",
    ),
    "a partition": Attack(
        (
            "CREATE TABLE parent (LIKE checkpoint_writes) PARTITION BY LIST (tools.act(task_id));"
            " ALTER TABLE parent ATTACH PARTITION checkpoint_writes DEFAULT",
        ),
        "ALTER TABLE parent DETACH PARTITION checkpoint_writes; DROP TABLE parent",
    ),
    "a collation": Attack(
        ('ALTER TABLE checkpoint_writes ALTER task_id TYPE text COLLATE "C"',),
        'ALTER TABLE checkpoint_writes ALTER task_id TYPE text COLLATE "default"',
    ),
    "columns that change places": Attack(
        (
            "ALTER TABLE checkpoint_blobs RENAME channel TO c; ALTER TABLE checkpoint_blobs RENAME type TO"
            " channel; ALTER TABLE checkpoint_blobs RENAME c TO type",
        ),
        "ALTER TABLE checkpoint_blobs RENAME channel TO c; ALTER TABLE checkpoint_blobs RENAME type TO"
        " channel; ALTER TABLE checkpoint_blobs RENAME c TO type",
    ),
    "targets of statistics": Attack(
        ("ALTER TABLE checkpoint_blobs ALTER type SET STATISTICS 10",),
        "ALTER TABLE checkpoint_blobs ALTER type SET STATISTICS -1",
    ),
    "a table that cannot be read quickly": Attack(("ANALYZE checkpoint_blobs",), "ANALYZE checkpoint_writes"),
}


@dataclass
class Owner:
    """The owner's session, in a thread: a step ends, or waits for a lock, before the operator goes on."""

    url: str
    failures: list[str] = field(default_factory=list)
    done: int = 0
    _attack: Attack | None = None
    _running: bool = False

    def __post_init__(self) -> None:
        options = "-c search_path=agents,tools -c lock_timeout=2s"
        url = make_conninfo(self.url, user=OWNER, options=options, application_name=OWNER)
        self._connection = psycopg.connect(url, autocommit=True)
        self._observer = psycopg.connect(self.url, autocommit=True)
        self._orders = SimpleQueue[Attack | None]()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def begin(self, attack: Attack) -> None:
        """Begin an attack, if none is under way."""
        self._meet()
        if self._idle.is_set() and not self._running:
            self._tell(attack)
            self._meet()

    def end(self) -> None:
        """Undo the attack, if one was made."""
        self._meet()
        if self._idle.is_set() and self._running:
            self._tell(None)
            self._meet()

    def begin_now(self, attack: Attack) -> None:
        """Begin an attack while no other session works, and wait for its end."""
        self.begin(attack)
        self._idle.wait()
        assert self._running, self.failures

    def settle(self) -> None:
        """Wait for the step that is under way, and undo what was done."""
        self._idle.wait()
        while self._running:
            self._tell(None)
            self._idle.wait()

    def close(self) -> None:
        """Undo what was done, and end the session."""
        self.settle()
        self._connection.close()
        self._observer.close()

    def _tell(self, order: Attack | None) -> None:
        self._idle.clear()
        self._orders.put(order)

    def _meet(self) -> None:
        """Wait until no step is under way, or the one that is waits for a lock of another session."""
        while not self._idle.wait(_LOOK_SECONDS):
            blocked = self._observer.execute(
                "SELECT pg_blocking_pids(%s) <> '{}'", (self._connection.info.backend_pid,)
            ).fetchone()
            if blocked == (True,):
                return

    def _work(self) -> None:
        while not self._connection.closed:
            order = self._orders.get()
            try:
                if order is not None:
                    for statement in order.begin:
                        self._connection.execute(statement.encode(), prepare=False)
                    self._attack, self._running, self.done = order, True, self.done + 1
                elif self._attack is not None:
                    self._connection.execute(self._attack.end.encode(), prepare=False)
                    self._running = False
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                self._connection.execute("DROP INDEX IF EXISTS agents.i")  # one that was begun is left behind
            except psycopg.Error as error:
                self.failures.append(str(error))
                self._running = False
            finally:
                self._idle.set()


def text_of(query: Any, connection: Any) -> str:
    """The text of a statement, in whichever form psycopg was given it."""
    if isinstance(query, Composable):
        return query.as_string(connection)
    return query.decode() if isinstance(query, bytes) else str(query)


@contextmanager
def between_statements(step: Callable[[], None]) -> Iterator[list[str]]:
    """Call ``step`` before each statement of a store, from the first one that names a table.

    Yields:
        What of the owner's is called in the sessions of the store.
    """
    execute, named, sessions = psycopg.Cursor.execute, threading.Event(), list[Any]()
    calls = list[str]()

    def stepping(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        if self.connection.info.parameter_status("application_name") == OPERATOR:
            if self.connection not in sessions:
                sessions.append(self.connection)
                record_calls(self.connection, calls)
            text = text_of(query, self.connection)
            if "checkpoint_" in text or '"store"' in text:
                named.set()
            if named.is_set():
                step()
        return execute(self, query, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", stepping)
        yield calls


@contextmanager
def owned_database(dsn: str) -> Iterator[str]:
    """A database in which `OWNER` has a schema for the tables, ``agents``, and one for what it brings."""
    name = "sealpoint_owned"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {OWNER} LOGIN".encode())
        connection.execute(f"CREATE DATABASE {name}".encode())
        url = make_conninfo(dsn, dbname=name, options="-c search_path=agents")
        try:
            with psycopg.connect(url, autocommit=True) as inside:
                inside.execute(f"GRANT CREATE ON DATABASE {name} TO {OWNER}".encode())
                inside.execute(
                    f"SET ROLE {OWNER}; CREATE SCHEMA agents; CREATE SCHEMA tools; {TOOLS}".encode()
                )
            yield url
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            connection.execute(f"DROP ROLE {OWNER}".encode())


def record_calls(connection: psycopg.Connection[Any], calls: list[str]) -> None:
    """Add to ``calls`` what of the owner's is called in a session."""

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.message_primary == CALLED:
            calls.append(notice.context or "")

    connection.add_notice_handler(note)


def attacking(owner: Owner, attack: Attack, begin: int, end: int) -> Callable[[], None]:
    """Return what is called before each statement: it begins an attack, and undoes it later."""
    sent = count()

    def step() -> None:
        place = next(sent)
        if place >= end:
            owner.end()
        elif place >= begin:
            owner.begin(attack)

    return step


def places(random: Random) -> tuple[int, int]:
    """Before which statements of a command an attack begins and ends."""
    begin = random.choice((0, 1, 2, 3, random.randrange(60)))
    return begin, begin + random.choice((1, 2, 3, 5, 8, 60))
