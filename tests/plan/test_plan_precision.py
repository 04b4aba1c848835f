"""Precision files: what is read, and what is told of mistakes in them."""

from __future__ import annotations

import re

import pytest

from aiperf.errors import UserError
from aiperf.plan.precision import load_precision
from aiperf.settings import Precision


@pytest.fixture
def load(tmp_path):
    def _load(text: str | bytes) -> Precision:
        path = tmp_path / "own.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_precision(str(path))

    return _load


def test_every_shipped_precision_is_read_under_its_name() -> None:
    assert [load_precision(name).name for name in ("quick", "standard", "rigorous")] == [
        "quick",
        "standard",
        "rigorous",
    ]
    assert load_precision("quick").provisional


def test_a_file_of_ones_own_changes_only_what_it_names(load) -> None:
    assert load("looks: [3, 5]\naudits: 0\n") == Precision(name="own", looks=(3, 5), audits=0)
    assert load("") == Precision(name="own")
    assert load("delta: 3%\nalpha: 1 %\n") == Precision(name="own", delta=0.03, alpha=0.01)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("looks: 5", 'looks: "5" is not a list of whole numbers'),
        ("looks: abc", "looks"),
        ("looks: [3, 4.5]", "looks"),
        ("looks: [3, x]", "looks"),
        ("looks: []", "rising"),
        ("looks: [2, 3]", "at least 3"),
        ("looks: [6, 4]", "rising"),
        ("alpha: 2", 'alpha: "2" is not a number above 0 and below 1'),
        ("alpha: abc", "alpha"),
        ("delta: null", "delta"),
        ("delta: 0", "delta"),
        ("case_seconds: -1", "case_seconds"),
        ("case_seconds: soon", "case_seconds"),
        ("width: .nan", "width"),
        ("side_seconds: .inf", "side_seconds"),
        ("rounds: 0", "rounds"),
        ("rounds: 1.5", "rounds"),
        ("rounds: true", "rounds"),
        ("audits: -1", "audits"),
        ("provisional: maybe", "true or false"),
        ("name: other", '"name" is not a setting'),
        ("colour: red", '"colour" is not a setting'),
        ("- 1", "not a mapping"),
        ("a: [", "is not valid YAML"),
        (b"\xff\xfe", "is not UTF-8 text"),
        ("!!python/object/apply:os.system [ls]", "tag"),
        ("looks: [3]\nlooks: [6]", "looks appears twice, first on line 1"),
        ("looks: [3, 99999999999999999999999]", "looks"),
        ("rounds: 999999999999999999999", "rounds"),
        ("case_seconds: 1e308", "case_seconds"),
        ("delta: 1e-400", "delta"),
        ("width: 1e9", "width"),
        ("looks: " + "[" * 5000 + "]" * 5000, "nested more than 12 levels deep"),
        ("looks: &a [3]", "the anchor &a"),
        ("? [a]\n: 3", "a key is a list"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("a: " + "x" * (1 << 20), "the limit for a scenario file is 1 MiB"),
    ],
)
def test_a_mistake_in_a_precision_file_is_told_with_the_file(load, text, told) -> None:
    with pytest.raises(UserError) as caught:
        load(text)
    fault = caught.value.faults[0]
    assert told in " ".join(one.what for one in caught.value.faults)
    assert re.search(r"own\.yaml(:\d+:\d+)?$", fault.where)
    assert len(fault.what) < 200


def test_all_mistakes_come_at_once(load) -> None:
    with pytest.raises(UserError) as caught:
        load("rounds: 0\naudits: many\n")
    assert len(caught.value.faults) == 2


def test_an_unknown_precision_names_those_that_there_are() -> None:
    with pytest.raises(UserError) as caught:
        load_precision("sloppy")
    assert "quick, rigorous, standard" in caught.value.faults[0].hint
