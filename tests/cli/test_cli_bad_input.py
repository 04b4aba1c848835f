"""Bad input of every kind: one clear message, the right exit code, no traceback, nothing started."""

from __future__ import annotations

import json
import os
import resource
import time

import pytest
from cli_user import SCENARIO

from aiperf.store.read import find_runs

HEAD = "title: t\nwhy: w\nworkload: ./work.py:add\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES = {
    "unknown key": (SCENARIO + "befor: {}\n", "bad.yaml:8:1"),
    "wrong type": (SCENARIO.replace("[mine]", "7"), "bad.yaml:3:7"),
    "wrong unit": (SCENARIO + 'needs: {memory: "12Q"}\n', '"12Q" is not a size'),
    "missing side": (HEAD + "before: {}\n", "after"),
    "empty file": ("", "bad.yaml"),
    "ten megabytes": (SCENARIO + "# " + "x" * 10_000_000, "bad.yaml"),
    "anchors bomb": (SCENARIO + BOMB, "bad.yaml"),
    "python object": (HEAD + "before: !!python/object/apply:os.system ['touch owned']\n", "bad.yaml:4"),
    "duplicate key": (SCENARIO + "title: again\n", "bad.yaml:8:1"),
    "tab indentation": (SCENARIO + "params:\n\titems: 3\n", "bad.yaml:9"),
    "not UTF-8": (SCENARIO.encode() + b"# \xff\xfe\n", "bad.yaml"),
    "not a mapping": ("- 1\n- 2\n", "bad.yaml"),
    "half a file": ("title: [", "bad.yaml"),
    "unknown function": (SCENARIO.replace(":add", ":ad"), "add"),
    "unknown workload": (SCENARIO.replace("./work.py:add", "transfer.coppy"), "Did you mean copy?"),
    "workload without a file": (SCENARIO.replace("./work.py", "./nowhere.py"), "nowhere.py"),
    "unknown parameter": (SCENARIO + "params: {itms: 3}\n", "items"),
    "parameter of another type": (SCENARIO + "params: {items: many}\n", "many"),
    "axis without a value": (SCENARIO + "axes: {items: []}\n", "items"),
    "axis that is no parameter": (SCENARIO + "axes: {depth: [1, 2]}\n", "depth"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_scenario_is_told_with_its_place_and_exits_with_2(here, user, name) -> None:
    text, told = FILES[name]
    user.write("bad.yaml", text)
    began = time.process_time()
    for argv in (("run", "./bad.yaml"), ("show", "./bad.yaml"), ("calibrate", "./bad.yaml")):
        done = here(*argv)
        assert done.code == 2
        assert told in done.err
        assert done.out == ""
        assert len(done.err) < 6000
    assert time.process_time() - began < 8
    assert sorted(p.name for p in user.folder.iterdir() if p.name in ("results", "owned")) == []


def test_all_mistakes_of_all_files_come_at_once_in_order(here, user) -> None:
    user.write("a.yaml", SCENARIO.replace("[mine]", "7") + "befor: {}\n")
    user.write("b.yaml", SCENARIO + "colour: red\n")
    places = [line.split(": ")[0] for line in here("run", "./a.yaml", "./b.yaml").err.splitlines() if line[0] != " "]
    assert places == ["a.yaml:3:7", "a.yaml:8:1", "b.yaml:8:1"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("run", "nosuch"), '"nosuch" is not a scenario'),
        (("run", "./nosuch.yaml"), "nosuch.yaml"),
        (("run", ""), "is not a scenario"),
        (("run", "tiny", "--precision", "fats"), '--precision: precision "fats" is not known'),
        (("run", "tiny", "--budget", "ten"), "e.g. 2ms or 10min"),
        (("list", "storrage"), "Nearest tags: storage. aiperf list shows"),
        (("run",), "no scenario given"),
        (("run", "--resume", "latest"), "no run is stored"),
        (("run", "tiny.yaml", "--precision", "sloppy"), "quick, rigorous, standard"),
        (("run", "tiny.yaml", "--precision", "nosuch.yaml"), "nosuch.yaml"),
        (("run", "tiny.yaml", "--budget", "soon"), '--budget: "soon" is not a time'),
        (("run", "tiny.yaml", "--budget", "0s"), "--budget"),
        (("run", "tiny.yaml", "--timeout", "5"), "--timeout"),
        (("run", "tiny.yaml", "--pin", "9999"), "--pin: CPU 9999"),
        (("run", "tiny.yaml", "--pin", "left"), '--pin: "left"'),
        (("run", "tiny.yaml", "--only", "items"), "AXIS=VALUE"),
        (("run", "tiny.yaml", "--only", "colour=red"), "It has no axes: leave --only out."),
        (("run", "./work.py"), "work.py: this is a Python file, but a scenario is a .yaml file."),
        (("run", "tiny.yaml", "--precision", "quik"), "Did you mean quick?"),
        (("gate", "tiny.yaml", "--config", "b/nowhere.yaml"), 'gate: there is no file "b/nowhere.yaml"'),
        (
            ("ab", "true", "true", "--threshold", "5"),
            '--delta: "5" is not a share above 0 and below 1.\n  For 5 % write 5% or',
        ),
        (("compare", "work.py:add", "work.py:add"), '"work.py:add" names a function, but a stored run is needed here.'),
        (("export",), "--output: is missing.\n  For example: aiperf export -o runs.parquet"),
        (("run", "tiny.yaml", "--seed", "x"), "'--seed': \"x\" is not a whole number."),
        (("run", "tiny.yaml", "--host-check", "x"), "'--host-check': 'x' is not one of"),
        (("run", "tiny.yaml", "--budget", "5"), "It has no unit: write 5s, 5min or 5h"),
        (("explain", "tiny"), "Did you mean show?"),
        (("comment", "nosuch.md"), "nosuch.md cannot be read: No such file or directory.\n"),
        (("run", "tiny.yaml", "--format", "pdf"), "markdown"),
        (("run", "tiny.yaml", "--colour"), "--colour"),
        (("rnu",), '"rnu" is not an aiperf command.\n  Did you mean run?'),
    ],
    ids=" ".join,
)
def test_a_mistyped_command_is_told_and_exits_with_2(here, user, argv, told) -> None:
    done = here(*argv)
    assert done.code == 2
    assert told in done.err
    assert not (user.folder / "results").exists()


def test_a_key_that_is_nearly_before_is_one_mistake_and_not_two(here, user) -> None:
    user.write("bad.yaml", HEAD + "befor: {}\nafter: {}\n")
    done = here("run", "./bad.yaml")
    assert "Did you mean before?" in done.err
    assert "before is missing" not in done.err


def test_a_precision_file_with_mistakes_names_each_of_them(here, user) -> None:
    user.write("p.yaml", "lokks: [3]\ncolour: red\n")
    done = here("run", "tiny.yaml", "--precision", "p.yaml")
    assert done.code == 2
    assert ('"lokks" is not a setting' in done.err, '"colour" is not a setting' in done.err) == (True, True)
    user.write("p.yaml", "looks: [6, 3]\n")
    assert "p.yaml:1:1: " in done.err
    assert "rising" in here("run", "tiny.yaml", "--precision", "p.yaml").err


def test_several_values_of_an_axis_are_kept_and_each_that_is_none_is_named(here, user) -> None:
    user.write("sizes.yaml", (user.folder / "tiny.yaml").read_text() + "axes: {items: [1, 2, 3]}\n")

    def planned(*only: str) -> list[str]:
        argv = [word for text in only for word in ("--only", text)]
        return [row["case"] for row in json.loads(here("run", "sizes.yaml", *argv, "--dry-run", "--json").out)]

    assert planned("items=3,1") == planned("items=1", "items=3", "items=1") == ["sizes[items=1]", "sizes[items=3]"]
    done = here("run", "sizes.yaml", "--only", "items=1,4,5", "--dry-run")
    assert (done.code, done.plain) == (2, True)
    assert done.err.count("allowed: 1, 2, 3") == 2
    wrong = here("run", "sizes.yaml", "--only", "items=1,", "--dry-run")
    assert (wrong.code, "or --only size=1MiB,16MiB" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "results", ["/proc/nowhere", "tiny.yaml", pytest.param("tiny.yaml/deeper", marks=pytest.mark.long)]
)
def test_a_results_folder_that_cannot_be_written_is_told_before_anything_is_measured(here, user, results) -> None:
    done = here("run", "tiny.yaml", "--precision", "fast.yaml", "--results", results)
    assert done.code == 2
    assert f"{results}: the results folder cannot be written" in done.err
    assert "--results PATH" in done.err


def test_a_results_folder_that_is_full_is_told_before_anything_is_measured(user) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    # Python would leave the first 1000 bytes of a compiled module where every other process looks for it.
    user.env["PYTHONDONTWRITEBYTECODE"] = "1"
    done = user.types("run", "tiny.yaml", "--precision", "fast.yaml", preexec_fn=no_room)
    assert done.code == 2
    assert "the results folder cannot be written: file too large" in done.err
    assert find_runs(user.folder / "results") == ()


@pytest.mark.long
def test_a_reader_that_has_seen_enough_is_no_error(user) -> None:
    for argv in (("list",), ("--help",), ("list", "--json")):
        read, write = os.pipe()
        os.close(read)
        done = user.types(*argv, stdout=write)
        os.close(write)
        assert (done.code, done.err) == (0, "")


def test_only_debug_shows_where_a_mistake_was_found(user) -> None:
    assert "Traceback" in user.types("--debug", "run", "nosuch").err
    assert "Traceback" not in user.types("run", "nosuch").err


@pytest.mark.long
def test_output_that_the_terminal_cannot_show_is_replaced_and_not_fatal(user) -> None:
    user.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    user.scenario("pair", title="Größe – µs")
    shown = user.types("show", "./pair.yaml")
    assert (shown.code, shown.err) == (0, "")
    told = user.types("run", "./größe.yaml")
    assert told.code == 2
    assert "Traceback" not in told.err


def test_a_scenario_of_too_many_cases_is_refused(here, user) -> None:
    user.scenario("many", axes=f"{{items: [{', '.join(map(str, range(1, 5001)))}]}}")
    told = here("run", "./many.yaml", "--dry-run")
    assert told.code == 2
    assert "5,000 cases" in told.err
