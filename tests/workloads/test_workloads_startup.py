"""startup.request: cold, warm and new servers give the same answer; each is the process that it claims to be."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from typing import ClassVar

import pytest
import torch
from cpu_pairs import audit, differences

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared import models
from aiperf.workloads.shared.compiler_counts import compiler_counts
from aiperf.workloads.startup import compiled, kernels, server
from aiperf.workloads.startup import workload as startup

_SMALL = {"batch": 1, "seq": 4}


@pytest.fixture(scope="module")
def workload():
    made = startup.request(Context(seed=3), process="new", requests=2, **_SMALL)
    yield made
    made.close()


def _truth(workload):
    return {name: value.numpy() for name, value in workload.reference().items()}


def test_a_process_of_its_own_answers_each_request_as_the_model_would(workload):
    found = audit(workload, seed=5)
    assert found["answers"].shape == (2, 1, 1024)
    assert differences(found, _truth(workload), rtol=1e-4, atol=1e-4) == []
    assert workload.counters() == {"processes_in_step": 2, "graphs": 0, "cache_hits": 0}
    workload.prepare()
    assert workload.counters()["processes_in_step"] == 2
    assert workload.done_outside == ""


def _processes(client):
    """Their numbers, as the kernel knows them."""
    return [
        int(line.split()[1])
        for descriptor in client._processes
        for line in open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii")
        if line.startswith("Pid:")
    ]


@pytest.mark.long
def test_every_serving_process_has_ended_before_the_next_one_is_timed(tmp_path):
    made = startup.request(Context(seed=3, scratch=tmp_path), process="new", **_SMALL)
    client = made.close.__self__
    try:
        for _ in range(2):
            client.start()
            os.kill(_processes(client)[-1], signal.SIGSTOP)
        processes = _processes(client)
        assert len(set(processes)) == 2
        for process in processes:
            threading.Timer(0.3, os.kill, (process, signal.SIGCONT)).start()
        made.prepare()
        for process in processes:
            with pytest.raises(ProcessLookupError):
                os.kill(process, 0)
        assert client._processes == []
    finally:
        made.close()


@pytest.mark.long
def test_a_serving_process_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "_END_S", 0.2)
    made = startup.request(Context(seed=3, scratch=tmp_path), process="new", **_SMALL)
    client = made.close.__self__
    try:
        client.start()
        (process,) = _processes(client)
        os.kill(process, signal.SIGSTOP)
        client.await_end()
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    finally:
        made.close()


def test_an_answer_to_another_prompt_would_be_noticed(workload):
    found = audit(workload, seed=5)
    workload.redraw(6)
    assert differences(found, _truth(workload), rtol=1e-4, atol=1e-4) == ["answers"]


@pytest.mark.long
def test_a_resident_server_is_started_outside_the_step_and_answers_alike():
    warm = startup.request(Context(seed=3), warm_up="common_shapes", **_SMALL)
    try:
        assert "warm-up requests come before" in warm.done_outside
        found = [audit(warm, seed=5) for _ in range(2)]
        assert differences(*found, rtol=0, atol=0) == []
        assert differences(found[0], _truth(warm), rtol=1e-4, atol=1e-4) == []
        assert warm.counters() == {"processes_in_step": 0, "graphs": 0, "cache_hits": 0}
    finally:
        warm.close()


def test_the_truth_of_every_audit_is_the_models_in_float64(workload):
    fresh = models.build("tiny", seed=3, device="cpu", batch=1, seq=4).module.double()
    for seed in (5, 6):
        workload.redraw(seed)
        with torch.no_grad():
            want = fresh(workload.inputs()["prompts"])[:, -1].view(2, 1, -1)
        assert torch.equal(workload.reference()["answers"], want)


def test_prompts_and_facts_are_those_of_the_model_that_the_server_builds(workload):
    task = models.build("tiny", seed=3, device="cpu", batch=2, seq=4)
    assert workload.facts["parameters"] == task.parameters
    for seed in (3, 9):
        workload.redraw(seed)
        task.redraw(seed)
        assert torch.equal(workload.inputs()["prompts"], task.batch)


@pytest.mark.parametrize(
    "model", [pytest.param(one, marks=pytest.mark.long) if one == "base" else one for one in models.TRANSFORMERS]
)
def test_parameters_are_counted_without_a_model_as_with_one(model):
    made = models.Transformer(**models.TRANSFORMERS[model])
    assert models.parameters_of(model) == sum(p.numel() for p in made.parameters())


def test_the_client_builds_no_model_before_a_truth_is_asked_for_and_then_one(monkeypatch):
    built = []

    def build(*given, **asked):
        built.append(given)
        return real(*given, **asked)

    real = models.build
    monkeypatch.setattr(models, "build", build)
    made = startup.request(Context(seed=3), **_SMALL)
    try:
        assert built == []
        made.reference()
        made.redraw(4)
        made.reference()
        assert built == [("tiny",)]
    finally:
        made.close()


def test_a_set_up_that_fails_beside_the_server_ends_it(monkeypatch):
    started = []

    class Noted(startup._Client):
        def __init__(self, arguments, scratch):
            super().__init__(arguments, scratch)
            started.append(self._server)

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(startup, "_Client", Noted)
    monkeypatch.setattr(models, "draw", fail)
    with pytest.raises(MemoryError):
        startup.request(Context(seed=3), **_SMALL)
    assert [server.returncode for server in started] == [-9]


def test_a_server_that_ends_before_it_has_its_model_is_told(monkeypatch):
    monkeypatch.setattr(startup.server, "__name__", "aiperf.workloads.no_such_server")
    with pytest.raises(RuntimeError, match="the model server ended with status 1"):
        startup.request(Context(seed=3), **_SMALL)


@pytest.fixture
def as_in_a_new_process():
    """Forgets what this process compiled, and what it found in caches."""
    # Not when tests are collected, which each process of a suite does: it takes a second.
    import torch._dynamo
    from torch._dynamo.utils import counters
    from torch._inductor.utils import clear_caches

    def forget():
        torch._dynamo.reset()
        clear_caches()
        counters.clear()

    return forget


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize(
    ("kind", "hit"),
    [
        pytest.param("cold", False, marks=pytest.mark.long),
        pytest.param("cache_dir", True, marks=pytest.mark.long),
        ("mega_cache", True),
    ],
)
def test_what_set_up_kept_is_found_again_by_a_process_that_compiles_and_nothing_else_is(
    kind, hit, as_in_a_new_process, tmp_path, monkeypatch
):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "before"))
    module, tokens = torch.nn.Linear(3, 3).eval(), torch.ones(2, 3)
    own = tmp_path / "process-1"
    as_in_a_new_process()
    compiled.make(kind, module, tokens, tmp_path)
    as_in_a_new_process()
    with torch.inference_mode():
        found = compiled.forward_of(kind, module, folder=tmp_path, own=own)(tokens)
        assert torch.allclose(found, module(tokens))
    graphs, hits = compiler_counts(*compiled.COUNTS).values()
    assert (graphs, hits > 0) == (1, hit)
    assert own.exists() == (kind != "cache_dir")
    assert not (tmp_path / "before").exists()


def test_a_process_without_compiled_code_gets_the_model_as_it_is(tmp_path):
    module = torch.nn.Linear(3, 3)
    compiled.make("none", module, torch.ones(2, 3), tmp_path)
    assert compiled.forward_of("none", module, folder=tmp_path, own=tmp_path / "own") is module
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_waits_for_its_own_children_and_tells_its_failure():
    def wait():
        assert subprocess.run(["false"], check=False).returncode == 1

    def fail():
        raise MemoryError

    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        ends = [os.waitstatus_to_exitcode(os.waitpid(server._apart(work), 0)[1]) for work in (wait, fail)]
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert ends == [0, 1]


@pytest.mark.long
def test_folders_of_processes_that_are_gone_are_removed_before_the_next_one_starts(tmp_path):
    made = startup.request(Context(seed=3, scratch=tmp_path), **_SMALL)
    try:
        (folder,) = tmp_path.iterdir()
        for name in ("process-1", "cache"):
            (folder / name).mkdir()
        made.prepare()
        assert [path.name for path in folder.iterdir()] == ["cache"]
    finally:
        made.close()
    assert list(tmp_path.iterdir()) == []


def test_compiled_code_is_served_by_the_cpu_only():
    with pytest.raises(SkipSide, match="only on the CPU"):
        startup.request(Context(device="cuda:0"), compiled="cold")


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"model": "mlp:small"}, "does not answer prompts"),
        ({"requests": 0}, "1 or more"),
        ({"process": "new", "warm_up": "common_shapes"}, "cannot be warm"),
    ],
)
def test_contradictions_are_refused(asked, fault):
    with pytest.raises(ValueError, match=fault):
        startup.request(Context(), **asked)


class HostSoftcap:
    """The exchanged kernel, by torch on the CPU, with the builds that it was asked to load."""

    loaded: ClassVar[list[int]] = []
    keeps_the_first = False

    def __init__(self) -> None:
        self._build = 0

    def __call__(self, logits, build):
        if build != self._build and not (self.keeps_the_first and self._build):
            self._build = build
            self.loaded.append(build)
        return kernels.capped(logits), self._build


@pytest.fixture
def exchanging(monkeypatch):
    """A side whose one serving process is a thread of this one, and runs on the CPU."""
    HostSoftcap.loaded.clear()
    monkeypatch.setattr(server, "Softcap", HostSoftcap)
    task = models.build("tiny", seed=3, device="cpu", batch=1, seq=4)
    ours, theirs = socket.socketpair()
    threads = torch.get_num_threads()

    class Client(startup._Client):
        def __init__(self, arguments, scratch):
            self.asked = server.ServerOptions.of(["0", *arguments, str(scratch)])
            self.counts = dict.fromkeys(startup._COUNTS, 0.0)
            self._connection = ours
            asked = dataclasses.replace(self.asked, device="cpu")
            self._processes = []
            self._thread = threading.Thread(target=server._serve, args=(theirs, task, asked), daemon=True)
            self._thread.start()

        def await_loaded(self):
            assert server.receive(ours, 9) == server.READY + os.getpid().to_bytes(8, sys.byteorder)

        def start_anew(self):
            """The process goes on: its requests follow one another."""

        def close(self):
            self.stop()
            self._thread.join(timeout=60)
            assert not self._thread.is_alive()

    monkeypatch.setattr(startup, "_Client", Client)
    monkeypatch.setattr(startup, "import_cupy", lambda: None)
    made = startup.request(Context(device="cuda:0", seed=3), new_kernel=True, warm_up="common_shapes", **_SMALL)
    yield made
    made.close()
    theirs.close()
    torch.set_num_threads(threads)


def test_each_request_is_answered_by_a_kernel_that_the_running_process_had_not_seen(exchanging):
    found = [audit(exchanging, seed=seed) for seed in (5, 5, 6)]
    assert differences(found[0], found[1], rtol=0, atol=0) == []
    assert differences(found[0], found[2], rtol=1e-4, atol=1e-4) == ["answers"]
    assert differences(found[2], _truth(exchanging), rtol=1e-4, atol=1e-4) == []
    assert found[0]["by_new_kernel"].tolist() == [1]
    first, *later = HostSoftcap.loaded
    assert first == kernels.FIRST
    assert len(set(later)) == len(later) == 3
    assert first not in later


def test_a_process_that_goes_on_with_its_old_kernel_is_noticed(exchanging, monkeypatch):
    good = audit(exchanging, seed=5)
    monkeypatch.setattr(HostSoftcap, "keeps_the_first", True)
    assert differences(good, audit(exchanging, seed=5), rtol=1e-3, atol=1e-3) == ["by_new_kernel"]
    assert differences(audit(exchanging, seed=5), _truth(exchanging), rtol=1e-3, atol=1e-3) == ["by_new_kernel"]


def test_logits_that_no_kernel_capped_are_noticed(exchanging, monkeypatch):
    monkeypatch.setattr(HostSoftcap, "__call__", lambda self, logits, build: (logits, build))
    assert differences(audit(exchanging, seed=5), _truth(exchanging), rtol=1e-3, atol=1e-3) == ["answers"]


_SHIM = """
#include <cmath>
#include <cstdio>
#include <vector>
#define __global__
struct Index { int x; };
static Index blockIdx, threadIdx, blockDim, gridDim;
SOURCES
int main() {
  const int n = 1003;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) x[i] = 0.37f * (i - 500);
  gridDim.x = 2; blockDim.x = 32;
RUNS
}
"""
_RUN = """  {
    long long stamp = 0;
    for (int i = 0; i < n; ++i) y[i] = -77;
    for (blockIdx.x = 0; blockIdx.x < 2; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < 32; ++threadIdx.x) NAME(x.data(), y.data(), &stamp, n);
    printf("%lld\\n", stamp);
    for (int i = 0; i < n; ++i) printf("%.9g\\n", y[i]);
  }
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiles the kernel as C++")
def test_every_build_computes_the_same_of_every_word_and_stamps_its_own_number(tmp_path):
    builds = [kernels.FIRST, 2, 3, 4, 1 + kernels.FIRST + (1 << startup._BUILD_BITS)]
    sources = [
        "#undef BUILD\n#undef CAP\n#undef UNROLLED\n" + kernels.source_of(build).replace("softcap", f"softcap_{index}")
        for index, build in enumerate(builds)
    ]
    runs = [_RUN.replace("NAME", f"softcap_{index}") for index in range(len(builds))]
    (tmp_path / "builds.cpp").write_text(_SHIM.replace("SOURCES", "\n".join(sources)).replace("RUNS", "".join(runs)))
    subprocess.run(["g++", "-w", "builds.cpp", "-o", "builds"], cwd=tmp_path, check=True, timeout=60)
    told = subprocess.run([tmp_path / "builds"], check=True, capture_output=True, text=True, timeout=60).stdout.split()
    answers = [told[start : start + 1004] for start in range(0, len(told), 1004)]
    assert [int(stamp) for stamp, *_ in answers] == builds
    assert all(words == answers[0][1:] for _, *words in answers)
    x = 0.37 * (torch.arange(1003) - 500)
    assert torch.allclose(torch.tensor([float(word) for word in answers[0][1:]]), kernels.capped(x), rtol=1e-5)
    assert len({kernels.source_of(build) for build in builds}) == len(builds)


def test_a_kernel_is_loaded_when_a_request_names_it_and_kept_until_another_is_named(monkeypatch):
    loaded = []

    class Noted:
        def __init__(self, source, device):
            loaded.append(source)

        def launcher(self, name, grid, block, x, y, stamp, n):
            assert (name, n, grid[0] * block[0] * 8 >= n) == ("softcap", 6, True)
            return lambda: (y.copy_(kernels.capped(x)), stamp.fill_(len(loaded)))

    monkeypatch.setattr(kernels, "Kernels", Noted)
    cap, logits = kernels.Softcap(), torch.arange(6.0).view(2, 3)
    stamps = [cap(logits, build)[1] for build in (7, 7, 9)]
    assert stamps == [1, 1, 2]
    assert loaded == [kernels.source_of(7), kernels.source_of(9)]
    assert torch.equal(cap(logits, 9)[0], kernels.capped(logits))


def test_kernels_are_exchanged_on_a_gpu_only():
    with pytest.raises(SkipSide, match="GPU"):
        startup.request(Context(), new_kernel=True)
