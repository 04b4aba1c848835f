"""Every command on the pages runs, in a folder with one small measured run; those that cannot run here are parsed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_user import CHECKOUT, User
from nursery import LOADS

from aiperf.cli.main import COMMANDS, app
from tests.recipes.recipes_made import survey_in_small

PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
STANDS_FOR = {
    "CASE": "tiny",
    "NAME": "tiny",
    "RUN": "latest",
    "REF": "HEAD",
    "CMD": "true",
    "SQL": "select count(*) from comparisons",
    "WORD": "copy",
    "S": "demo",
}
"""What a page's placeholder is when the command runs."""
_SUM = """"python3 -c 'print(sum(n * n for n in range(2_000_000)))'\""""
_PROGRAMS = "needs those programs; tests/cli/test_cli_ab_metrics.py has others"
ONLY_PARSED = {
    "run --suite cpu": "minutes",
    "run --resume latest": "tests/cli/test_cli_run.py interrupts a run and goes on",
    "doctor --all --checklist --diff A B": "needs two saved reports; tests/cli/test_cli_doctor.py has them",
    "run one-by-one-vs-continuous-batching": "minutes; tests/cli/test_cli_serve.py runs a pair of small servers",
    "run ./load.yaml": "needs vLLM and a GPU; tests/cli/test_cli_serve.py runs a pair of small servers",
    "run ./load.yaml --dry-run": "the same",
    "run NAME --columns cost --cost FILE": "half a minute; tests/report/test_report_extra_columns.py has the column",
    "run dataloader-pageable-vs-pinned": "needs a GPU",
    """ab "./train --old" "./train --new" --metric 'tokens/s: (0-9.+)' --budget 2h""": _PROGRAMS,
    'ab "./server-a" "./server-b" --metric json:stats.p99_ms --primary p99_ms': _PROGRAMS,
    "ab ./naive ./tiled --gpus 1 --clock gpu": _PROGRAMS,
    'ab "./train --old" "./train --new" --range step': _PROGRAMS,
    "new NAME --from SCENARIO": "needs a shipped scenario; tests/cli/test_cli_listing.py copies one",
    "new my-copy --from NAME": "the same",
    "run ./my-copy.yaml": "the same",
    "survey --from FILE": "needs a stored survey; tests/cli/test_cli_survey.py has some",
    "run NAME --slurm -N 2": "needs Slurm; tests/slurm has one",
    "run all-reduce-flat-vs-hierarchical": "skipped on one host; tests/slurm runs it on two nodes",
    "run all-reduce-flat-vs-hierarchical --slurm -N 2 --time 20min": "needs Slurm; tests/slurm has one",
    "survey --slurm -N 64 --time 30min --detach": "needs Slurm; tests/slurm has one",
    "survey --collect JOB": "needs Slurm; tests/slurm has one",
    "survey --slurm -N 8 --time 20min": "needs Slurm; tests/slurm has one",
    "survey --groups 4 --slow 2=0.2": "a minute; tests/recipes/test_recipes_survey.py runs a smaller one",
    "run NAME --kubernetes -N 2 --gpus-per-node 8 --image IMAGE --claim results --output job.yaml": (
        "writes into the folder; tests/cli/test_cli_kubernetes.py has it"
    ),
    "compare --hosts NAME": "needs results that are not provisional; tests/cli/test_cli_compare.py has some",
    "peaks": "minutes; tests/cli/test_cli_host.py measures one",
    "calibrate": "minutes; tests/cli/test_cli_host.py calibrates",
    "calibrate SCENARIO": "minutes; tests/cli/test_cli_host.py calibrates",
    "gate --against REF": "needs a repository with a change; tests/cli/test_cli_gate.py has one",
    "gate --config benchmarks/gate.yaml --against origin/main --junit reports/aiperf.xml": "needs a repository",
    "comment FILE": "needs a CI job; tests/cli/test_cli_comment.py has one",
    "import FILE": "tests/store/test_store_foreign_tools.py imports files of every tool",
}
"""Command as printed, without ``aiperf`` and brackets -> why it does not run here."""
QUICK = (
    "run NAME",
    "run ./my-pair.yaml",
    f"ab --name list-or-generator {_SUM} {_SUM}",
    "ab CMD CMD",
    "profile NAME",
    "profile random-vs-sequential-read --check",
    "report results/reference/2026-11-23T02-52-26-vm --recompute",
)
"""What takes longer than the other commands: run by make test-long, with quick precision."""
FRAGMENTS = ("gate", "gate --promote", "compare", "export", "run", "query", "history", "comment", "show", "survey")
"""Names of commands within a sentence, which need more words to run."""
OF_NO_COMMAND = ("--install-completion", "--no-color COMMAND")
"""What stands behind ``aiperf`` without a command; tests/cli/test_cli_examples.py completes."""
OF_OTHERS = {
    "--exclusive", "--no-requeue", "--strict", "--check", "--aiperf-precision", "--aiperf-threshold",
    "--enable-metrics", "--enable-cache-report", "--node-rank", "--kinds",
}  # fmt: skip
"""Options on the pages that belong to other programs, too."""


def spans(page: Path) -> Iterator[str]:
    """Lines of fenced blocks and the code within sentences."""
    text = page.read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language not in ("", "console", "bash", "sh"):
            continue
        yield from (line.removeprefix("$ ").partition("  #")[0].strip() for line in block.splitlines())
    for span in re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield " ".join(span.replace("\\|", "|").split())


def everything() -> list[str]:
    return [span for page in PAGES for span in spans(page)]


def commands() -> list[str]:
    """Each command of aiperf once, without ``aiperf``; optional parts in brackets are taken, of a|b the first."""
    found = [span.removeprefix("aiperf").strip() for span in everything() if re.match(r"aiperf( |$)", span)]
    taken = (re.sub(r"[\[\]]|\.\.\.", "", re.sub(r"(\S+?)\|\S+", r"\1", command)) for command in found)
    return sorted({" ".join(command.split()) for command in taken} - {"", *OF_NO_COMMAND})


def parser(name: str) -> Any:
    """The command of this name, as the library that parses options knows it."""
    found = typer.main.get_command(app).get_command(None, name)
    assert found is not None, f"there is no command {name}"
    return found


def options(name: str) -> set[str]:
    return {flag for parameter in parser(name).params for flag in (*parameter.opts, *parameter.secondary_opts)}


def argv(command: str) -> list[str]:
    """The words to type; paths of stored reference runs are those of the checkout."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    return [str(CHECKOUT / word) if f"{word}/".startswith("results/reference/") else word for word in words]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scenario, measured twice, and a pair of one's own."""
    user = User(tmp_path_factory.mktemp("pages"))
    assert [user.runs("tiny.yaml").code for _ in range(2)] == [0, 0]
    assert user.types("new", "my-pair").code == 0
    return user.folder


def runnable() -> list[str]:
    apart = {*ONLY_PARSED, *FRAGMENTS, *QUICK}
    return [command for command in commands() if command not in apart]


@pytest.mark.parametrize("command", runnable())
def test_a_command_of_the_pages_runs(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command.startswith("survey"):
        survey_in_small(monkeypatch)
        monkeypatch.setenv(LOADS, "torch.distributed")
    if command.startswith("clean"):  # not the caches of whoever runs the tests, nor of other tests
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    user = User(tmp_path if command.startswith("new ") else folder)
    words = argv(command)
    words[-1] = {"new NAME": "another", "show NAME": "./tiny.yaml"}.get(command, words[-1])
    if command == "compare RUN RUN":
        words[1] = min(path.name for path in (folder / "results").glob("2*-*"))
    done = user.types(*words)
    # A survey may find a group slow that shares this machine with the other tests.
    assert done.code in ((0, 6) if command.split()[0] == "survey" else (0,)), done.err
    assert done.plain
    assert done.out + done.err


@pytest.mark.long
@pytest.mark.parametrize("command", QUICK)
def test_a_command_of_the_pages_that_measures_runs(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command in commands(), "no page has this command any more"
    monkeypatch.setenv("AIPERF_PRECISION", "quick")
    monkeypatch.setenv("AIPERF_PEAKS", "false")
    done = User(folder).types(*("./tiny.yaml" if word == "tiny" else word for word in argv(command)))
    assert done.code in (0, 3), done.err
    assert done.plain


@pytest.mark.parametrize("command", [*ONLY_PARSED, *FRAGMENTS])
def test_a_command_that_cannot_run_here_is_parsed(command: str) -> None:
    assert command in commands(), "no page has this command any more"
    name, *rest = argv(command)
    parsed = parser(name)
    if command not in FRAGMENTS:
        parsed.make_context(name, rest)
    else:
        assert {word for word in rest if word.startswith("--")} <= options(name)


def test_every_option_on_the_pages_is_one_of_a_command() -> None:
    known = set().union(*map(options, COMMANDS))
    named = {word for span in everything() if span.startswith("--") for word in span.split() if word.startswith("--")}
    assert len(named) > 20
    assert named - known - OF_OTHERS == set()


def test_every_target_file_and_module_on_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    texts = everything()
    made = {word for span in texts if span.startswith("make ") for word in span.split()[1:] if "=" not in word}
    assert made - targets == set()
    modules = {match[1] for span in texts if (match := re.match(r"python -m (tests[\w.]*)", span))}
    paths = [re.match(r"((aiperf|tests|configs|scenarios|docs|results)/[\w./-]*|[A-Z]+\.md)", span) for span in texts]
    named = {match[0] for match, span in zip(paths, texts, strict=True) if match and "<" not in span}
    assert len(named) > 30
    named |= {module.replace(".", "/") for module in modules}
    there = {path for path in named if any((CHECKOUT / f"{path.rstrip('.')}{end}").exists() for end in ("", ".py"))}
    assert sorted(named - there) == []


def test_a_wrong_option_on_a_page_is_noticed() -> None:
    name, *rest = argv("list --no-such-option")
    with pytest.raises(Exception, match="No such option: --no-such-option"):
        parser(name).make_context(name, rest)
