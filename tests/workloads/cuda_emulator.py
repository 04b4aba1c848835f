"""Runs a side of a cuda.kernel scenario on the CPU: g++ compiles the source, each CUDA thread is a fiber, and barriers,
votes and shuffles switch between the fibers of a block. One thread at a time, in order, so results are repeatable."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.cuda.expression import evaluate
from aiperf.workloads.cuda.geometry import Placed

SMS = 4
SHIM = """
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(bytes)
struct Index { unsigned x, y, z; };
struct float4 { float x, y, z, w; };
struct int4 { int x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
static Index blockIdx, threadIdx, blockDim, gridDim;
float tile[1 << 16];

struct Fiber { ucontext_t context; char stack[1 << 15]; bool live; unsigned passed[2]; };
static Fiber* fibers;
static unsigned threads;
static ucontext_t scheduler;
static unsigned now;
static void (*kernel)(void*);
static void* captured;

// Wait until each live fiber from first to below last has come to as many barriers of this kind.
static void meet(int kind, unsigned first, unsigned last) {
  const unsigned mine = ++fibers[now].passed[kind];
  for (;;) {
    bool all = true;
    for (unsigned t = first; t < last; ++t) all = all && (!fibers[t].live || fibers[t].passed[kind] >= mine);
    if (all) return;
    swapcontext(&fibers[now].context, &scheduler);
  }
}
static void __syncthreads() { meet(0, 0, threads); }
static unsigned warp_start() { return now / 32 * 32; }
// Of a smaller group too, the whole warp waits: all of them come.
static void __syncwarp(unsigned = ~0u) {
  meet(1, warp_start(), warp_start() + 32 < threads ? warp_start() + 32 : threads);
}
static double slots[1024];
template <class T> T exchange(T value, unsigned from) {
  slots[now] = (double)value;
  __syncwarp();
  const unsigned at = warp_start() + from;
  const T got = from < 32 && at < threads ? (T)slots[at] : value;
  __syncwarp();
  return got;
}
template <class T> T __shfl_sync(unsigned, T value, int lane) { return exchange(value, lane); }
template <class T> T __shfl_down_sync(unsigned, T value, int d) { return exchange(value, now % 32 + d); }
static unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  slots[now] = vote;
  __syncwarp();
  for (unsigned l = 0; l < 32 && warp_start() + l < threads; ++l) votes |= (unsigned)slots[warp_start() + l] << l;
  __syncwarp();
  return votes;
}
static unsigned atomicAdd(unsigned* at, unsigned value) { const unsigned old = *at; *at += value; return old; }
static void __threadfence() {}
template <class T> T __ldcg(const T* from) { return *from; }
static float __uint_as_float(unsigned bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
struct Picture { const float* held; int rows, columns; bool linear; };
typedef unsigned long long cudaTextureObject_t;
static float value_of(const Picture& p, float x, float y) {
  return x >= 0 && x < p.columns && y >= 0 && y < p.rows ? p.held[(int)y * p.columns + (int)x] : 0.0f;
}
// The weights of the texture unit have eight bits behind the point.
static float eighth(float weight) { return roundf(256 * weight) / 256; }
template <class T> T tex2D(cudaTextureObject_t at, float x, float y) {
  const Picture& p = *(const Picture*)at;
  if (!p.linear) return value_of(p, floorf(x), floorf(y));
  const float left = floorf(x - 0.5f), top = floorf(y - 0.5f), a = eighth(x - 0.5f - left), b = eighth(y - 0.5f - top);
  return (1 - b) * ((1 - a) * value_of(p, left, top) + a * value_of(p, left + 1, top)) +
         b * ((1 - a) * value_of(p, left, top + 1) + a * value_of(p, left + 1, top + 1));
}
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static int __dp4a(int a, int b, int sum) {
  for (int byte = 0; byte < 4; ++byte) sum += (signed char)(a >> 8 * byte) * (signed char)(b >> 8 * byte);
  return sum;
}
"""
"""What stands before a source."""
MAIN = """
static void body() {
  kernel(captured);
  fibers[now].live = false;
}
static void run_block() {
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    fiber.live = true;
    fiber.passed[0] = fiber.passed[1] = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = sizeof fiber.stack;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, body, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (now = 0; now < threads; ++now) {
      if (!fibers[now].live) continue;
      any = true;
      threadIdx = {now % blockDim.x, now / blockDim.x % blockDim.y, now / blockDim.x / blockDim.y};
      swapcontext(&scheduler, &fibers[now].context);
    }
  }
}
template <class F> void launch(Index grid, Index block, F call) {
  gridDim = grid, blockDim = block, captured = &call;
  kernel = [](void* at) { (*(F*)at)(); };
  threads = block.x * block.y * block.z;
  fibers = (Fiber*)calloc(threads, sizeof(Fiber));
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block();
}
struct Any {
  void* at;
  template <class T> operator T*() const { return (T*)at; }
};
// An array that ends where a page ends that nobody may touch: whoever goes past its end is killed.
static void* guarded(size_t bytes) {
  const size_t page = 4096, whole = (bytes + page - 1) / page * page;
  char* start = (char*)mmap(0, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED || mprotect(start + whole, page, PROT_NONE)) _exit(4);
  return start + (whole - bytes);
}
template <class T> struct Array {
  const char* path;
  size_t size;
  T* held;
  Array(const char* name, size_t count) : path(name), size(count), held((T*)guarded(count * sizeof(T))) {
    FILE* file = fopen(path, "rb");
    if (fread(held, sizeof(T), size, file) != size) _exit(3);
    fclose(file);
  }
  ~Array() {
    FILE* file = fopen(path, "wb");
    fwrite(held, sizeof(T), size, file);
    fclose(file);
  }
};
int main() {
BODY
}
"""
"""What stands behind it; BODY becomes the arrays and launches of a side."""
TYPES = {"float32": "float", "int32": "int", "int8": "signed char", "bfloat16": "unsigned short"}
FLAGS = ("-std=c++14", "-O0", "-w", "-ffp-contract=off")


def emulate(described: cuda.Description, inputs: Mapping[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The outputs of one step; ``inputs`` as drawn, outputs poisoned first."""
    body = []
    for name in described.used:
        spec = described.arrays[name]
        if spec.role == "texture":
            rows, columns = described.arrays[spec.of].shape
            picture = f"{{{spec.of}_.held, {rows}, {columns}, {str(spec.linear).lower()}}}"
            body.append(f"  static Picture {name}_ = {picture};")
            continue
        half = spec.dtype == "bfloat16"
        values = inputs.get(name, np.full(spec.shape, 0 if spec.role == "scratch" else -1, dtype=np.float32))
        # A bf16 is the upper half of the float that it stands for.
        stored = (values.view(np.uint32) >> 16).astype(np.uint16) if half else values.astype(spec.dtype)
        stored.tofile(folder / name)
        body.append(f'  static Array<{TYPES[spec.dtype]}> {name}_("{name}", {values.size});')
    turns = [(launch, turn) for turn in range(described.repeat) for launch in described.launches]
    for launch, turn in [*([(described.layout, 0)] if described.layout else []), *turns]:
        body.append(_call(described, described.placed(launch, sms=SMS, suggested=64), turn))
    source = described.source.read_text(encoding="utf-8").replace("extern __shared__", "extern")
    text = f'#include "shim.h"\n{source}\n{MAIN.replace("BODY", chr(10).join(body))}'
    (folder / "emulated.cpp").write_text(text, encoding="utf-8")
    defines = [option for option in described.options if option.startswith("-D")]
    build = ["g++", *FLAGS, f"-I{_shim().name}", f"-I{described.source.parent}", *defines]
    build += ["emulated.cpp", "-o", "emulated"]
    subprocess.run(build, cwd=folder, check=True, timeout=120)
    subprocess.run([folder / "emulated"], cwd=folder, check=True, timeout=120)
    outputs = [name for name in described.timed if described.arrays[name].role == "output"]
    return {name: np.fromfile(folder / name, dtype=described.arrays[name].dtype) for name in outputs}


@cache
def _shim() -> tempfile.TemporaryDirectory[str]:
    """A folder with what stands before every source, compiled ahead: the headers of C take longer than a kernel."""
    folder = tempfile.TemporaryDirectory()
    Path(folder.name, "shim.h").write_text(SHIM, encoding="utf-8")
    subprocess.run(["g++", *FLAGS, "-x", "c++-header", "shim.h"], cwd=folder.name, check=True, timeout=120)
    return folder


def _call(described: cuda.Description, placed: Placed, turn: int) -> str:
    sides = [f"Index{{{', '.join(map(str, three))}}}" for three in (placed.grid, placed.block)]
    known = {**described.names, "threads": placed.threads, "sms": SMS, "turn": turn}
    args = [_argument(described, arg, known) for arg in placed.args]
    return f"  launch({', '.join(sides)}, [&] {{ {placed.entry}({', '.join(args)}); }});"


def _argument(described: cuda.Description, arg: Any, known: Mapping[str, int]) -> str:
    """A pointer of whatever type the entry wants, a 64-bit integer or a 32-bit float."""
    if arg in described.arrays and described.arrays[arg].role == "texture":
        return f"(cudaTextureObject_t)&{arg}_"
    if arg in described.arrays:
        return f"Any{{{arg}_.held}}"
    value = evaluate(str(arg), known)
    return f"{value}LL" if isinstance(value, int) else f"{value!r}f"
