"""What a good file becomes: typed, merged with nothing, told apart by content."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.paths import scenario_folder
from aiperf.plan.cases import expand
from aiperf.records import Check, Measure, Needs
from aiperf.scenario.load import load_scenario
from aiperf.scenario.short_forms import read_scenario


def test_blocks_that_are_not_written_take_their_defaults(write):
    scenario = load_scenario(write())
    assert (scenario.measure, scenario.check, scenario.needs) == (Measure(), Check(), Needs())
    assert (scenario.expect, scenario.gpu, scenario.lane) == ((), None, "cpu")


def test_sizes_in_needs_become_bytes_and_any_version_becomes_empty(write, good):
    scenario = load_scenario(write(good + "needs: {gpus: 2, memory: 4GiB, libraries: {cupy: any, torch: '>=2.6'}}\n"))
    assert scenario.needs == Needs(gpus=2, memory=4 * 1024**3, libraries={"cupy": "", "torch": ">=2.6"})
    assert scenario.lane == "gpu"


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("bitwise", Check(kind="bitwise")),
        ("{rtol: 1e-3, atol: 0, reference: true}", Check(rtol=1e-3, atol=0.0, reference=True)),
        ("{name: perplexity, bound: 2}", Check(kind="named", name="perplexity", bound=2.0)),
        ("{kind: none, reason: order differs}", Check(kind="none", reason="order differs")),
        ("{reference: true}", Check(reference=True)),
    ],
)
def test_the_kind_of_a_check_follows_from_its_keys(write, good, text, check):
    assert load_scenario(write(good + f"check: {text}\n")).check == check


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("bitwise", Check("bitwise")),
        ("{files: out.bin}", Check("none", files=("out.bin",))),
        ("{kind: bitwise, files: [a, b/c]}", Check("bitwise", files=("a", "b/c"))),
        ("{kind: none, reason: prints times, files: a}", Check("none", reason="prints times", files=("a",))),
    ],
)
def test_commands_are_held_against_what_they_print_and_the_files_they_create(write, text, check):
    sides = "title: t\nwhy: w\nbefore: {command: a}\nafter: {command: b}\n"
    assert load_scenario(write(f"{sides}check: {text}\n")).check == check


def test_measure_keeps_what_is_written_and_leaves_the_rest_open(write, good):
    scenario = load_scenario(
        write(good + "measure: {cache: cold, delta: 0.01, blocking_kernel: false, max_pairs: 10}\n")
    )
    assert scenario.measure == Measure(cache="cold", delta=0.01, blocking_kernel=False, max_pairs=10)


@pytest.mark.parametrize("text", ["0.05", "5%", "5 %", "'5%'"])
def test_a_threshold_may_have_a_percent_sign(write, good, text):
    assert load_scenario(write(good + f"measure: {{delta: {text}}}\n")).measure.delta == 0.05


@pytest.mark.parametrize("text", ["5", "500%", "abc%", "true", "nan"])
def test_what_is_no_share_is_refused_with_the_ways_to_write_one(write, good, text):
    with pytest.raises(UserError) as caught:
        load_scenario(write(good + f"measure: {{delta: {text}}}\n"))
    (fault,) = caught.value.faults
    assert "is not a share above 0 and below 1" in fault.what
    assert fault.hint == ("For 5 % write 5% or 0.05." if text == "5" else "For 2 % write 2% or 0.02.")


def test_a_ladder_gives_its_sides_in_the_order_of_the_file(write, good):
    text = good.replace("after: {pinned: true}", "ladder: {z: {pinned: true}, a: {pinned: true, n: 2}}")
    scenario = load_scenario(write(text))
    assert [s.name for s in scenario.sides] == ["before", "z", "a"]


def test_a_command_is_prepared_by_a_line_for_the_shell(write):
    text = "before: {command: ls, prepare: 'rm -f *.out; sync'}\nafter: {command: ls -l}\n"
    (case,) = expand(load_scenario(write(text)), on_gpu=False)
    assert [side.prepare for side in case.sides] == [("sh", "-c", "rm -f *.out; sync"), ()]


def test_commands_are_split_without_a_shell_and_have_nothing_to_compare(write):
    text = "title: t\nwhy: w\nbefore: {command: \"python -c 'print(1)'\"}\nafter: {command: [ls, '*']}\n"
    scenario = load_scenario(write(text))
    assert [s.command for s in scenario.sides] == [("python", "-c", "print(1)"), ("ls", "*")]
    assert scenario.check.kind == "none"


def test_variables_keep_the_text_of_the_file(write, good):
    text = good.replace("params: {", "params: {env: {A: 010, B: 1e3, C: 'x'}, ")
    assert load_scenario(write(text)).shared.env == {"A": "010", "B": "1e3", "C": "x"}


def test_an_interpreter_given_as_a_path_is_taken_from_the_scenario_folder(write, good, folder):
    text = good.replace("pinned: false", "venv: ./env").replace("pinned: true", "python: python3.12")
    before, after = load_scenario(write(text, "sub/y.yaml".replace("sub/", ""))).sides
    assert before.own.python == str(folder / "env" / "bin" / "python")
    assert after.own.python == "python3.12"


def test_the_hash_sees_content_and_not_layout(write, good):
    one = load_scenario(write(good)).hash
    lines = good.splitlines()
    assert load_scenario(write("# note\n" + "\n\n".join(reversed(lines)) + "\n")).hash == one
    assert load_scenario(write(good.replace("1MiB", "2MiB"))).hash != one


def test_prose_is_no_part_of_what_is_measured(write, good):
    first = load_scenario(write("title: A copy\nwhy: So\n" + without_prose(good)))
    other = load_scenario(write("title: The copy\nwhy: Because\n" + without_prose(good)))
    assert first.hash == other.hash
    assert first.hashes != other.hashes


def test_the_words_of_a_checks_reason_are_prose_and_its_bound_is_not(write, good):
    def read(check):
        return load_scenario(write(without_prose(good) + f"title: A copy\nwhy: So\ncheck: {{{check}}}\n"))

    first, other = read("rtol: 1e-3, atol: 0.0, reason: Sums"), read("rtol: 1e-3, atol: 0.0, reason: Products")
    assert first.hash == other.hash
    assert set(first.hashes) - set(other.hashes), "a record of before, which counts the reason, is of one file"
    assert read("rtol: 1e-2, atol: 0.0, reason: Sums").hash not in first.hashes
    assert not set(read("rtol: 1e-3, atol: 0.0").hashes) & set(first.hashes), "without one, more is compared"


@pytest.mark.parametrize(
    "more", ["check: bitwise", "measure: {clock: wall}", "expect: improved", "tags: [mine]", "needs: {cpus: 2}"]
)
def test_whatever_is_measured_or_judged_makes_another_scenario(write, good, more):
    prose = "title: A copy\nwhy: So\n"
    plain = "".join(line for line in without_prose(good).splitlines(keepends=True) if not line.startswith(more[:5]))
    assert load_scenario(write(prose + plain)).hash != load_scenario(write(prose + plain + more + "\n")).hash


def without_prose(text):
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("title:", "why:")))


def test_a_scenario_is_frozen(write):
    with pytest.raises(AttributeError):
        load_scenario(write()).title = "x"


def test_a_workload_alone_is_held_against_itself(write):
    scenario = load_scenario(write("workload: ./bench.py:anything\nparams: {count: 2}\n"))
    assert [side.name for side in scenario.sides] == ["before", "after"]
    assert scenario.title == "./bench.py:anything against itself"
    assert [entry.verdict for entry in scenario.expect] == ["equivalent"]
    assert load_scenario(write("workload: json:loads\ntitle: t\n")).title == "t"


def test_a_side_that_is_a_text_names_its_function(write):
    scenario = load_scenario(write("before: ./bench.py:anything\nafter: json:loads\n"))
    assert [side.workload for side in scenario.sides] == [f"{scenario.path.parent}/bench.py:anything", "json:loads"]
    assert (scenario.title, scenario.why) == ("x", "")


def test_values_go_to_the_function_that_takes_them_and_to_both_where_both_do(write):
    text = "setup: ./bench.py:make\nparams: {count: 2}\naxes: {rows: [7]}\nbefore: ./bench.py:anything\n"
    scenario = load_scenario(write(text + "after: './bench.py:Parser.fast'\n"))
    before, after = expand(scenario, on_gpu=False)[0].sides
    assert (before.plain, before.params) == (True, {"count": 2})
    assert before.setup == f"{scenario.path.parent}/bench.py:make"
    assert before.setup_params == {"count": 2, "rows": 7}
    assert (after.params, after.setup_params) == ({}, {"count": 2, "rows": 7})


def test_shipped_files_say_why_in_at_most_sixty_words_and_what_they_lack_of_a_row_in_twenty():
    files = {path.stem: read_scenario(path).data for path in scenario_folder().rglob("*.yaml")}
    assert len(files) > 400
    rows = [(name, entry) for name, file in files.items() for entry in file.get("book", []) if isinstance(entry, dict)]
    assert {name: len(file["why"].split()) for name, file in files.items() if len(file["why"].split()) > 60} == {}
    assert [(name, entry["row"]) for name, entry in rows if len(entry.get("differs", "").split()) > 20] == []
