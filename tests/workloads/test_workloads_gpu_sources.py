"""The CUDA sources run on the CPU: each thread in turn, the keywords of CUDA defined away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from aiperf.workloads.cuda import workload as cuda

KERNELS = Path(cuda.__file__).parent / "kernels"
SHIM = """
#include <vector>
#include <cstdio>
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
struct Index { unsigned x; };
static Index blockIdx, threadIdx, blockDim, gridDim;
#include "SOURCE"
template <class F> void launch(unsigned grid, unsigned block, F kernel) {
  blockDim.x = block;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel();
}
int main() {
  const unsigned grid = GRID, block = 64;
  std::vector<float> first(N), second(N, -1.0f), out(N, -1.0f);
  for (unsigned i = 0; i < N; ++i) first[i] = (float)i;
  BODY
  fwrite(second.data(), 4, N, stdout);
  fwrite(out.data(), 4, N, stdout);
}
"""
GATHER = """
launch(grid, block, [&] { lay_out(first.data(), second.data()); });
launch(grid, block, [&] { gather(second.data(), out.data()); });
"""
PAIRWISE = "launch(grid, block, [&] { ENTRY(first.data(), second.data(), out.data()); });"


def run(folder: Path, *, source: str, body: str, n: int, items: int, defines: tuple[str, ...]) -> np.ndarray:
    """Rows: the second array and the output after the launches."""
    grid = -(-n // (64 * items))
    text = SHIM.replace("SOURCE", str(KERNELS / source)).replace("BODY", body).replace("GRID", str(grid))
    (folder / "emulated.cpp").write_text(text, encoding="utf-8")
    flags = [f"-D{d}" for d in (f"N={n}", f"ITEMS={items}", *defines)]
    build = ["g++", "-std=c++14", "-O1", "-fsanitize=bounds", "-D_GLIBCXX_ASSERTIONS", "-w", *flags]
    subprocess.run([*build, "emulated.cpp", "-o", "emulated"], cwd=folder, check=True, timeout=60)
    told = subprocess.run([folder / "emulated"], check=True, capture_output=True, timeout=60).stdout
    return np.frombuffer(told, dtype=np.float32).reshape(2, n)


@pytest.mark.parametrize(
    ("n", "items", "defines"),
    [
        pytest.param(4096, 8, ("LINEAR=1",), marks=pytest.mark.long),
        pytest.param(4096, 8, ("STRIDE=2",), marks=pytest.mark.long),
        pytest.param(4096, 8, ("STRIDE=32",), marks=pytest.mark.long),
        pytest.param(4096, 8, ("STRIDE=33",), marks=pytest.mark.long),
        (1000, 3, ("STRIDE=33",)),
        pytest.param(4096, 8, ("RANDOM",), marks=pytest.mark.long),
        pytest.param(8192, 1, ("RANDOM",), marks=pytest.mark.long),
        (4096, 8, ("RANDOM", "LINEAR=1")),
    ],
    ids=str,
)
def test_what_was_laid_out_is_gathered_whatever_the_order(
    tmp_path: Path, n: int, items: int, defines: tuple[str, ...]
) -> None:
    stored, out = run(tmp_path, source="access.cu", body=GATHER, n=n, items=items, defines=defines)
    values = np.arange(n, dtype=np.float32)
    assert np.array_equal(out, values)
    assert np.array_equal(np.sort(stored), values), "every place holds one value"
    assert np.array_equal(stored, values) == ("LINEAR=1" in defines)


def test_neighbours_lie_a_stride_apart(tmp_path: Path) -> None:
    stored, _ = run(tmp_path, source="access.cu", body=GATHER, n=1024, items=8, defines=("STRIDE=32",))
    place = np.argsort(stored)
    assert (np.diff(place[:32]) == 32).all()


def test_random_order_gives_the_loads_of_a_warp_a_sector_each(tmp_path: Path) -> None:
    stored, _ = run(tmp_path, source="access.cu", body=GATHER, n=1 << 16, items=8, defines=("RANDOM",))
    sectors = np.argsort(stored).reshape(-1, 32) // 8
    used = [len(set(warp)) for warp in sectors.tolist()]
    assert np.mean(used) > 30


@pytest.mark.parametrize(
    ("entry", "scale", "expected"), [pytest.param("add", "3.0f", 1.0, marks=pytest.mark.long), ("triad", "2.5f", 2.5)]
)
def test_elementwise_kernels_compute_what_their_reference_says(
    tmp_path: Path, entry: str, scale: str, expected: float
) -> None:
    body = PAIRWISE.replace("ENTRY", entry)
    second, out = run(tmp_path, source="elementwise.cu", body=body, n=1000, items=4, defines=(f"SCALE={scale}",))
    assert np.array_equal(out, np.arange(1000, dtype=np.float32) + np.float32(expected) * second)


def test_a_source_without_a_variant_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run(tmp_path, source="access.cu", body=GATHER, n=64, items=1, defines=())
