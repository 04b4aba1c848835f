"""Annotations in words, the values they list, and values as YAML writes them."""

from __future__ import annotations

from typing import Any

import pytest

from aiperf.paths import workload_folder
from aiperf.scenario.annotation import choices, in_words, written
from aiperf.scenario.binding import convert
from aiperf.scenario.document import read_document
from aiperf.scenario.signature import read_signature, shipped_workloads


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("Size", "size"),
        ("contract.Size", "size"),
        ("Seconds", "time"),
        ("int", "whole number"),
        ("float", "number"),
        ("bool", "true or false"),
        ("str", "text"),
        ("Any", "anything"),
        ("", "anything"),
        ("None", "null"),
        ("np.dtype", "np.dtype"),
        ("Literal['h2d', 2, True, '2:4']", 'one of h2d, 2, true, "2:4"'),
        ("Literal['a'] | None", "one of a, or null"),
        ("None | Size", "size, or null"),
        ("Optional[Size]", "size, or null"),
        ("Union[int, str]", "whole number or text"),
        ("int | float | str", "number or text"),
        ("bool | int | str | None", "true or false, whole number or text, or null"),
        ("list", "list"),
        ("list[Any]", "list"),
        ("list[Size]", "list of sizes"),
        ("tuple[int, ...]", "list of whole numbers"),
        ("tuple[int, str]", "list of 2: whole number, text"),
        ("list[dict[str, Any]] | None", "list of mappings, or null"),
        ("Mapping[str, Seconds]", "mapping to times"),
        ("dict[str, dict[str, int | float | str]]", "mapping to mappings to numbers or texts"),
    ],
)
def test_an_annotation_is_told_in_words(annotation, words):
    assert in_words(annotation) == words


@pytest.mark.parametrize(
    ("annotation", "listed"),
    [
        ("Literal['a', 2, True]", ("a", 2, True)),
        ("Literal['a'] | Literal['b']", ("a", "b")),
        ("Literal['a'] | None", ("a", None)),
        ("Literal['a'] | int", None),
        ("list[Literal['a']]", None),
        ("bool", None),
    ],
)
def test_choices_are_told_only_where_nothing_else_is_allowed(annotation, listed):
    assert choices(annotation) == listed


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        (0, "Size", "0"),
        (100, "Size", "100B"),
        (1536, "Size", "1536B"),
        (2048, "Size", "2KiB"),
        (3 << 30, "Size | None", "3GiB"),
        (1 << 50, "Size", "1024TiB"),
        (2048, "int", "2048"),
        ([1024, 2], "list[Size]", "[1KiB, 2B]"),
        ({"a": 1024}, "dict[str, Size]", "{a: 1KiB}"),
        (0.002, "Seconds", "0.002s"),
        (5e-9, "Seconds", "0.000000005s"),
        (1e-05, "float", "1e-05"),
        (None, "Size | None", "null"),
        (True, "bool", "true"),
        ("h2d", "str", "h2d"),
        ("mlp:small", "str", "mlp:small"),
        ("", "str", '""'),
        ("1", "str", '"1"'),
        ("true", "str", '"true"'),
        ("a, b", "str", '"a, b"'),
        (["-O2"], "list[str]", '["-O2"]'),
    ],
)
def test_a_value_is_written_as_yaml_that_reads_as_that_value(value, annotation, text, tmp_path):
    assert written(value, annotation) == text
    (tmp_path / "x.yaml").write_text(f"value: {text}\n")
    assert convert(read_document(tmp_path / "x.yaml").data["value"], annotation) == value


def _defaults() -> list[tuple[str, str, Any, str]]:
    signatures = [(name, read_signature(name, base=workload_folder())) for name in shipped_workloads()]
    return [(name, key, value, s.parameters[key]) for name, s in signatures for key, value in s.defaults.items()]


def test_every_default_of_a_shipped_workload_can_be_written_as_it_is_shown(tmp_path):
    found = _defaults()
    assert len(found) > 200
    lines = [f"k{n}: {written(value, annotation)}\n" for n, (_, _, value, annotation) in enumerate(found)]
    (tmp_path / "x.yaml").write_text("".join(lines))
    values = read_document(tmp_path / "x.yaml").data
    wrong = [
        (workload, key)
        for n, (workload, key, value, annotation) in enumerate(found)
        if convert(values[f"k{n}"], annotation) != value
    ]
    assert wrong == []
