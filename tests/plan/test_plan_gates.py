"""Gate files: strict, every fault at once, paths from where the file lies."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.paths import config_folder
from aiperf.plan.gates import GateConfig, MetricRule, gate_command, load_gate
from aiperf.records import Case, Side
from aiperf.settings import Settings


@pytest.fixture
def gate_file(tmp_path):
    def write(text):
        path = tmp_path / "gates" / "mine.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def faults(path):
    with pytest.raises(UserError) as caught:
        load_gate(path)
    return [(f.line, f.what, f.hint) for f in caught.value.faults]


def test_every_shipped_gate_loads_and_the_default_gates_time_and_memory():
    for path in (config_folder() / "gates").glob("*.yaml"):
        assert load_gate(path.stem).name == path.stem
    default = load_gate("default")
    assert (default.against, default.on_inconclusive, default.confirm) == ("origin/main", "warn", True)
    assert default.strict
    assert [(rule.metric, rule.threshold) for rule in default.metrics] == [("time", None), ("peak_memory", 0.10)]
    assert default.scenarios == ()


def test_everything_that_a_file_may_say_is_read(gate_file, tmp_path):
    config = load_gate(
        gate_file(
            "scenarios: [my-tag, ./bench/parse.yaml, '../*.yaml', near.yaml]\n"
            "baseline: base.json\nabsolute: true\nprecision: fast.yaml\nside: after\nhead: v2\nbuild: make -j4\n"
            "on_inconclusive: fail\nconfirm: false\nstrict: false\n"
            "metrics: {time: {threshold: 5%}, peak_memory: {allow: {my-cache: 150%, 'old-*': 0.2}}, user: }\n"
        )
    )
    folder = tmp_path / "gates"
    assert config.scenarios == (
        "my-tag",
        str(folder / "bench/parse.yaml"),
        str(tmp_path / "*.yaml"),
        str(folder / "near.yaml"),
    )
    assert (config.baseline, config.precision) == (str(folder / "base.json"), str(folder / "fast.yaml"))
    assert (config.absolute, config.confirm, config.on_inconclusive, config.strict) == (True, False, "fail", False)
    assert (config.side, config.head, config.build) == ("after", "v2", "make -j4")
    assert config.metrics == (
        MetricRule("time", 0.05),
        MetricRule("peak_memory", None, {"my-cache": 1.5, "old-*": 0.2}),
        MetricRule("user"),
    )


def test_a_ref_that_looks_like_a_number_is_text(gate_file):
    assert load_gate(gate_file("against: 1234567\n")).against == "1234567"


def test_a_file_with_three_faults_tells_all_three_by_line(gate_file):
    found = faults(gate_file("agains: main\non_inconclusive: maybe\nmetrics: {tme: {}}\n"))
    assert [line for line, _, _ in found] == [1, 2, 3]
    assert found[0][1:] == ('"agains" is not a key of a gate.', "Did you mean against?")
    assert "maybe" in found[1][1]
    assert found[2][1:] == ('"tme" is not a metric.', "Did you mean time?")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("scenarios: all\n", "is not a list"),
        ("scenarios: [1.5, true]\n", "is not a text"),
        ("against: ''\n", "is not a text"),
        ("confirm: 'yes'\n", "is not true or false"),
        ("strict: 2\n", "is not true or false"),
        ("metrics: {}\n", "is not a mapping of metrics"),
        ("metrics: [time]\n", "is not a mapping of metrics"),
        ("metrics: {time: 0.05}\n", "is not a mapping"),
        ("metrics: {time: {treshold: 0.05}}\n", '"treshold" is not a key'),
        ("metrics: {time: {threshold: 0}}\n", "is not a share above 0 and below 1"),
        ("metrics: {time: {threshold: 5}}\n", "is not a share above 0 and below 1"),
        ("metrics: {time: {threshold: '500 %'}}\n", "is not a share"),
        ("metrics: {time: {allow: -1}}\n", "is not a share above 0 and below 100"),
        ("metrics: {time: {allow: {a: true}}}\n", "is not a share"),
        ("against: main\nbaseline: b.json\n", "mutually exclusive"),
        ("absolute: true\n", "absolute needs a baseline"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(gate_file, text, told):
    found = faults(gate_file(text))
    assert any(told in what for _, what, _ in found), found
    assert all(line >= 1 for line, _, _ in found)


def test_a_gate_that_is_not_there_is_told_with_those_that_are():
    assert faults("defalt") == [
        (
            0,
            'gate "defalt" is not known.',
            "Did you mean default? Choose one of default, or the path of a file like them.",
        )
    ]


def test_the_most_exact_name_declares_a_loss():
    rule = MetricRule("peak_memory", 0.1, {"*": 0.1, "cache-*": 0.5, "cache-lru": 1.0, "cache-lru[size=1]": 2.0})
    asked = [("cache-lru", "cache-lru[size=1]"), ("cache-lru", "cache-lru[size=2]"), ("cache-fifo", "cache-fifo")]
    assert [rule.allowed(*names) for names in asked] == [2.0, 1.0, 0.1]
    assert MetricRule("time").allowed("a", "a") == 0.0
    assert MetricRule("time", allow={"cache-*": 0.5}).allowed("cache-fifo", "cache-fifo[a=1]") == 0.5


def test_the_command_that_gates_a_case_again_names_what_it_was_held_against(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = Case("s", "s[n=1]", "t", "w", (Side("before"),), axes={"n": 1}, path=str(tmp_path / "s.yaml"))
    rebuilt = GateConfig("mine", str(tmp_path / "mine.yaml"), head="v 2", build="make -j", side="after")
    assert gate_command(rebuilt, case, base="abc", settings=Settings(seed=1, budget=90.0)) == (
        "aiperf gate s.yaml --only n=1 --config mine.yaml --against abc --head 'v 2' --build 'make -j' --side after "
        "--precision standard --seed 1 --budget 90s"
    )
    shipped = str(config_folder() / "gates" / "default.yaml")
    held = GateConfig(
        "default", shipped, baseline=str(tmp_path / "b.json"), absolute=True, precision="quick", strict=False
    )
    assert gate_command(held, case, base="", settings=Settings()) == (
        "aiperf gate s.yaml --only n=1 --baseline b.json --absolute --no-strict --precision quick --seed 0"
    )
