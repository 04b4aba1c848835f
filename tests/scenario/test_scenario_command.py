"""A command in one text: quotes as a shell takes them, and nothing else that only a shell would do."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.scenario.command import shell_syntax, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("./old --n 3", ("./old", "--n", "3")),
        ("python -c 'import x; print(1 > 0)'", ("python", "-c", "import x; print(1 > 0)")),
        ("""grep "a|b" '$5' "5 $" """, ("grep", "a|b", "$5", "5 $")),
        (r"grep a\|b c\;d", ("grep", "a|b", "c;d")),
        ("find . -name '*.txt' a~b c#d", ("find", ".", "-name", "*.txt", "a~b", "c#d")),
        (r"grep foo$ a\$1 \* \~", ("grep", "foo$", "a$1", "*", "~")),
        (" ./a\n", ("./a",)),
        ("sh -c './a | sort > b'", ("sh", "-c", "./a | sort > b")),
    ],
)
def test_quotes_group_words_and_hold_what_a_shell_would_take_for_itself(text: str, words: tuple[str, ...]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "syntax"),
    [("./a | sort", "|"), ("./a > b", ">"), ("./a <b", "<"), ("./a && ./b", "&"), ("cat; ls", ";"), ("x `y`", "`"),
     ("./a $HOME", "$"), ("./a ${X}", "$"), ("./a $(date)", "$"), ("'a'b|c", "|"), ("ls *.csv", "*"), ("ls a?", "?"),
     ("./a ~/x", "~"), ("./a # b", "#"), ("./a\n./b", "\n"), ('./a "$HOME/x"', "$"), ('./a "`b`"', "`"),
     ("./a $1", "$"), ("./a $$", "$"), ('"a\\"$x"', "$"), (r"a\\|b", "|"), (r"'a\' | b", "|"), ('"a\\"|" >b', ">")],
)  # fmt: skip
def test_what_only_a_shell_would_understand_is_refused_with_the_command_that_asks_one(text: str, syntax: str) -> None:
    with pytest.raises(ValueError, match="no shell runs this") as refused:
        words_of(text)
    assert repr(syntax) in str(refused.value)
    assert f"Write sh -c {shlex.quote(text)}, or put it in single quotes" in str(refused.value)
    assert words_of(f"sh -c {shlex.quote(text)}") == ("sh", "-c", text)


def test_a_quote_that_is_not_closed_is_told() -> None:
    with pytest.raises(ValueError, match="a quote that is not closed"):
        words_of("./a 'b")


@given(st.lists(st.text(min_size=1), max_size=5))
def test_any_arguments_that_are_quoted_as_for_a_shell_come_through(words: list[str]) -> None:
    assert words_of(shlex.join(words)) == tuple(words)


@given(st.text())
def test_no_text_confuses_the_search_for_a_shells_syntax(text: str) -> None:
    assert shell_syntax(text) in ("", *"|&;<>`$\n*?~#")
    assert shell_syntax(shlex.quote(text)) == ""
