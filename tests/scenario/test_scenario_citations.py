"""A citation of the book: which side of a ladder answers a row, checked when the scenario is loaded."""

from __future__ import annotations

import jsonschema
import pytest
import yaml
from editors_check import validate

from aiperf.errors import UserError
from aiperf.plan.cases import expand
from aiperf.scenario.citations import Citation, citations
from aiperf.scenario.find import list_scenarios
from aiperf.scenario.load import load_scenario

MIXED = "book: [ch01/a, {row: ch01/b, side: fast}, {row: ch02/c, side: [slow, fast]}, {row: app/d}]\n"


@pytest.fixture
def ladder(good):
    return good.replace("after: {pinned: true}", "ladder: {slow: {pinned: true}, fast: {pinned: true, n: 2}}")


def test_a_citation_is_a_row_or_a_row_with_its_sides(write, ladder):
    scenario = load_scenario(write(ladder + MIXED))
    assert scenario.book == ("ch01/a", "ch01/b", "ch02/c", "app/d")
    assert scenario.citations == (
        Citation("ch01/a"), Citation("ch01/b", ("fast",)), Citation("ch02/c", ("slow", "fast")), Citation("app/d"),
    )  # fmt: skip


def test_a_row_may_be_about_a_side_and_the_one_before_it(write, good, ladder):
    path = write(ladder + "book: [{row: ch01/a, side: fast, against: slow}]\n")
    assert load_scenario(path).citations == (Citation("ch01/a", ("fast",), "slow"),)
    path = write(good + "book: [{row: ch01/a, side: after, against: before}]\n")
    assert load_scenario(path).citations == (Citation("ch01/a", ("after",), "before"),)


def test_the_listing_has_the_same_citations_as_the_scenario(write, ladder):
    path = write(ladder + MIXED)
    (entry,) = list_scenarios([path.parent])
    assert (entry.book, entry.citations) == ((scenario := load_scenario(path)).book, scenario.citations)


def test_which_side_answers_is_no_part_of_what_is_measured(write, ladder):
    plain = load_scenario(write(ladder + "book: [ch01/a]\n"))
    sided = load_scenario(write(ladder + "book: [{row: ch01/a, side: slow, lacks: a mode, differs: small}]\n"))
    other = load_scenario(write(ladder + "book: [ch01/b]\n"))
    assert plain.hash == sided.hash == other.hash
    assert plain.hashes == sided.hashes
    assert not set(plain.hashes[1:]) >= set(other.hashes)


def test_a_file_in_any_state_is_read_for_its_citations():
    assert citations({}) == citations({"book": "ch01/a"}) == citations({"book": [3, None, {"side": "a"}, ""]}) == ()
    assert citations({"book": [{"row": "ch01/a", "side": [3, "b"], "against": 4}]}) == (Citation("ch01/a", ("b",)),)


WRONG = {
    "no side": ("{row: ch01/a, side: fats}", '28: book[1].side: "fats" is not a side that can answer a row; allowed: '
                "slow, fast. Did you mean fast?"),
    "before": ("{row: ch01/a, side: before}", '28: book[1].side: "before" is not a side that can answer a row; '
               "allowed: slow, fast. Name the side that is the row's after."),
    "one of several": ("{row: ch01/a, side: [fast, quick]}", '28: book[1].side: "quick" is not a side that can answer'),
    "a side twice": ("{row: ch01/a, side: [fast, fast]}", '28: book[1].side: "fast" is named twice. Name it once.'),
    "an empty list": ("{row: ch01/a, side: []}", "28: book[1].side: [] is empty. Write at least one value,"),
    "a side of another type": ("{row: ch01/a, side: 3}", "28: book[1].side: 3 is not a list."),
    "a comparison that is not made": (
        "{row: ch01/a, side: slow, against: fast}",
        '43: book[1].against: slow is not compared with "fast". Allowed: before.',
    ),
    "one that not every side has": (
        "{row: ch01/a, side: [slow, fast], against: slow}",
        '51: book[1].against: slow is not compared with "slow". Allowed: before.',
    ),
    "against alone": ("{row: ch01/a, against: slow}", "22: book[1].against needs a side. Write side: and name"),
    "a row twice": ("ch01/a, {row: ch01/a, side: fast}", "16: book[2]: ch01/a is already cited at book[1]. Cite it"),
    "no row": ("{side: fast}", "8: book[1].row is missing. Write book[1].row:."),
    "an unknown key": (
        "{row: ch01/a, sid: fast}",
        '22: book[1].sid: "sid" is not a key of book[1]; allowed: row, side, against, case, cases, '
        "differs, lacks. Did you mean side?",
    ),
    "a number": ("3", "8: book[1]: 3 is not a row of the book. Write chNN/name, or {row: chNN/name, ...} to"),
    "nothing": ('""', "8: book[1]: \"\" is not a row of the book. Write chNN/name"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_citation_is_said_with_its_place(faults, ladder, name):
    text, said = WRONG[name]
    (fault,) = faults(ladder + f"book: [{text}]\n")
    assert fault.startswith(f"x.yaml:7:{said}"), fault


@pytest.mark.parametrize("text", ["3", "{side: fast}", "{row: ch01/a, side: []}", "{row: ch01/a, sid: b}", '""'])
def test_the_editors_schema_refuses_what_the_loader_refuses(write, ladder, text):
    with pytest.raises(jsonschema.ValidationError):
        validate(yaml.safe_load(ladder + f"book: [{text}]\n"))
    with pytest.raises(UserError):
        load_scenario(write(ladder + f"book: [{text}]\n"))


def test_the_editors_schema_takes_every_kind_of_citation(ladder):
    validate(yaml.safe_load(ladder + MIXED))
    validate(yaml.safe_load(ladder + "book: [{row: a, side: fast, against: slow}]\n"))
    for wrong in ("{side: fast}", "{row: a, sides: fast}", "7"):
        with pytest.raises(jsonschema.ValidationError):
            validate(yaml.safe_load(f"{ladder}book: [{wrong}]\n"))


AXES = "axes: {size: [1MiB, 2MiB], n: [1, 2]}\n"
BOTH = "{row: ch01/b, cases: [{n: 1, size: 2MiB}, {size: 1MiB, n: 2}], differs: small, lacks: 'no decode, no resize'}"


@pytest.fixture
def swept(good):
    return good.replace("params: {size: 1MiB}\n", "") + AXES


def test_a_citation_names_its_cases_as_their_ids_do_and_each_case_holds_the_rows_that_it_answers(write, swept):
    path = write(swept + f"book: [{{row: ch01/a, case: {{size: 1MiB, n: 2}}}}, {BOTH}]\n")
    scenario = load_scenario(path)
    assert scenario.citations == (
        Citation("ch01/a", cases=("size=1MiB,n=2",)),
        Citation("ch01/b", cases=("size=2MiB,n=1", "size=1MiB,n=2"), differs="small", lacks="no decode, no resize"),
    )
    assert {case.id: case.book for case in expand(scenario, on_gpu=False)} == {
        "x[size=1MiB,n=1]": (),
        "x[size=1MiB,n=2]": ("ch01/a", "ch01/b"),
        "x[size=2MiB,n=1]": ("ch01/b",),
        "x[size=2MiB,n=2]": (),
    }
    validate(yaml.safe_load(path.read_text()))


WRONG_CASES = {
    "no case": ("ch01/a", "book[1] does not name the case that answers the row; axes: size 1MiB, 2MiB; n 1, 2. "
                "Write {row: chNN/name, case: {size: 1MiB, n: 1}} with the values that the row is about."),
    "another value": ("{row: ch01/a, case: {size: 3MiB, n: 1}}",
                      'book[1].case.size: "3MiB" is not a value of size; allowed: 1MiB, 2MiB. Did you mean'),
    "another axis": ("{row: ch01/a, case: {size: 1MiB, n: 1, m: 2}}",
                     'book[1].case.m: "m" is not an axis; allowed: size, n. '),
    "an axis left out": ("{row: ch01/a, cases: [{size: 1MiB}]}",
                         "book[1].cases[1] gives no value for n; axes: size 1MiB, 2MiB; n 1, 2. Give each axis one"),
    "a case twice": ("{row: ch01/a, cases: [{size: 1MiB, n: 1}, {n: 1, size: 1MiB}]}",
                     "book[1].cases[2] is named twice. Name it once."),
    "case and cases": ("{row: ch01/a, case: {size: 1MiB, n: 1}, cases: [{size: 2MiB, n: 1}]}",
                       "book[1] has both case and cases. Keep one of the two."),
    "no mapping": ("{row: ch01/a, case: 3}", "book[1].case: 3 is not a mapping."),
    "a long lack": ("{row: ch01/a, case: {size: 1MiB, n: 1}, lacks: " + "no " * 21 + "}",
                    "book[1].lacks: has 21 words. Write at most 20"),
    "a long text": ("{row: ch01/a, case: {size: 1MiB, n: 1}, differs: " + "no " * 21 + "}",
                    "book[1].differs: has 21 words. Write at most 20"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CASES)
def test_a_wrong_case_is_one_fault_that_says_what_is_allowed(faults, swept, name):
    text, said = WRONG_CASES[name]
    (fault,) = faults(swept + f"book: [{text}]\n")
    assert said in fault, fault


def test_a_scenario_without_axes_has_one_case_and_a_citation_names_none(faults, good):
    (fault,) = faults(good + "book: [{row: ch01/a, case: {n: 1}}]\n")
    assert "book[1].case: the scenario has no axes, so it has one case. Remove case." in fault
