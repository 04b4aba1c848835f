"""Whatever the file holds, loading gives a Scenario or a UserError, never another exception."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiperf.errors import UserError
from aiperf.plan.cases import expand
from aiperf.scenario.load import load_scenario
from aiperf.scenario.schema import RESERVED, CheckFile, MeasureFile, NeedsFile, ScenarioFile

KEYS = [*ScenarioFile.model_fields, *RESERVED, *NeedsFile.model_fields, *MeasureFile.model_fields]
KEYS += [*CheckFile.model_fields, "size", "direction", "pinned", "defines.A", "env.A", "a.b", "", "?"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["1MiB", "12Q", "2ms", "bitwise", "none", "h2d", "./bench.py:copy", "host.task", ">=9.0", "auto"]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
BLOCKS = {"params", "axes", "gpu", "needs", "measure", "check", "before", "after", "ladder"}
SCENARIOS = st.fixed_dictionaries(
    {"title": st.just("t"), "why": st.just("w"), "workload": st.just("./bench.py:copy"), "before": VALUES},
    optional={k: VALUES for k in ScenarioFile.model_fields if k not in ("title", "why", "workload", "before")},
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def loaded(path):
    """The scenario, or the faults of the file."""
    try:
        return load_scenario(path)
    except UserError as error:
        return error.faults


def load_or_fault(path):
    found = loaded(path)
    if isinstance(found, tuple):
        assert found
        assert all(f.what and f.where for f in found)
        return
    for on_gpu in (False, True):
        cases = expand(found, on_gpu=on_gpu)
        assert len({c.file_stem for c in cases}) == len(cases) >= 1


@pytest.mark.long
@QUICK
@given(data=SCENARIOS)
def test_any_tree_of_known_keys_loads_or_is_a_user_error(write, data):
    load_or_fault(write(json.dumps(data)))


@QUICK
@given(text=st.text(alphabet=st.sampled_from(list("abt:[]{}-&*!|>#'\"\n\t %@`,?~0.1\0é\x85\u2028")), max_size=60))
def test_any_text_is_a_user_error(write, text):
    with pytest.raises(UserError):
        load_scenario(write(text))


@QUICK
@given(raw=st.binary(max_size=80))
def test_any_bytes_are_a_user_error(write, raw):
    with pytest.raises(UserError):
        load_scenario(write(raw))


@pytest.mark.long
@QUICK
@given(
    place=st.integers(0, 180), junk=st.sampled_from(["\t", ":", "{", "]", "&a ", "*a ", "!!x ", "- ", '"', "\n", "%"])
)
def test_a_good_file_with_a_character_too_many_loads_or_is_a_user_error(write, good, place, junk):
    load_or_fault(write(good[:place] + junk + good[place:]))
