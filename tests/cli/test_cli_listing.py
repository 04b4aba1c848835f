"""``aiperf list``, ``show`` and ``new``."""

from __future__ import annotations

import csv
import io
import json

import pytest
from cli_user import SCENARIO, WORKLOAD

from aiperf.profilers.counters import COUNTERS
from aiperf.scenario.find import list_scenarios


def test_the_list_names_every_shipped_scenario_and_the_tags(here) -> None:
    told = here("list")
    assert told.code == 0
    assert "pageable-vs-pinned-copy" in told.out
    assert "Tags: " in told.out
    rows = json.loads(here("list", "--json").out)
    assert {"same-vs-same", "data-parallel-vs-ddp", "train-eager-vs-compile"} <= {row["name"] for row in rows}


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--suites",), ("--workloads",), ("--counters",)])
def test_every_listing_is_there_as_markdown_and_as_csv_of_the_records_that_json_has(here, words) -> None:
    rows = json.loads(here("list", *words, "--json").out)
    read = list(csv.DictReader(io.StringIO(here("list", *words, "--format", "csv").out)))
    assert [row["name"] for row in read] == [row["name"] for row in rows]
    markdown = here("list", *words, "--format", "markdown").out
    assert markdown.startswith("| ")
    assert sum(line.startswith("| ") for line in markdown.splitlines()) == len(rows) + 2


def test_a_tag_and_a_folder_narrow_the_list(here, user) -> None:
    assert [row["name"] for row in json.loads(here("list", "--folder", ".", "mine", "--json").out)] == ["tiny"]
    assert "pageable" not in here("list", "control").out


def test_a_word_that_is_a_tag_and_one_that_is_none_are_looked_for_where_they_belong(here) -> None:
    def names(*words: str) -> set[str]:
        return {row["name"] for row in json.loads(here("list", *words, "--json").out)}

    assert "pageable-vs-pinned-copy" in names("pinned-copy") & names("Transfer.COPY") & names(
        "between HOST and", "memory"
    )
    assert names("pinned", "copy") == names("pinned") & names("copy") < names("pinned")
    assert "padded-vs-swizzled-tile" in names("ch07")
    assert names("padding-vs-swizzle") == {"padded-vs-swizzled-tile"}
    tips = {row["name"] for row in json.loads(here("list", "--json").out) if "tip" in row["tags"]}
    assert names("tip") == tips
    assert "block-size-33-vs-256" in names("TIP")  # of a row that says "multiple"
    assert names("tip", "nvtx") == {"nvtx-off-vs-on"}
    nothing = here("list", "pinned", "contrl")
    assert (nothing.code, nothing.err.splitlines()[0][:37]) == (2, 'no scenario has "pinned" and "contrl"')


def test_a_tag_that_nothing_has_and_a_folder_that_is_none_are_mistakes(here) -> None:
    unknown = here("list", "contrl")
    assert unknown.code == 2
    assert 'no scenario has "contrl" as a tag or, if there is no such tag, in the name, title' in unknown.err
    assert "control" in unknown.err
    missing = here("list", "--folder", "nowhere")
    assert missing.code == 2
    assert '"nowhere" is not a folder' in missing.err


def test_a_broken_scenario_is_still_listed_with_its_problem(here, user) -> None:
    user.write("lot/broken.yaml", "title: [")
    told = here("list", "--folder", "lot")
    assert told.code == 0
    assert "broken" in told.out


def test_show_explains_a_scenario_in_words_and_as_json(here) -> None:
    told = here("show", "same-vs-same")
    assert told.code == 0
    assert "A transformer's forward pass against itself" in told.out
    assert json.loads(here("show", "same-vs-same", "--json").out)[0]["name"] == "same-vs-same"


def test_a_near_miss_is_named(here) -> None:
    told = here("show", "same-vs-some")
    assert told.code == 2
    assert "same-vs-same" in told.err


def test_the_workloads_are_listed_with_how_many_scenarios_use_them(here) -> None:
    told = here("list", "--workloads")
    assert told.code == 0
    assert told.plain
    rows = {row["name"]: row for row in json.loads(here("list", "--workloads", "--json").out)}
    assert list(rows) == sorted(rows)
    shipped = json.loads(here("list", "--json").out)
    for name in ("transfer.copy", "cuda.kernel", "memory.alloc"):
        users = [row["name"] for row in shipped if row["workload"] == name]
        assert rows[name]["scenarios"] == users
        (line,) = [line for line in told.out.splitlines() if line.startswith(f" {name} ")]
        assert line.split()[:2] == [name, str(len(users))]
        assert rows[name]["summary"].split()[0].replace("``", "`") in line


def test_show_tells_what_is_judged_where_it_is_not_time(here, user) -> None:
    for headline, told in (("memory", "peak memory of the device it runs on"), ("peak_memory", "peak host memory")):
        user.write("mine/about.yaml", SCENARIO + f"measure: {{metric: {headline}}}\n")
        user.write("mine/work.py", WORKLOAD)
        assert f"The primary metric is {told}; time is shown, too." in here("show", "./mine/about.yaml").out


def test_show_tells_of_a_workload_what_a_scenario_may_write(here) -> None:
    told = here("show", "transfer.copy")
    assert told.code == 0
    assert told.plain
    assert told.out.startswith("transfer.copy: Copy `size` bytes")
    assert " direction     h2d      one of h2d, d2h, d2d\n size          256MiB   size\n" in told.out
    assert "copy-256mb-same" in told.out
    assert " m required whole number " in " ".join(here("show", "linalg.matmul").out.split())
    (row,) = json.loads(here("show", "transfer.copy", "--json").out)
    assert row["parameters"][0]["allowed"] == ["h2d", "d2h", "d2d"]
    assert "pageable-vs-pinned-copy" in row["scenarios"]


def test_a_misspelt_workload_is_named_beside_a_near_tag(here) -> None:
    told = here("show", "transfer.cpy")
    assert (told.code, told.out) == (2, "")
    assert "Did you mean transfer, or the workload transfer.copy?" in told.err


def test_the_counters_are_listed_in_full(here) -> None:
    told = here("list", "--counters")
    assert told.code == 0
    assert told.plain
    rows = json.loads(here("list", "--counters", "--json").out)
    assert [row["name"] for row in rows] == list(COUNTERS)
    assert all(f" {name} " in told.out for name in COUNTERS)


def test_a_pipe_gets_each_scenario_on_a_line_of_its_own(here) -> None:
    lines = here("list").out.splitlines()
    shown = {(line.split()[0], line.rpartition("  ")[2]) for line in lines if line}
    assert shown >= {(listing.name, listing.title) for listing in list_scenarios()}


@pytest.mark.parametrize("argv", [("list", "--workloads"), ("list", "--counters"), ("show", "tensor.op")], ids=" ".join)
def test_a_narrow_terminal_is_not_overrun(here, monkeypatch, argv) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(len(line) for line in here(*argv).out.splitlines()) <= 60


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--workloads", "--suites"], "--suites and --workloads cannot be combined."),
        (["--counters", "--workloads", "gpu"], "--workloads and --counters cannot be combined."),
        (["gpu", "--workloads"], "--workloads: --workloads takes no WORD and no --folder."),
        (["--folder", ".", "--counters"], "--counters: --counters takes no WORD and no --folder."),
        (["--suites", "gpu"], "--suites: --suites takes no WORD and no --folder."),
    ],
)
def test_listings_that_exclude_each_other_are_told_in_one_message(here, argv, told) -> None:
    done = here("list", *argv)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[0] == told
    assert len(done.err.splitlines()) == 2
    assert done.plain


def test_a_new_scenario_runs_at_once(user) -> None:
    made = user.types("new", "my-pair")
    assert made.code == 0
    assert made.out.splitlines()[-1] == "next: aiperf run ./my-pair.yaml"
    done = user.runs("./my-pair.yaml", "--only", "rows=1024")
    assert done.code == 0, done.out + done.err
    record = user.record("my-pair[rows=1024]")
    assert record["status"] == "measured"
    assert record["results"][0]["comparison"]["ratio"] > 1.5


def test_a_new_scenario_overwrites_nothing(here, user) -> None:
    assert here("new", "tiny").code == 2
    assert "expect: equivalent" in (user.folder / "tiny.yaml").read_text()
    assert here("new", "../outside").code == 2


def test_a_new_scenario_goes_into_the_folder_asked_for(here, user) -> None:
    told = here("new", "x", "--folder", "deep/er")
    assert told.code == 0
    assert (user.folder / "deep/er/x.yaml").is_file()
    assert told.out.splitlines()[-1] == "next: aiperf run deep/er/x.yaml"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--quiet", "run", "x y"], "aiperf run --quiet 'x y'"),
        (["--no-color", "--budget", "5min", "run", "x"], "aiperf --no-color run --budget 5min x"),
        (["--budget", "5min", "list"], "aiperf list -h lists the options of that command."),
        (["--verison"], "Did you mean --version?"),
        (["--quiet"], "Options of a command follow its name"),
    ],
)
def test_an_option_before_the_command_is_refused_with_the_line_that_works(here, typed, said) -> None:
    done = here(*typed)
    assert done.code == 2
    assert "is not an option of aiperf itself" in done.err
    assert said in done.err


def test_new_copies_a_shipped_scenario_that_runs_under_its_own_name(here, user) -> None:
    done = here("new", "my-copy", "--from", "same-vs-same")
    assert done.out.splitlines()[-1] == "next: aiperf run ./my-copy.yaml"
    assert "book:" not in (user.folder / "my-copy.yaml").read_text()
    assert here("new", "other", "--full", "--from", "same-vs-same").code == 2
