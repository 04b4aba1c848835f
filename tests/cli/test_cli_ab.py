"""``aiperf ab``: two programs against each other."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiperf.recipes.ab import Programs, case_name, side_names
from aiperf.settings import ENERGY_SECONDS

PYTHON = f"{sys.executable} -I -S -c"


def test_equal_programs_are_compared_by_wall_user_and_system_time_and_memory(user) -> None:
    program = f"{PYTHON} {shlex.quote('bytearray(150 << 20); sum(range(3000000)); print(1)')}"
    argv = (
        "ab",
        program,
        program,
        "--precision",
        "fast.yaml",
        "--same-output",
        "--json",
        "--slice",
        "off",
    )
    # Apart: a program's peak memory cannot be told from that of the larger process that started it.
    done = user.types(*argv, "--env-after", "COLOUR=blue", "--budget", "20s", apart=True)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert {row["metric"] for row in told["rows"]} >= {"time", "user", "system", "peak_memory"}
    assert next(row for row in told["rows"] if row["primary"])["verdict"] in ("equivalent", "inconclusive")
    record = user.only_record()
    assert [side["env"] for side in record["case"]["sides"]] == [{}, {"COLOUR": "blue"}]
    assert len(record["pairs"]) == 3


@pytest.mark.long
def test_what_the_kernel_does_not_tell_of_small_and_idle_programs_is_said(user) -> None:
    done = user.types("ab", "sleep 0.02", "sleep 0.02", "--precision", "fast.yaml", "--json")
    assert not {row["metric"] for row in json.loads(done.out)["rows"]} & {"peak_memory"}
    record = user.only_record()
    (values,) = [note["values"] for note in record["notes"] if note["code"] == "memory_below"]
    assert values["sides"] == ["before", "after"]
    assert values["bytes"] > 2**20
    told = {row["metric"] for row in json.loads(done.out)["rows"]}
    lacking = {note["values"]["metric"] for note in record["notes"] if note["code"] == "no_cpu_time"}
    assert lacking == {"user", "system"} - told


def test_a_side_gets_its_own_environment_and_other_output_is_wrong_output(user) -> None:
    program = f"{PYTHON} {shlex.quote('import os; sum(range(3_000_000)); print(os.environ.get(str(42)))')}"
    argv = ("ab", program, program, "--precision", "fast.yaml", "--same-output", "-q")
    done = user.types(*argv, "--env-after", "42=x")
    assert done.code == 5
    # Once, though time, user and system time are invalid for it.
    assert " ".join(done.out.split()).count("differs from byte 0") == 1
    told = " ".join(user.types("show", "latest").out.split())
    assert told.count("Verdict: invalid. For the same reason as above.") >= 1
    assert told.count("differs from byte 0") == 2  # as what was checked, and as the reason


@pytest.mark.parametrize("option", [pytest.param((), marks=pytest.mark.long), ("--same-output",)])
def test_two_programs_that_print_nothing_are_noted(user, option) -> None:
    done = user.types("ab", "true", "true", "--precision", "fast.yaml", *option)
    assert done.code == 0, done.out
    said = " ".join(user.types("show", "latest").out.split())
    assert "neither program wrote anything to standard output, so equal work was not checked" in said


def test_a_program_that_fails_is_a_failed_case_with_its_last_words(user) -> None:
    bad = f"{PYTHON} {shlex.quote('import sys; sys.exit(chr(110) + chr(111))')}"
    done = user.types("ab", "true", bad, "--precision", "fast.yaml")
    assert done.code == 5
    assert done.plain
    failure = user.only_record()["failure"]
    assert (failure["side"], failure["kind"], failure["exit_status"]) == ("after", "error", 1)
    assert failure["stderr_tail"] == "no"
    assert "failed: after, warm-up: exit status 1: no; aiperf show RUN CASE has its stderr" in " ".join(
        done.out.split()
    )


def test_every_mistake_in_the_commands_is_told_at_once(here, user) -> None:
    told = here("ab", "nosuchprogram -x", "sh -c 'x", "--env-before", "A", "--env-after", "=b")
    assert told.code == 2
    (user.folder / "old").write_text("")
    (user.folder / "old.py").write_text("")
    for typed, said in (
        ("old", 'program "old" not found. Put a program and its arguments in quotes together: "PROGRAM old"; or write'),
        ("./old", '"./old" is not executable.'),
        ("./old", "or make it executable: chmod +x ./old."),
        ("old.py", '"old.py" is not a program. Write "python3 old.py", in quotes together.'),
        (
            "FOO=1 true",
            '"FOO=1" sets a variable, which only a shell does. Give --env-after FOO=1, or write "env FOO=1 PROGRAM"',
        ),
    ):
        assert said in " ".join(here("ab", "true", typed).err.split())
    told_of_a_pipe = here("ab", "true | true", "true")
    assert (told_of_a_pipe.code, "no shell runs this" in told_of_a_pipe.err) == (2, True)
    for fragment in (
        'program "nosuchprogram" not found',
        "has a quote that is not closed",
        '"A" is not NAME',
        '"=b" is not NAME',
    ):
        assert fragment in told.err
    assert not (user.folder / "results").exists()


def test_flags_that_make_no_sense_are_mistakes(here, user) -> None:
    pair = ("ab", "true", "true")
    for flag, value in (("--slice", "on"), ("--budget", "0s"), ("--budget", "soon"), ("--delta", "2"), ("--pin", "x")):
        told = here(*pair, flag, value)
        assert told.code == 2
        assert flag in told.err
        assert f'"{value}"' in told.err or f"value {value}." in told.err
    assert here("ab", "", "true").code == 2
    assert not (user.folder / "results").exists()


def test_columns_and_gpus_reach_the_measurement(here, user, monkeypatch) -> None:
    asked = []

    def run_plan(plan, *, settings, **_):
        asked.append((plan.cases[0].needs.gpus, settings.energy_seconds))
        raise KeyboardInterrupt

    monkeypatch.setattr("aiperf.recipes.ab.run_plan", run_plan)
    monkeypatch.setattr("aiperf.cli.ab.read_host", lambda: SimpleNamespace(gpus=(1, 2), gpu_problem=""))
    pair = ("ab", "true", "true")
    for flags in ((), ("--columns", "energy,goodput", "--gpus", "2")):
        assert here(*pair, *flags).code == 130
    assert asked == [(0, 0.0), (2, ENERGY_SECONDS)]
    told = here(*pair, "--gpus", "3")
    assert told.code == 2
    assert "--gpus: asks for 3 GPUs; this host has 2.\n  Use fewer, or run on a host that has them." in told.err
    assert '"watts"' in here(*pair, "--columns", "watts").err
    assert len(asked) == 2
    monkeypatch.setattr("aiperf.cli.ab.read_host", lambda: SimpleNamespace(gpus=(), gpu_problem="no driver"))
    told = here(*pair, "--clock", "gpu")
    assert told.err == "--clock: gpu needs a GPU; this host has 0 (no driver).\n  Run on a host that has one.\n"


@pytest.mark.long
def test_more_programs_are_each_compared_with_the_first_alone(user) -> None:
    done = user.types("ab", "sleep 0.05", "sleep 0.02", "sleep 0.021", "--precision", "fast.yaml", "-q")
    assert done.code == 0, done.err
    record = user.only_record()
    primary = [result for result in record["results"] if result["primary"]]
    assert [(r["side"], r["against"]) for r in primary] == [("0.02", "before"), ("0.021", "before")]
    assert {sample["side"] for pair in record["pairs"] for sample in pair["samples"]} <= {"before", "0.02", "0.021"}
    assert {run["side"] for run in record["pairs"][0]["runs"]} == {"before", "0.02", "0.021"}
    assert "0.021: sleep 0.021" in done.out
    assert user.types("report").out.count(" user ") == done.out.count(" user ") > 0
    assert "0.021 vs" not in done.out


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        (("a", "b"), ["before", "after"]),
        (("python old.py", "python new.py", "python bin/fast.py"), ["before", "new.py", "fast.py"]),
        (("sort -n f", "sort -g f", "sort -g f"), ["before", "g", "g-2"]),
        (("a", "a", "a"), ["before", "program", "program-2"]),
        (("x 1", "x before", "x after"), ["before", "before-2", "after-2"]),
        (("x", "x --flag='%s'" % ("y" * 40), "x ü"), ["before", "flag-" + "y" * 19, "program"]),
    ],
)
def test_a_program_among_many_is_named_by_the_words_that_the_others_lack(commands, names) -> None:
    assert side_names(commands) == names


def test_a_shell_runs_the_lines_and_each_run_is_prepared(user) -> None:
    argv = ("ab", "--shell", "sh -e", "cat made > /dev/null; echo b >> ran", "rm made; echo a >> ran")
    prepare = ("--prepare", "echo x >> prepared; touch made", "--warmup", "3")
    done = user.types(*argv, *prepare, "--precision", "fast.yaml", "-q")
    assert done.code == 0, done.err
    ran = (user.folder / "ran").read_text().split()
    # A run of after would fail without a preparation of its own.
    assert len((user.folder / "prepared").read_text().split()) == len(ran)
    pairs = user.only_record()["pairs"]
    counted = sum(len(run["pids"]) for pair in pairs for run in pair["runs"])
    # Once more each, to see whether they print the same.
    assert len(ran) == counted + 2 * (3 + 1)
    assert [run["facts"]["command"][:2] for run in pairs[0]["runs"]] == [["sh", "-e"]] * 2
    assert not pairs[0]["runs"][0]["facts"]["sliced"]
    assert "after is prepared before each run by sh -e -c 'echo x >> prepared;" in " ".join(
        user.types("show", "latest").out.split()
    )


@pytest.mark.long
def test_programs_of_a_scenario_start_in_its_folder_and_are_prepared_there_before_each_run(user) -> None:
    own = "before: {command: rm made, prepare: echo x >> made}\nafter: {command: ./new.sh}\n"
    user.write("pairs/own.yaml", own)
    user.write("pairs/new.sh", "#!/bin/sh\nread word < beside.txt\n").chmod(0o755)
    user.write("pairs/beside.txt", "word\n")
    done = user.runs("pairs/own.yaml")
    assert done.code == 0, done.err
    assert not (user.folder / "pairs" / "made").exists()
    assert "before is prepared before each run by sh -c 'echo x >> made'" in user.types("show", "latest").out


@pytest.mark.long
def test_programs_of_a_scenario_create_the_files_that_are_compared_in_its_folder(user) -> None:
    sides = "before: {command: sh -c 'printf one > out'}\nafter: {command: sh -c 'printf NUMBER >  out'}\n"
    for number, code in (("one", 0), ("two", 5)):
        user.write("pairs/own.yaml", f"{sides}check: {{files: out}}\n".replace("NUMBER", number))
        assert user.runs("pairs/own.yaml").code == code
    shown = " ".join(user.types("show", "latest").out.split())
    assert "out of after with before, bitwise" in shown
    assert "What each run writes to out must be equal bit for bit." in user.types("show", "pairs/own.yaml").out
    assert not (user.folder / "pairs" / "out").exists()


def test_a_preparation_that_fails_is_a_failed_case(user) -> None:
    done = user.types("ab", "true", "true", "--prepare", "", "--prepare", "echo no >&2; exit 3", "-q")
    assert done.code == 5
    failure = user.only_record()["failure"]
    assert (failure["side"], failure["phase"], failure["exit_status"]) == ("after", "prepare", 3)
    assert failure["stderr_tail"] == "no"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((), "needs two or more programs, but got none."),
        (("true",), "needs two or more programs, but got one."),
        (("true", "true", "--prepare", "a", "--prepare", "b", "--prepare", "c"), "--prepare: is given 3 times for 2"),
        (("true", "true", "--shell", "nosuchshell"), '--shell: program "nosuchshell" not found.'),
        (("true", "true", "--prepare", "a", "--columns", "energy"), "--prepare: cannot be combined with --columns"),
        (("true", "true", "--warmup", "0"), "--warmup"),
    ],
)
def test_mistakes_of_number_and_shell_are_told(here, user, argv, told) -> None:
    done = here("ab", *argv)
    assert done.code == 2
    assert told in done.err
    assert not (user.folder / "results").exists()


@pytest.mark.parametrize(
    ("commands", "name"),
    [
        (("sort", "gsort"), "sort-vs-gsort"),
        (("./old.sh", "./new.sh"), "old-vs-new"),
        (("python a.py", "python b.py"), "python-a-vs-python-b"),
        (("sleep 1", "sleep 0.5", "sleep 2"), "sleep-1-vs-sleep-0.5-vs-sleep-2"),
        (("sort f", "gsort f"), "sort-vs-gsort-976d"),
        (("sort g", "gsort g"), "sort-vs-gsort-4e98"),
        (("base/bin/p", "head/bin/p"), "p-ec2f"),
        (("p", "p"), "p-cd85"),
        (("ü", "é"), "program-65e7"),
    ],
)
def test_a_case_is_named_by_its_programs_with_a_hash_only_where_that_says_not_all(commands, name) -> None:
    assert case_name(Programs(commands)) == name


def test_whatever_else_is_asked_of_the_programs_is_in_the_name(here) -> None:
    asked = [
        Programs(("a", "b")),
        Programs(("a", "b"), ("X=1",)),
        Programs(("a", "b"), (), ("X=1",)),
        Programs(("a", "b"), shell="sh"),
        Programs(("a", "b"), prepare=("true",)),
        Programs(("a " + "x" * 90, "b")),
    ]
    names = [case_name(programs) for programs in asked]
    assert names[0] == "a-vs-b"
    assert len(set(names)) == len(names)
    assert all(name.startswith("a-vs-b-") for name in names[1:])


@pytest.mark.long
def test_runs_of_different_programs_have_histories_of_their_own(user) -> None:
    fast = ("--precision", "fast.yaml", "-q")
    assert "true-vs-echo" in user.types("ab", "true", "echo", *fast).out
    assert user.types("ab", "true", "true", "--name", "mine", *fast).code == 0
    listed = [user.types("history", name, "--format", "csv").out for name in ("true-vs-echo", "mine")]
    assert [{row["case"] for row in csv.DictReader(io.StringIO(text))} for text in listed] == [
        {"true-vs-echo"},
        {"mine"},
    ]
    lost = user.types("history", "ab")
    assert (lost.code, "mine, true-vs-echo" in lost.err) == (2, True)
    # The run goes on under the name that it has, also one of a time before cases had names.
    (path,) = (user.latest() / "cases").glob("*.json")
    path.write_text(path.read_text().replace('"mine"', '"ab"'))
    path.rename(path.with_name("ab.json"))
    run = user.latest() / "run.json"
    run.write_text(run.read_text().replace('"mine"', '"ab"'))
    assert user.types("ab", "true", "true", "--resume", "latest", *fast).code == 0
    assert user.only_record()["case"]["id"] == "ab"
    other = user.types("ab", "true", "true", "--name", "other", "--resume", "latest", *fast)
    assert (other.code, "used other options (id)" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a/b", '"a/b" is not a valid case name.'),
        ("ü", "is not a valid case name"),
        ("4k-pages-vs-transparent-huge-pages", "the name of a scenario"),
    ],
)
def test_a_name_that_is_no_name_or_a_scenarios_is_refused(here, name, told) -> None:
    done = here("ab", "true", "true", "--name", name)
    assert (done.code, told in done.err) == (2, True)


@pytest.mark.long
def test_programs_that_print_different_things_are_said_to_and_refused_where_that_is_asked(user) -> None:
    fast = ("--precision", "fast.yaml", "-q")
    done = user.types("ab", "echo sum 10", "echo sum 11", "sh -c 'echo sum $$'", "echo sum 10", *fast)
    assert done.code == 0, done.err
    notes = [note["values"] for note in user.only_record()["notes"] if note["code"] == "prints_otherwise"]
    # The third prints the number of its process: another one each time.
    assert notes == [
        {
            "line": 1,
            "base": "sum 10",
            "own": "sum 11",
            "side": "echo-11",
            "against": "before",
            "strict": "--same-output",
        }
    ]
    said = 'the outputs of before and echo-11 differ on line 1: "sum 10" against "sum 11" (--same-output rejects this)'
    assert " ".join(done.out.split()).count(said) == 1
    told = (
        "Output of untimed runs: echo-11 and before print different output; what before or sh--c--echo prints changes"
    )
    assert told in " ".join(done.out.split())
    assert user.types("ab", "echo sum 10", "echo sum 11", "--same-output", *fast).code == 5


@pytest.mark.long
def test_programs_that_write_different_files_are_refused_where_the_file_is_named(user) -> None:
    fast = ("--precision", "fast.yaml", "-q")
    longs = [f"sh -c 'printf %0100d {number} > out'" for number in (1, 2)]
    done = user.types("ab", *longs, *fast)
    assert done.code == 0, done.err
    shown = " ".join(user.types("show", "latest").out.split())
    assert "before writes 100 B and after writes 100 B a run, to files or to pipes between its processes" in shown
    (user.folder / "out").unlink()
    done = user.types("ab", *longs, "--same-file", "out", *fast)
    assert (done.code, "wrong output: out of after with before" in " ".join(done.out.split())) == (5, True)
    done = user.types("ab", longs[0], "sh -c 'printf %0100d 1 >  out'", "--same-file", "out", *fast)
    assert done.code == 0, done.err
    assert "Files: before and after wrote the same bytes to out in every run that was compared." in done.out
    assert not (user.folder / "out").exists()


@pytest.mark.long
def test_names_of_files_that_cannot_be_created_are_refused(here) -> None:
    mine = Path("mine")
    mine.write_text("kept")
    for names, told in (
        (["."], "'.' is not a valid file name."),
        ([""], "'' is not a valid file name."),
        (["~/out"], "'~/out' begins with ~, which is not expanded here."),
        (["out", "./out"], "./out is named twice."),
        (["mine"], f"{mine.resolve()} exists already. Each run must create it"),
        (["/dev/null"], "/dev/null exists already."),
        (["a" * 300], ""),
        (["out."], ""),
    ):
        done = here("ab", "true", "true", *(word for name in names for word in ("--same-file", name)), "-q")
        # No name may lose its end to the width of a terminal.
        said = "".join(done.err.split())
        assert (done.code, "".join(told.split()) in said) == (2 if told else 5, True), names
    assert mine.read_text() == "kept"


@pytest.mark.long
def test_output_is_not_looked_at_where_that_would_take_long(user) -> None:
    slow = ("sh -c 'sleep 0.01; echo 1'", "sh -c 'sleep 0.01; echo 2'")
    assert user.types("ab", *slow, "--precision", "fast.yaml", "--budget", "0.1s", "-q").code == 0
    assert "prints_otherwise" not in {note["code"] for note in user.only_record()["notes"]}
    shown = user.types("show", "latest").out
    assert "Output: before vs after: not compared, because another run of each would take too long" in shown
    done = user.types("ab", "echo 1", "echo 1", "--precision", "fast.yaml", "-q")
    assert done.out.count("Output of untimed runs: before and after print the same.") == 1
