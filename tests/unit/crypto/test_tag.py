"""Type tags: what is one, what is none, and that both are told without a key."""

from __future__ import annotations

import pytest

from sealpoint.crypto import Tag
from sealpoint.errors import KeyIdError, TagError, UnknownSuiteError
from sealpoint.keys.ids import require_key_id

TAGS = {
    "msgpack+cobblestone256@k26b": Tag("msgpack", "cobblestone256", (), "k26b"),
    "bytes+xaes256gcm@0": Tag("bytes", "xaes256gcm", (), "0"),
    "msgpack+cobblestone256.row@k26b": Tag("msgpack", "cobblestone256", ("row",), "k26b"),
    "msgpack+cobblestone256.dek.row@a.b-c": Tag("msgpack", "cobblestone256", ("dek", "row"), "a.b-c"),
    "json+aes": Tag("json", "aes"),
    "+xaes256gcm@k1": Tag("", "xaes256gcm", (), "k1"),
}
LONGEST = "i" * 24 + "+cobblestone256@" + "k" * 24

MALFORMED = [
    "",
    "msgpack",
    "msgpack+cobblestone256",
    "msgpack+cobblestone256@",
    "msgpack+cobblestone256@k1@k2",
    "msgpack+cobblestone256@k1+",
    "+msgpack+cobblestone256@k1",
    "msgpack++cobblestone256@k1",
    "msg pack+cobblestone256@k1",
    "msgp\x00ck+cobblestone256@k1",
    "msgpäck+cobblestone256@k1",
    "msgpack+cobblestone256@K1",
    "msgpack+cobblestone256@-k1",
    "msgpack+cobblestone256@.k1",
    "msgpack+cobblestone256@k_1",
    "msgpack+cobblestone256@k1\n",
    "msgpack+cobblestone256@k1:k2",
    "msgpack+cobblestone256@" + "k" * 25,
    "i" + LONGEST,
]
UNKNOWN_SUITE = [
    "+",
    "msgpack+",
    "msgpack+@k1",
    "msgpack+aes@k1",
    "msgpack+aes.row",
    "msgpack+aes ",
    "msgpack+XAES256GCM@k1",
    "msgpack+ cobblestone256@k1",
    "msgpack+cobblestone512@k1",
    "msgpack+rot13@k1",
    "msgpack+cobblestone256:k1",
    "msgpack+aes256gcm@k1",
    "msgpack+aes256gcm:k1",
]
UNKNOWN_FLAG = [
    "msgpack+cobblestone256.@k1",
    "msgpack+cobblestone256.zip@k1",
    "msgpack+cobblestone256.ROW@k1",
    "msgpack+cobblestone256.row.row@k1",
    "msgpack+cobblestone256.row.dek@k1",
    "msgpack+cobblestone256.row.@k1",
    "msgpack+cobblestone256..row@k1",
]


@pytest.mark.parametrize("text", TAGS)
def test_parse_reads_the_parts(text: str) -> None:
    assert Tag.parse(text) == TAGS[text]


@pytest.mark.parametrize("text", TAGS)
def test_format_writes_them_back(text: str) -> None:
    assert TAGS[text].format() == text


def test_sixty_four_characters_are_a_tag() -> None:
    assert len(LONGEST) == 64
    assert Tag.parse(LONGEST).format() == LONGEST


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_tag_is_refused(text: str) -> None:
    with pytest.raises(TagError) as caught:
        Tag.parse(text)
    assert type(caught.value) is TagError


@pytest.mark.parametrize("text", UNKNOWN_SUITE)
def test_unknown_suite_is_refused(text: str) -> None:
    with pytest.raises(UnknownSuiteError):
        Tag.parse(text)


@pytest.mark.parametrize("text", UNKNOWN_FLAG)
def test_unknown_flag_is_refused(text: str) -> None:
    with pytest.raises(TagError, match="has flags"):
        Tag.parse(text)


@pytest.mark.parametrize("value", [None, 5, b"msgpack+cobblestone256@k1", ["msgpack+aes"]])
def test_what_is_no_text_is_no_tag(value: object) -> None:
    """SQLite returns an INTEGER or a BLOB where somebody put one."""
    with pytest.raises(TagError):
        Tag.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tag",
    [
        Tag("msg+pack", "cobblestone256", (), "k1"),
        Tag("msgpack", "cobblestone256", ("row", "dek"), "k1"),
        Tag("msgpack", "cobblestone256.row", (), "k1"),
        Tag("msgpack", "cobblestone256", (), None),
        Tag("msgpack", "aes", (), "k1"),
        Tag("i" * 40, "cobblestone256", (), "k" * 24),
    ],
)
def test_format_refuses_what_would_not_read_back(tag: Tag) -> None:
    with pytest.raises(TagError):
        tag.format()


def test_a_foreign_tag_is_quoted_short_and_escaped() -> None:
    """A tag comes from the database: it must not fill a log, nor send codes to a terminal."""
    with pytest.raises(TagError) as caught:
        Tag.parse("\x1b[2J" + "x" * 1_000_000)
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("key_id", ["k", "0", "k26b", "a.b-c", "k" * 24])
def test_key_id(key_id: str) -> None:
    assert require_key_id(key_id) == key_id


@pytest.mark.parametrize(
    "key_id", ["", "K", ".k", "-k", "k_1", "k 1", "k1\n", "k@1", "k:1", "k+1", "ä", "k" * 25, None, 5]
)
def test_malformed_key_id_is_refused(key_id: object) -> None:
    with pytest.raises(KeyIdError):
        require_key_id(key_id)
