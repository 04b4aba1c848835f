"""Indexes of prompts: the same longest beginning from all, a tree that splits, forgets and keeps what is read."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.engine.indexes.linear import LinearScan
from aiperf.workloads.engine.indexes.radix import RadixTree
from aiperf.workloads.engine.indexes.trie import TokenTrie
from aiperf.workloads.serve.workload import engine


def filled(kind, *prompts):
    index = kind()
    for tokens in prompts:
        index.insert(list(tokens))
    return index


@pytest.mark.parametrize("seed", range(5))
def test_all_indexes_find_the_same_longest_beginning(seed):
    drawn = random.Random(seed)

    def prompt():
        return [drawn.randrange(3) for _ in range(drawn.randint(1, 12))]

    known = [prompt() for _ in range(60)]
    indexes = [filled(kind, *known) for kind in (LinearScan, TokenTrie, RadixTree)]
    for asked in [*known, *(prompt() for _ in range(200)), []]:
        expected = max(
            next((i for i, (a, b) in enumerate(zip(one, asked, strict=False)) if a != b), min(len(one), len(asked)))
            for one in known
        )
        assert {index.match(asked) for index in indexes} == {expected}
    tree = indexes[2]
    assert tree.nodes < indexes[1].nodes
    check(tree)


def check(tree):
    """Edges hold something, children differ in their first token, nobody has a single child and no end of its own."""
    waiting, seen = [tree._root], 0
    while waiting:
        for first, node in waiting.pop().children.items():
            assert node.edge[0] == first
            seen += 1
            waiting.append(node)
    assert seen == tree.nodes


def test_an_edge_is_split_where_a_prompt_leaves_it():
    tree = filled(RadixTree, "abcd")
    assert tree.nodes == 1
    tree.insert(list("abxy"))
    assert tree.nodes == 3
    (node,) = tree._root.children.values()
    assert ("".join(node.edge), sorted("".join(one.edge) for one in node.children.values())) == ("ab", ["cd", "xy"])
    tree.insert(list("ab"))
    assert tree.nodes == 3, "it is known already"
    check(tree)


def test_the_leaf_unused_for_longest_is_forgotten_unless_it_is_read():
    tree = filled(RadixTree, "abcd", "abxy", "q")
    tree.match(list("abcd"))
    tree.pin(list("q"))
    assert "".join(tree.evict()) == "xy"
    tree.pin(list("abcd"))
    assert tree.evict() is None, "all that is left is read"
    tree.pin(list("q"), -1)
    assert "".join(tree.evict()) == "q"
    assert (tree.match(list("abcd")), tree.match(list("abxy")), tree.match(list("q"))) == (4, 2, 0)
    tree.pin(list("abcd"), -1)
    assert "".join(tree.evict()) == "cd"
    assert "".join(tree.evict()) == "ab", "what was above a leaf is one now"
    assert (tree.evict(), tree.nodes) == (None, 0)
    check(tree)


def test_a_split_edge_is_still_read_by_who_read_it():
    tree = filled(RadixTree, "abcd")
    tree.pin(list("abcd"))
    tree.insert(list("abxy"))
    assert "".join(tree.evict()) == "xy"
    assert tree.evict() is None


def test_sides_with_different_indexes_find_the_same_and_count_their_nodes():
    params = {"requests": 40, "prompt_tokens": [20, 60], "shared_tokens": 18}
    found = {}
    for kind in ("linear", "trie", "radix"):
        side = engine(Context(seed=3), **params, lookups=kind)
        found[kind] = audit(side, seed=11)["lengths"]
        assert side.work.items == 40
        found[kind + " nodes"] = side.counters()["nodes"]
    assert np.array_equal(found["linear"], found["radix"])
    assert np.array_equal(found["linear"], found["trie"])
    assert found["linear"].min() >= 1
    assert len(set(found["linear"].tolist())) > 10
    assert found["linear nodes"] == 40
    assert 40 <= found["radix nodes"] < 60 < found["trie nodes"]
