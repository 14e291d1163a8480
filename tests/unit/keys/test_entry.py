"""Ring files that say something wrong: every field, each with the error and the words that tell what."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealpoint.crypto import KeyRing
from sealpoint.errors import (
    KeyIdError,
    KeyMaterialError,
    KeyRingError,
    KeyTransitionError,
    RingFileError,
)
from sealpoint.keys.ringfile import read_ring_entries
from tests.support.keys.rings import NEW, ring_text, write, write_ring

GOOD = ring_text()
SECOND = ["[[key]]", "id = 'k2'", "state = 'staged'", "source = { file = 'k1.key' }"]
LEGACY = ["[[key]]", "state = 'decrypt-only'", "suite = 'aes'", "source = { inline = '0123456789abcdef' }"]
INDEX = ["[[index]]", "source = { file = 'k1.key' }"]

Case = tuple[str, str] | tuple[str, type[KeyRingError], str]
CASES: dict[str, Case] = {
    # the file
    "empty": ("", "lacks the field 'version'"),
    "no TOML": ("version = 1\nactive = k1\n", "line 2"),
    "duplicate field": ("version = 1\nversion = 1\n", "not TOML"),
    "deep nesting": ("a = " + "[" * 50_000, "nested too deeply"),
    "deep tables": ("a = " + "{a = " * 10_000, "nested too deeply"),
    "long dotted key": ("a" + ".a" * 30_000 + " = 1", "a line has over 64 dots"),
    "too large": (GOOD + "#" * (1 << 16), "a ring file has at most 65536"),
    "endless number": ("version = " + "1" * 10_000, "too many digits"),
    "unknown field": ("colour = 'red'\n" + GOOD, "unknown field 'colour'"),
    # version
    "no version": (GOOD.replace("version = 1\n", ""), "lacks the field 'version'"),
    "version 0": (GOOD.replace("= 1\n", "= 0\n"), "version = 1"),
    "version 2": (GOOD.replace("= 1\n", "= 2\n"), "version = 1"),
    "version '1'": (GOOD.replace("= 1\n", "= '1'\n"), "version = 1"),
    "version true": (GOOD.replace("= 1\n", "= true\n"), "version = 1"),
    "version huge": (GOOD.replace("= 1\n", f"= 0x{'f' * 9000}\n"), "version = 1"),
    # active
    "active names no key": (GOOD.replace("active = 'k1'", "active = 'k2'"), RingFileError, "names 'k2'"),
    "active is missing": (GOOD.replace("active = 'k1'\n", ""), RingFileError, "names no key"),
    "active is no text": (GOOD.replace("active = 'k1'", "active = 5"), RingFileError, "names 'int'"),
    "active names a staged key": (ring_text(*SECOND).replace("= 'k1'", "= 'k2'", 1), RingFileError, "'k2'"),
    "no key is active": ("active = 'k1'\n" + ring_text(state="staged"), RingFileError, "none"),
    "two active keys": (ring_text(*SECOND).replace("'staged'", "'active'"), RingFileError, "k1, k2"),
    # tables
    "key = 3": ("version = 1\nkey = 3\n", "[[key]]"),
    "key = [3]": ("version = 1\nkey = [3]\n", "[[key]]"),
    "[key]": (GOOD.replace("[[key]]", "[key]"), "[[key]]"),
    "[index]": (ring_text(*INDEX).replace("[[index]]", "[index]"), "[[index]]"),
    "two indexes": (ring_text(*INDEX, *INDEX), "2 [[index]] entries"),
    # id
    "no id": (GOOD.replace("id = 'k1'\n", ""), "lacks the field 'id'"),
    "id = 5": (GOOD.replace("id = 'k1'", "id = 5"), KeyIdError, "not a key id"),
    "id = ['k1']": (GOOD.replace("id = 'k1'", "id = ['k1']"), KeyIdError, "not a key id"),
    "duplicate ids": (ring_text(*SECOND).replace("'k2'", "'k1'"), KeyIdError, "'k1'"),
    # state
    "no state": (GOOD.replace("state = 'active'\n", ""), "lacks the field 'state'"),
    "unknown state": (ring_text(state="retired"), "not one of staged, active"),
    "state = []": (GOOD.replace("state = 'active'", "state = ['active']"), "'list'"),
    "second state = []": (ring_text(*SECOND).replace("'staged'", "['x']"), "'list'"),
    # created, destroyed, check, suite
    "created = text": (ring_text("created = 'yesterday'"), "'created'"),
    "created = date": (ring_text("created = 2026-11-01"), "'created'"),
    "created = the year 0": (ring_text("created = 0001-01-01T00:00:00+14:00"), "'created'"),
    "created = the year 10000": (ring_text("created = 9999-12-31T23:00:00-14:00"), "'created'"),
    "check = 5": (ring_text("check = 12345678"), "'check' is not a string"),
    "suite = 5": (ring_text("suite = 5"), "suite 'int' is not 'aes'"),
    "suite of ours": (ring_text("suite = 'xaes256gcm'"), "suite 'xaes256gcm'"),
    "active legacy key": (ring_text("suite = 'aes'"), KeyTransitionError, "only opens"),
    # source
    "no source": (GOOD.replace("source = { file = 'k1.key' }", ""), "lacks the field 'source'"),
    "source = text": (ring_text(source="'x'"), "exactly one"),
    "empty source": (ring_text(source="{}"), "exactly one"),
    "several sources": (ring_text(source="{ file = 'k1.key', env = 'X' }"), "exactly one"),
    "unknown source": (ring_text(source="{ vault = 'x' }"), "'vault' is not one of"),
    **{
        f"{kind} = {value}": (ring_text(source=f"{{ {kind} = {value} }}"), f"'{kind}' must be a")
        for kind in ("file", "env", "credential", "inline", "command")
        for value in ("5", "''", "[]", "['a', 5]", "{}")
    },
    "command = text": (ring_text(source="{ command = 'cat k1.key' }"), "no shell"),
    "credential = path": (ring_text(source="{ credential = 'a/b' }"), "a name, not a path"),
    "credential = ..": (ring_text(source="{ credential = '..' }"), "a name, not a path"),
    "inline passphrase": (ring_text(source="{ inline = 'hunter2' }"), KeyMaterialError, "expected 32 bytes"),
    # a destroyed key is a tombstone, and only that has a date of destruction
    "destroyed with inline": (ring_text(state="destroyed", source="{ inline = 'x' }"), "still in the ring"),
    "active with outcome": (ring_text("material = 'left'"), "unknown field 'material'"),
    "destroyed, odd outcome": (ring_text("material = 'lost'", state="destroyed"), "not one of"),
    "destroyed, outcome = []": (ring_text("material = []", state="destroyed"), "not one of"),
    "active with date": (ring_text("destroyed = 2026-01-01T00:00:00Z"), "'destroyed'"),
    "destroyed = text": (
        "version = 1\n[[key]]\nid = 'k1'\nstate = 'destroyed'\ndestroyed = 'today'\n",
        "'destroyed'",
    ),
    # times and owner
    **{
        f"{field} = date": (ring_text(f"{field} = 2026-11-01", state="disabled"), f"'{field}'")
        for field in ("activated", "retired", "disabled", "compromised", "expires")
    },
    "owner = 5": (ring_text("owner = 5"), "'owner'"),
    "owner of two lines": (ring_text(r'owner = "a\nb"'), "'owner'"),
    "active, and compromised": (
        ring_text("compromised = 2026-01-01T00:00:00Z"),
        "was compromised, but has state active",
    ),
    # the thread store
    "[[threads]]": (ring_text("[[threads]]"), "[threads]"),
    "threads without store": (ring_text("[threads]"), "lacks the field 'store'"),
    "threads with source": (
        ring_text("[threads]", "store = 'x'", "source = { file = 'x' }"),
        "unknown field 'source'",
    ),
    "store = ''": (ring_text("[threads]", "store = ''"), "'store' is not a path"),
    "store = 5": (ring_text("[threads]", "store = 5"), "'store' is not a path"),
    "store with a NUL": (ring_text("[threads]", r'store = "a\u0000"'), "'store' is not a path"),
    # index
    "index without source": (ring_text("[[index]]", "id = 'index'"), "lacks the field"),
    "index with a key's id": (ring_text(*INDEX, "id = 'k1'"), KeyIdError, "both called 'k1'"),
    "index with state": (ring_text(*INDEX, "state = 'active'"), "unknown field 'state'"),
    "index id = 5": (ring_text(*INDEX, "id = 5"), KeyIdError, "not a key id"),
    "index created = text": (ring_text(*INDEX, "created = 'x'"), "'created'"),
    "index check = 5": (ring_text(*INDEX, "check = 5"), "'check'"),
    "index source = 5": (ring_text("[[index]]", "source = { inline = 5 }"), "'inline' must be a"),
    "two index sources": (ring_text("[[index]]", "source = { file = 'k', env = 'k' }"), "exactly one"),
    "two legacy keys": (
        ring_text(*LEGACY, "id = 'a'", *LEGACY, "id = 'b'"),
        KeyRingError,
        "do not name the key",
    ),
}


def test_the_ring_that_all_of_them_are_made_from_loads(tmp_path: Path) -> None:
    """And the largest, with a ruler of dots in a comment, and a key called as an index without an id is."""
    for text in (
        GOOD,
        ring_text(*SECOND, *INDEX),
        GOOD + "#".ljust((1 << 16) - len(GOOD), "."),
        ring_text(*INDEX).replace("'k1'", "'index'"),
    ):
        KeyRing.load(write_ring(tmp_path, text))


@pytest.mark.parametrize("name", CASES)
def test_each_mistake_has_its_error(tmp_path: Path, name: str) -> None:
    """The class, the words in the message, and a hint that names a fix; the same without the keys."""
    text, *classes, words = CASES[name]
    (error,) = classes or [RingFileError]
    with pytest.raises(KeyRingError) as caught:
        KeyRing.load(write_ring(tmp_path, text))
    assert type(caught.value) is error
    assert words in str(caught.value)
    assert caught.value.hint
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    if error is not KeyMaterialError:  # which only the material shows
        (tmp_path / "k1.key").unlink()
        with pytest.raises(KeyRingError) as reading:
            read_ring_entries(tmp_path / "keys.toml")
        assert (type(reading.value), str(reading.value)) == (error, str(caught.value))


def test_a_date_without_a_time_is_answered_with_one_that_has_it(tmp_path: Path) -> None:
    """`keys generate --expires` takes 2026-11-01, and writes what a person cannot guess."""
    with pytest.raises(RingFileError) as caught:
        KeyRing.load(write_ring(tmp_path, ring_text("expires = 2026-11-01")))
    assert caught.value.hint == "write it as 2027-06-01T00:00:00Z"
    time = caught.value.hint.split()[-1]
    assert KeyRing.load(write_ring(tmp_path, ring_text(f"expires = {time}"))).ids == ("k1",)


@pytest.mark.parametrize("data", [b"version = 1\n# \xe4\n", "version = 1".encode("utf-16")])
def test_not_utf_8(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(RingFileError, match="not UTF-8"):
        KeyRing.load(write(tmp_path / "keys.toml", data))


def test_no_source_is_asked_before_ids_and_states_are_right(tmp_path: Path) -> None:
    """A command among them could have effects."""
    command = f"{{ command = ['touch', '{tmp_path}/ran'] }}"
    for text in (
        ring_text(*SECOND, source=command).replace("'k2'", "'k1'"),
        ring_text(*SECOND, source=command).replace("'staged'", "'active'"),
        ring_text(source=command).replace("active = 'k1'", "active = 'k9'"),
    ):
        with pytest.raises((KeyIdError, RingFileError)):
            KeyRing.load(write_ring(tmp_path, text, material=NEW))
    assert not (tmp_path / "ran").exists()
