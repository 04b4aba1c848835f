"""What a run printed, read for its numbers."""

from __future__ import annotations

import pytest

from aiperf.launch.printed import printed_changes, printed_relations
from aiperf.launch.program import ProgramOutput
from aiperf.launch.program_output import NoValue, PrintedChange, first_change, last_line, output_tail, read_values
from aiperf.records import ProgramMetric

SPEED = ProgramMetric("speed", "tokens/s", "higher", pattern=r"tokens/s: (\S+)")
P99 = ProgramMetric("p99", "s", path="stats.0.p99_ms", factor=1e-3)


def test_the_last_match_counts_and_output_comes_before_errors():
    err = b"tokens/s: 7\n"
    assert read_values([SPEED], b"", err) == {"speed": 7.0}
    out = b"tokens/s: 1 tokens/s: 2\nno\ntokens/s: 1,234.5\nend\n"
    assert read_values([SPEED], out, err) == {"speed": 1234.5}


def test_progress_bars_and_colours_do_not_hide_a_number():
    out = b"\xfftokens/s: 1\rtokens/s: \x1b[32m2.5\x1b[0m\rdone"
    assert read_values([SPEED], out, b"") == {"speed": 2.5}
    assert last_line([SPEED], out) == "tokens/s: \x1b[32m2.5\x1b[0m"
    assert output_tail(out).endswith("tokens/s: 2.5\ndone")


def test_json_is_read_by_path_from_the_last_line_that_has_it():
    out = '{"stats": [{"p99_ms": 4}]}\nINFO {"stats": [{"p99_ms": 2.5}]}\n{"stats": []}\n{"broken": \n'
    assert read_values([P99], out.encode(), b"") == {"p99": 0.0025}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", 'printed no line for the metric speed: a line that matches "tokens/s: '),
        ("", "was expected, but it printed nothing"),
        ("a\nimages/s: \x1b[32m7\x1b[0m\n\n", 'was expected, but its last line is "images/s: 7"'),
        ("-" * 99, 'its last line is "' + "-" * 80 + '…"'),
        ("tokens/s: fast", '"fast", printed for the metric speed, is not a number'),
        ("tokens/s: 0", "speed is 0: a ratio needs numbers above 0"),
        ("tokens/s: -3", "speed is -3: a ratio needs numbers above 0"),
        ("tokens/s: nan", "speed is nan: a ratio needs numbers above 0"),
        ("tokens/s: 1,2", '"1,2", printed'),
    ],
)
def test_a_run_without_a_number_says_which_and_why(text, says):
    with pytest.raises(NoValue) as caught:
        read_values([SPEED], text.encode(), b"")
    assert says in str(caught.value)


def test_who_prints_to_standard_error_alone_is_told_its_last_line():
    with pytest.raises(NoValue, match='its last line is "done"'):
        read_values([SPEED], b"\n", b"step 1\ndone\n")


def test_ranges_are_not_looked_for_in_what_is_printed():
    assert read_values([ProgramMetric("step", "s", range="step")], b"", b"") == {}
    assert (last_line([SPEED], b""), output_tail(b"")) == ("", "")


@pytest.mark.parametrize(
    ("base", "own", "change"),
    [
        (b"a\nb 1\n", b"a\nb 2\n", PrintedChange(2, "b 1", "b 2")),
        (b"a\n", b"a\nmore\n", PrintedChange(2, "", "more")),
        (b"", b"x", PrintedChange(1, "", "x")),
        (b"\xff", b"\xfe", PrintedChange(1, "\\xff", "\\xfe")),
        (b"-" * 99 + b"1" + b"." * 99, b"-" * 99 + b"2" + b"." * 99, (f"…{'-' * 20}1{'.' * 19}…", "2")),
        (b"\x1b[31mred\x1b[0m", b"\x1b[31mrose\x1b[0m", PrintedChange(1, "red", "rose")),
    ],
)
def test_the_first_line_that_differs_is_shown_around_the_difference(base, own, change):
    found = first_change(base, own)
    if isinstance(change, tuple):
        assert (found.base, found.own[21], len(found.own)) == (*change, 42)
    else:
        assert found == change


def test_only_sides_that_print_the_same_each_time_are_said_to_differ():
    def output(text: str, size: int = 0) -> ProgramOutput:
        return ProgramOutput(text.encode(), text.encode(), size or len(text))

    one, two, three = output("1\n"), output("2\n"), output("3\n")
    assert printed_changes({"before": [one, one], "after": [one, one]}) == {}
    assert printed_changes({"before": [one, one], "x": [two, two], "y": [three, two], "z": [one, one]}) == {
        "x": PrintedChange(1, "1", "2")
    }
    assert printed_changes({"before": [one, two], "after": [three, three]}) == {}
    assert printed_changes({"before": [output("a", 9)], "after": [output("a", 8)]}) == {
        "after": PrintedChange(0, "", "")
    }


def test_how_the_output_of_each_side_relates_to_that_of_the_first_is_said_in_a_word():
    def output(text: str) -> ProgramOutput:
        return ProgramOutput(text.encode(), text.encode(), len(text))

    one, two, none = output("1\n"), output("2\n"), output("")
    sides = ["before", "x", "y", "z"]
    assert printed_relations(sides, {"before": [one, one], "x": [one, one], "y": [two, two], "z": [one, two]}) == {
        "x": "same",
        "y": "otherwise",
        "z": "varies",
    }
    assert printed_relations(sides[:2], {"before": [one, two], "x": [one, one]}) == {"x": "varies"}
    assert printed_relations(sides[:2], {"before": [none], "x": [none]}) == {"x": "nothing"}
    assert printed_relations(sides[:2], {}) == {"x": "unseen"}
    assert printed_relations(sides[:2], {}, "failed") == {"x": "failed"}
