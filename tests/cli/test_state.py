"""`sealpoint inspect --last`: the state of a thread, and ids that are pasted back as they were printed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from sealpoint import KeyRing, RingCipher
from sealpoint.admin.cli.options import parse_id
from sealpoint.admin.cli.output import escape_id
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run
from tests.support.databases import foreign
from tests.support.databases.bound import INDEX, PLAIN, PRIVATE, SECRET, play, sealed_file
from tests.support.keys.rings import states_text

IDS = [
    "a\x1b",
    r"a\x1b",
    r"a\\x1b",
    "it's",
    "é",
    r"\xe9",
    "\u202ex",
    "x\0y",
    "a\nb",
    "$(touch x)`'",
    "-x",
    " x",
]
CALL = {"name": "search", "args": {"q": "fire"}, "id": "c1"}
TALK = [
    HumanMessage("Good\nmorning"),
    AIMessage("x" * 2_500, name="bot", tool_calls=[CALL]),
    ToolMessage("found", tool_call_id="c1"),
]


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring with an index key, which `SealedSaver` of the tests has too."""
    index = tmp_path / "index.key"
    index.write_text(INDEX.hex())
    index.chmod(0o600)
    ring = tmp_path / "keys.toml"
    more = "[[index]]\nid = 'index'\nsource = { file = 'index.key' }\n"
    ring.write_text(f"{states_text(k2='active', k1='decrypt-only')}\n{more}")
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    return ring


def values_of(document: dict[str, Any]) -> dict[str, Any]:
    return {each["channel"]: each["value"] for each in document["channels"]}


# --- ids ----------------------------------------------------------------------------------------------


@given(text=st.text(), other=st.text())
def test_an_id_is_read_back_as_it_was_printed(text: str, other: str) -> None:
    """And no other id is printed like it; what is printed has no character that moves a cursor."""
    shown = escape_id(text)
    assert shown.isprintable()
    assert "'" not in shown
    if not any("\ud800" <= sign <= "\udfff" for sign in text):
        assert parse_id(shown) == text
    assert (escape_id(other) == shown) == (other == text)


@given(text=st.text(alphabet="\\xu0aé'n1b"))
def test_what_is_given_is_one_id_or_refused(text: str) -> None:
    """Whatever is accepted is another form of the id that is then printed."""
    try:
        found = parse_id(text)
    except typer.BadParameter:
        assert "\\" in text
    else:
        assert found is not None
        assert parse_id(escape_id(found)) == found
        assert found == text or "\\" in text


def test_each_id_of_a_list_selects_its_own_thread(run: Run, tmp_path: Path) -> None:
    """Also ids that look like the escape of another one."""
    path = foreign.write(tmp_path / "ids.db", {name: {"own": name} for name in IDS})
    head, *lines = run("inspect", path).out.splitlines()
    assert (head, len(lines)) == ("thread", len(IDS))
    found = []
    for line in lines:
        document = run("inspect", path, "--thread", line, "--last", "--json").document
        assert document["thread"] == document["checkpoint"]["thread_id"] == values_of(document)["own"]
        found.append(document["thread"])
        # As text, the checkpoint is printed for a shell: its words select the same one.
        first = run("inspect", path, "--thread", line, "--last").out.splitlines()[0]
        words = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {first}"], capture_output=True, check=True
        ).stdout
        names = dict(word.split("=", 1) for word in words.decode().splitlines())
        ended = run("inspect", path, "--thread", names["thread_id"], "--checkpoint", names["checkpoint_id"])
        assert ended.out.splitlines()[0] == first
    assert sorted(found) == sorted(IDS)


@pytest.mark.parametrize("text", ["a\\", r"a\z", r"DOMAIN\user", r"\xAB", r"\ud800", r"\Uffffffff", "\udcff"])
@pytest.mark.parametrize("option", ["--thread", "--checkpoint", "--channel", "--namespace"])
def test_what_is_no_id_is_refused(run: Run, tmp_path: Path, option: str, text: str) -> None:
    path = foreign.write(tmp_path / "ids.db")
    ended = run("inspect", path, "--thread", "t1", "--last", option, text)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert option in ended.err


def test_an_id_with_a_quote_is_printed_between_single_quotes(run: Run, tmp_path: Path) -> None:
    path = foreign.write(tmp_path / "ids.db", {"it's $(x)": {}})
    assert r"checkpoints thread_id='it\x27s $(x)' " in run("inspect", path, "--thread", "it's $(x)").out


# --- the state ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize("options", [PLAIN, PRIVATE], ids=["plain", "private"])
@pytest.mark.parametrize("runs", [1, 2, 3])
def test_it_is_what_the_saver_reads(run: Run, tmp_path: Path, options: Any, runs: int) -> None:
    """Also of each earlier checkpoint, and of a subgraph; a delta channel without a snapshot is named."""
    path = tmp_path / "sealed.db"
    with sealed_file(path, **options) as saver:
        play(saver, "t", runs=runs)
        every = list(saver.list({"configurable": {"thread_id": "t"}}))
    assert {each.config["configurable"]["checkpoint_ns"] for each in every} > {""}
    latest = max(
        each.config["configurable"]["checkpoint_id"]
        for each in every
        if not each.config["configurable"]["checkpoint_ns"]
    )
    for each in every:
        place: Any = each.config["configurable"]
        given = ["--checkpoint", place["checkpoint_id"], "--namespace", place["checkpoint_ns"]]
        document = run("inspect", path, "--thread", "t", *given, "--json").document
        assert document["checkpoint"]["checkpoint_id"] == place["checkpoint_id"]
        stored = each.checkpoint["channel_values"]
        found = values_of(document)
        assert found.keys() == stored.keys()
        assert all(found[name] == stored[name] for name in ("name", "number", "lines") if name in stored)
        counters: Any = each.metadata.get("counters_since_delta_snapshot", {})
        assert document["not_shown"] == [name for name in counters if name not in stored]
        assert len(document["writes"]) == len(each.pending_writes or ())
        if place["checkpoint_id"] == latest:
            last = run("inspect", path, "--thread", "t", "--last", "--json").document
            members = ("checkpoint", "channels", "writes", "metadata", "not_shown")
            assert [last[name] for name in members] == [document[name] for name in members]
            assert SECRET in json.dumps(last["writes"])


def test_messages_are_a_conversation(run: Run, tmp_path: Path) -> None:
    path = foreign.write(tmp_path / "talk.db", {"t": {"messages": TALK, "number": 7}})
    ended = run("inspect", path, "--thread", "t", "--last")
    _, *lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (Exit.DONE, "")
    assert lines[:-2] == [
        "  msgpack, not sealed",
        "channel 'messages'",
        '  "human"',
        "  | Good",
        "  | morning",
        '  "ai" "bot"',
        "  | {",
        '  |   "$text": 2500,',
        f'  |   "start": "{"x" * 2_000}"',
        "  | }",
        '    calls [{"name": "search", "args": {"q": "fire"}, "id": "c1", "type": "tool_call"}]',
        '  "tool" "c1"',
        "  | found",
        "channel 'number'",
        "  7",
    ]
    found = run("inspect", path, "--thread", "t", "--last", "--limit", 1, "--json").document
    (channel,) = found["channels"]
    assert (channel["left_out"], [each["arguments"]["content"] for each in channel["value"]]) == (
        2,
        ["found"],
    )
    assert found["more"]
    ended = run("inspect", path, "--thread", "t", "--last", "--limit", 1)
    assert "2 earlier members of the list are left out" in ended.out


def test_messages_of_other_forms(run: Run, tmp_path: Path) -> None:
    """Parts that are no text are JSON; a list with anything else is no conversation."""
    parts: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": "x"}, "!"]
    values = {"mixed": [HumanMessage("y"), 1], "none": [], "talk": [HumanMessage(parts)]}
    path = foreign.write(tmp_path / "talk.db", {"t": values})
    lines = run("inspect", path, "--thread", "t", "--last").out.splitlines()
    assert "  | y" not in lines
    assert lines[lines.index("channel 'none'") : -2] == [
        "channel 'none'",
        "  []",
        "channel 'talk'",
        '  "human"',
        "  | look",
        "  | {",
        '  |   "type": "image_url",',
        '  |   "image_url": "x"',
        "  | }",
        "  | !",
    ]


def test_nothing_is_imported_and_no_text_moves_the_cursor(run: Run, tmp_path: Path) -> None:
    """Nor looks like another message."""
    evil = "\x1b[31m\u202e\r\nai\n    calls []"
    path = foreign.write(tmp_path / "evil.db", {"t": {evil: [HumanMessage(evil, name=evil)]}})
    command = ormsgpack.Ext(1, ormsgpack.packb(["os", "system", ["touch stolen"]]))
    document = {
        "id": "00000000",
        "channel_values": {"answer": command},
        "channel_versions": {},
        "versions_seen": {},
    }
    foreign.insert(path, [("msgpack", ormsgpack.packb(document))], thread="t")
    out = run("inspect", path, "--thread", "t", "--last").out
    assert out.replace("\n", "").isprintable()
    assert [line for line in out.splitlines() if line.startswith(('  "ai', "  ai", "    calls"))] == []
    ended = run("inspect", path, "--thread", "t", "--last", "--namespace", "forged")
    assert '"$record": "os.system"' in ended.out
    assert ended.code == Exit.DONE


@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize(
    ("tag", "said"),
    [("msgpack", "msgpack, not sealed"), (None, "msgpack+cobblestone256@k2, not bound to its row")],
    ids=["plaintext", "unbound"],
)
def test_a_state_that_may_be_of_another_thread_is_marked(
    run: Run, tmp_path: Path, tag: str | None, said: str
) -> None:
    """Beside a bound history anybody can put a later checkpoint that is not bound, or not sealed."""
    path = tmp_path / "sealed.db"
    with sealed_file(path) as saver:
        play(saver, "t", runs=1)
    document = {"id": "ffffffff", "channel_values": {"x": 1}, "channel_versions": {}, "versions_seen": {}}
    data = ormsgpack.packb(document)
    row = (tag, data) if tag else RingCipher(KeyRing.load()).seal("msgpack", data)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO checkpoints VALUES ('t', '', 'ffffffff', NULL, ?, ?, '{}')", row)
        connection.execute(
            "INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
            " VALUES ('t', '', 'ffffffff', 'k', 0, 'c', ?, ?)",
            row,
        )
    lines = run("inspect", path, "--thread", "t", "--last").out.splitlines()
    assert lines[1] == f"  {said}"
    assert [
        line.endswith(f" channel='c' {said}") for line in lines if line.startswith("pending write: ")
    ] == [True]


def test_a_write_to_the_channel_is_shown_behind_others(run: Run, tmp_path: Path) -> None:
    """The limit counts what is asked for; what exceeds it is not kept, and said."""
    path = foreign.write(tmp_path / "a.db", {"t": {}})
    with closing(sqlite3.connect(path)) as connection, connection:
        for idx, name in enumerate("bcc", 1):
            connection.execute(
                "INSERT INTO writes"
                " (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
                " SELECT thread_id, '', checkpoint_id, 'z', ?, ?, type, value"
                " FROM writes WHERE task_id = 'task'",
                (idx, name),
            )
    words = ("inspect", path, "--thread", "t", "--last", "--limit", 1, "--json")
    for more, shown, left in (
        ([], "answer", True),
        (["--channel", "b"], "b", False),
        (["--channel", "c"], "c", True),
    ):
        document = run(*words, *more).document
        assert [each["place"]["channel"] for each in document["writes"]] == [shown]
        assert document["more"] is left


def test_one_channel(run: Run, tmp_path: Path) -> None:
    path = foreign.write(tmp_path / "talk.db", {"t": {"messages": TALK, "number": 7}})
    document = run("inspect", path, "--thread", "t", "--last", "--channel", "number", "--json").document
    assert (values_of(document), document["writes"]) == ({"number": 7}, [])
    ended = run("inspect", path, "--thread", "t", "--last", "--channel", "missing")
    assert (ended.code, ended.err) == (Exit.USAGE, "channel 'missing' has no value in this checkpoint\n")


@pytest.mark.usefixtures("ring")
def test_a_channel_of_writes_cannot_be_shown(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sealed.db"
    with sealed_file(path) as saver:
        play(saver, "t", runs=1)
    ended = run("inspect", path, "--thread", "t", "--last")
    assert "channel 'log'\n  not shown: built from writes since its last snapshot" in ended.out
    ended = run("inspect", path, "--thread", "t", "--last", "--channel", "log")
    assert (ended.code, ended.err) == (
        Exit.USAGE,
        "channel 'log' is built from writes, so not shown in this checkpoint\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--thread", "u", "--last"], "thread 'u' has no such checkpoint in namespace ''"),
        (["--thread", "t1", "--checkpoint", "1"], "thread 't1' has no such checkpoint"),
        (["--thread", "t1", "--last", "--namespace", "x"], "in namespace 'x'"),
        (["--last"], "--thread"),
        (["--thread", "t1", "--channel", "x"], "add --last"),
    ],
)
def test_what_is_not_there(run: Run, tmp_path: Path, words: list[str], said: str) -> None:
    ended = run("inspect", foreign.write(tmp_path / "a.db"), *words)
    assert (ended.code, ended.out.strip()) == (Exit.USAGE, "")
    assert said in ended.err


@pytest.mark.usefixtures("ring")
def test_what_does_not_open_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest checkpoint, and none before it in its place; a write beside it; and all without the key."""
    path = tmp_path / "sealed.db"
    with sealed_file(path) as saver:
        play(saver, "t", runs=1)

    def change(statement: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    change("UPDATE writes SET value = randomblob(90) WHERE channel = '__interrupt__'")
    ended = run("inspect", path, "--thread", "t", "--last")
    assert (ended.code, "channel 'lines'" in ended.out) == (Exit.UNOPENED, True)
    assert "channel='__interrupt__': IntegrityError" in ended.err
    latest = "(SELECT max(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = '')"
    change(f"UPDATE checkpoints SET metadata = '{{\"step\": 99}}' WHERE checkpoint_id = {latest}")
    ended = run("inspect", path, "--thread", "t", "--last", "--json")
    assert (ended.code, ended.document["channels"], ended.document["ok"]) == (Exit.UNOPENED, [], False)
    assert [each["error"] for each in ended.document["failures"]] == ["RowError"]
    change(f"UPDATE checkpoints SET checkpoint = randomblob(90) WHERE checkpoint_id = {latest}")
    ended = run("inspect", path, "--thread", "t", "--last", "--json")
    assert [each["error"] for each in ended.document["failures"]] == ["IntegrityError"]
    change("UPDATE checkpoints SET checkpoint_id = CAST(checkpoint_id AS BLOB)")
    ended = run("inspect", path, "--thread", "t", "--last", "--json")
    assert (ended.code, ended.document["checkpoint"]) == (Exit.UNOPENED, None)
    monkeypatch.delenv("SEALPOINT_KEYS")
    fresh = tmp_path / "fresh.db"
    with sealed_file(fresh) as saver:
        play(saver, "t", runs=1)
    ended = run("inspect", fresh, "--thread", "t", "--last")
    assert (ended.code, SECRET in ended.out) == (Exit.KEYS, False)
    assert "no ring file" in ended.err


@pytest.mark.usefixtures("ring")
def test_two_histories_are_none(run: Run, tmp_path: Path) -> None:
    """A thread that was begun again without pseudonyms: which state is its own is not known."""
    path = tmp_path / "sealed.db"
    for options in (PRIVATE, PLAIN):
        with sealed_file(path, **options) as saver:
            play(saver, "t", runs=1)
    ended = run("inspect", path, "--thread", "t", "--last")
    assert (ended.code, ended.out) == (Exit.UNOPENED, "")
    assert "two histories" in ended.err


@pytest.mark.parametrize(
    "values",
    [
        {7: 1},
        ormsgpack.Ext(1, ormsgpack.packb(["m", "Dict", []])),
        ormsgpack.Ext(0, ormsgpack.packb(["m", "Dict", "x"])),
        [1],
    ],
    ids=["int", "object", "object of a text", "list"],
)
def test_channels_without_names_are_refused(run: Run, tmp_path: Path, values: Any) -> None:
    path = foreign.write(tmp_path / "a.db")
    document = {"id": "00000000", "channel_values": values, "channel_versions": {}, "versions_seen": {}}
    data = ormsgpack.packb(document, option=ormsgpack.OPT_NON_STR_KEYS)
    foreign.insert(path, [("msgpack", data)], thread="t")
    ended = run("inspect", path, "--thread", "t", "--last", "--namespace", "forged", "--json")
    assert (ended.code, ended.document["channels"]) == (Exit.UNOPENED, [])
    assert [each["error"] for each in ended.document["failures"]] == ["RowError"]


@pytest.mark.parametrize("field", ["content", "name", "type", "tool_calls", "tool_call_id"])
@pytest.mark.parametrize(
    "value", [None, 7, [[1]], {"a": {1: 2}}, "", [{"name": 1, "args": 2, "id": 3}], b"x"]
)
def test_a_message_may_be_anything(run: Run, tmp_path: Path, field: str, value: Any) -> None:
    """What stands in the place of a text is shown as data, and ends no run."""
    fields = {"content": "x", "type": "human", "role": "user", field: value}
    name = ["langchain_core.messages.human", "HumanMessage", fields, "model_validate_json"]
    record = ormsgpack.Ext(5, ormsgpack.packb(name, option=ormsgpack.OPT_NON_STR_KEYS))
    document: dict[str, Any] = {"channel_versions": {}, "versions_seen": {}}
    document |= {"id": "00000000", "channel_values": {"a": [record], "b": [fields]}}
    path = foreign.write(tmp_path / "a.db")
    data = ormsgpack.packb(document, option=ormsgpack.OPT_NON_STR_KEYS)
    foreign.insert(path, [("msgpack", data)], thread="t")
    for more in ([], ["--json"]):
        ended = run("inspect", path, "--thread", "t", "--last", "--namespace", "forged", *more)
        assert ended.code == Exit.DONE
