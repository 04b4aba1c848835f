"""The exported JSON Schema: in step with the models, and of one mind with the loader."""

from __future__ import annotations

import jsonschema
import pytest
import yaml
from editors_check import validate

from aiperf.errors import UserError
from aiperf.scenario.editor import json_schema, schema_path, schema_text
from aiperf.scenario.load import load_scenario


def test_the_shipped_schema_is_in_step_with_the_models():
    assert schema_path().read_text(encoding="utf-8") == schema_text(), "run: python -m aiperf.scenario.editor"


def test_the_schema_is_itself_valid():
    jsonschema.Draft202012Validator.check_schema(json_schema())


FULL = """\
book: [{row: ch03/row, case: {n: 2, env.A: 1}, differs: no decode}]
tags: [memory]
axes: {n: [1, 2], env.A: [1, 2]}
gpu: {n: [4], share: 0.1, ranks: 2}
needs: {gpus: 1, compute_capability: '>=9.0', memory: 1GiB, disk: 5, libraries: {cupy: ''}, root: false}
measure: {clock: device, cache: cold, isolation: process, exclusive: true, statistic: median, delta: 0.1, max_pairs: 9}
check: {rtol: 1.0e-3, atol: 0, reference: true}
moves: {h2d_bandwidth: up}
expect: improved
"""


@pytest.mark.parametrize("extra", ["", FULL, "check: bitwise\n", "check: {name: a, bound: 1, reason: b}\n"])
def test_schema_and_loader_accept_the_same_good_files(write, good, extra):
    validate(yaml.safe_load(good + extra))
    assert load_scenario(write(good + extra)).name == "x"


def test_schema_and_loader_accept_the_same_short_forms(write):
    for text in (
        "workload: ./bench.py:copy\nparams: {size: 1MiB}\n",
        "before: ./bench.py:nothing\nafter: ./bench.py:anything\n",
        "before: json:loads\nladder: {a: './bench.py:anything', b: {workload: 'json:dumps'}}\n",
    ):
        validate(yaml.safe_load(text))
        assert load_scenario(write(text)).title in ("x", "./bench.py:copy against itself")


@pytest.mark.parametrize(
    "extra",
    [
        "befor: {}\n",
        "axes: {n: []}\n",
        "axes: {n: 1}\n",
        "check: exact\n",
        "check: none\n",
        "check: {rtol: -1}\n",
        "needs: {memory: 12Q}\n",
        "needs: {gpus: true}\n",
        "needs: {gpu: 1}\n",
        "measure: {clock: quartz}\n",
        "measure: {delta: 2}\n",
        "moves: {a: sideways}\n",
        "expect: better\n",
        "tags: demo\n",
        "gpu:\n",
        "ladder: {a: {n: 1}}\n",
    ],
)
def test_schema_and_loader_refuse_the_same_bad_files(write, good, extra):
    with pytest.raises(jsonschema.ValidationError):
        validate(yaml.safe_load(good + extra))
    with pytest.raises(UserError):
        load_scenario(write(good + extra))


@pytest.mark.parametrize(
    ("old", "new"), [("before: {pinned: false}\n", ""), ("{pinned: true}", "{ranks: 0}"), ("{pinned: true}", "[a]")]
)
def test_schema_and_loader_refuse_the_same_damaged_files(write, good, old, new):
    with pytest.raises(jsonschema.ValidationError):
        validate(yaml.safe_load(good.replace(old, new)))
    with pytest.raises(UserError):
        load_scenario(write(good.replace(old, new)))
