"""What a store says of its server: where it is, never who asks or by what password."""

from __future__ import annotations

import sys
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.admin.databases.postgres.connection import name_of, refused
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.exits import Exit, exit_code
from sealpoint.errors import DatabaseMissingError, MissingExtraError

NAMES = {
    "postgresql://host/db": "postgresql://host/db",
    "postgres://user:secret@host:5433/db?sslmode=require&password=secret": "postgresql://host:5433/db",
    "postgresql://user:secret@[::1]:5433/db": "postgresql://[::1]:5433/db",
    "postgresql://user@/db?host=/run/pg": "postgresql:///db?host=/run/pg",
    "postgresql://user@/db?host=/run/pg&port=5433": "postgresql://:5433/db?host=/run/pg",
    "postgresql://user:secret@one:1,two:2/db": "postgresql://one,two:1,2/db",
    "postgresql://": "postgresql:///",
    "host=host user=user password=secret dbname=db": "postgresql://host/db",
    "postgresql://host/a%20b": "postgresql://host/a%20b",
    "postgresql:///?service=agents": "postgresql:///?service=agents",
    "service=agents user=user password=secret": "postgresql:///?service=agents",
    "postgresql://user@/db?host=/run/pg&service=a%20b": "postgresql:///db?host=/run/pg&service=a%20b",
    "postgresql:///db?hostaddr=10.0.0.1": "postgresql:///db?hostaddr=10.0.0.1",
}
# An unescaped '@' or '/' in a password: libpq takes a part of it for the host, the port or the database.
UNREADABLE = [
    "postgresql://user:sec@ret@host/db",
    "postgresql://user:sec/ret@host/db",
    "postgresql://user:secret/@host/db",
    "postgresql://user:5/secret@host/db",
    "postgresql://user:secret/db",
    "postgresql://user:secret@host/db?nonsense=secret",
    "postgresql://user:secret@host/%zz",
    "postgresql://user:s?service=ecret@host/db",
    "host=h password='secret",
    "secret",
]


@pytest.mark.parametrize("url", NAMES)
def test_the_name_is_where_it_is(url: str) -> None:
    assert name_of(url) == NAMES[url]


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(DatabaseMissingError) as caught:
        PostgresRows(url)
    told = f"{caught.value} {caught.value.__notes__} {caught.value.__cause__}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not any(part in told for part in ("user", "sec", "ret@", "nonsense"))


def test_a_server_that_is_not_there_is_named_without_the_user(url: str) -> None:
    with pytest.raises(DatabaseMissingError, match="no connection to postgresql:///db") as caught:
        PostgresRows("postgresql://somebody:secret@/db?host=/nowhere")
    assert caught.value.__suppress_context__
    assert "somebody" not in str(caught.value)


def test_a_refused_account_is_not_shown(url: str) -> None:
    with pytest.raises(DatabaseMissingError) as caught:
        PostgresRows(make_conninfo(url, user="somebody", password="secret"))
    assert "somebody" not in str(caught.value)
    assert "secret" not in repr(caught.value)


def test_without_psycopg_the_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match="'postgres'"):
        PostgresRows(url)


def test_settings_of_the_url_do_not_reach_the_session(url: str) -> None:
    options = "-c default_transaction_isolation=serializable -c statement_timeout=10s"
    options += " -c client_encoding=latin1 -c quote_all_identifiers=on"
    name = psycopg.conninfo.conninfo_to_dict(url)["options"]
    with closing(PostgresRows(make_conninfo(url, options=f"{name} {options}"))) as store:
        shown = [
            store.connection.execute(f"SHOW {setting}".encode()).fetchone()
            for setting in ("transaction_isolation", "statement_timeout", "client_encoding", "search_path")
        ]
    assert shown == [("read committed",), ("1h",), ("UTF8",), ("pg_catalog, pg_temp",)]


WRONG = {
    "the server has no such database": ({"dbname": "secret"}, Exit.USAGE),
    "the server has no such role": ({"user": "secret"}, Exit.USAGE),
    "the role may not log in": ({"user": "pg_monitor"}, Exit.USAGE),
    "no server listens at this address": ({"host": "/secret"}, Exit.STOPPED),
    "no server listens": ({"host": "127.0.0.1", "port": "1"}, Exit.STOPPED),
    "the name of the host cannot be resolved": ({"host": "secret.invalid"}, Exit.USAGE),
    "there is no such service": ({"service": "secret"}, Exit.USAGE),
}


@pytest.mark.parametrize("reason", WRONG)
def test_the_reason_for_no_connection_is_told(url: str, reason: str) -> None:
    parts, code = WRONG[reason]
    with pytest.raises(DatabaseMissingError, match=reason) as caught:
        PostgresRows(make_conninfo(url, **parts))
    assert exit_code(caught.value) is code
    assert caught.value.hint


WORDS = {
    'FATAL:  password authentication failed for user "a"': ("credentials", Exit.USAGE),
    "fe_sendauth: no password supplied": ("credentials", Exit.USAGE),
    'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "a", database "b", no encryption': (
        "pg_hba.conf does not allow",
        Exit.USAGE,
    ),
    'FATAL:  permission denied for database "b"\nDETAIL:  User does not have CONNECT': (
        "may not",
        Exit.USAGE,
    ),
    "FATAL:  sorry, too many clients already": ("no connection left", Exit.STOPPED),
    "FATAL:  the database system is starting up": ("is starting", Exit.STOPPED),
    "connection timeout expired": ("in time", Exit.STOPPED),
    "FATAL:  la base de données « b » n'existe pas": ("refuses", Exit.USAGE),
    'FATAL:  role "the database system is" does not exist': ("no such role", Exit.USAGE),
    "something else": ("no connection to db", Exit.STOPPED),
}


@pytest.mark.parametrize("words", WORDS)
def test_the_words_of_libpq_are_understood_and_not_shown(words: str) -> None:
    reason, code = WORDS[words]
    error = refused("db", f"connection failed: {words}")
    assert reason in str(error)
    assert exit_code(error) is code
    assert words not in f"{error} {error.hint}"
