"""Hand-made records for tables and stores: every number is written here, none is measured.

What must not live here: tests.
"""

from __future__ import annotations

from typing import Any

from aiperf.records import (
    Case,
    CaseRecord,
    Check,
    CheckResult,
    Comparison,
    Failure,
    HostFinding,
    Incident,
    Limit,
    Pair,
    Result,
    RunRecord,
    Sample,
    Side,
    SideRun,
    Summary,
    Verdict,
    Warmup,
)


def make_case(scenario: str = "pageable-vs-pinned-copy", *, axes: dict[str, Any] | None = None, **changes: Any) -> Case:
    axes = axes or {}
    points = ",".join(f"{k}={v}" for k, v in axes.items())
    given: dict[str, Any] = {
        "scenario": scenario,
        "id": f"{scenario}[{points}]" if points else scenario,
        "title": "Host-to-device copy, pageable vs pinned memory",
        "why": "The copy engine reads page-locked memory directly.",
        "sides": (
            Side("before", workload="transfer.copy", params={"direction": "h2d", "pinned": False}),
            Side("after", workload="transfer.copy", params={"direction": "h2d", "pinned": True}),
        ),
        "axes": axes,
        "expect": "improved",
        "path": f"scenarios/transfer/{scenario}.yaml",
    }
    return Case(**(given | changes))


def make_comparison(
    before: float, after: float, *, interval: tuple[float, float], ratio: float | None = None, **changes: Any
) -> Comparison:
    given: dict[str, Any] = {
        "metric": "time",
        "unit": "s",
        "better": "lower",
        "before": Summary("before", before, before * 0.99, before * 1.01, 360, 3, 0.004),
        "after": Summary("after", after, after * 0.99, after * 1.01, 360, 0, 0.0),
        "pairs": 6,
        "ratio": ratio if ratio is not None else before / after,
        "low": interval[0],
        "high": interval[1],
        "alpha": 0.0158,
        "sd": 0.006,
        "position": 0.001,
        "position_low": -0.004,
        "position_high": 0.006,
        "mde": 0.012,
        "pairs_needed": None,
        "second_ratio": before / after,
        "second_low": None,
        "second_high": None,
        "log_ratios": (0.01, 0.02, 0.01, 0.02, 0.01, 0.02),
    }
    return Comparison(**(given | changes))


def make_result(comparison: Comparison, word: str = "improved", **changes: Any) -> Result:
    reasons = {
        "improved": "beyond_threshold",
        "regressed": "beyond_threshold",
        "equivalent": "within_threshold",
        "inconclusive": "interval_straddles",
        "invalid": "wrong_output",
    }
    verdict: dict[str, Any] = {
        "word": word,
        "reason": reasons[word],
        "sentence": f"the case is {word}",
        "threshold": 0.02,
        **changes.pop("verdict", {}),
    }
    return Result(
        side=changes.pop("side", "after"),
        against=changes.pop("against", "before"),
        comparison=comparison,
        verdict=Verdict(**verdict),
        **changes,
    )


def make_pair(
    index: int = 0, *, samples: int = 2, order: tuple[str, ...] = ("before", "after"), **changes: Any
) -> Pair:
    taken = tuple(
        Sample(side, round_, round_, 10, 0.001 * (1 + place) + 1e-9 * round_, device_s=None, audit=round_ == 0)
        for round_ in range(samples)
        for place, side in enumerate(order)
    )
    runs = tuple(
        SideRun(side, (100 + place,), Warmup(20, 0.5, 0.2, True, "steady"), 0.1, 3, work={"bytes": 1048576})
        for place, side in enumerate(order)
    )
    given: dict[str, Any] = {
        "index": index,
        "order": order,
        "seed": 7,
        "samples": taken,
        "runs": runs,
        "checks": (CheckResult(True, "after with before, bitwise", audits=3),),
        "started": 1700000000.25,
        "seconds": 3.5,
        "worker_seconds": 3.25,
    }
    return Pair(**(given | changes))


def measured(case: Case, *results: Result, **changes: Any) -> CaseRecord:
    given: dict[str, Any] = {
        "status": "measured",
        "results": results,
        "pairs": tuple(
            make_pair(i, order=("before", "after") if i % 2 else ("after", "before"), samples=2) for i in range(6)
        ),
        "stop": "verdict",
        "seconds": 21.0,
        "host_id": "h-1",
    }
    return CaseRecord(case=case, **(given | changes))


def make_run(**changes: Any) -> RunRecord:
    given: dict[str, Any] = {
        "run": "2026-11-20T18-05-03-gpu-07",
        "argv": ("aiperf", "run", "memory"),
        "started": "2026-11-20T18:05:03+00:00",
        "status": "finished",
        "settings": {"precision": {"looks": [6, 10, 16, 24, 40], "delta": 0.02}, "budget": 600.0},
        "host": {
            "hostname": "gpu-07",
            "gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}],
            "driver": "580.159",
            "libraries": {"torch": "2.11+cu130"},
        },
        "findings": (
            HostFinding("persistence-mode", "warn", "Persistence mode", "off"),
            HostFinding("hpc-kernel-governor", "warn", "Frequency governor", "powersave"),
        ),
    }
    return RunRecord(**(given | changes))


def sample_records() -> list[CaseRecord]:
    """The five kinds of outcome that a table must show."""
    copy = "pageable-vs-pinned-copy"
    small, large = (make_case(copy, axes={"direction": "h2d", "size": size}) for size in ("1MiB", "256MiB"))
    overlap = make_case("all-reduce-after-backward-vs-ddp-overlap", axes={"ranks": 2}, expect="")
    tip = make_case("tip-that-may-help", expect="")
    memory = make_comparison(1.5 * 2**30, 1.25 * 2**30, interval=(1.19, 1.21), metric="peak_memory", unit="B")
    return [
        measured(
            small,
            make_result(make_comparison(88.1e-6, 31.4e-6, interval=(2.77, 2.84), ratio=2.81)),
            limits=(Limit("before", "h2d", 55e9, "B/s", 0.22), Limit("after", "h2d", 55e9, "B/s", 0.61)),
        ),
        measured(
            large,
            make_result(make_comparison(15.3e-3, 4.95e-3, interval=(3.05, 3.13), ratio=3.10)),
            make_result(memory, primary=False),
            limits=(Limit("after", "h2d", 55e9, "B/s", 0.97),),
        ),
        measured(
            overlap, make_result(make_comparison(41.2e-3, 40.9e-3, interval=(0.99, 1.019), ratio=1.007), "equivalent")
        ),
        measured(
            tip,
            make_result(
                make_comparison(2.0, 1.96, interval=(0.998, 1.041), pairs_needed=55, ratio=1.02), "inconclusive"
            ),
        ),
        CaseRecord(
            case=make_case("host-bounce-vs-gpudirect-storage"),
            status="skipped",
            skip_reason="GPUDirect Storage is not active (nvidia-fs not loaded)",
            skip_fix="aiperf show host-bounce-vs-gpudirect-storage says what it needs",
        ),
        CaseRecord(
            case=make_case("time-slicing-vs-mps"),
            status="failed",
            failure=Failure(
                "before",
                "set-up",
                "oom_device",
                "CUDA out of memory (asked 4.0 GiB, \x1b[31m1.2 GiB\x1b[0m free)\nand more",
                stderr_tail="Traceback ...",
            ),
            seconds=4.0,
        ),
    ]


def with_check(check: Check, *, max_error: float) -> CaseRecord:
    """A measured case whose sides differ by design."""
    pairs = (make_pair(0, checks=(CheckResult(True, "quality", max_error=max_error),)),)
    comparison = make_comparison(2e-3, 1e-3, interval=(1.98, 2.02))
    return measured(make_case("dense-vs-pruned", check=check), make_result(comparison), pairs=pairs)


def voided(pair_index: int) -> Pair:
    """A pair that an incident took out."""
    return make_pair(pair_index, incidents=(Incident("thermal", "after", "hot: 91 C", voids=True),))
