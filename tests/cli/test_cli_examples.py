"""Every command's help ends with examples that parse; completion can be installed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer

from aiperf.cli.examples import EXAMPLES
from aiperf.cli.main import COMMANDS, app


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_in_its_help_and_parse(name, here) -> None:
    said = here(name, "--help").out
    assert EXAMPLES[name]
    for typed, meaning in EXAMPLES[name]:
        assert f"  aiperf {typed}\n" in said
        assert meaning in said
        first, *rest = shlex.split(typed)
        assert first == name
        typer.main.get_command(app).get_command(None, name).make_context(name, rest)


def test_examples_are_of_commands_that_there_are() -> None:
    assert list(EXAMPLES) == list(COMMANDS)


def completing(typed: str) -> dict[str, str]:
    """What Bash sets when somebody presses the tab key after these words."""
    return {"_AIPERF_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}


def check_offers(typed: str, offered: str, out: str) -> None:
    begun = typed.split()[-1]
    found = out.split()
    assert offered in found
    assert all(name.startswith(begun) for name in found)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("aiperf ga", "gate"),
        ("aiperf run --prec", "--precision"),
        ("aiperf run --precision ri", "rigorous"),
        ("aiperf run --suite book-ch0", "book-ch07"),
        ("aiperf run random-vs", "random-vs-sequential-read"),
        ("aiperf show random-vs", "random-vs-sequential-read"),
    ],
)
def test_the_shell_completes_commands_options_and_names(typed, offered, here, monkeypatch) -> None:
    for name, value in completing(typed).items():
        monkeypatch.setenv(name, value)
    told = here()
    assert told.code == 0
    check_offers(typed, offered, told.out)


def test_the_shell_completes_in_a_process_of_its_own_that_has_imported_nothing(tmp_path) -> None:
    code = "import sys; sys.argv = ['aiperf']; from aiperf.cli.main import entry; sys.exit(entry())"
    typed = "aiperf show random-vs"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **completing(typed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    check_offers(typed, "random-vs-sequential-read", done.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_what_a_command_takes_as_its_user_types_it(name, here) -> None:
    said = here(name, "--help").out
    usage = " ".join(said.partition("\n\n")[0].split())
    assert f"aiperf {name} [OPTIONS]" in usage
    assert not re.search(r"\{|\[\[|\.\.\.\]?\.|\]\]", usage), "brackets as a parser of options draws them"
    assert "list[" not in said


@pytest.mark.parametrize(
    ("name", "argument"), [("show", "NAME"), ("new", "NAME"), ("comment", "FILE"), ("import", "FILE")]
)
def test_a_command_without_its_argument_says_which_and_gives_a_line_that_works(name, argument, here) -> None:
    answer = here(name)
    assert (answer.code, answer.out) == (2, "")
    example = EXAMPLES[name][0][0]
    assert answer.err == (
        f"aiperf {name} needs a {argument}.\n  For example: aiperf {example}; aiperf {name} -h explains it.\n"
    )


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("ab", "CMD CMD ..."),
        ("run", "[NAME|TAG|PATH|GLOB ...]"),
        ("show", "NAME [CASE]"),
        ("import", "FILE [FILE ...]"),
    ],
)
def test_the_usage_line_says_which_arguments_may_be_left_out(name, takes, here) -> None:
    assert here(name, "--help").out.partition("\n\n")[0].endswith(f"[OPTIONS] {takes}")
