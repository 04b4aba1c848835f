"""GitLab: code quality findings that stay the same over runs, and metrics that two strict readers understand."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from ci_made import NASTY, STANDINGS, every_entry, gate_entries, gate_row, nasty_entry

from aiperf.errors import Exit, Fault
from aiperf.report.ci.entries import entries_of_faults
from aiperf.report.ci.gitlab import render_code_quality, render_metrics
from aiperf.report.ci.places import repository

GOLDEN = Path(__file__).parent / "golden_ci"
ROOT = Path("/repo")
LABELS = r'\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\}'
SAMPLE = re.compile(rf"(?P<name>[a-z_][a-z0-9_]*)(?P<labels>{LABELS})? (?P<value>-?[0-9.]+(?:e[+-][0-9]+)?)")


def quality(entries, root: Path = ROOT) -> list:
    return json.loads(render_code_quality(entries, root=root, elsewhere=".gitlab-ci.yml"))


def openmetrics(text: str) -> dict[tuple[str, str], float]:
    """Read as strictly as the specification asks: families whole, described once, suffixes, no sample twice."""
    assert text.endswith("\n# EOF\n")
    found: dict[tuple[str, str], float] = {}
    kinds: dict[str, str] = {}
    family = ""
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            _, what, name, said = line.split(" ", 3)
            if what == "TYPE":
                assert name not in kinds, f"{name} is taken up again"
                kinds[name], family = said, name
            assert name == family
            assert what != "UNIT" or name.endswith(f"_{said}")
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match["name"] == (f"{family}_info" if kinds[family] == "info" else family)
        key = (match["name"], match["labels"] or "")
        assert key not in found
        found[key] = float(match["value"])
    return found


def gitlab(text: str) -> dict[str, str]:
    """Read as GitLab's own parser does: comments cut off, lines split as a shell does."""
    found = {}
    for line in text.splitlines():
        name, *values = shlex.split(re.sub("#.*$", "", line)) or [""]
        if values:
            assert name not in found
            found[name] = values[0]
    return found


def test_the_code_quality_report_is_this_one() -> None:
    text = render_code_quality(every_entry(), root=ROOT, elsewhere=".gitlab-ci.yml")
    assert text == (GOLDEN / "code-quality.json").read_text(encoding="utf-8")


def test_the_metrics_report_is_this_one() -> None:
    text = render_metrics(every_entry(), exit_code=Exit.INTERRUPTED)
    assert text == (GOLDEN / "metrics.txt").read_text(encoding="utf-8")


def test_findings_have_every_key_that_gitlab_asks_for() -> None:
    issues = quality((*every_entry(), nasty_entry(), *gate_entries(*map(gate_row, STANDINGS), exit_=Exit.WRONG)))
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in {"info", "minor", "major", "critical", "blocking_kernel"}
        assert re.fullmatch(r"aiperf/[a-z-]+", issue["check_name"])
        assert re.fullmatch(r"[0-9a-f]{32}", issue["fingerprint"])
        assert not issue["location"]["path"].startswith(("/", "./", ".."))
        assert issue["location"]["lines"]["begin"] >= 1
        assert "\n" not in issue["description"]
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)


def test_only_what_asks_for_attention_is_a_finding() -> None:
    by_name = {issue["description"].split(": ")[0]: issue["severity"] for issue in quality(every_entry())}
    assert by_name["wrong-output"] == by_name["time-slicing-vs-mps"] == "critical"
    assert (by_name["slower-now[n=1]"], by_name["tip-that-may-help"]) == ("minor", "info")
    assert not {"host-bounce-vs-gpudirect-storage", "cut-short"} & set(by_name)
    assert quality(gate_entries(gate_row("passed"))) == []


def test_a_fingerprint_outlives_the_figures_and_changes_with_the_verdict() -> None:
    entry = next(e for e in every_entry() if e.name == "slower-now[n=1]")
    (one,), (two,) = quality([entry]), quality([replace(entry, summary="regressed 0.7×", text="other", seconds=9.0)])
    assert one["description"] != two["description"]
    assert one["fingerprint"] == two["fingerprint"]
    others = [replace(entry, name="n=2"), replace(entry, group="g"), replace(entry, word="failed")]
    assert one["fingerprint"] not in {issue["fingerprint"] for issue in quality(others)}


def test_paths_are_seen_from_the_repository_and_others_point_at_the_job(tmp_path) -> None:
    entry = next(e for e in every_entry() if e.level)
    paths = {
        str(tmp_path / "scenarios" / "a.yaml"): "scenarios/a.yaml",
        "scenarios/a.yaml": "scenarios/a.yaml",
        "./b/../c.yaml": "c.yaml",
        "/elsewhere/a.yaml": ".gitlab-ci.yml",
        "../a.yaml": ".gitlab-ci.yml",
        "": ".gitlab-ci.yml",
    }
    for path, expected in paths.items():
        (issue,) = quality([replace(entry, path=path)], root=tmp_path.resolve())
        assert issue["location"]["path"] == expected


def test_the_repository_is_found_around_the_folder_and_else_named_by_the_ci_system(tmp_path) -> None:
    deep = tmp_path / "repo" / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "repo" / ".git").write_text("gitdir: elsewhere")
    assert repository({"GITHUB_WORKSPACE": str(tmp_path)}, folder=deep) == (tmp_path / "repo").resolve()
    (tmp_path / "repo" / ".git").unlink()
    assert repository({"CI_PROJECT_DIR": str(tmp_path)}, folder=deep) == tmp_path.resolve()
    assert repository({}, folder=deep) == deep.resolve()


def test_a_path_of_another_system_is_no_fault() -> None:
    entry = next(e for e in every_entry() if e.level)
    for path in ("a\0b.yaml", "\ud800.yaml"):
        (issue,) = quality([replace(entry, path=path)])
        assert issue["location"]["path"] == ".gitlab-ci.yml"


def test_a_mistake_in_a_scenario_is_found_at_its_line() -> None:
    (issue,) = quality(entries_of_faults("run", [Fault("a.yaml:14:9", "no size")]))
    assert issue["location"] == {"path": "a.yaml", "lines": {"begin": 14}}


@pytest.mark.parametrize("read", [openmetrics, gitlab])
def test_metrics_are_read_by_the_specification_and_by_gitlab(read) -> None:
    entries = (*every_entry(), nasty_entry(), *gate_entries(*map(gate_row, STANDINGS), exit_=Exit.WRONG))
    found = read(render_metrics(entries, exit_code=Exit.WRONG))
    assert len(found) > 60


def test_metrics_hold_the_values_the_words_and_the_exit_code() -> None:
    found = openmetrics(render_metrics(every_entry(), exit_code=Exit.WRONG))
    case = 'scenario="pageable-vs-pinned-copy",case="pageable-vs-pinned-copy[direction=h2d,size=256MiB]"'
    assert found["aiperf_time_seconds", f'{{{case},side="before"}}'] == 15.3e-3
    assert found["aiperf_time_seconds", f'{{{case},side="after"}}'] == 4.95e-3
    assert found["aiperf_peak_memory_bytes", f'{{{case},side="after"}}'] == pytest.approx(1.25 * 2**30, rel=1e-5)
    assert found["aiperf_ratio_low", f'{{{case},metric="time",side="after",against="before"}}'] == 3.05
    assert found["aiperf_verdict_info", f'{{{case},word="improved",outcome="passed"}}'] == 1
    assert found["aiperf_exit_code", ""] == 5
    assert found["aiperf_cases", '{outcome="undecided"}'] == 3


def test_numbers_of_what_is_wrong_or_half_done_stay_out() -> None:
    text = render_metrics(every_entry(), exit_code=Exit.WRONG)
    values = [line for line in text.splitlines() if line.startswith("aiperf_time_seconds{")]
    for name in ("wrong-output", "hot-host", "cut-short"):
        assert f'case="{name}",word=' in text
        assert not [line for line in values if f'case="{name}"' in line]


def test_what_is_not_a_number_is_left_out() -> None:
    (entry,) = gate_entries(gate_row("passed", low=float("nan"), high=float("inf"), before=None))
    found = openmetrics(render_metrics([entry], exit_code=Exit.OK))
    assert not [name for name, _ in found if name in ("aiperf_ratio_low", "aiperf_ratio_high")]
    assert [labels for name, labels in found if name == "aiperf_time_seconds"] == [
        '{scenario="passed",case="passed-case",side="head"}'
    ]


def test_labels_are_escaped_and_units_become_suffixes() -> None:
    text = render_metrics([nasty_entry(name=NASTY, group="g")], exit_code=Exit.OK)
    assert r'case="q\"uote' in text
    assert r"]]> \\ end" in text
    assert "😀" in text
    (entry,) = gate_entries(gate_row("passed", metric="tokens", unit="items/s"))
    assert "# UNIT aiperf_tokens_items_per_second items_per_second\n" in render_metrics([entry], exit_code=Exit.OK)
