"""Merkle trees of RFC 6962, to which leaves are appended.

    leaf    SHA-256 over 00 and the bytes of the leaf
    node    SHA-256 over 01, the left and the right hash; the left subtree is the largest full subtree
    empty   SHA-256 over nothing

A `Tree` holds no leaves, but only the roots of its full subtrees: one hash for each 1 of its size in binary.
Source: RFC 6962, section 2.1; the check of a proof: RFC 9162, section 2.1.3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from typing import Final

HASH_BYTES: Final = 32


def leaf_hash(data: bytes) -> bytes:
    """Return the hash, 32 bytes, of a leaf with the contents ``data``."""
    return sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash, 32 bytes, of a node from the hashes of both children."""
    return sha256(b"\1" + left + right).digest()


class Tree:
    """A Merkle tree to which leaves are appended.

    Attributes:
        size: Number of leaves.
    """

    __slots__ = ("_edge", "size")

    def __init__(self) -> None:
        self.size = 0
        self._edge = list[bytes]()  # roots of full subtrees, the greatest first

    @classmethod
    def of(cls, leaves: Iterable[bytes]) -> Tree:
        """Return a tree with these leaves, in their order."""
        tree = cls()
        for leaf in leaves:
            tree.add(leaf)
        return tree

    @classmethod
    def from_edge(cls, size: int, edge: Sequence[bytes]) -> Tree:
        """Return the tree of ``size`` leaves whose property `edge` is ``edge``; the leaves are not needed."""
        if size < 0 or size.bit_count() != len(edge) or any(len(one) != HASH_BYTES for one in edge):
            raise ValueError(f"a tree of {size} leaves does not have this edge")
        tree = cls()
        tree.size, tree._edge = size, list(edge)
        return tree

    @property
    def edge(self) -> tuple[bytes, ...]:
        """The root hashes of the full subtrees, largest first: all that is needed to append leaves."""
        return tuple(self._edge)

    def add(self, leaf: bytes) -> None:
        """Append a leaf with the contents ``leaf``."""
        node = leaf_hash(leaf)
        size, edge = self.size, self._edge
        while size & 1:  # the last subtree is as large as the new one
            node = node_hash(edge.pop(), node)
            size >>= 1
        edge.append(node)
        self.size += 1

    def root(self) -> bytes:
        """Return the root hash, 32 bytes, of the tree with the present leaves."""
        if not self._edge:
            return sha256().digest()
        *others, node = self._edge
        for left in reversed(others):
            node = node_hash(left, node)
        return node

    def copy(self) -> Tree:
        """Return a copy; leaves that are appended to the copy do not change this tree."""
        return Tree.from_edge(self.size, self._edge)


def make_inclusion_proof(leaves: Iterable[bytes], index: int, size: int) -> tuple[bytes, ...]:
    """Return the proof that a leaf is in a tree: the sibling hashes on its path to the root, lowest first."""
    _require_index(index, size)
    around = [(start, end, Tree()) for start, end in _ranges_around(index, 0, size)]
    source = iter(leaves)
    # The ranges and the leaf cover the whole tree, so one pass over the leaves fills all of them.
    for start, end, tree in sorted([*around, (index, index + 1, Tree())], key=itemgetter(0)):
        for leaf in islice(source, end - start):
            tree.add(leaf)
        if tree.size < end - start:
            raise ValueError(f"there are fewer than {size} leaves")
    return tuple(tree.root() for _, _, tree in around)


def root_of_proof(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes:
    """Return the root hash computed from a leaf hash and a proof, to compare with a trusted root hash."""
    _require_index(index, size)
    node, last = leaf, size - 1
    for sibling in proof:
        if last == 0:
            raise ValueError("the proof is too long")
        if index & 1 or index == last:
            node = node_hash(sibling, node)
            while index and not index & 1:  # a node at the right edge without a sibling is moved up
                index, last = index >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        index, last = index >> 1, last >> 1
    if last:
        raise ValueError("the proof is too short")
    return node


def _require_index(index: int, size: int) -> None:
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")


def _ranges_around(index: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield, for each sibling on the path from a leaf to the root, the range of leaves below the sibling."""
    if end - start == 1:
        return
    middle = start + (1 << (end - start - 1).bit_length() - 1)
    if index < middle:
        yield from _ranges_around(index, start, middle)
        yield middle, end
    else:
        yield from _ranges_around(index, middle, end)
        yield start, middle
