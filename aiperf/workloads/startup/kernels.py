"""The kernel that a serving process of server.py can exchange while it runs: it caps logits and stamps their build.

What must not live here: processes, sockets, timing.
"""

from __future__ import annotations

from typing import Any

import torch

from aiperf.workloads.shared.cupy_kernels import Kernels

CAP = 1.0
"""Small beside the logits of random weights, so that every one of them changes."""
FIRST = 1
"""The build that a warm process has."""
STAMP = "build"
_THREADS = 256
_UNROLLED, _FIRST_UNROLLED = 4, 1
"""Of every later build, so that each takes as long to compile, and of the first one, which has other code."""
_SOURCE = """
extern "C" __global__ void softcap(const float* x, float* y, long long* stamp, int n) {
  const int stride = gridDim.x * blockDim.x;
  const int first = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = first; i < n; i += UNROLLED * stride) {
#pragma unroll
    for (int k = 0; k < UNROLLED; ++k) {
      const int at = i + k * stride;
      if (at < n) y[at] = CAP * tanhf(x[at] / CAP);
    }
  }
  if (first == 0) *stamp = BUILD;
}
"""


def source_of(build: int) -> str:
    """CUDA C++ of a build: the first one is unrolled less than the others; all compute the same."""
    values = {"UNROLLED": _FIRST_UNROLLED if build == FIRST else _UNROLLED, "CAP": f"{CAP}f", "BUILD": f"{build}LL"}
    return "".join(f"#define {name} {value}\n" for name, value in values.items()) + _SOURCE


def capped(logits: Any) -> Any:
    """What every build computes, by torch."""
    return CAP * torch.tanh(logits / CAP)


class Softcap:
    """The kernel in force. A process answers one request at a time, so that another build, compiled and loaded for the
    request that names it first, takes its place between two of them."""

    def __init__(self) -> None:
        self._build = 0
        self._kernels: Any = None

    def __call__(self, logits: Any, build: int) -> tuple[Any, int]:
        """The capped ``logits``, fp32 on a GPU, by the kernel of ``build``, and the build that the kernel stamped."""
        if build != self._build:
            self._kernels, self._build = Kernels(source_of(build), logits.device), build
        logits = logits.contiguous()
        result, stamp = torch.empty_like(logits), torch.zeros(1, dtype=torch.int64, device=logits.device)
        blocks = -(-logits.numel() // (_THREADS * _UNROLLED))
        self._kernels.launcher("softcap", (blocks,), (_THREADS,), logits, result, stamp, logits.numel())()
        return result, int(stamp)
