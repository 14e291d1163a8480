"""What the commands and the saver say of a forged file, beside what the oracle reads from its pages.

Exit 0 and a result are allowed only if they are right; any other documented exit code always is. A
command must not change what it only reads, and must not lose or change a value of a sound file, however
it ends. A signal, or a run past its budget, ends the process, and so is seen from outside.

Where the oracle has no answer (`UndefinedError`), exit 0 is allowed only if a second way of counting
agrees with the report: a walk over the tags of the table itself (``NOT INDEXED``) by sqlite3 alone,
which must come to its end within `WALK_STEPS`. So a DAG and a cycle never pass, whatever was reported;
nor does a file whose header counts more pages than there are. Values that cannot be read are for the
commands that read them to find.
"""

# ruff: noqa: S608 -- names of our own tables

from __future__ import annotations

import io
import json
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import ormsgpack

from fuzz.sqlitefile import honest, oracle
from fuzz.sqlitefile.forged import Forged, forge
from fuzz.sqlitefile.honest import SHAPES, Shape
from fuzz.sqlitefile.oracle import VALUES, Content, Finding, Row, UndefinedError
from sealpoint.admin.cli import app as cli
from sealpoint.admin.databases.cells import EVERYTHING, Column, Selection
from sealpoint.admin.databases.rows import Batch, Page
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.crypto import RingCipher
from sealpoint.errors import SealpointError
from sealpoint.seal.items import split_item
from sealpoint.sqlite import SqliteSaver

DONE: Final = 0
DOCUMENTED: Final = frozenset({0, 2, 3, 4, 5, 6, 7})
WALK_STEPS: Final = 100_000
"""Of SQLite's machine: some thousand rows, where the honest files have some hundred."""

FEW: Final = Batch(rows=5)
"""What commands read at a time, so that each table takes several batches."""

_READ: Final = SqliteRows.read
_SEALED: Final = re.compile(r"[a-z]+\+(?:cobblestone256|xaes256gcm)(?:\.row)?@(k\d)")


class WrongAnswerError(AssertionError):
    """A command ended with 0 on a wrong answer, or changed what it may not."""


class UndocumentedError(WrongAnswerError):
    """A command ended in no documented way."""


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON object that it printed."""
        return json.loads(self.out)


class Truth(NamedTuple):
    """What is known of a file.

    Attributes:
        content: What the oracle reads; ``None`` if the bytes do not say.
        reason: Why not.
        counted: The second way of counting, for such files; ``None`` where it comes to no end.
    """

    content: Content | None
    reason: str
    counted: Counter[Finding] | None

    @property
    def multiset(self) -> Counter[Finding] | None:
        """Rows by table, tag and digest; ``None`` if no answer about them can be right."""
        return self.counted if self.content is None else self.content.multiset()

    @property
    def is_sound(self) -> bool:
        """Whether a write may not lose anything."""
        return self.content is not None and self.content.is_sound


# --- files ------------------------------------------------------------------------------------


def read_file(path: Path) -> Content:
    """Return what the oracle reads of a file with its log.

    Raises:
        UndefinedError: If the bytes do not say.
    """
    log = path.with_name(f"{path.name}-wal")
    return oracle.read(path.read_bytes(), log.read_bytes() if log.exists() else b"")


def learn(path: Path) -> Truth:
    """Return what is known of a file."""
    try:
        return Truth(read_file(path), "", None)
    except UndefinedError as error:
        return Truth(None, str(error), None if error.cut else _walk(path))


def _walk(path: Path) -> Counter[Finding] | None:
    """Count with sqlite3 alone, from the tables and not from an index, within a budget."""
    copy = path.with_name("copy.db")  # sqlite3 may write to what it opens
    for suffix in ("", "-wal"):
        if (file := path.with_name(path.name + suffix)).exists():
            copy.with_name(copy.name + suffix).write_bytes(file.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        steps = iter(range(WALK_STEPS // 1000))
        connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        found: Counter[Finding] = Counter()
        try:
            for table in VALUES:
                if connection.execute(f"PRAGMA main.table_info({table})").fetchall():
                    tags = connection.execute(f"SELECT type FROM main.{table} NOT INDEXED")
                    found.update((table, tag, "") for (tag,) in tags)
            if connection.execute("PRAGMA main.table_info(store)").fetchall():
                stored = connection.execute("SELECT value FROM main.store NOT INDEXED")
                found.update(("store.value", oracle.item_of(value)[0], "") for (value,) in stored)
        except (sqlite3.Error, MemoryError, UnicodeDecodeError):
            return None
        return found


class Place:
    """A folder with a forged file and a ring; each command gets them anew."""

    def __init__(self, folder: Path, forged: Forged) -> None:
        """Write the file."""
        self.folder, self._forged = folder, forged
        self.path, self.ring = folder / "checkpoints.db", folder / "keys.toml"
        self.out = folder / "out.db"
        self.restore()

    def restore(self) -> None:
        """Put everything as it was."""
        for file in self.folder.iterdir():
            file.unlink()
        self.path.write_bytes(self._forged.data)
        if self._forged.log:
            self.path.with_name(f"{self.path.name}-wal").write_bytes(self._forged.log)

    def write_ring(self, **states: str) -> None:
        """Write a ring of `honest.KEYS`: k1 is active, all others decrypt-only, but for ``states``."""
        lines = ["version = 1", "active = 'k1'"]
        for key_id in honest.KEYS:
            state = states.get(key_id, "active" if key_id == "k1" else "decrypt-only")
            source = f"source = {{ inline = '{honest.material(key_id).hex()}' }}"
            lines += ["[[key]]", f"id = '{key_id}'", f"state = '{state}'", source]
        self.ring.write_text("\n".join([*lines, ""]), encoding="ascii")
        self.ring.chmod(0o600)

    def is_unchanged(self) -> bool:
        """Whether the file holds what it did."""
        return self.path.read_bytes() == self._forged.data

    def run(self, *arguments: str) -> Ended:
        """Run a command in this process."""
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.object(SqliteRows, "read", _read_few),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = cli.run([*arguments, "--keys", str(self.ring), "--json"])
        if code not in DOCUMENTED:
            raise UndocumentedError(f"exit code {code}\n{err.getvalue()[-2000:]}")
        return Ended(int(code), out.getvalue(), err.getvalue())


def _read_few(
    store: SqliteRows, table: Column, after: Any, selection: Selection = EVERYTHING, batch: Batch = FEW
) -> Page:
    return _READ(store, table, after, selection, replace(batch, rows=min(batch.rows, FEW.rows)))


# --- what the rows are ------------------------------------------------------------------------


def key_of(tag: object) -> str | None:
    """Return the key that an ordinary tag names."""
    named = _SEALED.fullmatch(tag) if isinstance(tag, str) else None
    return named and named[1]


def opened(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """Count rows by table, key, inner type and plaintext, each as far as it opens."""
    cipher = RingCipher(honest.ring())
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        tag, value = row.tag, row.value
        kind: tuple[Any, ...] = ("as it is", tag)
        if isinstance(tag, str) and "+" in tag and isinstance(value, bytes):
            try:
                inner, value = cipher.open(tag, value, row=_place(row)).typed
                kind = ("opened", inner)
                if row.table == "store":
                    kind, value = ("opened", "json"), split_item(value)[1]
                    value = _as_json(ormsgpack.unpackb(value))
            except SealpointError:
                pass
        elif isinstance(tag, str) and isinstance(value, bytes):
            kind = ("opened", tag)
            if row.table == "store":
                value = _as_json(json.loads(value))
        found[row.table, row.key, *kind, oracle.digest(value)] += 1
    return found


def _place(row: Row) -> dict[str, str] | None:
    """Return what an item is bound to; nothing else is bound here."""
    if row.table != "store":
        return None
    return {
        "table": "store",
        **{name: str(part) for name, part in zip(("prefix", "key"), row.key, strict=True)},
    }


def _as_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def require(condition: bool, what: str, ended: Ended | None = None) -> None:
    """Refuse an answer.

    Raises:
        WrongAnswerError: If the condition does not hold.
    """
    if not condition:
        more = f"\n{ended.code}\n{ended.out[-2000:]}\n{ended.err[-2000:]}" if ended else ""
        raise WrongAnswerError(f"{what}{more}")


def _rows_by(found: Counter[Finding], name: Callable[[Finding], object]) -> Counter[object]:
    counts: Counter[object] = Counter()
    for finding, rows in found.items():
        counts[name(finding)] += rows
    return counts


def _require_shares(shares: list[dict[str, Any]], truth: Truth, ended: Ended) -> None:
    """Require that shares are the multiset: by table and key, and in all."""
    found = truth.multiset
    require(found is not None, f"shares of a file that has no answer: {truth.reason}", ended)
    reported: Counter[object] = Counter()
    for share in shares:
        reported[share["table"], share["key_id"] if share["kind"] == "sealed" else None] += share["rows"]
    wanted = _rows_by(found or Counter(), lambda finding: (finding[0], key_of(finding[1])))
    unusual = any(
        tag is None or not isinstance(tag, str) or ("+" in tag and not key_of(tag))
        for _, tag, _ in found or ()
    )
    if unusual:  # tags that only sealpoint's own rules put to a key: compare what is sure
        enough = all(reported[name] >= rows for name, rows in wanted.items() if name[1])  # type: ignore[index]
        require(enough and reported.total() == wanted.total(), "other shares than the file has", ended)
    else:
        require(reported == wanted, f"other shares than the file has: {reported} {wanted}", ended)


# --- commands that read -----------------------------------------------------------------------


def check_status(place: Place, truth: Truth) -> Ended:
    """`status`: rows by table and key."""
    ended = place.run("status", str(place.path))
    if ended.code == DONE:
        _require_shares(ended.document["databases"][0]["shares"], truth, ended)
    return ended


def check_only(place: Place, truth: Truth) -> Ended:
    """`status --only`: whether all rows are under one key."""
    ended = place.run("status", str(place.path), "--only", "k1")
    if ended.code == DONE:
        _require_shares(ended.document["databases"][0]["shares"], truth, ended)
        others = [tag for _, tag, _ in truth.multiset or () if not str(tag).endswith("@k1")]
        require(not others, "rows are under other keys", ended)
    return ended


def check_audit(place: Place, truth: Truth) -> Ended:
    """`audit`: whether all rows are sealed, and how many there are."""
    ended = place.run("audit", str(place.path))
    if ended.code == DONE:
        document = ended.document
        _require_shares(document["shares"], truth, ended)
        found = truth.multiset or Counter()
        require(not any("+" not in str(tag) for _, tag, _ in found), "rows are not sealed", ended)
        checkpoints = sum(rows for (table, _, _), rows in found.items() if table == "checkpoints")
        require(document["metadata"]["rows"] == checkpoints, "metadata of other checkpoints", ended)
    return ended


def check_verify(place: Place, truth: Truth) -> Ended:
    """`verify`: whether all rows open."""
    ended = place.run("verify", str(place.path), "--allow-plaintext", "--allow-unproven")
    if ended.code == DONE:
        found = truth.multiset
        require(found is not None, f"verified a file that has no answer: {truth.reason}", ended)
        require(ended.document["rows"] == (found or Counter()).total(), "not all rows were verified", ended)
        if truth.content is not None:
            kinds = {kind for _, _, kind, *_ in opened(truth.content.rows)}
            require(kinds <= {"opened"}, "rows do not open", ended)
    return ended


def check_types(place: Place, truth: Truth) -> Ended:
    """`types`: how many values were read."""
    ended = place.run("types", str(place.path))
    if ended.code == DONE:
        require(truth.multiset is not None, f"types of a file that has no answer: {truth.reason}", ended)
        require(ended.document["values"] == (truth.multiset or Counter()).total(), "not all values", ended)
    return ended


def check_threads(place: Place, truth: Truth) -> Ended:
    """`inspect`: the ids of all threads."""
    ended = place.run("inspect", str(place.path), "--limit", "100000")
    if ended.code == DONE and truth.content is not None:
        wanted = {row.columns.get("thread_id") for row in truth.content.rows}
        texts = {text for text in wanted if isinstance(text, str) and text.isprintable()}
        require(texts <= set(ended.document["threads"]), "threads are missing", ended)
    return ended


def check_inspect(place: Place, truth: Truth) -> Ended:
    """`inspect --thread`: every value of a thread."""
    name = "thread of k1"
    ended = place.run("inspect", str(place.path), "--thread", name, "--limit", "100000")
    if ended.code == DONE and truth.content is not None:
        wanted = sum(row.columns.get("thread_id") == name for row in truth.content.rows)
        require(len(ended.document["values"]) == wanted, f"not the {wanted} values of the thread", ended)
    return ended


def check_disable(place: Place, truth: Truth) -> Ended:
    """`keys disable --db`: refused while rows are under the key."""
    ended = place.run("keys", "disable", "k2", "--db", str(place.path))
    return _check_unused(ended, truth)


def check_destroy(place: Place, truth: Truth) -> Ended:
    """`keys destroy --db`: refused while rows are under the key."""
    place.write_ring(k2="disabled")
    ended = place.run("keys", "destroy", "k2", "--db", str(place.path), "--yes")
    return _check_unused(ended, truth)


def _check_unused(ended: Ended, truth: Truth) -> Ended:
    if ended.code == DONE:
        found = truth.multiset
        require(found is not None, f"no key is known to be unused: {truth.reason}", ended)
        require(not any(key_of(tag) == "k2" for _, tag, _ in found or ()), "rows are under the key", ended)
    return ended


# --- commands that write ----------------------------------------------------------------------


def check_rotate(place: Place, truth: Truth) -> Ended:
    """`rotate --apply`: the same plaintexts under one key; nothing is lost, however it ends."""
    ended = place.run("rotate", str(place.path), "--allow-plaintext", "--apply")
    try:
        after = read_file(place.path)
    except UndefinedError as error:
        require(ended.code != DONE or truth.content is None, f"rotated, and then: {error}", ended)
        require(not truth.is_sound, f"a sound file is none after the run: {error}", ended)
        return ended
    if truth.content is not None and (ended.code == DONE or truth.is_sound):
        require(opened(truth.content.rows) == opened(after.rows), "rotated to other values", ended)
    if ended.code == DONE:
        require(truth.multiset is not None, f"rotated a file that has no answer: {truth.reason}", ended)
        require(len(after.rows) == (truth.multiset or Counter()).total(), "rows are missing", ended)
        require({key_of(row.tag) for row in after.rows} <= {"k1"}, "rows are under other keys", ended)
    return ended


def check_decrypt(place: Place, truth: Truth) -> Ended:
    """`decrypt`: a copy with the same plaintexts and nothing sealed, or none."""
    ended = place.run("decrypt", str(place.path), "--out", str(place.out), "--allow-plaintext")
    require(place.is_unchanged(), "the source was changed", ended)
    require(place.out.exists() == (ended.code == DONE), "a copy, and no success, or the reverse", ended)
    if ended.code == DONE:
        require(truth.multiset is not None, f"decrypted a file that has no answer: {truth.reason}", ended)
        try:
            after = read_file(place.out)
        except UndefinedError as error:
            raise WrongAnswerError(f"the copy is no sound file: {error}") from None
        require(len(after.rows) == (truth.multiset or Counter()).total(), "rows are missing", ended)
        if truth.content is not None:
            require(opened(truth.content.rows) == opened(after.rows), "the copy has other values", ended)
        require(not any("+" in str(row.tag) for row in after.rows), "the copy holds sealed values", ended)
    return ended


# --- the saver --------------------------------------------------------------------------------

_REFUSALS: Final = (SealpointError, sqlite3.DatabaseError)


def check_saver(place: Place, truth: Truth) -> None:
    """`get_tuple` and `list`: nothing but values of the file; all of them, if it is sound.

    An index of a primary key that disagrees with its table may hide rows, or show them under another
    key: no key binds a row to its place here, and so an attacker may do the same by editing the row.
    """
    with closing(sqlite3.connect(place.path)) as connection:
        saver = SqliteSaver(connection, serde=honest.serde())
        plain = SqliteSaver(connection, serde=honest.serde(honest.PLAINTEXT))
        try:
            saver.get_tuple(honest.at("thread of k1"))
            plain.get_tuple(honest.at("thread of plaintext"))
            found = list(saver.list(None))
        except _REFUSALS:
            return
    if truth.content is None:
        return
    checkpoints = {row.key: row for row in truth.content.rows if row.table == "checkpoints"}
    stored = {_text_of(row) for row in checkpoints.values()}
    require(all(repr(each.checkpoint) in stored for each in found), "a checkpoint that the file lacks")
    if truth.is_sound:
        require(len(found) == len(checkpoints), "not all checkpoints were listed")
        writes = sum(len(each.pending_writes or ()) for each in found)
        own = sum(row.table == "writes" and row.key[:3] in checkpoints for row in truth.content.rows)
        require(writes == own, "not all writes were listed")


def _text_of(row: Row) -> str | None:
    try:
        return repr(honest.serde().loads_typed((str(row.tag), row.value)))
    except SealpointError:
        return None


def check_put(place: Place, truth: Truth) -> None:
    """`put`: one row more in a sound file, or none."""
    done = False
    with closing(sqlite3.connect(place.path)) as connection:
        saver = SqliteSaver(connection, serde=honest.serde())
        try:
            saver.put(honest.at("new thread"), honest.checkpoint(7, n=7), {"step": 7}, {})
            done = True
        except _REFUSALS:
            pass
        if not truth.is_sound or truth.content is None:
            return
        try:
            after = read_file(place.path)  # while the connection is open: closing it empties the log
        except UndefinedError as error:
            raise WrongAnswerError(f"a sound file is none after put: {error}") from None
    new = Counter(row.table for row in after.rows if row.columns.get("thread_id") == "new thread")
    require(new == Counter({"checkpoints": 1} if done else {}), f"put added {dict(new)}")
    rest = [row for row in after.rows if row.columns.get("thread_id") != "new thread"]
    require(opened(rest) == opened(truth.content.rows), "put changed other rows")


READING: Final[dict[str, Callable[[Place, Truth], Any]]] = {
    "status": check_status,
    "status --only": check_only,
    "audit": check_audit,
    "verify": check_verify,
    "types": check_types,
    "inspect": check_threads,
    "inspect --thread": check_inspect,
    "keys disable --db": check_disable,
    "keys destroy --db": check_destroy,
}
"""What leaves the file as it is."""

WRITING: Final[dict[str, Callable[[Place, Truth], Any]]] = {
    "rotate": check_rotate,
    "decrypt": check_decrypt,
    "list": check_saver,
    "put": check_put,
}
"""What gets a file of its own: the saver makes what is missing, and switches the log on."""


NAMES: Final = (*READING, *WRITING)


def check(forged: Forged, folder: Path, names: Iterable[str] = NAMES) -> Iterator[tuple[str, int | None]]:
    """Run commands on a forged database; yield how each ended, ``None`` for the saver.

    Raises:
        WrongAnswerError: If one of them ends with 0 on a wrong answer, or in no documented way.
    """
    place = Place(folder, forged)
    truth = learn(place.path)
    for name in names:
        if name in WRITING:
            place.restore()
        place.write_ring()
        try:
            ended = (READING | WRITING)[name](place, truth)
            code = ended.code if isinstance(ended, Ended) else None
            require(name in WRITING or place.is_unchanged(), "it changed what it reads", ended)
        except WrongAnswerError as error:
            error.add_note(f"{name}, after {', '.join(forged.edits)}")
            raise
        yield name, code


def check_script(script: bytes, names: Iterable[str] = NAMES, shapes: Sequence[Shape] = SHAPES) -> None:
    """Check the database that a byte string stands for, in a folder that is made for it."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in check(forge(script, shapes), Path(folder), names):
            pass
