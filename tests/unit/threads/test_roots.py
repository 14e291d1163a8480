"""Roots of logs: the published answers of the reference implementation of RFC 6962, and the definition."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.threads.roots import Root, line_of
from sealpoint.threads.store import Event, Head, Kind, Spot

# Source: certificate-transparency, cpp/merkletree/merkle_tree_test.cc.
LEAVES = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("number", range(len(ROOTS)))
def test_roots_are_those_that_are_published(number: int) -> None:
    root = Root()
    for leaf in LEAVES[:number]:
        root.add(bytes.fromhex(leaf))
    assert (root.lines, root.digest().hex()) == (number, ROOTS[number])


def defined(lines: list[bytes]) -> bytes:
    """The definition of RFC 6962, section 2.1, in its own words."""
    if not lines:
        return sha256(b"").digest()
    if len(lines) == 1:
        return sha256(b"\0" + lines[0]).digest()
    half = 1 << (len(lines) - 1).bit_length() - 1
    return sha256(b"\1" + defined(lines[:half]) + defined(lines[half:])).digest()


@given(st.lists(st.binary(max_size=40), max_size=80))
def test_roots_are_as_defined(lines: list[bytes]) -> None:
    root = Root()
    for line in lines:
        root.add(line)
    assert root.digest() == defined(lines)


EVENT = Event(7, Head(Spot("t", "", "1"), Kind.PUT, b"m" * 16), 9)


def test_line_of_an_event() -> None:
    assert line_of(EVENT) == b'[7,0,"6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d","t","","1",9]'


@pytest.mark.parametrize(
    "other",
    [
        EVENT._replace(seq=8),
        EVENT._replace(at=8),
        EVENT._replace(head=EVENT.head._replace(kind=Kind.LEAVING)),
        EVENT._replace(head=EVENT.head._replace(mac=b"n" * 16)),
        EVENT._replace(head=EVENT.head._replace(spot=Spot('t","', "", "1"))),
        EVENT._replace(head=EVENT.head._replace(spot=Spot("t", "1", ""))),
        EVENT._replace(head=EVENT.head._replace(spot=Spot("é\n\0", "", "1"))),
    ],
)
def test_another_event_has_another_line(other: Event) -> None:
    line = line_of(other)
    assert line != line_of(EVENT)
    assert line.isascii()
    assert b"\n" not in line
