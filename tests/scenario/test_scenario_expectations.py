"""What a scenario expects of each case: which entry decides, and which list of entries is a mistake."""

from __future__ import annotations

import jsonschema
import pytest
import yaml
from editors_check import validate

from aiperf.errors import UserError
from aiperf.plan.cases import expand
from aiperf.scenario.citations import Citation, citations
from aiperf.scenario.expectations import Expectation, expectations, expected_verdict
from aiperf.scenario.load import load_scenario

AXES = "axes: {size: [1MiB, 2MiB], n: [1, 2]}\n"
CROSSING = (
    "expect: [{verdict: improved, case: {size: 1MiB}}, {verdict: regressed, case: {n: 2}}, {verdict: equivalent}]\n"
)


@pytest.fixture
def swept(good):
    return good.replace("params: {size: 1MiB}\n", "") + AXES


def verdicts(scenario, *, on_gpu=False):
    return {case.id: case.expect for case in expand(scenario, on_gpu=on_gpu)}


def test_each_case_has_the_verdict_of_the_first_entry_that_fits_it(write, swept):
    path = write(swept + CROSSING)
    assert verdicts(load_scenario(path)) == {
        "x[size=1MiB,n=1]": "improved",
        "x[size=1MiB,n=2]": "improved",
        "x[size=2MiB,n=1]": "equivalent",
        "x[size=2MiB,n=2]": "regressed",
    }
    validate(yaml.safe_load(path.read_text()))


def test_of_a_case_that_no_entry_fits_nothing_is_expected(write, swept):
    loaded = load_scenario(write(swept + "expect: [{verdict: regressed, case: {n: 2, size: 1MiB}}]\n"))
    assert [case for case, verdict in verdicts(loaded).items() if verdict] == ["x[size=1MiB,n=2]"]


def test_one_word_is_expected_of_every_case(write, swept):
    assert set(verdicts(load_scenario(write(swept + "expect: equivalent\n"))).values()) == {"equivalent"}
    assert set(verdicts(load_scenario(write(swept))).values()) == {""}


def test_a_value_that_only_a_gpu_has_can_be_named(write, swept):
    text = swept + "gpu: {n: [8]}\nexpect: [{verdict: regressed, case: {n: 8}}, {verdict: improved}]\n"
    loaded = load_scenario(write(text))
    assert set(verdicts(loaded, on_gpu=True).values()) == {"regressed"}
    assert set(verdicts(loaded).values()) == {"improved"}


def test_values_are_compared_as_ids_show_them():
    entry = expectations({"expect": [{"verdict": "improved", "case": {"on": True, "jobs": ["a", "b"], "taken": 0.0}}]})
    assert entry == (Expectation("improved", {"on": "true", "jobs": "axb", "taken": "0.0"}),)
    assert expected_verdict(entry, {"on": True, "jobs": ["a", "b"], "taken": 0.0, "n": 1}) == "improved"
    assert expected_verdict(entry, {"on": False, "jobs": ["a", "b"], "taken": 0.0}) == ""
    assert expected_verdict(entry, {"jobs": ["a", "b"], "taken": 0.0}) == ""


def test_a_file_in_any_state_is_read_for_what_it_expects():
    assert expectations({}) == expectations({"expect": 3}) == expectations({"expect": [3, {"verdict": 1}, {}]}) == ()
    assert expectations({"expect": [{"verdict": "improved", "case": 3}]}) == (Expectation("improved"),)


def test_a_citation_says_what_is_expected_of_each_of_its_cases():
    data = yaml.safe_load(AXES + CROSSING + "book: [{row: ch01/a, cases: [{n: 2, size: 2MiB}, {n: 1, size: 1MiB}]}]\n")
    named = ("size=2MiB,n=2", "size=1MiB,n=1")
    assert citations(data) == (Citation("ch01/a", cases=named, expect=("regressed", "improved")),)
    assert citations({"book": ["ch01/a"], "expect": "equivalent"}) == (Citation("ch01/a", expect=("equivalent",)),)


def test_another_expectation_is_no_other_measurement_but_another_file(write, swept):
    plain, word, listed = (load_scenario(write(swept + more)) for more in ("", "expect: equivalent\n", CROSSING))
    assert len({plain.hash, word.hash, listed.hash}) == 3
    assert {plain.hash, word.hash, listed.hash} <= set(listed.hashes)
    assert {plain.hash, word.hash} <= set(plain.hashes) & set(word.hashes)
    assert load_scenario(write(swept + "check: bitwise\n" + CROSSING)).hash not in listed.hashes


WRONG = {
    "an unknown axis": (
        "{verdict: improved, case: {m: 1}}",
        '37: expect[1].case.m: "m" is not an axis; allowed: size, n.',
    ),
    "another value": (
        "{verdict: improved, case: {size: 3MiB}}",
        '43: expect[1].case.size: "3MiB" is not a value of size; allowed: 1MiB, 2MiB. Did you mean',
    ),
    "a case twice": (
        "{verdict: improved, case: {n: 1, size: 1MiB}}, {verdict: regressed, case: {size: 1MiB, n: 1}}",
        "84: expect[2].case is named twice. Name it once.",
    ),
    "nothing left for all others": (
        "{verdict: improved, case: {n: 1}}, {verdict: regressed, case: {n: 2}}, {verdict: equivalent}",
        "81: expect[3]: earlier entries already cover all its cases; the first match counts. Remove it, or",
    ),
    "others before a case": (
        "{verdict: improved}, {verdict: regressed, case: {n: 2}}",
        "31: expect[2]: earlier entries already cover all its cases;",
    ),
    "others twice": ("{verdict: improved}, {verdict: regressed}", "31: expect[2]: earlier entries already cover all"),
    "no verdict": ("{case: {n: 1}}", "10: expect[1].verdict is missing. Write expect[1].verdict:."),
    "another verdict": (
        "{verdict: improvd}",
        '20: expect[1].verdict: "improvd" is not allowed; allowed: improved, equivalent, regressed. Did you mean imp',
    ),
    "an unknown key": (
        "{verdict: improved, cases: [{n: 1}]}",
        '30: expect[1].cases: "cases" is not a key of expect[1]; allowed: verdict, case. Did you mean case?',
    ),
    "a word in the list": ("improved", '10: expect[1]: "improved" is not a mapping.'),
    "an empty case": ("{verdict: improved, case: {}}", "36: expect[1].case: {} is empty."),
    "an empty list": ("", "9: expect: [] is empty. Write at least one value"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_list_is_one_fault_with_its_place_and_what_to_do(faults, swept, name):
    text, said = WRONG[name]
    (fault,) = faults(swept + f"expect: [{text}]\n")
    assert fault.startswith(f"x.yaml:7:{said}"), fault


def test_values_that_no_case_has_together_are_a_fault(faults, swept):
    text = "gpu: {size: [8MiB], n: [8]}\nexpect: [{verdict: improved, case: {size: 8MiB, n: 1}}]\n"
    (fault,) = faults(swept + text)
    assert "expect[1]: no case has size=8MiB,n=1, on a CPU or a GPU. Name values that one case has." in fault


def test_without_axes_a_case_cannot_be_named(faults, good):
    (fault,) = faults(good + "expect: [{verdict: improved, case: {n: 1}}]\n")
    assert "expect[1].case: the scenario has no axes, so it has one case. Remove case." in fault


@pytest.mark.parametrize("text", ["[]", "[improved]", "[{case: {n: 1}}]", "[{verdict: better}]", "{verdict: improved}"])
def test_the_editors_schema_refuses_what_the_loader_refuses(write, swept, text):
    with pytest.raises(jsonschema.ValidationError):
        validate(yaml.safe_load(swept + f"expect: {text}\n"))
    with pytest.raises(UserError):
        load_scenario(write(swept + f"expect: {text}\n"))
