"""A tree whose edges hold as many tokens as prompts have in common. What must not live here: other indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class _Node:
    edge: list[int]
    """Tokens from the node above to this one."""
    children: dict[int, _Node] = field(default_factory=dict)
    """By the first token of their edge."""
    used: int = 0
    pins: int = 0


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return length


class RadixTree:
    """Prompts that begin alike share a path; the one that leaves it within an edge splits the edge."""

    def __init__(self) -> None:
        self._root, self._clock = _Node([]), 0
        self.nodes = 0
        """Edges."""

    def insert(self, tokens: Sequence[int]) -> None:
        """Know one more."""
        path, at = self._walk(tokens)
        node, inside = path[-1]
        if inside < len(node.edge):
            self._split(node, inside)
        if at < len(tokens):
            node.children[tokens[at]] = _Node(list(tokens[at:]), used=self._clock)
            self.nodes += 1

    def match(self, tokens: Sequence[int]) -> int:
        """Tokens that the longest known beginning has."""
        return self._walk(tokens)[1]

    def pin(self, tokens: Sequence[int], count: int = 1) -> None:
        """Somebody reads what is known of ``tokens``; ``count`` -1: no longer."""
        for node, _ in self._walk(tokens)[0]:
            node.pins += count

    def evict(self) -> list[int] | None:
        """Forget the leaf unused for longest of those that nobody reads; its edge, None where there is none."""
        leaves = [(above, node) for above, node in self._leaves() if not node.pins]
        if not leaves:
            return None
        above, leaf = min(leaves, key=lambda pair: pair[1].used)
        del above.children[leaf.edge[0]]
        self.nodes -= 1
        return leaf.edge

    def _walk(self, tokens: Sequence[int]) -> tuple[list[tuple[_Node, int]], int]:
        """The nodes on the way, each with how much of its edge is shared; and how many tokens are in all."""
        self._clock += 1
        node, at = self._root, 0
        path = [(node, 0)]
        while at < len(tokens) and (following := node.children.get(tokens[at])) is not None:
            node, edge = following, following.edge
            node.used = self._clock
            part = tokens[at : at + len(edge)]
            shared = len(edge) if part == edge else _common(edge, part)
            path.append((node, shared))
            at += shared
            if shared < len(edge):
                break
        return path, at

    def _split(self, node: _Node, at: int) -> None:
        """The first ``at`` tokens of its edge stay its own; the rest goes to a node below."""
        below = _Node(node.edge[at:], node.children, node.used, node.pins)
        node.edge, node.children = node.edge[:at], {below.edge[0]: below}
        self.nodes += 1

    def _leaves(self) -> list[tuple[_Node, _Node]]:
        found, waiting = [], [self._root]
        while waiting:
            above = waiting.pop()
            for node in above.children.values():
                if node.children:
                    waiting.append(node)
                else:
                    found.append((above, node))
        return found
