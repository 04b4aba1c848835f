"""Hand-made profiles: every number is written here, none is measured.

What must not live here: tests.
"""

from __future__ import annotations

from aiperf.records.profiled import Artefact, CounterRow, HotSpot, Mechanism, Profile, ProfileNote, SideProfile, Span

LONG = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"


def rows() -> tuple[CounterRow, ...]:
    """Before: 300 small kernels and a pageable copy in 5 iterations; after: other calls in 10."""
    return (
        CounterRow("before", "nsys", "kernel", LONG, device=0, count=300, time_s=3e-4, median_s=1e-6, registers=32),
        CounterRow("before", "nsys", "kernel", "gone_kernel", device=0, count=5, time_s=1e-4),
        CounterRow(
            "before", "nsys", "memcpy", "HtoD pageable", count=5, time_s=5e-3, bytes=5 * 2**20, bytes_per_s=1.05e9
        ),
        CounterRow("after", "nsys", "kernel", LONG, device=0, count=300, time_s=3e-4, median_s=1e-6, registers=32),
        CounterRow("after", "nsys", "graph", "new_graph", device=0, count=10, time_s=2e-4),
        CounterRow(
            "before",
            "ncu",
            "kernel",
            LONG,
            count=2,
            time_s=4e-6,
            bytes=2e6,
            dram_pct=24.2,
            sm_pct=19.8,
            sector_use_pct=12.5,
            registers=18,
            bound="latency",
            why="SM 20 %, memory 24 %, both below 60 %",
            tool_says="Long Scoreboard",
        ),
        CounterRow("after", "ncu", "kernel", LONG, count=1, time_s=1e-6, dram_pct=88.2, sm_pct=8.1, registers=32),
        CounterRow("before", "perf", "range", "before", count=5, metrics={"context-switches": 3.5, "page-faults": 0.0}),
        CounterRow("after", "perf", "range", "after", count=10, metrics={"context-switches": 0.5}),
    )


def sides() -> tuple[SideProfile, ...]:
    """Two sides by a tracer, and their host's hot spots by perf."""
    return (
        SideProfile(
            "before",
            "nsys",
            5,
            wall_s=0.01,
            gpu_span_s=0.008,
            gpu_busy_s=0.002,
            launches=300,
            kernels=305,
            syncs=5,
            bound="launch",
            why="a launch every 15.2 µs, kernels of 0.903 µs",
            lost="12 records",
        ),
        SideProfile(
            "after",
            "nsys",
            10,
            wall_s=0.004,
            gpu_span_s=0.003,
            gpu_busy_s=0.0029,
            launches=10,
            kernels=300,
            bound="gpu",
            why="the GPU is busy for 97 % of its span",
        ),
        SideProfile("before", "perf", 5, hot=(HotSpot("interpreter (python)", 0.4), HotSpot("memcpy (libc)", 0.1))),
        SideProfile("after", "perf", 10, hot=(HotSpot("interpreter (python)", 0.2),)),
    )


def spans() -> tuple[Span, ...]:
    return (
        Span("before", "range", "range", "before", 0.0, 0.01),
        Span("before", "host thread 1", "launch", "cudaLaunchKernel", 0.001, 0.002),
        Span("before", "GPU 0 stream 7", "kernel", LONG, 0.002, 0.008),
        Span("after", "range", "range", "after", 0.0, 0.004),
        Span("after", "GPU 0 stream 7", "kernel", LONG, 0.001, 0.003),
    )


def claims() -> tuple[Mechanism, ...]:
    return (
        Mechanism("launches", "down", "moved", 60.0, 1.0, "", "nsys", "launches went down, as claimed"),
        Mechanism("kernels", "down", "did_not_move", 61.0, 61.0, "", "nsys", "kernels stayed the same, not as claimed"),
        Mechanism("tensor_pipe", "up", "not_readable", sentence="tensor_pipe was not readable here: it takes ncu"),
    )


def made() -> Profile:
    """A profile with something of every kind."""
    return Profile(
        "launches-vs-graph[n=300]",
        artefacts=(
            Artefact("nsys", "before", "read", version="2025.3.2"),
            Artefact("nsys", "after", "read", version="2025.3.2"),
            Artefact("ncu", "before", "read"),
            Artefact("ncu", "after", "read"),
            Artefact("perf", "", "skipped", "perf is not installed. apt install linux-perf"),
        ),
        rows=rows(),
        sides=sides(),
        spans=spans(),
        mechanism=claims(),
        notes=(ProfileNote("kernels_outside", {"count": 3}),),
    )
