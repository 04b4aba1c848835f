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
def test_the_shell_completes_commands_options_and_names(typed, offered, tmp_path) -> None:
    env = {
        **os.environ, "_AIPERF_COMPLETE": "complete_bash", "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }  # fmt: skip
    code = "import sys; sys.argv = ['aiperf']; from aiperf.cli.main import entry; sys.exit(entry())"
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    begun = typed.split()[-1]
    found = done.stdout.split()
    assert offered in found
    assert all(name.startswith(begun) for name in found)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_what_a_command_takes_as_its_user_types_it(name, here) -> None:
    said = here(name, "--help").out
    usage = " ".join(said.partition("\n\n")[0].split())
    assert f"aiperf {name} [OPTIONS]" in usage
    assert not re.search(r"\{|\[\[|\.\.\.\]?\.|\]\]", usage), "brackets as a parser of options draws them"
    assert "list[" not in said


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
