"""What a run printed, read for its numbers."""

from __future__ import annotations

import pytest

from aiperf.launch.program_output import NoValue, last_line, output_tail, read_values
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
        ("tokens/s: fast", '"fast", printed for the metric speed, is not a number'),
        ("tokens/s: 0", "speed is 0: only numbers above 0 have a ratio"),
        ("tokens/s: -3", "speed is -3: only numbers"),
        ("tokens/s: nan", "speed is nan: only numbers"),
        ("tokens/s: 1,2", '"1,2", printed'),
    ],
)
def test_a_run_without_a_number_says_which_and_why(text, says):
    with pytest.raises(NoValue) as caught:
        read_values([SPEED], text.encode(), b"")
    assert says in str(caught.value)


def test_ranges_are_not_looked_for_in_what_is_printed():
    assert read_values([ProgramMetric("step", "s", range="step")], b"", b"") == {}
    assert (last_line([SPEED], b""), output_tail(b"")) == ("", "")
