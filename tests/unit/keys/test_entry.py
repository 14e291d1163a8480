"""Ring files that say something wrong: every field, each with the error and the words that tell what."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing
from sealpoint.errors import (
    ActiveKeyError,
    DuplicateKeyError,
    FileLinkError,
    KeyIdError,
    KeyMaterialError,
    KeyRingError,
    KeyTransitionError,
    RingFileError,
)
from tests.support.rings import NEW, ring_text, write, write_ring

GOOD = ring_text()
SECOND = ["[[key]]", "id = 'k2'", "state = 'staged'", "source = { file = 'k1.key' }"]
INDEX = ["[[index]]", "source = { file = 'k1.key' }"]

Case = tuple[str, type[KeyRingError], str]
CASES: dict[str, Case] = {
    # the file
    "empty": ("", RingFileError, "lacks the field 'version'"),
    "no TOML": ("version = 1\nactive = k1\n", RingFileError, "line 2"),
    "duplicate field": ("version = 1\nversion = 1\n", RingFileError, "not TOML"),
    "deep nesting": ("a = " + "[" * 50_000, RingFileError, "nested too deeply"),
    "deep tables": ("a = " + "{a = " * 10_000, RingFileError, "nested too deeply"),
    "long dotted key": ("a" + ".a" * 30_000 + " = 1", RingFileError, "a line with over 64 dots"),
    "too large": (GOOD + "#" * (1 << 16), RingFileError, "a ring at most 65536"),
    "endless number": ("version = " + "1" * 10_000, RingFileError, "too many digits"),
    "unknown field": ("colour = 'red'\n" + GOOD, RingFileError, "unknown field 'colour'"),
    # version
    "no version": (GOOD.replace("version = 1\n", ""), RingFileError, "lacks the field 'version'"),
    "version 0": (GOOD.replace("= 1\n", "= 0\n"), RingFileError, "version = 1"),
    "version 2": (GOOD.replace("= 1\n", "= 2\n"), RingFileError, "version = 1"),
    "version '1'": (GOOD.replace("= 1\n", "= '1'\n"), RingFileError, "version = 1"),
    "version 1.0": (GOOD.replace("= 1\n", "= 1.0\n"), RingFileError, "version = 1"),
    "version true": (GOOD.replace("= 1\n", "= true\n"), RingFileError, "version = 1"),
    "version huge": (GOOD.replace("= 1\n", f"= 0x{'f' * 9000}\n"), RingFileError, "version = 1"),
    # active
    "active names no key": (GOOD.replace("active = 'k1'", "active = 'k2'"), ActiveKeyError, "names 'k2'"),
    "active is missing": (GOOD.replace("active = 'k1'\n", ""), ActiveKeyError, "names no key"),
    "active is no text": (GOOD.replace("active = 'k1'", "active = 5"), ActiveKeyError, "names 'int'"),
    "active names a staged key": (ring_text(*SECOND).replace("= 'k1'", "= 'k2'", 1), ActiveKeyError, "'k2'"),
    "no key is active": ("active = 'k1'\n" + ring_text(state="staged"), ActiveKeyError, "none"),
    "two active keys": (ring_text(*SECOND).replace("'staged'", "'active'"), ActiveKeyError, "k1, k2"),
    # tables
    "key = 3": ("version = 1\nkey = 3\n", RingFileError, "[[key]]"),
    "key = [3]": ("version = 1\nkey = [3]\n", RingFileError, "[[key]]"),
    "[key]": (GOOD.replace("[[key]]", "[key]"), RingFileError, "[[key]]"),
    "[index]": (ring_text(*INDEX).replace("[[index]]", "[index]"), RingFileError, "[[index]]"),
    "two indexes": (ring_text(*INDEX, *INDEX), RingFileError, "2 [[index]] entries"),
    # id
    "no id": (GOOD.replace("id = 'k1'\n", ""), RingFileError, "lacks the field 'id'"),
    "id = 5": (GOOD.replace("id = 'k1'", "id = 5"), KeyIdError, "not a key id"),
    "id = ['k1']": (GOOD.replace("id = 'k1'", "id = ['k1']"), KeyIdError, "not a key id"),
    "id in capitals": (GOOD.replace("id = 'k1'", "id = 'K1'"), KeyIdError, "'K1'"),
    "duplicate ids": (ring_text(*SECOND).replace("'k2'", "'k1'"), DuplicateKeyError, "'k1'"),
    # state
    "no state": (GOOD.replace("state = 'active'\n", ""), RingFileError, "lacks the field 'state'"),
    "unknown state": (ring_text(state="retired"), RingFileError, "none of staged, active"),
    "state in capitals": (ring_text(state="STAGED"), RingFileError, "'STAGED'"),
    "state = []": (GOOD.replace("state = 'active'", "state = ['active']"), RingFileError, "'list'"),
    "second state = []": (ring_text(*SECOND).replace("'staged'", "['x']"), RingFileError, "'list'"),
    # created, destroyed, check, suite
    "created = text": (ring_text("created = 'yesterday'"), RingFileError, "'created'"),
    "created = date": (ring_text("created = 2026-11-01"), RingFileError, "'created'"),
    "created = the year 0": (ring_text("created = 0001-01-01T00:00:00+14:00"), RingFileError, "'created'"),
    "created = the year 10000": (
        ring_text("created = 9999-12-31T23:00:00-14:00"),
        RingFileError,
        "'created'",
    ),
    "created = 5": (ring_text("created = 5"), RingFileError, "'created'"),
    "check = 5": (ring_text("check = 12345678"), RingFileError, "'check' is not a string"),
    "suite = 5": (ring_text("suite = 5"), RingFileError, "suite 'int' is not 'aes'"),
    "suite of ours": (ring_text("suite = 'xaes256gcm'"), RingFileError, "suite 'xaes256gcm'"),
    "active legacy key": (ring_text("suite = 'aes'"), KeyTransitionError, "only opens"),
    "unknown key field": (ring_text("chekc = '01234567'"), RingFileError, "unknown field 'chekc'"),
    # source
    "no source": (
        GOOD.replace("source = { file = 'k1.key' }", ""),
        RingFileError,
        "lacks the field 'source'",
    ),
    "source = text": (ring_text(source="'x'"), RingFileError, "exactly one"),
    "source = list": (ring_text(source="[{ file = 'k1.key' }]"), RingFileError, "exactly one"),
    "empty source": (ring_text(source="{}"), RingFileError, "exactly one"),
    "several sources": (ring_text(source="{ file = 'k1.key', env = 'X' }"), RingFileError, "exactly one"),
    "unknown source": (ring_text(source="{ vault = 'x' }"), RingFileError, "'vault' is not one of"),
    "file = 5": (ring_text(source="{ file = 5 }"), RingFileError, "'file' is a string"),
    "command = text": (ring_text(source="{ command = 'cat k1.key' }"), RingFileError, "list of words"),
    "inline = empty": (ring_text(source="{ inline = '' }"), RingFileError, "'inline' is a string"),
    "inline passphrase": (ring_text(source="{ inline = 'hunter2' }"), KeyMaterialError, "not a key"),
    # a destroyed key is a tombstone, and only that has a date of destruction
    "destroyed with inline": (
        ring_text(state="destroyed", source="{ inline = 'x' }"),
        RingFileError,
        "still in the ring",
    ),
    "active with outcome": (ring_text("material = 'left'"), RingFileError, "unknown field 'material'"),
    "destroyed, odd outcome": (
        ring_text("material = 'lost'", state="destroyed"),
        RingFileError,
        "not one of",
    ),
    "destroyed, outcome = []": (ring_text("material = []", state="destroyed"), RingFileError, "not one of"),
    # times and owner
    **{
        f"{field} = {name}": (ring_text(f"{field} = {value}", state="disabled"), RingFileError, f"'{field}'")
        for field in ("activated", "retired", "disabled", "compromised", "expires")
        for name, value in (("text", "'2026'"), ("date", "2026-11-01"), ("5", "5"), ("list", "[]"))
    },
    "owner = 5": (ring_text("owner = 5"), RingFileError, "'owner'"),
    "owner = []": (ring_text("owner = []"), RingFileError, "'owner'"),
    "owner of two lines": (ring_text(r'owner = "a\nb"'), RingFileError, "'owner'"),
    "active, and compromised": (
        ring_text("compromised = 2026-01-01T00:00:00Z"),
        RingFileError,
        "was compromised, and is active",
    ),
    # the thread store
    "[[threads]]": (ring_text("[[threads]]"), RingFileError, "[threads]"),
    "threads = text": ("threads = 'x'\n" + GOOD, RingFileError, "[threads]"),
    "threads without store": (ring_text("[threads]"), RingFileError, "lacks the field 'store'"),
    "threads with source": (
        ring_text("[threads]", "store = 'x'", "source = { file = 'x' }"),
        RingFileError,
        "unknown field 'source'",
    ),
    "store = ''": (ring_text("[threads]", "store = ''"), RingFileError, "'store' is not a path"),
    "store = 5": (ring_text("[threads]", "store = 5"), RingFileError, "'store' is not a path"),
    "store with a NUL": (
        ring_text("[threads]", r'store = "a\u0000"'),
        RingFileError,
        "'store' is not a path",
    ),
    # tables that are written as another kind of value
    "[[ledger]]": (ring_text("[[ledger]]"), RingFileError, "[ledger]"),
    "[wrapper]": (ring_text("[wrapper]"), RingFileError, "[[wrapper]]"),
    "database = [1]": ("database = [1]\n" + GOOD, RingFileError, "[[database]]"),
    "ledger = 5": ("ledger = 5\n" + GOOD, RingFileError, "[ledger]"),
    "active with date": (ring_text("destroyed = 2026-01-01T00:00:00Z"), RingFileError, "'destroyed'"),
    "destroyed = text": (
        "version = 1\n[[key]]\nid = 'k1'\nstate = 'destroyed'\ndestroyed = 'today'\n",
        RingFileError,
        "'destroyed'",
    ),
    # index
    "index without source": (ring_text("[[index]]", "id = 'index'"), RingFileError, "lacks the field"),
    "index with a key's id": (ring_text(*INDEX, "id = 'k1'"), DuplicateKeyError, "both called 'k1'"),
    "index with state": (ring_text(*INDEX, "state = 'active'"), RingFileError, "unknown field 'state'"),
    "index id = 5": (ring_text(*INDEX, "id = 5"), KeyIdError, "not a key id"),
    "index created = text": (ring_text(*INDEX, "created = 'x'"), RingFileError, "'created'"),
    "index check = 5": (ring_text(*INDEX, "check = 5"), RingFileError, "'check'"),
}


def test_the_ring_that_all_of_them_are_made_from_loads(tmp_path: Path) -> None:
    assert KeyRing.load(write_ring(tmp_path, GOOD)).ids == ("k1",)
    assert KeyRing.load(write_ring(tmp_path, ring_text(*SECOND, *INDEX))).ids == ("k1", "k2")


def test_rings_that_just_fit(tmp_path: Path) -> None:
    """The largest, a ruler of dots in a comment, and a key called as an index without an id is."""
    KeyRing.load(write_ring(tmp_path, GOOD + "#".ljust((1 << 16) - len(GOOD), ".")))
    KeyRing.load(write_ring(tmp_path, ring_text(*INDEX).replace("'k1'", "'index'")))


@pytest.mark.parametrize("name", CASES)
def test_each_mistake_has_its_error(tmp_path: Path, name: str) -> None:
    """The class, the words in the message, and a hint that names a fix."""
    text, error, words = CASES[name]
    with pytest.raises(KeyRingError) as caught:
        KeyRing.load(write_ring(tmp_path, text))
    assert type(caught.value) is error
    assert words in str(caught.value)
    assert caught.value.hint
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


def test_a_date_without_a_time_is_answered_with_one_that_has_it(tmp_path: Path) -> None:
    """`keys generate --expires` takes 2026-11-01, and writes what a person cannot guess."""
    with pytest.raises(RingFileError) as caught:
        KeyRing.load(write_ring(tmp_path, ring_text("expires = 2026-11-01")))
    assert caught.value.hint == "write it as 2027-06-01T00:00:00Z"
    time = caught.value.hint.split()[-1]
    assert KeyRing.load(write_ring(tmp_path, ring_text(f"expires = {time}"))).ids == ("k1",)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"version = 1\n# \xe4\n", "version = 1".encode("utf-16")])
def test_not_utf_8(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(RingFileError, match="not UTF-8"):
        KeyRing.load(write(tmp_path / "keys.toml", data))


def test_ring_file_that_is_a_link(tmp_path: Path) -> None:
    write_ring(tmp_path, GOOD)
    (tmp_path / "link").symlink_to("keys.toml")
    assert KeyRing.load(tmp_path / "link").ids == KeyRing.load(tmp_path / "keys.toml").ids


def test_ring_file_that_is_a_directory(tmp_path: Path) -> None:
    with pytest.raises(FileLinkError):
        KeyRing.load(tmp_path)


def test_no_source_is_asked_before_ids_and_states_are_right(tmp_path: Path) -> None:
    """A command among them could have effects."""
    command = f"{{ command = ['touch', '{tmp_path}/ran'] }}"
    for text in (
        ring_text(*SECOND, source=command).replace("'k2'", "'k1'"),
        ring_text(*SECOND, source=command).replace("'staged'", "'active'"),
        ring_text(source=command).replace("active = 'k1'", "active = 'k9'"),
    ):
        with pytest.raises((DuplicateKeyError, ActiveKeyError)):
            KeyRing.load(write_ring(tmp_path, text, material=NEW))
    assert not (tmp_path / "ran").exists()
