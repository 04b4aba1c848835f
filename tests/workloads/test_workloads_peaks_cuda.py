"""The kernels behind the peaks of L2 cache and shared memory: what they read, run on the CPU, is what is charged."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.peaks import cuda_kernels as kernels
from aiperf.workloads.peaks import workload as peaks

NVCC = shutil.which("nvcc")
EMULATION = Path(__file__).with_name("cuda_emulation.h")
PLAIN = """
static unsigned loads = 0;
static uint4 load_l2(const uint4* from) { ++loads; return *from; }
static void store_l2(uint4* to, uint4 v) { *to = v; }
static uint4 load_shared(const uint4* from) { ++loads; return *from; }
"""
MAIN = """
int main() {
  std::vector<uint4> words(VECTORS), copied(VECTORS, uint4{7, 7, 7, 7});
  for (unsigned i = 0; i < VECTORS; ++i) words[i] = {i * i * 2654435761u, i * i * i, i ^ 0x80000000u, 0xffffffffu - i};
  std::vector<unsigned> flat(4 * VECTORS), l2(1024), shared(1024), counts;
  std::memcpy(flat.data(), words.data(), 16 * VECTORS);
  launch(2, 512, [&] { l2_read(words.data(), l2.data(), VECTORS, 3); });
  counts.push_back(loads);
  launch(2, 512, [&] { shared_read(words.data(), shared.data(), 3); });
  counts.push_back(loads - counts[0]);
  launch(2, 512, [&] { l2_copy(words.data(), copied.data(), VECTORS, 1); });
  std::vector<unsigned> there(4 * VECTORS);
  std::memcpy(there.data(), copied.data(), 16 * VECTORS);
  for (auto* part : {&flat, &l2, &shared, &there, &counts}) tell(*part);
}
"""
VECTORS, THREADS = 5000, 1024


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The buffer, the sums of both reading kernels, the copy, and how often each reading kernel loaded."""
    folder = tmp_path_factory.mktemp("peaks")
    source = re.sub(r"// ptx: begin\n.*?// ptx: end\n", "", kernels.SOURCE, flags=re.DOTALL).replace('extern "C"', "")
    text = EMULATION.read_text(encoding="utf-8") + PLAIN + source + MAIN.replace("VECTORS", str(VECTORS))
    (folder / "emulated.cpp").write_text(text, encoding="utf-8")
    build = ["g++", "-std=c++20", "-O1", "-w", "emulated.cpp", "-o", "emulated"]
    subprocess.run(build, cwd=folder, check=True, timeout=120)
    stream = subprocess.run([folder / "emulated"], check=True, capture_output=True, timeout=60).stdout
    parts = []
    while stream:
        size = 4 * int.from_bytes(stream[:4], "little")
        parts.append(np.frombuffer(stream[4 : 4 + size], dtype=np.uint32))
        stream = stream[4 + size :]
    return parts


@pytest.mark.long
def test_every_thread_reads_the_vectors_that_it_is_charged_for(ran: list[np.ndarray]) -> None:
    words, read, tile, _, counts = ran
    assert np.array_equal(read, kernels.sums_of(words, threads=THREADS, batches=3))
    wanted = kernels.sums_of(words[: 4 * kernels.TILE], threads=THREADS, batches=3, within=kernels.TILE)
    assert np.array_equal(tile, wanted)
    assert [16 * int(count) for count in counts] == [kernels.bytes_of(3, threads=THREADS)] * 2
    # The sums tell vectors apart: the proof at set-up would see a thread that reads its neighbour's.
    assert len(set(read.tolist())) == THREADS


@pytest.mark.long
def test_the_copying_kernel_goes_round_the_end_of_its_buffer_and_copies_all_of_it(ran: list[np.ndarray]) -> None:
    words, _, _, copied, _ = ran
    assert np.array_equal(copied, words)


def test_a_buffer_is_a_part_of_the_cache_and_never_smaller_than_the_launch() -> None:
    threads = kernels.threads_of(132)
    assert (threads, kernels.BLOCK * kernels.BLOCKS_EACH) == (132 * 1024, 1024)
    cache = 60 << 20
    assert kernels.vectors_of(cache, part=4, buffers=1, threads=threads) * 16 == 15 << 20
    assert kernels.vectors_of(cache, part=4, buffers=2, threads=threads) * 32 == 15 << 20
    assert kernels.vectors_of(6 << 20, part=8, buffers=1, threads=kernels.threads_of(84)) == kernels.threads_of(84)
    with pytest.raises(SkipSide, match="half of 2097152 bytes"):
        kernels.vectors_of(2 << 20, part=8, buffers=1, threads=threads)
    with pytest.raises(SkipSide, match="does not report"):
        kernels.vectors_of(0, part=4, buffers=1, threads=threads)


def test_the_declared_sizes_are_those_of_the_source() -> None:
    assert kernels.SOURCE.count(f"__launch_bounds__({kernels.BLOCK}, {kernels.BLOCKS_EACH})") == 3
    assert f"tile[{kernels.TILE}]" in kernels.SOURCE
    assert kernels.SOURCE.count(f"i < {kernels.BATCH}; ++i)") == 6
    assert all(f"\n{entry}(" in kernels.SOURCE for entry in kernels.ENTRIES)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[object, ...]]]:
    """A GPU of two multiprocessors and 1 MiB of L2 cache whose kernels compute what the model says; entry -> calls."""
    calls: dict[str, list[tuple[object, ...]]] = {}

    def launcher(source, entry):
        def launch(*arguments):
            calls.setdefault(entry, []).append(arguments)
            words, target = arguments[0].numpy().view(np.uint32), arguments[1]
            if entry == "l2_copy":
                target.copy_(arguments[0])
                return
            within = kernels.TILE if entry == "shared_read" else 0
            sums = kernels.sums_of(words, threads=2048, batches=min(arguments[-1], 3), within=within)
            target.numpy().view(np.uint32)[:] = sums

        return launch

    props = SimpleNamespace(multi_processor_count=2, L2_cache_size=1 << 20)
    monkeypatch.setattr(kernels, "_launcher", launcher)
    monkeypatch.setattr(peaks, "_gpu", lambda ctx: "cpu")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: props)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    return calls


def test_a_step_reads_as_many_bytes_as_it_charges_and_reports_its_sums(fake_gpu) -> None:
    workload = peaks.l2(Context(seed=5), part=4)
    workload.step()
    proof, step = fake_gpu["l2_read"]
    assert proof[0].numel() * 4 == step[0].numel() * 4 == 1 << 18
    assert step[2] * 16 == 1 << 18
    assert workload.work.peaks == {"l2": kernels.bytes_of(step[3], threads=2048)}
    assert 1 << 29 <= workload.work.peaks["l2"] < (1 << 29) + kernels.bytes_of(1, threads=2048)
    assert workload.outputs()["target"].numel() == 2048

    copy = peaks.l2(Context(seed=5), way="copy", part=4)
    copy.step()
    _, step = fake_gpu["l2_copy"]
    assert step[0].numel() * 4 == step[1].numel() * 4 == 1 << 17
    assert copy.work.peaks == {"l2": 2 * kernels.bytes_of(step[3], threads=2048)}

    shared = peaks.shared(Context(seed=5))
    shared.step()
    assert shared.work.peaks == {"shared": kernels.bytes_of(fake_gpu["shared_read"][1][2], threads=2048)}
    assert shared.work.peaks["shared"] >= 1 << 33


@pytest.mark.parametrize(("function", "more"), [("l2", {}), ("l2", {"way": "copy"}), ("shared", {})])
def test_a_kernel_that_does_not_read_what_it_should_is_an_error_at_set_up(fake_gpu, monkeypatch, function, more):
    lazy = kernels._launcher

    def launcher(source, entry):
        right = lazy(source, entry)

        def launch(*arguments):
            right(*arguments)
            arguments[1][3] += 1

        return launch

    monkeypatch.setattr(kernels, "_launcher", launcher)
    with pytest.raises(RuntimeError, match="did not read what it should"):
        getattr(peaks, function)(Context(seed=5), **more)


def test_without_cupy_the_side_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SkipSide, match="CuPy"):
        kernels._launcher(torch.zeros(4, dtype=torch.int32), "l2_read")


if NVCC:

    @pytest.mark.long
    def test_the_source_compiles_for_every_architecture_and_holds_its_kernels(tmp_path: Path) -> None:
        source = tmp_path / "peaks.cu"
        source.write_text(kernels.SOURCE, encoding="utf-8")
        for arch in ("sm_80", "sm_90", "sm_100"):
            target = tmp_path / f"{arch}.cubin"
            subprocess.run([NVCC, "-cubin", f"-arch={arch}", "-o", target, source], check=True, timeout=120)
            assert all(name.encode() in target.read_bytes() for name in ("l2_read", "shared_read")), arch
