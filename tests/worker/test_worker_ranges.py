"""Ranges: nested and balanced on every backend, silent and free when no tool is attached, heard by a real listener."""

import os
import shutil
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from aiperf.worker import nvtx_tools
from aiperf.worker.nvtx_tools import RangeTool, interop_candidates
from aiperf.worker.ranges import Ranges, cost_per_range, range_name

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
SWITCHES = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH", "AIPERF_NVTX", "NVTX_DISABLE")
PROGRAM = """
from aiperf.worker import nvtx_tools
from aiperf.worker.ranges import Ranges
{before}
ranges = Ranges.open(tools={tools})
print(ranges.backend)
try:
    with ranges.side("before"), ranges.phase("before.measure"):
        with ranges.iteration():
            pass
        with ranges.iteration():
            raise ZeroDivisionError
except ZeroDivisionError:
    print("raised")
"""
HEARD = [
    "start aiperf before 1",
    "start aiperf before_measure 2",
    "push aiperf iteration 0",
    "pop aiperf - 0",
    "push aiperf iteration 0",
    "pop aiperf - 0",
    "end aiperf - 2",
    "end aiperf - 1",
]


@pytest.fixture(autouse=True)
def _no_tool_attached(monkeypatch):
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def calls():
    return []


@pytest.fixture
def recorder(calls):
    def start(name):
        calls.append(("start", name))
        return name

    return RangeTool(
        "recorder",
        start=start,
        end=lambda handle: calls.append(("end", handle)),
        push=lambda name: calls.append(("push", name)),
        pop=lambda: calls.append(("pop",)),
    )


def run(before="", tools="nvtx_tools.TOOLS", **env):
    program = PROGRAM.format(before=textwrap.dedent(before), tools=tools)
    clean = {k: v for k, v in os.environ.items() if k not in SWITCHES}
    path = os.pathsep.join(filter(None, [env.pop("path", ""), str(HERE.parents[1])]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_side_phase_and_iteration_nest(calls, recorder):
    ranges = Ranges.open(force=True, tools=(lambda: recorder,))
    with ranges.side("after"), ranges.phase("after.warm-up"), ranges.iteration():
        pass
    assert calls == [
        ("start", "after"),
        ("start", "after_warm-up"),
        ("push", "iteration"),
        ("pop",),
        ("end", "after_warm-up"),
        ("end", "after"),
    ]


def test_ranges_end_when_the_block_raises(calls, recorder):
    ranges = Ranges.open(force=True, tools=(lambda: recorder,))
    with pytest.raises(KeyError), ranges.side("before"), ranges.iteration():
        raise KeyError
    assert calls == [("start", "before"), ("push", "iteration"), ("pop",), ("end", "before")]


def test_a_range_begun_by_hand_is_ended_by_its_handle(calls, recorder):
    ranges = Ranges.open(force=True, tools=(lambda: recorder,))
    first, second = ranges.start("before"), ranges.start("after")
    ranges.end(first)
    ranges.end(second)
    assert calls[2:] == [("end", "before"), ("end", "after")]


def test_a_range_name_needs_no_escape_in_a_profiler_filter():
    assert range_name("two-stage") == "two-stage"
    assert range_name("Before.Warm up@[1]/*") == "before_warm_up__1___"
    with pytest.raises(ValueError, match="needs a name"):
        range_name("")


def test_no_tool_attached_means_off_and_no_backend_is_even_tried():
    ranges = Ranges.open(tools=(pytest.fail,))
    assert (ranges.on, ranges.backend, ranges.reason) == (False, "none", "no tool is attached")
    with ranges.side("before") as inside, ranges.iteration():
        assert inside is None
    ranges.end(ranges.start("before"))
    assert ranges.side("before") is ranges.iteration()


@pytest.mark.parametrize(
    ("env", "on", "reason"),
    [
        ({"NVTX_INJECTION64_PATH": "/tool.so"}, True, "NVTX_INJECTION64_PATH is set"),
        ({"NVTX_INJECTION32_PATH": "/tool.so"}, True, "NVTX_INJECTION32_PATH is set"),
        ({"AIPERF_NVTX": "on"}, True, "AIPERF_NVTX is on"),
        ({"AIPERF_NVTX": "off", "NVTX_INJECTION64_PATH": "/tool.so"}, False, "AIPERF_NVTX is off"),
        ({"NVTX_DISABLE": "1", "AIPERF_NVTX": "on"}, False, "NVTX_DISABLE is set"),
    ],
)
def test_the_environment_turns_ranges_on_and_off(monkeypatch, recorder, env, on, reason):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    ranges = Ranges.open(tools=(lambda: recorder,))
    assert (ranges.on, ranges.reason) == (on, reason)


def test_a_backend_that_fails_gives_way_to_the_next(recorder):
    def broken():
        raise AttributeError("too old")

    ranges = Ranges.open(force=True, tools=(broken, lambda: recorder))
    assert ranges.backend == "recorder"
    none = Ranges.open(force=True, tools=(broken,))
    assert (none.backend, none.reason) == ("none", "broken: AttributeError: too old")


def test_torch_is_the_last_resort_and_has_no_domain():
    assert nvtx_tools.TOOLS[-1] is nvtx_tools.torch_ranges
    assert run("import sys; sys.modules['torch'] = None", "(nvtx_tools.torch_ranges,)", AIPERF_NVTX="on")[0] == "none"


def test_the_real_package_works_forced_on_with_nobody_listening():
    assert run(AIPERF_NVTX="on") == ["nvtx (forced)", "raised"]


def test_the_real_package_is_not_imported_when_ranges_are_off():
    seen = run("import sys, atexit; atexit.register(lambda: print('nvtx' in sys.modules))")
    assert seen == ["none", "raised", "False"]


def test_the_api_of_nvtx_0_2_11_works(tmp_path):
    lib = tmp_path / "nvtx" / "_lib"
    lib.mkdir(parents=True)
    (tmp_path / "nvtx" / "__init__.py").write_text("from nvtx._lib.lib import Domain as get_domain\n")
    (lib / "__init__.py").write_text("")
    (lib / "lib.py").write_text(
        textwrap.dedent("""
            class RangeId:
                def __init__(self, text, handle): self.text, self.domain = text, handle
            class Domain:
                def __init__(self, name=None): self.handle = name
                def get_event_attributes(self, message=None, color='blue', category=None, payload=None): return message
            def push_range(attributes, domain): print('push', domain, attributes)
            def pop_range(domain): print('pop', domain)
            def start_range(attributes, domain):
                print('start', domain, attributes)
                return RangeId(attributes, domain)
            def end_range(range_id): print('end', range_id.domain, range_id.text)
        """)
    )
    assert run(AIPERF_NVTX="on", path=str(tmp_path)) == [
        "nvtx",
        "start aiperf before",
        "start aiperf before_measure",
        "push aiperf iteration",
        "pop aiperf",
        "push aiperf iteration",
        "pop aiperf",
        "end aiperf before_measure",
        "end aiperf before",
        "raised",
    ]


def test_without_the_interop_library_the_search_says_where_it_failed(monkeypatch):
    monkeypatch.setattr(nvtx_tools, "interop_candidates", lambda: iter(["/nowhere/libnvtx3interop.so.1"]))
    ranges = Ranges.open(force=True, tools=(nvtx_tools.interop_library,))
    assert ranges.backend == "none"
    assert ranges.reason.startswith("interop_library: OSError: /nowhere/libnvtx3interop.so.1")


def test_the_interop_library_is_sought_in_wheels_then_in_cuda_home_then_by_name(monkeypatch, tmp_path):
    folder = tmp_path / "lib64"
    folder.mkdir()
    (folder / nvtx_tools.INTEROP).touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    candidates = list(interop_candidates())
    assert str(folder / nvtx_tools.INTEROP) in candidates
    assert candidates[-1] == nvtx_tools.INTEROP


def test_a_range_that_is_off_costs_less_than_one_that_is_on():
    # In turns: a busy machine may halve its speed between two measurements.
    pairs = [(cost_per_range(500, on=False), cost_per_range(500, on=True)) for _ in range(15)]
    assert statistics.median(on / off for off, on in pairs) > 1.1
    assert 0 < min(on for _, on in pairs) < 1e-4


if COMPILER:

    @pytest.fixture(scope="module")
    def listener(tmp_path_factory):
        built = tmp_path_factory.mktemp("listener") / "listener.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(built), str(HERE / "nvtx_listener.c")], check=True)
        return built

    def heard(listener, tmp_path, **how):
        log = tmp_path / "log"
        said = run(NVTX_INJECTION64_PATH=str(listener), NVTX_LISTENER_LOG=str(log), **how)
        return said[0], log.read_text().splitlines() if log.exists() else []

    def test_a_listener_hears_every_range_in_the_domain(listener, tmp_path):
        backend, lines = heard(listener, tmp_path)
        assert backend.startswith("nvtx")
        assert lines == HEARD

    def test_a_listener_hears_ranges_of_a_package_that_fell_silent(listener, tmp_path):
        silent = "import nvtx; from nvtx._lib import lib; nvtx.get_domain = lambda name: lib.dummy_domain"
        assert heard(listener, tmp_path, before=silent) == ("nvtx (forced)", HEARD)

    def test_a_listener_hears_the_interop_library_where_there_is_one(listener, tmp_path):
        backend, lines = heard(listener, tmp_path, tools="(nvtx_tools.interop_library,)")
        found = any(Path(path).is_file() for path in interop_candidates())
        assert backend == "libnvtx3interop" or not found
        assert lines == (HEARD if backend == "libnvtx3interop" else [])
