"""Merkle trees: Certificate Transparency's vectors, and the laws of roots and proofs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.merkle import Tree, leaf_hash, make_inclusion_proof, node_hash, root_of_proof

# Source: certificate-transparency, cpp/merkletree/merkle_tree_test.cc (leaves, roots and paths).
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
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
PATHS = {  # (index, size)
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}

leaves = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


def defined(data: list[bytes]) -> bytes:
    """The root as RFC 6962 defines it, by recursion."""
    if len(data) < 2:
        return leaf_hash(data[0]) if data else bytes.fromhex(ROOTS[0])
    middle = 1
    while middle * 2 < len(data):
        middle *= 2
    return node_hash(defined(data[:middle]), defined(data[middle:]))


@pytest.mark.parametrize("size", range(9))
def test_published_roots(size: int) -> None:
    assert Tree.of(LEAVES[:size]).root().hex() == ROOTS[size]


@pytest.mark.parametrize(("place", "path"), PATHS.items())
def test_published_paths(place: tuple[int, int], path: list[str]) -> None:
    assert [node.hex() for node in make_inclusion_proof(LEAVES, *place)] == path


@given(leaves)
def test_root_is_the_defined_one(data: list[bytes]) -> None:
    assert Tree.of(data).root() == defined(data)


@given(leaves, st.data())
def test_tree_goes_on_from_its_edge(data: list[bytes], draw: st.DataObject) -> None:
    """A tree that is known by size and edge alone grows as the whole one."""
    cut = draw.draw(st.integers(0, len(data)))
    first = Tree.of(data[:cut])
    again = Tree.from_edge(first.size, first.edge)
    for leaf in data[cut:]:
        again.add(leaf)
    assert (again.size, again.root()) == (len(data), Tree.of(data).root())
    assert first.size == cut  # the copy has an edge of its own


@given(leaves, st.data())
def test_proof_leads_to_the_root(data: list[bytes], draw: st.DataObject) -> None:
    size = draw.draw(st.integers(1, len(data)))
    index = draw.draw(st.integers(0, size - 1))
    proof = make_inclusion_proof(data, index, size)
    assert root_of_proof(leaf_hash(data[index]), index, size, proof) == Tree.of(data[:size]).root()


@given(leaves, st.data())
def test_changed_proof_does_not(data: list[bytes], draw: st.DataObject) -> None:
    """Another leaf, place, length or hash leads to another root, or to none."""
    size, root = len(data), Tree.of(data).root()
    index = draw.draw(st.integers(0, size - 1))
    proof, leaf = list(make_inclusion_proof(data, index, size)), leaf_hash(data[index])
    changes: list[tuple[bytes, int, list[bytes]]] = [
        (leaf_hash(b"another"), index, proof),
        (leaf, index, [*proof, leaf]),
    ]
    if proof:
        at = draw.draw(st.integers(0, len(proof) - 1))
        bit = 1 << draw.draw(st.integers(0, 255))
        flipped = (int.from_bytes(proof[at], "big") ^ bit).to_bytes(32, "big")
        changes += [
            (leaf, index, [*proof[:at], flipped, *proof[at + 1 :]]),
            (leaf, index, proof[:-1]),
        ]
    other = draw.draw(st.integers(0, size - 1))
    if data[other] != data[index]:
        changes.append((leaf, other, list(make_inclusion_proof(data, other, size))))
    for what, where, path in changes:
        try:
            assert root_of_proof(what, where, size, path) != root
        except ValueError:
            continue


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 3), (8, 8)])
def test_place_outside_the_tree_is_refused(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="has no leaf"):
        make_inclusion_proof(LEAVES, index, size)
    with pytest.raises(ValueError, match="has no leaf"):
        root_of_proof(b"", index, size, [])
    with pytest.raises(ValueError, match="fewer than 9"):
        make_inclusion_proof(LEAVES, 3, 9)


@pytest.mark.parametrize(("size", "edge"), [(3, [b"0" * 32]), (1, [b"short"]), (-1, [])])
def test_edge_of_another_tree_is_refused(size: int, edge: list[bytes]) -> None:
    with pytest.raises(ValueError, match="does not have this edge"):
        Tree.from_edge(size, edge)
