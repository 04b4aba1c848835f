"""Every fault of a scenario file, to the character: place, value, what is allowed, the way out."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.scenario.binding import convert
from aiperf.scenario.load import load_scenario, load_scenarios
from aiperf.units import InvalidValue

PARAMETERS = "size, direction, pinned, wait, n, share, label, shape, defines, limit"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ("axes: {direction: [h2d, sideways]}", 'axes.direction[2]: "sideways"'),
        ("axes: {directions: [h2d, d2h]}", "axes.directions: "),
        ("axis: {direction: [h2d, d2h]}", "axis: "),
    ],
)
def test_where_an_axis_is_wrong_the_cases_that_are_named_by_it_are_not_faults_too(faults, good, changed, fault):
    cited = "book: [{row: ch01/a, cases: [{direction: h2d}, {direction: d2h}]}]\n"
    cited += "expect: [{case: {direction: d2h}, verdict: improved}]\n"
    said = faults(good.replace("after: {pinned: true}", "after: {pinned: true}\n" + changed) + cited)
    assert len(said) == 1
    assert fault in said[0]


def test_a_cited_case_that_a_copy_no_longer_has_names_the_way_out(faults, good):
    cited = "book: [{row: ch01/a, cases: [{direction: h2d}, {direction: d2h}]}]\n"
    (said,) = faults(good + "axes: {direction: [h2d]}\n" + cited)
    assert said.endswith("If this is a copy of a shipped scenario, delete book:.")


def test_a_misspelt_side_is_the_only_fault(faults, good):
    text = good.replace("after: {pinned: true}", "aftr: {pinned: true}") + "expect: improved\n"
    (said,) = faults(text + "book: [{row: ch01/a, side: after}]\n")
    assert "Did you mean after?" in said


def test_a_wrong_unit_is_said_in_one_line(faults, good):
    assert faults(good.replace("{pinned: false}", "\n  pinned: false\n  limit: 12Q")) == [
        'x.yaml:7:10: before.limit: "12Q" is not a size. Write a number with B, KiB, MiB or GiB, e.g. 256MiB.'
    ]


def test_all_faults_come_at_once_by_line(faults):
    text = (
        "title: 3\nworkload: ./bench.py:copy\nparams: {size: 1MiB, directon: h2d}\n"
        "before: {pinned: off}\nafter: {direction: h2x}\nmeasure: {clok: wall}\nexpect: better\n"
    )
    assert faults(text) == [
        'x.yaml:1:8: title: 3 is not text. Quote it if it is meant as text, e.g. "1".',
        f'x.yaml:3:22: params.directon: ./bench.py:copy has no parameter "directon"; allowed: {PARAMETERS}. '
        "Did you mean direction?",
        'x.yaml:4:18: before.pinned: "off" is not true or false. Write true or false, without quotes.',
        'x.yaml:5:20: after.direction: "h2x" is not allowed; allowed: h2d, d2h. Did you mean h2d?',
        'x.yaml:6:11: measure.clok: "clok" is not a key of measure; allowed: clock, cache, isolation, exclusive, '
        "statistic, delta, reentry, blocking_kernel, max_pairs, metric. Did you mean clock?",
        'x.yaml:7:9: expect: "better" is not allowed; allowed: improved, equivalent, regressed. '
        "Write one of improved, equivalent, regressed.",
    ]


CASES = {
    "unknown top key": ("befor: {}\n", 'x.yaml:7:1: befor: "befor" is not a key of a scenario; allowed: '),
    "axis with no value": ("axes: {direction: }\n", "x.yaml:7:19: axes.direction has no value. Write [first, second]."),
    "axis with an empty list": (
        "axes: {direction: []}\n",
        "x.yaml:7:19: axes.direction: [] is empty. Write at least one value, or remove the key.",
    ),
    "axis that is no list": (
        "axes: {direction: h2d}\n",
        'x.yaml:7:19: axes.direction: "h2d" is not a list. Write [h2d].',
    ),
    "metric that nothing reports": (
        "measure: {metric: speed}\n",
        'x.yaml:7:19: measure.metric: "speed" is not allowed; allowed: time, first_iteration, ',
    ),
    "axis with a wrong value": ("axes: {n: [1, 2.5]}\n", "x.yaml:7:15: axes.n[2]: 2.5 is not a whole number."),
    "axis with a value twice": (
        "axes: {n: [1, 1]}\n",
        "x.yaml:7:15: axes.n[2]: 1 names the same case as value 1. Remove it; each value of an axis must give a "
        "different case.",
    ),
    "axis that a side fixes": (
        "axes: {pinned: [true]}\n",
        "x.yaml:7:8: axis pinned is fixed by before. Remove pinned from axes or from before.",
    ),
    "axis that params fixes": ("axes: {size: [1]}\n", "x.yaml:7:8: size is in both params and axes."),
    "axis of an unknown parameter": ("axes: {nn: [1]}\n", 'x.yaml:7:8: axes.nn: ./bench.py:copy has no parameter "nn"'),
    "axis of an entry of a plain parameter": (
        "axes: {n.A: [1]}\n",
        "x.yaml:7:8: axes.n.A: n of ./bench.py:copy is not a mapping and has no entries. Sweep n itself.",
    ),
    "too many cases": (
        f"axes: {{n: {list(range(100))}, share: {list(range(100))}}}\n",
        "x.yaml:7:1: axes gives 10,000 cases; the limit is 1,000.",
    ),
    "both after and ladder": ("ladder: {a: {n: 1}}\n", "x.yaml:7:1: after and ladder are both given."),
    "check none without a reason": (
        "check: none\n",
        "x.yaml:7:8: check: none needs a reason. Write check: {kind: none, reason: why the outputs cannot",
    ),
    "check of an unknown word": ("check: exact\n", 'x.yaml:7:8: check: "exact" is not a check. Write bitwise, '),
    "check with keys of two kinds": (
        "check: {name: a, rtol: 1}\n",
        "x.yaml:7:18: check.rtol does not apply to a named",
    ),
    "negative tolerance": (
        "check: {rtol: -1}\n",
        "x.yaml:7:15: check.rtol: -1 is out of range; it must be at least 0.",
    ),
    "gpu axis that is no list": (
        "axes: {n: [1, 2]}\ngpu: {n: 3}\n",
        "x.yaml:8:10: gpu.n: 3 is not a list of values, but n is an axis. Write [first, second].",
    ),
    "gpu key without effect": (
        "gpu: {pinned: true}\n",
        "x.yaml:7:7: gpu.pinned has no effect: every side sets pinned.",
    ),
    "gpu ranks of a wrong type": ("gpu: {ranks: two}\n", 'x.yaml:7:14: gpu.ranks: "two" is not a whole number.'),
    "device clock without a GPU": ("measure: {clock: device}\n", "x.yaml:7:18: measure.clock: device needs a GPU"),
    "needs of a wrong type": ("needs: {gpus: true}\n", "x.yaml:7:15: needs.gpus: true is not a whole number."),
    "needs of a wrong unit": ("needs: {disk: 2 PB}\n", 'x.yaml:7:15: needs.disk: "2 PB" is not a size. Write a number'),
    "needs a bare capability": (
        "needs: {compute_capability: 9.0}\n",
        'x.yaml:7:29: needs.compute_capability: 9.0 is not a version specifier. Write it in quotes like ">=9.0".',
    ),
    "a counter that moves sideways": (
        "moves: {launches: sideways}\n",
        'x.yaml:7:19: moves.launches: "sideways" is not allowed; allowed: up, down, same.',
    ),
    "empty tag": ('tags: [""]\n', 'x.yaml:7:8: tags[1]: "" is empty.'),
}


def test_a_metric_that_nothing_reports_is_listed_once_and_may_be_printed_by_programs(faults, good):
    (line,) = faults(good + "measure: {metric: speed}\n")
    assert line.count("first_iteration") == 1
    assert line.endswith("Write one of them, or name a number that the programs print, under metrics:.")


@pytest.mark.parametrize(
    ("annotation", "form"), [("dict[str, int]", "{key: value}"), ("dict[str, dict[str, int]]", "{name: {key: value}}")]
)
def test_what_a_mapping_holds_is_in_the_form_to_write(annotation, form):
    with pytest.raises(InvalidValue) as caught:
        convert([128], annotation)
    assert (caught.value.what, caught.value.hint) == ("[128] is not a mapping.", f"Write {form}.")


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_found_and_said(faults, good, case):
    extra, says = CASES[case]
    lines = faults(good + extra)
    assert [line for line in lines if line.startswith(says)], lines


SIDES = {
    "missing parameter": (
        ("params: {size: 1MiB}\n", ""),
        "x.yaml:3:11: workload: ./bench.py:copy needs size, which is not given. Write it in params, or in each side.",
    ),
    "missing parameter of one side": (
        ("after: {", "after: {workload: './bench.py:other', "),
        "x.yaml:6:1: after: ./bench.py:other needs depth, which is not given. Write it in params, or in this side.",
    ),
    "missing side": (("before: {pinned: false}\n", ""), "x.yaml:1:1: before is missing. Write before: ./file.py:fun"),
    "no second side": (("after: {pinned: true}\n", ""), "x.yaml:1:1: after is missing. Write after: ./file.py:func"),
    "side without a value": (("{pinned: false}", ""), "x.yaml:5:8: before has no value. Write {key: value}"),
    "equal sides": (("pinned: true", "pinned: false"), "x.yaml:6:1: after is the same as before. Write what differs"),
    "unknown family": (("./bench.py:copy", "transfr.copy"), 'x.yaml:3:11: workload: "transfr.copy": there is no '),
    "unknown function": (
        ("bench.py:copy", "bench.py:cpy"),
        'x.yaml:3:11: workload: "./bench.py:cpy": bench.py has no function cpy; allowed: copy, other, nothing, '
        "anything, counted, make, bare. Did you mean copy?",
    ),
    "unknown file": (
        ("bench.py:", "bnch.py:"),
        'x.yaml:3:11: workload: "./bnch.py:copy": there is no file bnch.py. The path is relative to the scenario.',
    ),
    "no workload": (("workload: ./bench.py:copy\n", ""), "x.yaml:1:1: workload is missing. Write workload: family"),
    "no context": (
        ("bench.py:copy", "bench.py:bare"),
        'x.yaml:3:11: workload: "./bench.py:bare": bare returns a Workload but takes no context. '
        "Write def bare(context: Context, ...) -> Workload:",
    ),
    "not a workload": (
        ("./bench.py:copy", "copy"),
        'x.yaml:3:11: workload: "copy" is not a workload. Write ./file.py:copy, with',
    ),
    "a module as a family": (
        ("./bench.py:copy", "bench.copy"),
        'x.yaml:3:11: workload: "bench.copy": there is no workload family bench. '
        "Write bench:copy for the function in bench.py.",
    ),
    "a command misspelt": (
        ("before: {pinned: false}\nafter: {pinned: true}", "before: {command: 'true'}\nafter: {comand: 'false'}"),
        "x.yaml:6:1: after has no command, but another side has one. Did you mean command, not comand?",
    ),
    "a file as a workload": (
        ("./bench.py:copy", "./bench.py"),
        'x.yaml:3:11: workload: "./bench.py" is not a workload. Name its function too: ./bench.py:function.',
    ),
    "a program as a workload": (
        ("before: {pinned: false}", "before: python a.py"),
        'x.yaml:5:9: before.workload: "python a.py" is not a workload. Write {command: python a.py} for a program, or',
    ),
    "an async function": (
        ("bench.py:copy", "bench.py:later"),
        'x.yaml:3:11: workload: "./bench.py:later": later is async, so calling it does not run it yet. '
        "Add def run(): return asyncio.run(later()) to the file, and name run.",
    ),
    "a method": (
        ("bench.py:copy", "bench.py:Parser.parse"),
        'x.yaml:3:11: workload: "./bench.py:Parser.parse": parse is a method, which needs an object of its class. '
        "Add def run(): return Parser().parse() to the file, and name run.",
    ),
    "a parameter that a plain function lacks": (
        ("workload: ./bench.py:copy", "workload: ./bench.py:nothing"),
        'x.yaml:4:10: params.size: ./bench.py:nothing has no parameter "size"; allowed: none.',
    ),
    "an argument of a plain function that nobody gives": (
        ("before: {pinned: false}", "before: './bench.py:Parser.fast'"),
        "x.yaml:5:1: before: ./bench.py:Parser.fast needs text, which is not given. Write setup: ./file.py:function "
        "(it makes the arguments from a seed), or params: {...}; a function that makes a Workload takes context first.",
    ),
    "a set-up beside a workload": (
        ("params: {", "setup: ./bench.py:make\nparams: {"),
        "x.yaml:4:8: setup: ./bench.py:copy takes a context and makes its own inputs. Leave setup out: it makes "
        "arguments for plain functions only.",
    ),
    "a set-up that makes a workload": (
        ("workload: ./bench.py:copy\nparams: {size: 1MiB}", "workload: json:loads\nsetup: ./bench.py:copy"),
        'x.yaml:4:8: setup: "./bench.py:copy" makes a Workload, not arguments. Write def copy(seed, ...): return text',
    ),
    "a set-up of programs": (
        ("before: {pinned: false}", "setup: ./bench.py:make\nbefore: {command: ls}"),
        "x.yaml:5:1: setup makes arguments for functions; a command takes none. Write them into the command.",
    ),
    "ranks of nothing": (("pinned: true", "ranks: 0"), "x.yaml:6:16: after.ranks: 0 is out of range; it must be at"),
    "env that is no text": (("pinned: true", "env: {A: true}"), "x.yaml:6:18: after.env.A: true is not text. Quote it"),
    "env name that is none": (("pinned: true", "env: {A-B: 1}"), 'x.yaml:6:15: after.env: "A-B" is not a name.'),
    "python and venv": (("pinned: true", "python: p, venv: v"), "x.yaml:6:20: after has both python and venv."),
    "time without a unit": (("pinned: true", "wait: 2"), 'x.yaml:6:15: after.wait: "2" is not a time. Write a number'),
    "text that is a number": (("pinned: true", "label: 2"), 'x.yaml:6:16: after.label: 2 is not text. Quote it: "2".'),
    "list entry": (("pinned: true", "shape: [1, b]"), 'x.yaml:6:16: after.shape: "b" is not a whole number.'),
    "command beside a workload": (
        ("{pinned: true}", "{command: ls}"),
        "x.yaml:5:1: before has no command, but another",
    ),
    "preparing a workload": (
        ("{pinned: true}", "{pinned: true, prepare: sync}"),
        "x.yaml:6:23: after.prepare: only a command can be prepared by a shell line.",
    ),
    "empty command": (("{pinned: true}", "{command: ''}"), 'x.yaml:6:18: after.command: "" is an empty command.'),
    "open quote": (("{pinned: true}", '{command: "a \'b"}'), 'x.yaml:6:18: after.command: "a \'b" has a quote'),
}


def test_a_workload_alone_cannot_differ_from_itself(faults):
    assert faults("workload: json:loads\nexpect: improved\n") == [
        'x.yaml:2:9: expect: "improved" for a single workload, which is compared with itself. Write equivalent, or '
        "leave it out."
    ]


@pytest.mark.parametrize("case", SIDES)
def test_a_fault_of_sides_is_found_and_said(faults, good, case):
    (old, new), says = SIDES[case]
    assert old in good
    lines = faults(good.replace(old, new))
    assert [line for line in lines if line.startswith(says)], lines


def test_what_one_side_lacks_is_said_of_it_where_the_other_side_cannot_be_read(faults):
    found = faults("before: ./bench.py:nosuch\nafter: ./bench.py:Parser.fast\n")
    assert found[1].startswith("x.yaml:2:1: after: ./bench.py:Parser.fast needs text, which is not given.")


def test_a_value_that_a_set_up_takes_itself_must_be_given_also_where_the_function_takes_it(faults, write):
    sides = "setup: ./bench.py:make\nbefore: ./bench.py:counted\nafter: ./bench.py:anything\n"
    lacks = "needs count, which is not given. Write it in params, or in this side."
    assert faults(sides) == [
        f"x.yaml:2:1: before: ./bench.py:counted {lacks}",
        f"x.yaml:3:1: after: ./bench.py:anything {lacks}",
    ]
    load_scenario(write(f"params: {{count: 2}}\n{sides}"))


def test_a_value_that_both_sides_would_refuse_is_one_fault(faults, good):
    assert len(faults(good.replace("1MiB", "1Mb"))) == 1


def test_an_axis_of_one_entry_minds_only_sides_that_state_this_entry(faults, write, good):
    swept = good + "axes: {defines.K: [1, 2]}\n"
    assert load_scenario(write(swept.replace("pinned: true", "defines: {A: 1}"))).name == "x"
    lines = faults(swept.replace("pinned: true", "defines: {K: 1}"))
    assert lines == [
        "x.yaml:7:8: axis defines.K is fixed by after. Remove defines.K from axes or from after.",
    ]


def test_a_command_takes_no_parameter_no_workload_and_no_check_of_numbers(faults):
    text = (
        "title: t\nwhy: w\nworkload: a.b\nparams: {n: 1}\naxes: {m: [1], env.A: [1, 2]}\ncheck: {rtol: 1e-3}\n"
        "before: {command: ls -l}\nafter: {command: [ls], x: 1}\nmeasure: {clock: device}\n"
    )
    assert [line.split(": ", 1)[1].split(". ")[0] for line in faults(text)] == [
        "workload is not used: every side is a command",
        "params.n: a command takes no parameters",
        "axes.m: a command takes no parameters",
        "check.rtol does not apply to commands",
        "after.x: a command takes no parameters",
        "measure.clock: a command is timed from start to exit, by wall time",
    ]


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("tolerance", "check: commands cannot have a tolerance check. Write bitwise for standard output, {files:"),
        ("{files: out, rtol: 1e-3}", "check.rtol does not apply to commands. Write bitwise"),
        ("{kind: bitwise, reference: true}", "check.reference does not apply to commands."),
        ("{kind: none}", "check: none needs a reason."),
        ("{reason: it prints times}", "check: nothing is named that is compared. Write bitwise"),
        ("{files: /tmp/out}", "check.files: a path in a scenario must be relative."),
        ("{files: [out, out]}", "check.files: out is named twice."),
        ("{files: .}", "check.files: '.' is not a valid file name."),
    ],
)
def test_a_check_that_commands_cannot_have_is_refused(faults, check, told):
    (line,) = faults(f"title: t\nwhy: w\nbefore: {{command: a}}\nafter: {{command: b}}\ncheck: {check}\n")
    assert told in line


def test_only_commands_have_files_that_are_compared(faults, good):
    (line,) = faults(good + "check: {files: out.bin}\n")
    assert "check.files applies only to commands." in line


def test_sides_in_one_process_cannot_differ_in_what_starts_it(faults, good):
    lines = faults(good.replace("pinned: true", "env: {A: 1}") + "measure: {isolation: in_process}\n")
    assert lines[0].startswith("x.yaml:6:9: after.env: sides that share one process cannot differ in env.")


def test_thousands_of_faults_are_cut_to_what_somebody_would_read(faults, good):
    lines = faults(good + "".join(f"key{i}: 1\n" for i in range(3000)))
    assert len(lines) == 51
    assert lines[-1] == "x.yaml: has 2950 further faults. Fix these first."


def test_several_files_give_their_faults_together(write, good):
    paths = [write(good.replace("title", "titel"), "a.yaml"), write(good), write("", "b.yaml")]
    with pytest.raises(UserError) as caught:
        load_scenarios(paths)
    assert {f.where.split(":")[0] for f in caught.value.faults} == {"a.yaml", "b.yaml"}


def test_a_good_file_has_no_fault(write, good):
    assert load_scenario(write(good)).name == "x"


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("{metric: speed}", 'x.yaml:7:19: measure.metric: "speed" is not allowed; allowed: time, '),
        ("{metric: user}", "x.yaml:7:19: measure.metric: only commands report user time. Choose time, memory, "),
        ("{metric: gpu_memory}", "x.yaml:7:19: measure.metric: gpu_memory needs a GPU, but the scenario does not"),
        (
            "{metric: peak_memory, isolation: in_process}",
            "x.yaml:7:19: measure.metric: peak_memory of sides that share one process belongs to neither.",
        ),
    ],
)
def test_a_scenario_is_about_something_that_its_sides_can_tell(faults, good, extra, says):
    (line,) = faults(good + f"measure: {extra}\n")
    assert line.startswith(says)


def test_a_command_is_about_what_a_program_tells(faults, write):
    text = "title: t\nwhy: w\nbefore: {command: [ls]}\nafter: {command: [ls, -l]}\nmeasure: {metric: "
    assert load_scenario(write(text + "peak_memory}\n")).measure.metric == "peak_memory"
    (line,) = faults(text + "latency_p90}\n")
    assert line.endswith("a command reports no latency_p90. Choose time, user, system, peak_memory, or one of metrics.")
