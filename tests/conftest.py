"""What holds for every test: facts of this host go to a folder of the session's own, output is plain."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import compiled  # noqa: F401 - before anything of aiperf is imported
import hypothesis
import pytest
from nursery import LOADS, Nursery

from aiperf.host.facts import HostFacts
from aiperf.launch import child
from aiperf.profilers.registry import statuses

# A busy machine takes longer for an example than the 200 ms of the default.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

LONGEST = (
    "cli/test_cli_serve.py",
    "launch/test_launch_standalone.py",
    "shelves/test_shelves_cheaters.py",
    "cli/test_cli_run.py",
    "shelves/test_shelves_misbehave.py",
    "cli/test_cli_profile.py",
    "workloads/test_workloads_compile_process.py",
    "launch/test_launch_evidence.py",
    "recipes/test_recipes_survey.py",
    "workloads/test_workloads_serve_foreign_client.py",
    "api/test_api_pytest_plugin.py",
    "launch/test_launch_pair.py",
    "workloads/test_workloads_parallel_gang.py",
    "cli/test_cli_streams.py",
    "cli/test_cli_light.py",
    "cli/test_cli_interrupts.py",
    "cli/test_cli_ab.py",
    "cli/test_cli_gate.py",
    "recipes/test_recipes_checkouts.py",
    "launch/test_launch_command.py",
    "workloads/test_workloads_serve.py",
    "workloads/test_workloads_cpu_pairs.py",
)
"""Files that take longest, by the clock; they are begun first, so that none of them is what the others wait for."""
TOGETHER = {
    "workers with torch, and what the project has measured": (
        "launch/test_launch_standalone.py",
        "launch/test_launch_gang.py",
        "recipes/test_recipes_survey.py",
        "recipes/test_recipes_nodes.py",
        "cli/test_cli_profile.py",
        "cli/test_cli_host.py",
        "cli/test_cli_pages.py",
        "cli/test_cli_book.py",
        "cli/test_cli_listing.py",
        "cli/test_cli_doctor.py",
    ),
    "ranks": (
        "workloads/test_workloads_parallel_gang.py",
        "workloads/test_workloads_parallel_forward.py",
        "workloads/test_workloads_cluster.py",
        "workloads/test_workloads_comm_gang.py",
        "workloads/test_workloads_moe_gang.py",
    ),
    "scipy": (
        "analysis/test_analysis_across.py",
        "analysis/test_analysis_calibration.py",
        "analysis/test_analysis_compare.py",
        "analysis/test_analysis_discoveries.py",
        "analysis/test_analysis_distributions.py",
        "analysis/test_analysis_estimates.py",
        "analysis/test_analysis_pair_fit.py",
        "analysis/test_analysis_percentiles.py",
        "analysis/test_analysis_signed_rank.py",
        "analysis/test_analysis_simulation.py",
        "analysis/test_analysis_trend.py",
        "bench_arithmetic/test_bench_figures.py",
        "bench_arithmetic/test_bench_recorded.py",
        "store/test_store_foreign_unpaired.py",
    ),
    "the package's sources, parsed": ("test_sizes.py", "test_walls.py"),
    "graphs": (
        "workloads/test_workloads_compile_process.py",
        "workloads/test_workloads_decoder.py",
        "workloads/test_workloads_llm_compiled.py",
        "workloads/test_workloads_llm_sides.py",
        "workloads/test_workloads_startup.py",
        "workloads/test_workloads_quant.py",
    ),
}
"""What loads, for seconds, what the others of these files need too: one process of a suite runs them all."""
_WITH_REAL_TOOLS = ("test_recipes_real_tools.py", "test_profilers_scrub.py", "test_profilers_recover.py")


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIPERF_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("NO_COLOR", "1")
        patch.delenv("COLUMNS", raising=False)
        # In GitHub Actions annotations go to stderr, where tests expect nothing.
        for name in ("AIPERF_SCRATCH", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        yield


def pytest_configure() -> None:
    """Let threads of libraries sleep that have nothing to do: others want the CPU. And look for garbage seldom: in this
    process a million objects stay."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # those of OpenBLAS always spin
    # For the few small kernels that Inductor compiles here, trials of the CPU and headers compiled ahead take longest.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
    os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what stays: modules, and the tests themselves."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest (with --no-loadscope-reorder: xdist would begin with many small tests)."""
    root = Path(__file__).resolve().parent
    places = {root / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out files, as --dist loadfile does, but those that go together as one."""
    from xdist.scheduler import LoadFileScheduling

    groups = {name: group for group, names in TOGETHER.items() for name in names}

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return groups.get(file.removeprefix("tests/"), file)

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            # xdist asks this several times for each test, and would count all those that are done each time.
            for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
                del workload[scope]
            return super()._pending_of(workload)

    return Files(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What was imported by now stays to the end, and need not be looked through for garbage again and again."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """What is left goes with the process: pytest would look through it for garbage ten times."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries look after that whether their objects went


def _leave(own: int) -> None:
    """Leave a million objects as they are, once all else is done at the end of a process whose status nobody asks."""
    if os.getpid() == own:
        os._exit(0)


if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(_leave, os.getpid())  # what is registered first is called last


@pytest.fixture(scope="session", autouse=True)
def _workers_are_forked(_own_state: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        nursery = Nursery(Path(__file__).resolve().parents[1])
        patch.setattr(child, "subprocess", nursery)
        yield
    nursery.close()


@pytest.fixture
def ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of the test all load torch to meet, so the process that they are forked from has loaded it."""
    monkeypatch.setenv(LOADS, "torch.distributed")


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A shell starts what it puts into the background with SIGINT ignored, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which profilers the tests of the real ones met: one that is absent fails nothing, and must not go unseen."""
    ran = [report.nodeid for state in ("passed", "failed") for report in terminalreporter.stats.get(state, [])]
    if not any(file in name for name in ran for file in _WITH_REAL_TOOLS):
        return
    for status in statuses(HostFacts("h", "Linux", "cpu", (0,), 1, 1)):
        if status.tool in ("nsys", "torch"):
            seen = status.where if status.usable else f"not run, {status.reason}"
            terminalreporter.write_line(f"real {status.tool}: {seen}")
