"""Which findings touch which case, by the shipped rules; and what a damaged file of rules is told."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from host_shelf import recorded, sight_of

from aiperf.errors import UserError
from aiperf.host.health import LIMIT_S, read_health
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.probe import Finding
from aiperf.host.probes.reader import HostReader
from aiperf.host.probes.run_start import RUN_PROBES
from aiperf.host.relevance import case_findings, kinds_of, load_rules, wanted
from aiperf.paths import config_folder
from aiperf.records import Case, HostFinding, Needs, Side
from aiperf.scenario.find import find_scenarios
from aiperf.scenario.load import load_scenario

RULES = load_rules()
SHIPPED = (config_folder() / "doctor" / "relevance.yaml").read_text()


def case(*, gpus: int = 0, ranks: int = 1, tags: tuple[str, ...] = (), workload: str = "x.y", **needs: int) -> Case:
    sides = tuple(Side(name, workload=workload, ranks=ranks) for name in ("before", "after"))
    return Case("s", "s", "t", "w", sides, tags=tags, needs=Needs(gpus=gpus, **needs))


def touched(name: str, of: Case, *peaks: str, level: str = "warn") -> str:
    """The level at which one finding touches a case; empty where it does not."""
    found = case_findings([HostFinding(name, level, "", "It is so.")], RULES, of, peaks=peaks)
    return found[0].level if found else ""


def test_a_case_is_called_by_what_it_needs_its_sides_its_tags_and_its_roofs() -> None:
    assert kinds_of(case()) == {"any", "cpu", "workload:x"}
    many = case(gpus=2, ranks=2, tags=("a",), workload="/p/w.py:f", disk=1)
    assert kinds_of(many, ["h2d"]) == {"any", "gpu", "gpus", "ranks", "disk", "tag:a", "peak:h2d"}
    command = Case("s", "s", "t", "w", (Side("before", command=("true",)), Side("after", command=("true",))))
    assert kinds_of(command) == {"any", "cpu", "command"}


@pytest.mark.parametrize("name", ["cpu-oversubscription", "swap-disabled", "hpc-kernel-governor", "stale_workers"])
def test_what_takes_cpu_or_memory_touches_every_case(name) -> None:
    assert touched(name, case()) == touched(name, case(gpus=1)) == "warn"
    assert touched(name, case(), level="unfit") == "unfit"


@pytest.mark.parametrize(
    "name", ["gpu_processes", "monitor-utilisation", "ecc-enabled", "gpu-clocks", "persistence-mode"]
)
def test_what_is_about_the_gpu_touches_no_case_without_one(name) -> None:
    assert touched(name, case(gpus=1), level="unfit") == "unfit"
    assert touched(name, case(), level="unfit") == ""


def test_links_between_gpus_touch_only_cases_that_use_two() -> None:
    assert touched("high-bandwidth-interconnect", case(gpus=1)) == ""
    assert touched("high-bandwidth-interconnect", case(gpus=2)) == "warn"
    assert touched("nccl-env", case(gpus=2, tags=("collective",))) == "warn"
    assert touched("nccl-env", case(ranks=2, tags=("distributed",))) == ""


def test_mig_is_a_warning_for_one_gpu_and_unfit_for_two() -> None:
    assert touched("mig", case(gpus=1)) == "warn"
    (touch,) = case_findings([HostFinding("mig", "warn", "MIG", "on")], RULES, case(gpus=2))
    assert touch.level == "unfit"
    assert str(touch) == "unfit: MIG: on; MIG switches off what GPUs use to reach each other."


def test_the_disk_touches_what_reads_files_once_its_roof_is_known_too() -> None:
    assert touched("io-scheduler", case()) == ""
    assert touched("io-scheduler", case(), "disk_read") == "warn"
    assert touched("io-scheduler", case(tags=("storage",))) == "warn"
    assert touched("measure-input-throughput", case(tags=("storage",)), "page_cache_read") == ""


def test_a_debug_variable_is_unfit_where_launches_or_messages_are_measured() -> None:
    assert touched("debug_env", case()) == "warn"
    assert touched("debug_env", case(gpus=1, tags=("launch",))) == "unfit"


def test_a_switched_off_compiler_is_unfit_where_compiling_is_measured() -> None:
    assert touched("compile_env", case()) == "warn"
    assert touched("compile_env", case(tags=("compile",))) == "unfit"
    assert touched("compile_env", case(workload="compile.train")) == "unfit"


def test_a_variable_of_the_gpu_touches_no_case_without_one() -> None:
    assert (touched("gpu_env", case()), touched("gpu_env", case(gpus=1))) == ("", "warn")
    assert touched("gpu_env", case(gpus=1, workload="launch.graph")) == "unfit"


def test_a_driver_that_is_loaded_anew_is_unfit_for_whole_programs_that_use_the_gpu() -> None:
    command = Case("s", "s", "t", "w", (Side("before", command=("true",)), Side("after", command=("true",))))
    assert touched("persistence-mode", command) == ""
    assert touched("persistence-mode", replace(command, needs=Needs(gpus=1))) == "unfit"


def test_the_page_cache_touches_what_uses_the_disk() -> None:
    assert touched("page_cache", case()) == ""
    assert touched("page_cache", case(), "disk_read") == touched("page_cache", case(disk=1)) == "warn"
    assert touched("page_cache", case(workload="storage.read")) == "warn"


@pytest.mark.parametrize(
    ("twice", "once", "of"),
    [
        ("monitor-utilisation", "gpu_processes", case(gpus=1)),
        ("tune-filesystem", "io-noatime", case(tags=("storage",))),
        ("tune-filesystem", "io-read-ahead", case(tags=("storage",))),
        ("measure-input-throughput", "monitor-network-disk", case(tags=("storage",))),
    ],
)
def test_a_fault_that_two_probes_see_is_told_once(twice, once, of) -> None:
    facts = [
        HostFinding(twice, "unfit", "", "a"),
        HostFinding(once, "warn", "", "b"),
        HostFinding("thp", "warn", "", "c"),
    ]
    assert once in [t.id for t in case_findings(facts, RULES, of)]
    assert twice not in [t.id for t in case_findings(facts, RULES, of)]
    assert twice in [t.id for t in case_findings([facts[0], facts[2]], RULES, of)]


def test_facts_for_people_touch_nothing() -> None:
    everything = case(gpus=2, ranks=2, tags=("storage", "collective", "transfer"), disk=1)
    assert touched("version-control", everything) == touched("nvtx-markers", everything) == ""
    assert touched("unheard-of", everything) == ""


def test_unfit_findings_come_first() -> None:
    bad = (("thp", "warn"), ("swap-disabled", "warn"), ("cpu-oversubscription", "unfit"))
    facts = [HostFinding(name, level, "", "a") for name, level in bad]
    assert [t.id for t in case_findings(facts, RULES, case())] == ["cpu-oversubscription", "thp", "swap-disabled"]


def test_every_probe_and_finding_has_a_rule_and_half_of_the_probes_touch_something() -> None:
    named = [name for rule in RULES for name in rule.ids]
    assert sorted(named) == sorted([*(probe.id for probe in PROBES), *(probe.id for probe in RUN_PROBES)])
    assert {probe.id for probe in RUN_PROBES} - {"state"} < wanted(RULES) < set(named)


@pytest.mark.long
def test_every_tag_and_family_of_the_rules_is_one_of_a_shipped_scenario() -> None:
    used = {kind for rule in RULES for kind in rule.touches} | {
        kind for rule in RULES for ruling in (*rule.unfit, *rule.fit) for kind in ruling.touches
    }
    scenarios = [load_scenario(path) for path in find_scenarios(["*"])]
    families = {scenario.workload.partition(".")[0] for scenario in scenarios}
    assert {kind.removeprefix("workload:") for kind in used if kind.startswith("workload:")} <= families
    tags = {tag for scenario in scenarios for tag in scenario.tags}
    assert {kind.removeprefix("tag:") for kind in used if kind.startswith("tag:")} <= tags


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("- ids: [thp]", "- ids: [thp2]", ['"thp2" is not a probe', '"thp" has no rule']),
        ("- ids: [thp]", "- ids: [thp, mig]", ['"mig" is named twice']),
        ("[cpu, peak:h2d, peak:d2h]", "[cpus, peak:h3d]", ['"cpus" is not a kind', '"peak:h3d" is not a kind']),
        ("  why: large buffers", "  reason: large buffers", ['"reason" is not a known key', "has no why"]),
        ("      reason: MIG switches off", "      because: MIG switches off", [": unfit has no reason", "because"]),
        ("unless: [gpu_processes]", "unless: [gpu_process]", ['unless: "gpu_process" is not a probe']),
        ("- ids: [thp]", "- ids: [thp", ["cannot be read as YAML"]),
    ],
)  # fmt: skip
def test_every_fault_of_the_rules_is_told(tmp_path, old, new, parts) -> None:
    assert old in SHIPPED
    path = tmp_path / "relevance.yaml"
    path.write_text(SHIPPED.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load_rules(path)
    told = "\n".join(f"{fault.where} {fault.what}" for fault in caught.value.faults)
    for part in parts:
        assert part in told


def read(ids, root: Path, host, **more):
    return read_health(ids, reader=replace(sight_of(root, host), **more), limit=20).findings


def test_a_run_keeps_what_is_bad_of_the_probes_it_asks_for(tmp_path) -> None:
    host = recorded("numa-server")
    host["environ"] = {**host["environ"], "TORCH_LOGS": "+dynamo"}
    found = read(wanted(RULES), tmp_path, host)
    ids = {finding.id for finding in found}
    assert "debug_env" in ids
    assert {"stale_workers", "version-control"}.isdisjoint(ids)
    assert {finding.level for finding in found} <= {"warn", "unfit"}
    limit = next(finding for finding in found if finding.id == "gpu-power-limit")
    assert (limit.level, limit.text) == ("warn", "Power limit: 225 W (default 250 W) on each of 2 GPUs.")
    assert limit.advice.startswith("sudo nvidia-smi -pl 250")
    threads = next(finding for finding in found if finding.id == "cpu-library-threads")
    assert threads.reason == "16 threads share 8 CPUs"
    assert read({"thp"}, tmp_path / "again", host) == ()


def test_a_run_starts_no_command_and_waits_no_longer_than_its_limit(monkeypatch) -> None:
    looks = []
    monkeypatch.setattr("aiperf.host.health.HostReader", lambda **given: looks.append(HostReader(**given)) or looks[-1])
    monkeypatch.setattr("aiperf.host.health.HostReader.readings", 5, raising=False)
    began = time.monotonic()
    read_health(wanted(RULES), data=Path("/tmp"))
    assert time.monotonic() - began < LIMIT_S + 30
    assert [(look.data, look.command(("true",))) for look in looks] == [(Path("/tmp"), None)]


def test_a_run_that_measures_leaves_out_the_load_that_it_made_itself(tmp_path) -> None:
    host = recorded("cpu-vm")
    first = read({"cpu-oversubscription"}, tmp_path / "a", host, phase="start")
    assert [finding.level for finding in first] == ["warn"]
    assert read({"cpu-oversubscription"}, tmp_path / "b", host, phase="measuring") == ()


def test_a_run_holds_the_unwritten_page_cache_against_no_other_case(tmp_path) -> None:
    host = recorded("cpu-vm")
    text = f"MemTotal: {1 << 24} kB\nMemAvailable: {1 << 23} kB\nDirty: {1 << 20} kB\n"
    host["files"] = {**host["files"], "proc/meminfo": text}
    assert read({"monitor-memory"}, tmp_path / "a", host, phase="start") == ()
    assert [f.id for f in read({"monitor-memory", "page_cache"}, tmp_path / "b", host, phase="start")] == ["page_cache"]


def test_probes_that_are_late_are_named_and_not_judged(tmp_path, monkeypatch) -> None:
    release = threading.Event()
    slow = replace(PROBES[0], read=lambda reader: release.wait() and Finding("warn", "slow", "here"))
    monkeypatch.setattr("aiperf.host.health.PROBES", (slow, *PROBES[1:3]))
    found = read_health({slow.id}, reader=sight_of(tmp_path, recorded("laptop")), limit=0.05)
    release.set()
    assert (found.findings, found.late) == ((), (slow.id,))
