"""Type tags: what is one, what is none, and that both are told without a key."""

from __future__ import annotations

import pytest

from sealpoint.crypto import Tag
from sealpoint.errors import KeyIdError, TagError
from sealpoint.seal.keys import require_key_id

TAGS = {
    "msgpack+cobblestone256@k26b": Tag("msgpack", "cobblestone256", (), "k26b"),
    "bytes+xaes256gcm@0": Tag("bytes", "xaes256gcm", (), "0"),
    "msgpack+cobblestone256.row@k26b": Tag("msgpack", "cobblestone256", ("row",), "k26b"),
    "msgpack+cobblestone256.zst@a.b-c": Tag("msgpack", "cobblestone256", ("zst",), "a.b-c"),
    "bytearray+cobblestone256.zst.row@k1": Tag("bytearray", "cobblestone256", ("zst", "row"), "k1"),
    "json+aes": Tag("json", "aes"),
    "+xaes256gcm@k1": Tag("", "xaes256gcm", (), "k1"),
}
LONGEST = "i" * 24 + "+cobblestone256@" + "k" * 24  # 64 characters
TAGS[LONGEST] = Tag("i" * 24, "cobblestone256", (), "k" * 24)

MALFORMED: list[object] = [
    *("", "msgpack", "msgpack+cobblestone256", "msgpack+cobblestone256@", "msgpack++cobblestone256@k1"),
    *(f"{inner}+cobblestone256@k1" for inner in ("+msgpack", "msg pack", "msgp\x00ck", "msgpäck")),
    *(
        f"msgpack+cobblestone256@{key}"
        for key in ("k1@k2", "k1+", "K1", "-k1", ".k1", "k_1", "k1\n", "k1:k2")
    ),
    *("msgpack+cobblestone256@" + "k" * 25, "i" + LONGEST),
    *(
        None,
        5,
        b"msgpack+cobblestone256@k1",
        ["msgpack+aes"],
    ),  # SQLite returns any type
]
UNKNOWN_SUITE: list[object] = [
    *("+", "msgpack+", "msgpack+@k1", "msgpack+aes@k1", "msgpack+aes.row", "msgpack+aes "),
    *(f"msgpack+{suite}@k1" for suite in ("XAES256GCM", " cobblestone256", "cobblestone512", "aes256gcm")),
    *("msgpack+cobblestone256:k1", "msgpack+aes256gcm:k1"),
]
UNKNOWN_FLAG: list[object] = [
    f"msgpack+cobblestone256{flags}@k1"
    for flags in (
        ".",
        ".zip",
        ".ROW",
        ".row.row",
        ".dek",
        ".dek.row",
        ".row.zst",
        ".zst.zst",
        ".row.",
        "..row",
    )
]


def test_parse_reads_the_parts_and_format_writes_them_back() -> None:
    for text, tag in TAGS.items():
        assert Tag.parse(text) == tag
        assert tag.format() == text


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (MALFORMED, TagError, None),
        (UNKNOWN_SUITE, TagError, None),
        (UNKNOWN_FLAG, TagError, "has flags"),
    ],
)
def test_what_is_no_tag_is_refused(texts: list[object], error: type[TagError], message: str | None) -> None:
    for text in texts:
        with pytest.raises(error, match=message) as caught:
            Tag.parse(text)  # type: ignore[arg-type]
        assert type(caught.value) is error, text


def test_format_refuses_what_would_not_read_back() -> None:
    for tag in (
        Tag("msg+pack", "cobblestone256", (), "k1"),
        Tag("msgpack", "cobblestone256", ("row", "zst"), "k1"),
        Tag("msgpack", "cobblestone256.row", (), "k1"),
        Tag("msgpack", "cobblestone256", (), None),
        Tag("msgpack", "aes", (), "k1"),
    ):
        with pytest.raises(TagError):
            tag.format()


def test_a_foreign_tag_is_quoted_short_and_escaped() -> None:
    """A tag comes from the database: it must not fill a log, nor send codes to a terminal."""
    with pytest.raises(TagError) as caught:
        Tag.parse("\x1b[2J" + "x" * 1_000_000)
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


def test_key_id() -> None:
    for key_id in ("k", "0", "k26b", "a.b-c", "k" * 24):
        assert require_key_id(key_id) == key_id
    for wrong in ("", "K", ".k", "-k", "k_1", "k 1", "k1\n", "k@1", "k:1", "k+1", "ä", "k" * 25, None, 5):
        with pytest.raises(KeyIdError):
            require_key_id(wrong)
