"""What real servers run in test_servers.py: a WSGI and an ASGI application, and the code of tasks and cells.

As docs/deploy.md says, the ring and the thread store are made when this is imported, by gunicorn with
``--preload`` and by Celery before they fork; the saver is made by the first call in each worker process.
Each checkpoint that the saver has acknowledged is noted in ``$SERVED/said.PID``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final, TypedDict

from langgraph.graph import START, StateGraph

from sealpoint.base import CheckpointTuple, empty_checkpoint
from sealpoint.errors import HaltedError, ThreadStoreDownError
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.threads import SqliteThreadStore

FOLDER: Final = Path(os.environ["SERVED"])
STATE: Final = str(FOLDER / "state.db")
WAIT_SECONDS: Final = 30.0

serde = EncryptedSerializer.from_key_file()
store = SqliteThreadStore(FOLDER / "threads.db", create=True, timeout=WAIT_SECONDS)


class Talk(TypedDict, total=False):
    """The state of a thread."""

    said: int
    notes: list[int]


def listen(state: Talk) -> Talk:
    return {"notes": [*state.get("notes", []), state["said"]]}


def answer(state: Talk) -> Talk:
    return {"said": -state["said"]}


builder = StateGraph(Talk).add_node("listen", listen).add_node("answer", answer)
builder.add_edge(START, "listen").add_edge("listen", "answer")


@cache
def said(process: int) -> int:
    """Open the file of this process, to which one write appends a line."""
    return os.open(FOLDER / f"said.{process}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)


def note(config: Any) -> None:
    place = config["configurable"]
    os.write(said(os.getpid()), f"{place['thread_id']} {place['checkpoint_id']}\n".encode())


class Noted(SealedSaver):
    """Notes each checkpoint when it has been stored."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = super().put(config, checkpoint, metadata, new_versions)
        note(stored)
        return stored

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        note(stored)
        return stored


_open: Final = ExitStack()  # for as long as the process runs


@cache
def sealed(process: int) -> Noted:
    """Return the saver of this process; its number is there so that a child of a fork makes its own."""
    return Noted(_open.enter_context(SqliteSaver.from_conn_string(STATE)), serde=serde, threads=store)


def after(found: CheckpointTuple | None, number: int) -> tuple[Any, Any, Any, list[int]]:
    """Return the arguments of the put that follows on a checkpoint, and the notes that it has."""
    notes = [] if found is None else found.checkpoint["channel_values"]["notes"]
    made: Any = empty_checkpoint()
    made["channel_values"] = {"notes": [*notes, number]}
    made["channel_versions"] = {"notes": len(notes) + 1}
    metadata: Any = {"source": "loop", "step": len(notes), "parents": {}}
    return made, metadata, {"notes": len(notes) + 1}, [*notes, number]


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def turn(thread: str, number: int) -> list[int]:
    """Add a number to the notes of a thread, by a graph or by methods of the saver; return its notes."""
    saver = sealed(os.getpid())
    if thread.startswith("graph"):
        return list(builder.compile(checkpointer=saver).invoke({"said": number}, at(thread))["notes"])
    found = saver.get_tuple(at(thread))
    made, metadata, versions, notes = after(found, number)
    stored = saver.put(found.config if found else at(thread), made, metadata, versions)
    saver.put_writes(stored, [("said", number)], f"{number:032}")
    read = saver.get_tuple(at(thread))
    assert read is not None, f"{thread}: nothing is there after a put"
    assert read.checkpoint["channel_values"]["notes"] == notes, (notes, read)
    return notes


async def aturn(saver: SealedSaver, thread: str, number: int) -> list[int]:
    """Async version of `turn`."""
    if thread.startswith("graph"):
        state = await builder.compile(checkpointer=saver).ainvoke({"said": number}, at(thread))
        return list(state["notes"])
    found = await saver.aget_tuple(at(thread))
    made, metadata, versions, notes = after(found, number)
    stored = await saver.aput(found.config if found else at(thread), made, metadata, versions)
    await saver.aput_writes(stored, [("said", number)], f"{number:032}")
    read = await saver.aget_tuple(at(thread))
    assert read is not None, f"{thread}: nothing is there after a put"
    assert read.checkpoint["channel_values"]["notes"] == notes, (notes, read)
    return notes


# --- servers --------------------------------------------------------------------------------------


def _words(path: str) -> tuple[str, int]:
    thread, _, number = path.strip("/").partition("/")
    return thread, int(number)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """A WSGI application: ``POST /THREAD/NUMBER``. An error is answered with its traceback."""
    try:
        status, body = "200 OK", str(turn(*_words(environ["PATH_INFO"])))
    except Exception:  # noqa: BLE001 -- the test looks at it
        status, body = "500 Internal Server Error", traceback.format_exc()
    start_response(
        status, [("Content-Type", "application/json"), ("Content-Length", str(len(body.encode())))]
    )
    return [body.encode()]


_saver: list[SealedSaver] = []


async def web(scope: Any, receive: Any, send: Any) -> None:
    """The same as an ASGI application, whose lifespan opens the saver of the worker."""
    if scope["type"] == "lifespan":
        async with AsyncExitStack() as stack:
            await receive()
            inner = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(STATE))
            _saver.append(Noted(inner, serde=serde, threads=store))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    try:
        status, body = 200, str(await aturn(_saver[0], *_words(scope["path"])))
    except Exception:  # noqa: BLE001 -- the test looks at it
        status, body = 500, traceback.format_exc()
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body.encode()})


# --- tasks and cells, which the handler of a signal ends ----------------------------------------------


_dropped: Final = list[str]()  # exceptions that Python has only shown


def _drop(shown: Any) -> None:
    _dropped.append(f"{type(shown.exc_value).__name__} {shown.exc_value} in {shown.object!r}")


def go_on(thread: str, most: int, limits: tuple[type[BaseException], ...]) -> str:
    """Take turns until a signal's handler raises, then one more: return ``all``, ``limit`` or ``dropped``.

    ``dropped`` is an exception that Python has dropped: the package has raised one of its own for it, or it
    was raised where nothing can catch it, in a callback of a weak reference. What else was raised there is
    returned, too.
    """
    sys.unraisablehook = _drop
    _dropped.clear()
    ended, number = "all", 0
    try:
        for number in range(most):
            turn(thread, number)
            if _dropped:
                is_limit = any(_dropped[0].startswith(limit.__name__) for limit in limits)
                ended = "dropped" if is_limit else _dropped[0]
                break
    except limits:
        ended = "limit"
    except KeyError as error:
        if not (isinstance(error.args[0], threading.Thread) and isinstance(error.__context__, limits)):
            raise
        ended = "limit"  # in `Thread.start`, of a pool of LangGraph's, which then fails itself
    except (HaltedError, ThreadStoreDownError) as error:
        if "a signal handler raised an exception" not in str(error):
            raise
        ended = "dropped"
    if ended != "all":
        notes = turn(thread, most)
        assert notes[:number] == [*range(number)], (number, notes)
    return ended


async def ago_on(thread: str) -> None:
    """Take turns on a loop, with a saver for it, until the task is cancelled."""
    async with AsyncSqliteSaver.from_conn_string(STATE) as inner:
        saver = Noted(inner, serde=serde, threads=store)
        number = 0
        while True:
            await aturn(saver, thread, number)
            number += 1
            await asyncio.sleep(0)


def fork(thread: str, most: int) -> list[int | None]:
    """Take turns in this process and in two children that are forked meanwhile; return their exit codes."""
    import multiprocessing
    import warnings

    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
    sealed(os.getpid())
    forking = multiprocessing.get_context("fork")
    children = [forking.Process(target=go_on, args=(f"{thread}-{name}", most, ())) for name in ("one", "two")]
    for number, child in enumerate(children):
        child.start()
        turn(thread, number)
    for child in children:
        child.join(60)
    return [child.exitcode for child in children]
