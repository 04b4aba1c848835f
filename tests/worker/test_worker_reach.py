"""Arrays that a function can use without being given them are found wherever code keeps them, and nothing of a side
runs for it."""

import sys
from collections import deque, namedtuple
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, wraps
from types import ModuleType

import numpy as np
import pytest
import torch

from aiperf.worker.reach import reachable_arrays

TABLE, OTHER_TABLE = np.arange(7.0), np.arange(8.0)
OF_HELPER = np.arange(9.0)


def helper():
    return OF_HELPER


@dataclass
class Layer:
    weight: object
    unused: object = None

    def run(self):
        return self.weight


class Slotted:
    __slots__ = ("empty", "weight")

    def __init__(self, weight):
        self.weight = weight

    def __call__(self):
        return self.weight, self.empty


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        self.register_buffer("scale", torch.ones(5))
        self.table, self.aside = torch.ones(6), torch.ones(7)

    def forward(self, x):
        return self.layers(x) * self.scale + self.table


def found(function):
    return sorted(tuple(array.shape) for array in reachable_arrays(function))


def holding(value):
    """A step with ``value`` in its closure."""
    return lambda: value


def a(length=4):
    return np.ones(length)


Pair = namedtuple("Pair", "one two")


@pytest.mark.parametrize(
    ("held", "shapes"),
    [
        (a(), [(4,)]),
        (torch.ones(4), [(4,)]),
        (torch.nn.Parameter(torch.ones(4)), [(4,)]),
        ([a(1), (a(2), {"key": deque([a(3)])})], [(1,), (2,), (3,)]),
        (Pair(a(1), {1: a(2)}), [(1,), (2,)]),
        (partial(max, a(1), key=a(2)), [(1,), (2,)]),
        (holding(holding(a())), [(4,)]),
        (lambda x=a(1), *, y=a(2): (x, y), [(1,), (2,)]),  # noqa: B008
        (a().copy, [(4,)]),
        (lru_cache(holding(a())), [(4,)]),
        (wraps(holding(a()))(lambda: None), [(4,)]),
        (Slotted(a()), [(4,)]),
        ([1.5, "text", None, np, int, object(), np.dtype("f4"), {1}, b"bytes"], []),
    ],
)
def test_arrays_are_found_in_what_a_closure_holds(held, shapes):
    assert found(holding(held)) == shapes


def test_a_function_that_is_no_closure_has_what_it_is_bound_to_and_the_globals_that_its_code_names():
    assert found(Layer(a()).run) == found(partial(Layer(a()).run)) == [(4,)]
    assert found(lambda: (TABLE, helper())) == [(7,), (9,)]
    assert found(lambda: [TABLE for _ in range(3)]) == [(7,)]


def test_attributes_count_where_code_that_was_met_names_them_whatever_comes_first():
    layer = Layer(a(1), unused=a(2))
    assert found(lambda: layer.run()) == [(1,)]
    assert found(lambda: (layer.run(), layer.unused)) == [(1,), (2,)]
    assert found(holding([layer, lambda: layer.unused])) == [(2,)]
    assert found(holding(layer)) == []


def test_a_class_has_properties_and_methods_that_are_followed_and_not_called():
    class Odd:
        def __init__(self):
            self.one, self.two, self.three = a(1), a(2), a(3)

        @property
        def first(self):
            raise AssertionError("a property was read")

        @cached_property
        def second(self):
            return self.two

        @staticmethod
        def third():
            return TABLE

        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

        def __iter__(self):
            raise AssertionError("it was gone through")

        def __eq__(self, other):
            raise AssertionError("it was compared")

        __hash__ = None

    odd = Odd()
    assert found(lambda: (odd.first, odd.second, odd.third())) == [(2,), (7,)]


@pytest.mark.long
def test_a_module_has_its_parameters_its_buffers_and_the_tensors_that_its_forward_names():
    network = Network()
    assert found(lambda: network(None)) == [(2,), (2, 3), (5,), (6,)]
    assert found(network.forward) == [(2,), (2, 3), (5,), (6,)]
    assert found(torch.compile(network)) == [(2,), (2, 3), (5,), (6,)]
    assert found(torch.no_grad()(holding(a()))) == [(4,)]


def test_objects_of_libraries_are_not_searched():
    class Odd(ModuleType):
        pass

    module = Odd("odd")
    module.array = a()
    event = torch.cuda.Event
    assert found(lambda: (module.array, event, sys.modules)) == []


def test_cycles_depth_and_many_values_have_bounds():
    ring = [a()]
    ring.append(ring)
    assert found(holding(ring)) == [(4,)]
    deep = a()
    for _ in range(100):
        deep = [deep]
    assert found(holding(deep)) == []
    many = [[[object() for _ in range(30)] for _ in range(30)] for _ in range(30)]
    assert found(holding([a(), many])) == [(4,)]
    assert len(found(holding([np.ones(2) for _ in range(10_000)]))) == 4096


def test_objects_that_raise_hide_only_what_they_hold():
    class Refuses:
        def __getattribute__(self, name):
            raise RuntimeError("no")

    class Refused(dict):
        def values(self):
            raise RuntimeError("no")

    class Hides:
        @property
        def __dict__(self):
            raise RuntimeError("no")

    odd = Refuses(), Hides(), Refused(x=a(1)), a(2)
    assert found(holding(odd)) == [(1,), (2,)]
    assert found(None) == []
    assert found(print) == []
