"""Python values as columns: equal values equal columns, any difference a difference, floats apart from all else."""

from __future__ import annotations

import asyncio
import datetime
import enum
from collections import Counter, OrderedDict, deque, namedtuple
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from aiperf.worker import arrays
from aiperf.worker.arrays import LazyOutput
from aiperf.worker.values import NotComparable, described, encode

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Row:
    id: int
    price: float


class Lying(list):
    """Shows nothing until it is read through its own methods."""

    def __iter__(self):
        return iter([1, 2, 3])

    def __len__(self):
        return 3


def columns(value):
    return {name: (str(array.dtype), np.asarray(array).tolist()) for name, array in encode(value, "r").items()}


def marks(value):
    return {name: arrays.digest(array) for name, array in encode(value, "r").items()}


def test_values_of_one_place_are_one_column():
    assert columns([{"id": 1, "price": 2.5}, {"id": 2, "price": 3.0}]) == {
        "r[].id": ("int64", [1, 2]),
        "r[].price": ("float64", [2.5, 3.0]),
    }
    assert columns("ab") == {"r": ("uint8", [97, 98])}
    assert columns(["ab", "c"]) == {"r[] (lengths)": ("int64", [2, 1]), "r[]": ("uint8", [97, 98, 99])}
    assert columns([np.float32(1.5), np.float32(2)]) == {"r[]": ("float32", [1.5, 2.0])}
    assert columns([1, 2.5]) == {"r[]": ("float64", [1.0, 2.5])}
    assert columns(True) == {"r": ("bool", [True])}


def test_what_is_not_finite_is_a_value_of_its_own_and_not_poison():
    found = columns([1.0, float("nan"), float("inf"), -float("inf")])
    assert found == {"r[] (not finite)": ("uint8", [0, 1, 2, 3]), "r[]": ("float64", [1.0, 0.0, 0.0, 0.0])}


SAME = {
    "a list and a tuple": ([1, (2, 3)], (1, [2, 3])),
    "mappings in another order": ({"a": 1, "b": 2}, OrderedDict(b=2, a=1)),
    "a count of many keys in another order": (
        Counter({f"k{i}": i for i in range(90)}),
        {f"k{i}": i for i in reversed(range(90))},
    ),
    "sets": ({3, 1, 2}, {2, 3, 1}),
    "a named tuple": (Point(1, 2), [1, 2]),
    "a data class and its fields": (Row(1, 2.0), {"id": 1, "price": 2.0}),
    "bytes": (b"ab", bytearray(b"ab")),
    "a whole number of numpy": (np.int32(5), 5),
}


@pytest.mark.parametrize("case", SAME)
def test_equal_values_of_other_types_are_equal(case):
    one, other = SAME[case]
    assert marks(one) == marks(other)


DIFFERENT = {
    "one number": ([1, 2, 3], [1, 2, 4]),
    "another length": ([1, 2], [1, 2, 2]),
    "where lists end": ([[1, 2], [3]], [[1], [2, 3]]),
    "where texts end": (["ab", "c"], ["a", "bc"]),
    "text and bytes": (["a"], [b"a"]),
    "none and zero": ([None], [0]),
    "true and one": ([True], [1]),
    "where the none is": ([None, 1], [1, None]),
    "a key": ({"a": 1}, {"b": 1}),
    "keys of some rows": ([{"a": 1}, {"a": 1, "b": 2}], [{"a": 1, "b": 2}, {"a": 1}]),
    "an empty mapping and none at all": ([{}], [{}, {}]),
    "an empty list and an empty mapping": ([], {}),
    "a very long number": (2**70, 2**70 + 1),
    "a long number beside a float": ([2**60, 0.5], [2**60 + 1, 0.5]),
    "an enum": (Colour.RED, Colour.BLUE),
    "a date": (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
    "a decimal": (Decimal("1.0"), Decimal("1.00")),
    "complex": (1 + 2j, 1 - 2j),
    "a value of a mapping with numbers as keys": ({1: "a", 2: "b"}, {1: "b", 2: "a"}),
    "an array": (np.arange(3), np.arange(1, 4)),
    "a mask": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "texts of numpy": (np.array(["a", "b"]), np.array(["a", "c"])),
    "dates of numpy": (np.array(["2026-01-01"], "M8[D]"), np.array(["2026-01-02"], "M8[D]")),
    "a field of a record": (np.array([(1, 2)], "i4,i4"), np.array([(1, 3)], "i4,i4")),
    "a tensor": (torch.zeros(2), torch.ones(2)),
    "a cell of a table": (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 3]})),
    "a column's name": (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})),
    "a text of a table": (pd.DataFrame({"a": ["x"]}), pd.DataFrame({"a": ["y"]})),
    "an index": (pd.Series([1, 2]), pd.Series([1, 2], index=[1, 2])),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_values_that_differ_differ(case):
    one, other = DIFFERENT[case]
    assert marks(one) != marks(other)
    assert marks(one) == marks(one)


def test_arrays_are_themselves_and_not_copies():
    x, t = np.zeros(3), torch.zeros(3)
    found = encode({"x": x, "t": [t, t]}, "r")
    assert found["r.x"] is x
    assert [found["r.t[]#0"], found["r.t[]#1"]] == [t, t]


def test_methods_of_a_subclass_are_not_asked():
    assert marks(Lying([7])) == marks([7])
    assert marks(deque([1, 2], maxlen=3)) == marks([1, 2])


@pytest.mark.parametrize("value", [(i for i in range(3)), map(str, [1]), iter([1])])
def test_what_computes_when_it_is_read_is_refused_with_the_line_to_write(value):
    with pytest.raises(LazyOutput, match=r"r\[\] is a .*: it computes when it is read\. Write return list"):
        encode([value], "r")


def test_a_coroutine_is_refused():
    waiting = asyncio.sleep(0)
    with pytest.raises(LazyOutput, match="never awaited"):
        encode(waiting, "r")
    waiting.close()


def test_an_object_that_is_no_data_is_refused_or_left_out():
    with pytest.raises(NotComparable, match=r"r\.a is a builtins\.object, .* Return arrays, .* check: \{kind: none"):
        encode({"a": object()}, "r")
    assert set(encode({"a": object(), "b": 1}, "r", lenient=True)) == {"r.b"}


def test_endless_nesting_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(NotComparable, match="nested more than 100 levels deep"):
        encode(loop, "r")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([{}, {}], "list of 2 dict"),
        ([1, "a"], "list of 2"),
        ("abc", "str of 3"),
        (np.zeros((2, 3), "f4"), "ndarray float32 (2, 3)"),
        (torch.zeros(2), "Tensor float32 (2,)"),
        (1.5, "float"),
    ],
)
def test_a_value_is_described_in_a_few_words(value, words):
    assert described(value) == words
