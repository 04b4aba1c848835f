"""Metrics of a program's own: what a pattern says of its name and unit, and what a file may write."""

from __future__ import annotations

import pytest

from aiperf.plan.cases import expand
from aiperf.records import ProgramMetric
from aiperf.scenario.load import load_scenario
from aiperf.scenario.program_metrics import range_metrics, typed_metric, typed_metrics
from aiperf.units import InvalidValue

COMMANDS = "title: t\nwhy: w\nbefore: {command: [ls]}\nafter: {command: [ls, -l]}\n"


@pytest.mark.parametrize(
    ("text", "name", "unit", "better", "factor"),
    [
        ("tokens/s: ([0-9.]+)", "tokens_per_s", "tokens/s", "higher", 1.0),
        (r"Output token throughput \(tok/s\):\s+([\d.]+)", "Output_token_throughput", "tok/s", "higher", 1.0),
        ("time: ([0-9.]+) ms", "printed_time", "s", "lower", 1e-3),
        (r"step\s*=\s*(\d+(?:\.\d+)?)\s*us", "step", "s", "lower", 1e-6),
        (r"iter (?:\d+): (?P<rate>[0-9.]+) images/sec", "rate", "images/sec", "higher", 1.0),
        ("([0-9.]+) tokens/sec", "tokens_per_sec", "tokens/sec", "higher", 1.0),
        ("peak: ([0-9]+) MiB", "peak", "B", "lower", float(1 << 20)),
        ("json:stats.tokens_per_s", "tokens_per_s", "tokens/s", "higher", 1.0),
        ("json:latency.0.p99_ms", "p99_ms", "s", "lower", 1e-3),
    ],
)
def test_name_unit_and_direction_are_read_from_what_is_asked(text, name, unit, better, factor):
    metric = typed_metric(text)
    assert (metric.name, metric.unit, metric.better, metric.factor) == (name, unit, better, factor)
    assert metric.path == text.removeprefix("json:") if text.startswith("json:") else metric.pattern == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tokens/s: [0-9.]+", "has no group to capture the number"),
        ("tokens/s: ([0-9.]+", "is not a regular expression: missing )"),
        ("(a) and (b)", "has 2 groups, but a metric is one number"),
        ("json:a..b", "is not a JSON path"),
        ("loss: ([0-9.]+)", "the unit of loss does not show whether higher or lower is better"),
        ("(?P<time>[0-9.]+) ms", '"time" is a metric that aiperf measures itself'),
        ("([0-9]+)", "Name its group, e.g. (?P<throughput>[0-9.]+)."),
    ],
)
def test_what_cannot_be_a_metric_is_refused_with_what_to_write(text, says):
    with pytest.raises(InvalidValue) as caught:
        typed_metric(text)
    assert says in str(caught.value)


def test_directions_go_with_metrics_one_by_one_or_one_for_all():
    losses = ["train loss: ([0-9.]+)", "eval loss: ([0-9.]+)"]
    assert [m.better for m in typed_metrics(losses, ["lower"])] == ["lower", "lower"]
    assert [m.better for m in typed_metrics(losses, ["lower", "higher"])] == ["lower", "higher"]
    for better, says in ((["lower"] * 3, "3 times, but --metric 2 times"), (["up"], '"up" is not allowed')):
        with pytest.raises(InvalidValue, match=says):
            typed_metrics(losses, better)
    with pytest.raises(InvalidValue, match="--better higher contradicts the unit of p99_ms, for which lower is better"):
        typed_metrics(["tokens/s: ([0-9.]+)", "json:p99_ms"], ["higher"])
    both = typed_metrics(["tokens/s: ([0-9.]+)", "json:p99_ms"], ["higher", "higher"])
    assert [m.better for m in both] == ["higher", "higher"]
    with pytest.raises(InvalidValue, match="two metrics have the name train_loss"):
        typed_metrics([losses[0], losses[0]], ["lower"])
    with pytest.raises(InvalidValue) as caught:
        typed_metrics(["json:old.p99_ms", "json:new.p99_ms"], [])
    assert caught.value.hint == "In a scenario you can name each: metrics: {NAME: {json: PATH}}."


def test_a_range_gives_the_time_of_one_of_all_and_their_number():
    assert [(m.name, m.unit, m.part, m.range) for m in range_metrics(["train step"])] == [
        ("train_step", "s", "mean", "train step"),
        ("train_step_total", "s", "total", "train step"),
        ("train_step_count", "", "count", "train step"),
    ]
    with pytest.raises(InvalidValue, match="is not the name of a range"):
        range_metrics(["."])


def test_a_file_declares_metrics_for_both_sides_and_a_side_its_own_lines(write):
    text = (
        COMMANDS.replace("[ls]}", "[ls], metrics: {speed: {pattern: 'old ([0-9]+) tokens/s'}}}")
        + "metrics: {speed: {json: tokens_per_s}, loss: {pattern: 'loss=([0-9.]+)', better: lower}}\n"
        + "range: step\nmeasure: {metric: speed}\n"
    )
    (case,) = expand(load_scenario(write(text)), on_gpu=False)
    assert [m.name for m in case.program_metrics] == ["speed", "loss", "step", "step_total", "step_count"]
    assert case.sides[0].metrics[0] == ProgramMetric("speed", "tokens/s", "higher", "old ([0-9]+) tokens/s")
    assert case.sides[1].metrics[0] == ProgramMetric("speed", "tokens/s", "higher", path="tokens_per_s")
    assert case.measure.metric == "speed"


def test_the_gpus_clock_of_programs_is_about_their_busy_time_unless_the_file_says_otherwise(write):
    text = COMMANDS + "needs: {gpus: 1}\nmeasure: {clock: gpu}\n"
    (case,) = expand(load_scenario(write(text)), on_gpu=True)
    assert (case.measure.clock, case.measure.metric) == ("gpu", "gpu_busy")
    (case,) = expand(load_scenario(write(text.replace("clock: gpu", "clock: gpu, metric: time"))), on_gpu=True)
    assert case.measure.metric == "time"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("metrics: {loss: 'loss=([0-9.]+)'}\n", "x.yaml:5:17: metrics.loss: the unit of loss does not show whether"),
        ("metrics: {a: {patern: x}}\n", 'metrics.a: "patern" is not a key of a metric. Did you mean pattern?'),
        ("metrics: {a: {pattern: '(x) s', json: y}}\n", "metrics.a: a metric needs either a pattern or a JSON path."),
        ("metrics: {time: '([0-9]+) ms'}\n", 'metrics.time: "time" is a metric that aiperf measures itself.'),
        ("range: ['.']\n", 'range: "." is not the name of a range.'),
        ("measure: {metric: speed}\n", 'measure.metric: "speed" is not allowed; allowed: time, '),
        ("measure: {metric: gpu_busy}\n", "measure.metric: gpu_busy is measured by the GPU's clock only."),
        ("measure: {clock: gpu}\n", "measure.clock: gpu needs a GPU, but the scenario does not ask for one."),
    ],
)
def test_a_mistake_in_a_metric_is_one_fault_at_its_place(faults, more, says):
    (line,) = faults(COMMANDS + more)
    assert says in line


def test_sides_give_the_same_metrics_in_one_unit(faults):
    own = COMMANDS.replace("[ls]}", "[ls], metrics: {speed: '([0-9]+) tokens/s'}}")
    (line,) = faults(own)
    assert "after has no metric speed, but another side has one." in line
    (line,) = faults(own + "metrics: {speed: '([0-9]+) ms'}\n")
    assert "speed is in s, lower is better, but in tokens/s, higher is better on the first side" in line
    # A mistake at the top hides that metric from the other side; only the mistake is said.
    (line,) = faults(own + "metrics: {speed: {patern: x}}\n")
    assert '"patern" is not a key of a metric' in line
    (line,) = faults(COMMANDS + "metrics: {speed: {patern: x}}\nmeasure: {metric: speed}\n")
    assert '"patern" is not a key of a metric' in line


def test_workloads_give_no_metrics_of_their_own(faults, good):
    (line,) = faults(good + "metrics: {speed: '([0-9]+) tokens/s'}\n")
    assert line.startswith("x.yaml:7:1: metrics: only programs (command:) give metrics of their own.")
    (line,) = faults(good + "measure: {clock: gpu}\n")
    assert "measure.clock: gpu is for programs (command:)." in line
