"""CUDA sources with shared memory run on the CPU: the threads of a block are fibers (cuda_emulation.h), and one program
holds every source with the defines of each case, so that one compilation serves all tests."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from aiperf.workloads.cuda import workload as cuda

pytestmark = pytest.mark.long  # another's compiler
KERNELS = Path(cuda.__file__).parent / "kernels"
EMULATION = Path(__file__).with_name("cuda_emulation.h")
_PTX = re.compile(r"// ptx: begin\n.*?// ptx: end\n", re.DOTALL)


def header(name: str) -> str:
    """A header of the folder, to stand where it is included."""
    return (KERNELS / name).read_text(encoding="utf-8").replace("#pragma once", "")


@dataclass(frozen=True)
class Case:
    """One source with its defines, and what to run: C++ that ends in tell(...) for each result."""

    source: str
    n: int
    body: str
    defines: dict[str, object] = field(default_factory=dict)
    broken: tuple[str, str] = ("", "")
    """A fault put in on purpose: this text becomes that one."""

    def text(self, name: str) -> str:
        code = _PTX.sub("", (KERNELS / self.source).read_text(encoding="utf-8"))
        for was, becomes in (
            ('extern "C"', ""),
            ('#include "async.cuh"', ""),
            *((f'#include "{name}"', header(name)) for name in ("items.cuh", "grid.cuh")),
            # What CUDA sizes at launch is one large array here; blocks run one after the other.
            ("extern __shared__ __align__(128) float buffers[];", "static float buffers[1 << 16];"),
            ("extern __shared__ __align__(128) float slots[];", "static float slots[1 << 16];"),
            ("extern __shared__ int held[];", "alignas(16) static int held[1 << 16];"),
            ("extern __shared__ __align__(128) Half stages[];", "alignas(16) static Half stages[1 << 16];"),
        ):
            code = code.replace(was, becomes)
        assert self.broken[0] in code
        code = code.replace(*self.broken)
        macros = {"N": self.n, **self.defines}
        known = {*macros, *re.findall(r"#define (\w+)", code)}
        head = "".join(f"#define {key} {value}\n" for key, value in macros.items())
        tail = "".join(f"#undef {key}\n" for key in sorted(known))
        run = f"static void run() {{ const unsigned n = {self.n}; (void)n; {self.body} }}"
        return f"{head}namespace {name} {{\n{code}\n{run}\n}}\n{tail}"


def pairwise(entry: str, grid: int, block: int, size: str = "n", source: str = "given") -> str:
    """Launch ``entry(given, out)`` and tell out."""
    kind = "int" if source == "whole" else "float"
    return (
        f"std::vector<{kind}> {entry}_out({size}, -7); "
        f"launch({grid}, {block}, [&] {{ {entry}({source}, {entry}_out.data()); }}); tell({entry}_out);"
    )


def product(entry: str, grid: int, block: int, size: str = "n * n", right: str = "n * n") -> str:
    """Launch ``entry(left, right, out)``, the right operand after the left one in given."""
    return (
        f"std::vector<float> {entry}_out({size}, -7.0f); "
        f"launch({grid}, {block}, [&] {{ {entry}(given, given + {right}, {entry}_out.data()); }}); tell({entry}_out);"
    )


RECORDS = """
std::vector<Record> structs(n); std::vector<float> arrays(8 * n), a(n), b(n);
launch(2, 256, [&] { lay_out_structs(given, structs.data()); });
launch(2, 256, [&] { sum_structs(structs.data(), a.data()); });
launch(2, 256, [&] { lay_out_arrays(given, arrays.data()); });
launch(2, 256, [&] { sum_arrays(arrays.data(), b.data()); });
tell(a); tell(b);
"""
OFFSET = """
std::vector<float> stored(n + 32), out(n);
launch(4, 256, [&] { lay_out_offset(given, stored.data()); });
launch(4, 256, [&] { copy_offset(stored.data(), out.data()); });
tell(out);
"""
STREAMS = """
for (auto entry : {two_streams_cpp, two_streams_ptx}) {
  std::vector<float> out(n); launch(2, 256, [&] { entry(given, given + n, out.data()); }); tell(out);
}
std::vector<float> out(n); launch(2, 64, [&] { stream_l2_prefetch(given, given + n, out.data()); }); tell(out);
"""
ROUNDS = """
for (int round = 0; round < 2; ++round) {
  std::vector<float> out(n, 0.0f);
  for (unsigned task = 0; task < n / 256; ++task) launch(1, 256, [&] { one_task(given, out.data()); });
  tell(out); std::fill(out.begin(), out.end(), 0.0f);
  launch(2, 256, [&] { task_queue(given, out.data()); });
  tell(out); std::fill(out.begin(), out.end(), 0.0f);
  launch(2, 256, [&] { task_queue_short(given, out.data()); });
  tell(out);
}
"""
GROUPS = """
for (int round = 0; round < 2; ++round) {
  const unsigned each = 1024 * VECTORS;
  std::vector<int> out(n / each / GROUP, -7);
  launch(n / each, 256, [&] { partials_global(whole, out.data()); }); tell(out);
}
"""
LOOP = """
std::vector<unsigned> state(2); std::vector<float> middle(n), out(n);
for (int step = 0; step < 2; ++step) {
  std::fill(out.begin(), out.end(), NAN); std::fill(middle.begin(), middle.end(), NAN);
  for (int round = 0; round < ITERATIONS; ++round) {
    launch(3, 128, [&] { phase_a(given, middle.data(), out.data(), state.data()); });
    launch(3, 128, [&] { phase_b(given, middle.data(), out.data(), state.data()); });
  }
  tell(out);
}
std::fill(out.begin(), out.end(), NAN); std::fill(middle.begin(), middle.end(), NAN);
launch(1, 128, [&] { both_phases_loop(given, middle.data(), out.data(), state.data()); });
tell(out);
"""
SOFTMAX = """
std::vector<float> parts(2 * 3), out(n, -7.0f); unsigned state = 0;
launch(3, 256, [&] { max_and_sum(given, parts.data()); });
launch(3, 256, [&] { normalise(given, parts.data(), out.data()); });
tell(out); std::fill(out.begin(), out.end(), -7.0f);
launch(1, 256, [&] { softmax_grid(given, parts.data(), out.data(), &state); });
tell(out);
"""
UNEVEN = """
for (auto entry : {uneven_static, uneven_queue, uneven_queue}) {
  std::vector<float> out(n, 0.0f);
  launch(3, 256, [&] { entry(given, given + n, out.data()); }); tell(out);
}
"""
ITEMS = """
for (auto entry : {items_static, items_queue, items_queue}) {
  std::vector<float> out(n, 0.0f);
  launch(n / 256, 256, [&] { entry(given, out.data()); }); tell(out);
}
std::vector<float> out(n, 0.0f);
launch(3, 256, [&] { items_queue(given, out.data()); }); tell(out);
"""
DRAWN_TWICE = """
for (auto entry : {block_each, task_queue}) {
  std::vector<float> out(n, 0.0f);
  launch(entry == block_each ? n / 256 : 2, 256, [&] { entry(given, out.data()); }); tell(out);
}
"""
SCOPES = """
std::vector<int> out(n, -7), slots(2, -7); unsigned state = 0;
launch(1, 256, [&] { block_barriers(whole, whole + n, out.data()); }); tell(out);
std::fill(out.begin(), out.end(), -7);
launch(1, 256, [&] { grid_barriers(whole, whole + n, out.data(), slots.data(), &state); }); tell(out);
"""
SPLIT = """
std::vector<float> parts(8 * n, NAN), out(n, NAN);
launch(n / 4096 * 8, 256, [&] { split_to_global(given, given + ROWS * DEPTH, parts.data()); });
launch(n / 256, 256, [&] { combine(parts.data(), out.data()); });
tell(out);
"""
BESIDE = """
std::vector<int> sums(512, -7), out(n, -7);
launch(2, 256, [&] { stream_beside_table((const int4*)whole, whole + n, sums.data()); }); tell(sums);
launch(n / 256 / TILE_KIB, 256, [&] { tile_beside_table(whole, whole + n, out.data()); }); tell(out);
"""
PACKED = """
std::vector<Half> left(n * n), right(n * n), bits(2 * n * n), next(n * n), rows(n * n), expected(n * n), unused(n * n);
for (unsigned i = 0; i < 2 * n * n; ++i) bits[i] = __float_as_uint(given[i % 1000003]) >> 16;
launch(64, 32, [&] { pack(bits.data(), bits.data() + n * n, left.data(), right.data()); });
std::vector<float> out(n * n), tile;
const unsigned last = BLOCKS_RUN - 1;
launch(BLOCKS_RUN, 288, [&] { if (blockIdx.x == last) product(left.data(), right.data(), out.data()); });
launch(BLOCKS_RUN, 288, [&] { if (blockIdx.x == last) product_packed(left.data(), right.data(), next.data()); });
for (float value : out) if (value != 0.0f) tile.push_back(value);
tell(tile);
for (unsigned i = 0; i < n * n; ++i) rows[i] = rounded(out[i]);
launch(64, 32, [&] { pack(rows.data(), rows.data(), expected.data(), unused.data()); });
tell(std::vector<float>(1, next == expected ? 1.0f : 0.0f));
"""
PDL = """
std::vector<float> middle(n), tail(n), out(n);
launch(2, 256, [&] { producer(given, middle.data(), tail.data()); });
launch(2, 256, [&] { consumer(given + n, middle.data(), tail.data(), out.data()); });
tell(middle); tell(tail); tell(out);
"""
PDL_ROUNDS = """
std::vector<float> middle(n), tail(n);
for (int round = 0; round < 4; ++round) {
  launch(2, 256, [&] { producer(given, middle.data(), tail.data()); });
  tell(middle); tell(tail);
}
"""

THREE_ROLES = """
std::vector<float> out(n);
launch(2, 96, [&] { add_tiles(given, given + n, out.data()); });
tell(out);
"""
THREE = {
    f"three_roles_{buffers}_{separate}": {"BUFFERS": buffers, "SEPARATE": separate}
    for buffers in (1, 2)
    for separate in (0, 1)
}

THIN = "".join(
    product(entry, 3, block, "n * ROWS * STRIP", "n * DEPTH * STRIP")
    for entry, block in (("double_buffered", 128), ("specialised", 160))
)
EVERY_LANE = {"EVERY_LANE_ARRIVES": 1, "ARRIVALS": 32}
"""The build that racecheck sees."""
TILES = "".join(
    product(entry, 1, block, "n * WORDS", "n * WORDS")
    for entry, block in (("single_buffered", 256), ("double_buffered", 256), ("warp_specialized", 288))
)
CASES = {
    "records": Case("records.cu", 300, RECORDS, {"READ": 3}),
    "records_of_four": Case("records.cu", 1500, RECORDS, {"READ": 3, "ITEMS": 4}),
    "copy": Case("copy.cu", 1003, pairwise("copy", 4, 256) + pairwise("copy_float4", 1, 256) + OFFSET, {"OFFSET": 5}),
    "lookup": Case(
        "lookup.cu", 1000, pairwise("lookup_plain", 1, 256) + pairwise("lookup_restrict", 1, 256),
        {"ITEMS": 4, "TABLE": 64},
    ),
    "streams": Case("streams.cu", 1700, STREAMS, {"ITEMS": 4, "AHEAD": 2}),
    "transpose_conflict": Case("transpose.cu", 70, pairwise("transpose_tile", 9, 256, "n * n"), {"PAD": 0}),
    "transpose": Case(
        "transpose.cu", 70,
        pairwise("transpose_tile", 9, 256, "n * n") + pairwise("transpose_swizzled", 9, 256, "n * n"),
    ),
    "transpose_64": Case(
        "transpose.cu", 70,
        pairwise("transpose_tile", 4, 256, "n * n") + pairwise("transpose_swizzled", 4, 256, "n * n"),
        {"SIDE_OF_TILE": 64},
    ),
    "transpose_strips": Case(
        "transpose.cu", 70,
        pairwise("transpose_tile", 9, 256, "n * n") + pairwise("transpose_swizzled", 9, 256, "n * n"),
        {"STRIP": 2},
    ),
    "banks_32": Case("banks.cu", 512, pairwise("shared_read_loop", 2, 256, source="whole"), {"STRIDE": 32}),
    "banks_33": Case("banks.cu", 512, pairwise("shared_read_loop", 2, 256, source="whole"), {"STRIDE": 33}),
    "banks_free": Case("banks.cu", 512, pairwise("shared_read_loop", 2, 256, source="whole"), {"CONFLICT_FREE": 1}),
    "reduce": Case("reduce.cu", 1024, pairwise("sum_shared", 4, 256, "4") + pairwise("sum_shuffle", 4, 256, "4")),
    "reduce_wide": Case(
        "reduce.cu", 8192, pairwise("sum_shared", 4, 256, "4") + pairwise("sum_shuffle", 4, 256, "4"), {"EACH": 8}
    ),
    "divergent": Case("divergence.cu", 512, pairwise("two_tasks", 2, 256), {"STEPS": 9}),
    "uniform": Case("divergence.cu", 512, pairwise("two_tasks", 2, 256), {"STEPS": 9, "UNIFORM": 1}),
    "matmul": Case(
        "matmul.cu", 45, product("naive", 9, 256) + product("tiled", 9, 256) + product("pipelined", 9, 256),
        {"TILE": 16, "STAGES": 3},
    ),
    "matmul_one_stage": Case("matmul.cu", 45, product("pipelined", 9, 256), {"TILE": 16, "STAGES": 1}),
    "matmul_two_stages": Case("matmul.cu", 45, product("pipelined", 9, 256), {"TILE": 16, "STAGES": 2}),
    "matmul_micro": Case("matmul.cu", 45, product("microtiled", 4, 64), {"TILE": 32, "MICRO": 4}),
    **{
        f"tile_{name}": Case("tile.cu", 7168, pairwise("stream_tiles", 2, 256), {"STEPS": 3, **defines})
        for name, defines in {
            "plain": {"STAGES": 0}, "one": {"STAGES": 1}, "two": {"STAGES": 2}, "four": {"STAGES": 4},
            "small": {"STAGES": 2, "COPY_BYTES": 4}, "bulk": {"STAGES": 3, "BULK": 1},
        }.items()
    },
    **{
        f"tile_own_barriers{suffix}": Case(
            "tile.cu", 7168, pairwise("stream_tiles", 1, 256), {"STEPS": 3, "STAGES": 3, "STAGE_BARRIERS": 1, **more}
        )
        for suffix, more in {"": {}, "_every": EVERY_LANE}.items()
    },
    **{
        f"roles_{copying}": Case(
            "roles.cu", 7 * 1028, pairwise("role_tiles", 2, 384),
            {"TILE": 1028, "STAGES": 2, "STEPS": 3, "PRODUCERS": copying},
        )
        for copying in (1, 6)
    },
    **{
        name: Case("three_roles.cu", 7 * 1028, THREE_ROLES, {"TILE": 1028, **how})
        for name, how in THREE.items()
    },
    "softmax": Case("softmax.cu", 20000, SOFTMAX, {"HELD": 4}),
    "uneven": Case("queue.cu", 2048, UNEVEN, {"SHORTEST": 3, "LONGEST": 4}),
    **{
        f"items_{skew}": Case("queue.cu", 2048, ITEMS, {"SKEW": skew.upper()}) for skew in ("listing", "blocks", "even")
    },
    "scopes": Case("scopes.cu", 256, SCOPES, {"ROUNDS": 12, "EVERY": 4}),
    "split": Case("split_k.cu", 64 * 128, SPLIT, {"ROWS": 64, "COLS": 128, "DEPTH": 256}),
    "beside": Case("hot_table.cu", 8192, BESIDE, {"TABLE": 256, "HINT": 0, "READS": 3, "LOOKUPS": 2, "TILE_KIB": 4}),
    **{
        f"wide_{name}": Case("tile.cu", 8192, pairwise("stream_tiles", 2, 256), {"STEPS": 3, "TILE": 2048, **defines})
        for name, defines in {
            "plain": {"STAGES": 0}, "two": {"STAGES": 2}, "three": {"STAGES": 3}, "four": {"STAGES": 4},
            "bulk": {"STAGES": 2, "BULK": 1},
        }.items()
    },
    **{
        f"{name}{suffix}": Case(f"{name}.cu", n, body, {**defines, **more})
        for suffix, more in {"": {}, "_every": EVERY_LANE}.items()
        for name, n, body, defines in (
            ("tile_gemm", 3, TILES, {}),
            ("band_gemm", 3, product("banded", 4, 288, "n * WORDS", "n * WORDS"), {"PAIRS": 3}),
            ("cluster_gemm", 1024, PACKED, {"STAGES": 2, "BLOCKS_RUN": 7}),
            ("thin_product", 3, THIN, {"DEPTH": 160}),
        )
    },
    "queue_block": Case("queue.cu", 1024, ROUNDS, {"STEPS": 3, "CHUNK": 3}),
    "queue_warp": Case("queue.cu", 1024, ROUNDS, {"STEPS": 3, "POP": "WARP", "CHUNK": 3}),
    "queue_thread": Case("queue.cu", 1024, ROUNDS, {"STEPS": 3, "POP": "THREAD", "CHUNK": 3}),
    # A counter of which the last bit is lost, so that two draw each task.
    "queue_twice": Case(
        "queue.cu", 1024, DRAWN_TWICE, {"STEPS": 3}, ("atomicAdd(&next_task, 1u);", "atomicAdd(&next_task, 1u) / 2;")
    ),
    "groups": Case("cluster.cu", 8192, GROUPS, {"GROUP": 4}),
    "wide_groups": Case("cluster.cu", 16384, GROUPS, {"GROUP": 2, "VECTORS": 4}),
    "loop": Case("loop.cu", 300, LOOP, {"ITERATIONS": 5}),
    "pdl": Case("pdl.cu", 512, PDL, {"TAIL": 2, "PROLOGUE": 3}),
    "pdl_rounds": Case("pdl.cu", 512, PDL_ROUNDS, {"TAIL": 2, "PROLOGUE": 3, "ROUNDS": 3}),
}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """The inputs, and what each case told."""

    given: np.ndarray
    whole: np.ndarray
    results: dict[str, list[np.ndarray]]

    def floats(self, name: str) -> list[np.ndarray]:
        return self.results[name]

    def integers(self, name: str) -> list[np.ndarray]:
        return [result.view(np.int32) for result in self.results[name]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Everything, compiled once and run once."""
    folder = tmp_path_factory.mktemp("emulated")
    given = np.random.default_rng(3).normal(size=1 << 21).astype(np.float32)
    whole = np.random.default_rng(4).integers(0, 128, 1 << 16, dtype=np.int32)
    runs = "".join(
        f'std::fputs("{name}\\n", stderr); std::printf("%s\\n", "{name}"); {name}::run(); end();' for name in CASES
    )
    main = f"""
static void end() {{ tell(std::vector<float>()); }}
int main() {{
  if (std::fread(given, 4, 1 << 21, stdin) != 1 << 21 || std::fread(whole, 4, 1 << 16, stdin) != 1 << 16) return 1;
  {runs}
}}"""
    text = EMULATION.read_text(encoding="utf-8") + "".join(case.text(name) for name, case in CASES.items()) + main
    (folder / "emulated.cpp").write_text(text, encoding="utf-8")
    built = subprocess.run(
        ["g++", "-std=c++20", "-O1", "-w", "-D_GLIBCXX_ASSERTIONS", "emulated.cpp", "-o", "emulated"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[:3000]
    ran = subprocess.run(
        [folder / "emulated"], input=given.tobytes() + whole.tobytes(), capture_output=True, timeout=120, check=False
    )
    assert ran.returncode == 0, f"stopped in {ran.stderr.decode().split()[-1]}: a deadlock, or a place out of bounds"
    return Told(given, whole, _parsed(ran.stdout))


def _parsed(stream: bytes) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {}
    at = 0
    while at < len(stream):
        end = stream.index(b"\n", at)
        arrays = found.setdefault(stream[at:end].decode(), [])
        at = end + 1
        while size := int.from_bytes(stream[at : at + 4], "little"):
            arrays.append(np.frombuffer(stream, np.float32, size, at + 4))
            at += 4 + 4 * size
        at += 4
    return found


@pytest.mark.long
@pytest.mark.parametrize(("name", "records"), [("records", 300), ("records_of_four", 1500)])
def test_structs_and_arrays_hold_the_same_records(told: Told, name: str, records: int) -> None:
    fields = told.given[: 8 * records].reshape(8, records)
    assert len(told.floats(name)) == 2
    for sums in told.floats(name):
        assert np.array_equal(sums, fields[0] + fields[1] + fields[2])


def test_copies_are_whole_with_a_tail_and_an_offset(told: Told) -> None:
    for out in told.floats("copy"):
        assert np.array_equal(out, told.given[:1003])


def test_lookups_go_round_the_table(told: Told) -> None:
    for out in told.floats("lookup"):
        assert np.array_equal(out, told.given[np.arange(1000) % 64])


def test_both_streams_are_read_however_they_are_scheduled(told: Told) -> None:
    a, b = told.given[:1700].astype(np.float64), told.given[1700:3400].astype(np.float64)
    assert len(told.floats("streams")) == 3
    for out in told.floats("streams"):
        assert np.array_equal(out, (a + 2.5 * b).astype(np.float32))


@pytest.mark.parametrize("name", ["transpose_conflict", "transpose", "transpose_64", "transpose_strips"])
def test_every_tile_transposes_a_side_that_no_whole_tiles_fill(told: Told, name: str) -> None:
    for out in told.floats(name):
        assert np.array_equal(out.reshape(70, 70), told.given[:4900].reshape(70, 70).T)


@pytest.mark.parametrize("name", ["banks_32", "banks_33", "banks_free"])
def test_the_order_of_shared_reads_changes_no_sum(told: Told, name: str) -> None:
    sums = told.whole[:2048].reshape(2, 1024).sum(axis=1)
    (out,) = told.integers(name)
    assert np.array_equal(out.reshape(2, 256), sums[:, None] + np.arange(256))


@pytest.mark.parametrize(("name", "each"), [("reduce", 1), ("reduce_wide", 8)])
def test_block_sums_agree(told: Told, name: str, each: int) -> None:
    sums = told.given[: 1024 * each].reshape(4, 256 * each).astype(float).sum(axis=1)
    assert len(told.floats(name)) == 2
    for out in told.floats(name):
        np.testing.assert_allclose(out, sums, atol=1e-4)


def test_each_element_gets_its_task_whoever_takes_it(told: Told) -> None:
    ((mixed,), (sorted_,)) = told.floats("divergent"), told.floats("uniform")
    assert np.array_equal(mixed, sorted_)
    even, odd = (told.given[part:512:2].copy() for part in (0, 1))
    for _ in range(9):
        even = (even.astype(float) * np.float32(0.999) + np.float32(0.001)).astype(np.float32)
        odd = np.abs(odd - np.float32(0.37))
    assert np.array_equal(mixed[0::2], even)
    assert np.array_equal(mixed[1::2], odd)


def test_every_matmul_adds_in_the_same_order(told: Told) -> None:
    left, right = told.given[: 2 * 45 * 45].reshape(2, 45, 45).astype(float)
    names = ("matmul", "matmul_one_stage", "matmul_two_stages", "matmul_micro")
    results = [out for name in names for out in told.floats(name)]
    assert len(results) == 6
    for out in results:
        assert np.array_equal(out, results[0])
    np.testing.assert_allclose(results[0].reshape(45, 45), left @ right, atol=1e-4)


NARROW = ("tile_plain", "tile_one", "tile_two", "tile_four", "tile_small", "tile_bulk", "tile_own_barriers")
WIDE = ("wide_plain", "wide_two", "wide_three", "wide_four", "wide_bulk")


ROLES = ("roles_1", "roles_6")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((n, (7, 1024)) for n in (*NARROW, "tile_own_barriers_every")),
        *((n, (4, 2048)) for n in WIDE),
        *((n, (7, 1028)) for n in ROLES),
    ],
)
def test_tiles_are_used_after_they_came_and_before_they_go(told: Told, name: str, shape: tuple[int, int]) -> None:
    tiles = told.given[: shape[0] * shape[1]].reshape(shape)
    value = tiles.copy()
    for _ in range(3):
        value = (value.astype(float) * 0.5 + tiles[:, ::-1]).astype(np.float32)
    (out,) = told.floats(name)
    assert np.array_equal(out.reshape(shape), value)


@pytest.mark.parametrize("name", THREE)
def test_three_warps_add_every_tile_however_sets_are_handed_on(told: Told, name: str) -> None:
    count = 7 * 1028
    (out,) = told.floats(name)
    assert np.array_equal(out, told.given[:count] + told.given[count : 2 * count])


@pytest.mark.parametrize(
    ("name", "side"), [("tile_gemm", 112), ("tile_gemm_every", 112), ("band_gemm", 128), ("band_gemm_every", 128)]
)
def test_batched_tile_products_agree_whoever_copies(told: Told, name: str, side: int) -> None:
    left, right = told.given[: 6 * side * side].reshape(2, 3, side, side).astype(float)
    results = told.floats(name)
    for out in results:
        assert np.array_equal(out, results[0])
        np.testing.assert_allclose(out.reshape(3, side, side), left @ right, atol=1e-4)


@pytest.mark.parametrize("name", ["thin_product", "thin_product_every"])
def test_a_thin_product_agrees_whoever_copies(told: Told, name: str) -> None:
    weights, rest = told.given[: 3 * 160 * 128].reshape(3, 160, 128), told.given[3 * 160 * 128 :]
    item = rest[: 160 * 8].reshape(160, 8).astype(float)
    plain, specialised = told.floats(name)
    assert np.array_equal(plain, specialised)
    truth = np.einsum("kr,skc->rsc", item, weights.astype(float)).reshape(8, 3 * 128)
    np.testing.assert_allclose(plain.reshape(8, 3 * 128), truth, atol=1e-4)


@pytest.mark.parametrize("name", ["cluster_gemm", "cluster_gemm_every"])
def test_packed_operands_are_where_the_tensor_cores_want_them(told: Told, name: str) -> None:
    words = told.given[np.arange(2 << 20) % 1000003].view(np.uint32) & np.uint32(0xFFFF0000)
    left, right = words.view(np.float32).reshape(2, 1024, 1024).astype(float)
    tile, same = told.floats(name)
    # Block 6 is of patch 1, which lies below patch 0: its row is the second one of that patch.
    np.testing.assert_allclose(tile.reshape(128, 128), left[384:512] @ right[:, :128], atol=2e-3)
    assert same[0] == 1, "what product_packed writes is what pack makes of the rounded product"


@pytest.mark.parametrize("name", ["queue_block", "queue_warp", "queue_thread"])
def test_a_queue_hands_out_every_task_once_and_is_ready_for_the_next_step(told: Told, name: str) -> None:
    x = told.given[:1024]
    for _ in range(3):
        x = (x.astype(float) * np.float32(0.999) + np.float32(0.001)).astype(np.float32)
    assert len(told.floats(name)) == 6
    for out in told.floats(name):
        assert np.array_equal(out, x)


def test_a_task_that_two_blocks_draw_shows_in_the_results(told: Told) -> None:
    once, twice = told.floats("queue_twice")
    assert once.any()
    assert np.array_equal(twice, 2 * once)


def test_uneven_tasks_are_done_once_and_as_long_as_drawn(told: Told) -> None:
    spread = np.maximum(told.given[:8], np.float32(0.25))
    steps = (np.float32(3) / spread).astype(int).repeat(256)
    assert len(set(steps)) > 2
    x = told.given[2048:4096]
    for step in range(12):
        x = np.where(step < steps, (x.astype(float) * np.float32(0.999) + np.float32(0.001)).astype(np.float32), x)
    assert len(told.floats("uneven")) == 3
    for out in told.floats("uneven"):
        assert np.array_equal(out, x)


@pytest.mark.parametrize("skew", ["listing", "blocks", "even"])
def test_uneven_items_are_done_once_by_their_threads_and_by_warps_that_draw_them(told: Told, skew: str) -> None:
    i = np.arange(2048)
    turns = {"listing": i % 256, "blocks": i // 256 * 97 % 256, "even": np.full(2048, 127)}[skew]
    angles = told.given[:2048, None] + 0.5 * np.arange(256)
    parts = np.where(np.arange(256) < turns[:, None], np.sin(angles) * np.cos(angles), 0)
    assert len(told.floats(f"items_{skew}")) == 4
    for out in told.floats(f"items_{skew}"):
        np.testing.assert_allclose(out, told.given[:2048] + parts.sum(axis=1), atol=2e-3)


def test_softmax_is_that_of_the_whole_vector_by_two_kernels_and_by_one(told: Told) -> None:
    x = np.exp(told.given[:20000].astype(float))
    assert len(told.floats("softmax")) == 2
    for out in told.floats("softmax"):
        np.testing.assert_allclose(out, x / x.sum(), rtol=1e-5)


def test_what_barriers_order_adds_up_alike_in_every_scope(told: Told) -> None:
    key = int(told.whole[256])
    tokens = sum((key ^ (run * 2654435761 & 0xFFFFFFFF)) for run in range(3)) & 0xFFFFFFFF
    expected = told.whole[:256].astype(np.uint32)
    expected[255] += np.uint32(tokens)
    assert len(told.integers("scopes")) == 2
    for out in told.integers("scopes"):
        assert np.array_equal(out.view(np.uint32), expected)


def test_parts_of_a_depth_that_is_split_make_the_whole_product(told: Told) -> None:
    left = told.given[: 64 * 256].reshape(64, 256).astype(float)
    right = told.given[64 * 256 : 64 * 256 + 256 * 128].reshape(256, 128).astype(float)
    (out,) = told.floats("split")
    np.testing.assert_allclose(out.reshape(64, 128), left @ right, atol=1e-3)


def mixed(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ bits >> np.uint32(16)) * np.uint32(0x7FEB352D)
    return bits ^ bits >> np.uint32(15)


def test_streams_and_tiles_beside_a_table_read_all_and_look_up_what_they_found(told: Told) -> None:
    sums, out = told.integers("beside")
    stream, table = told.whole[:8192].astype(np.uint32), told.whole[8192 : 8192 + 256].astype(np.uint32)
    fours = np.bitwise_xor.reduce(stream.reshape(-1, 4), axis=1)
    # Rounds of three reads of 512 threads, the last ones past the end.
    keys = np.zeros((2, 512), dtype=np.uint32)
    for read in np.pad(fours, (0, 2 * 3 * 512 - len(fours))).reshape(2, 3, 512).transpose(1, 0, 2):
        keys = keys * np.uint32(31) + read
    threads, apart = np.arange(512, dtype=np.uint32), np.uint32(0x9E3779B9)
    found = table[mixed(keys + threads) % 256] + table[mixed(keys + threads + apart) % 256]
    started = np.arange(2)[:, None] * 3 * 512 + np.arange(512) < len(fours)
    assert np.array_equal(sums.view(np.uint32), np.where(started, found, 0).sum(axis=0))
    tiles = stream.reshape(-1, 1024)
    found = table[mixed(tiles * np.uint32(31) + tiles[:, ::-1]) % 256]
    assert np.array_equal(out.view(np.uint32), (tiles + found).ravel())


@pytest.mark.parametrize(("name", "size"), [("groups", 8192), ("wide_groups", 16384)])
def test_groups_of_blocks_are_summed_twice_without_clearing(told: Told, name: str, size: int) -> None:
    assert len(told.integers(name)) == 2
    for out in told.integers(name):
        assert np.array_equal(out, told.whole[:size].reshape(2, -1).sum(axis=1))


def test_launches_and_the_loop_iterate_alike_from_the_first_values(told: Told) -> None:
    values = told.given[:300].astype(float)
    out = values
    for _ in range(5):
        middle = 0.5 * (out + np.roll(out, -1))
        out = 0.25 * values + 0.375 * (middle + np.roll(middle, 1))
    results = told.floats("loop")
    assert len(results) == 3
    for result in results:
        assert np.array_equal(result, results[0])
        np.testing.assert_allclose(result, out, atol=1e-5)


def test_the_consumer_reads_what_all_of_the_producer_wrote(told: Told) -> None:
    def chain(x: np.ndarray, steps: int) -> np.ndarray:
        for _ in range(steps):
            x = (x.astype(float) * np.float32(0.999) + np.float32(0.001)).astype(np.float32)
        return x

    values, weights = told.given[:1024].reshape(2, 512)
    middle, tail, out = told.floats("pdl")
    assert np.array_equal(middle, (2 * values.astype(float) + 1).astype(np.float32)), "exact in float64, rounded once"
    assert np.array_equal(tail, chain(values, 2))
    np.testing.assert_allclose(out, chain(weights, 3) * middle[::-1] + tail[::-1], rtol=1e-5, atol=1e-6)


def test_a_round_of_the_producer_writes_what_no_other_round_of_a_step_writes_and_the_next_step_begins_anew(
    told: Told,
) -> None:
    results = told.floats("pdl_rounds")
    for first, second, third, anew in (results[::2], results[1::2]):
        assert (second > first).all()
        assert (third > second).all()
        assert np.array_equal(anew, first)
