"""Every CUDA source compiles where nvcc is on PATH, and what the compiler says comes through.

With ``make test-kernels`` each compiles with every set of defines of the shipped scenarios for every architecture, and
sides that are launched alike are seen to differ in their machine code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from cuda_sides import KernelSide, kernel_scenarios, sides_of

from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.cuda.compiling import CompileError, code_digest, compile_cubin, first_error, sections
from aiperf.workloads.cuda.describe import SOURCES

NVCC = shutil.which("nvcc")
ARCHITECTURES = ("80", "90", "100")
EVERY_KERNEL = os.environ.get("AIPERF_EVERY_KERNEL", "") == "1"
"""Each set of defines for each architecture (make test-kernels); else a source once, with its first set for one."""
WORKERS = max(2, os.cpu_count() or 2)
LOG = """/tmp/my.cu(3): error: identifier "nothing" is undefined
    out[0] = nothing;
             ^

/tmp/my.cu(7): error: expected a ";"
2 errors detected in the compilation of "/tmp/my.cu".
"""


# What no source branches on: sizes of the problem, and what only the assembler reads.
ASIDE = re.compile(r"-D(N|ROWS|COLS|DEPTH)=|-maxrregcount")


@cache
def combinations() -> dict[str, dict[tuple[str, ...], tuple[tuple[str, ...], str]]]:
    """Source -> sets of defines -> the options of one side that has them, the lowest architecture that it asks for."""
    found: dict[str, dict[tuple[str, ...], tuple[tuple[str, ...], str]]] = {}
    for path in kernel_scenarios():
        for side in sides_of(path):
            described = side.described()
            lowest = "90" if described.cluster > 1 or ">=9" in side.capability else "80"
            lowest = "100" if ">=10" in side.capability else lowest
            kept = tuple(option for option in described.options if not ASIDE.match(option))
            found.setdefault(str(described.source), {}).setdefault(kept, (described.options, lowest))
    return found


class Compiled:
    """What nvcc made of a source with its options, for one architecture; each is compiled once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[tuple[object, ...], tuple[str, Path]] = {}

    def told(self, source: str, options: tuple[str, ...], architecture: str) -> tuple[str, Path]:
        """Empty or what the compiler says, and the machine code."""
        key = (source, options, architecture)
        if key not in self._told:
            target = self._folder / f"{abs(hash(key))}.cubin"
            own = any(option.startswith("-arch") for option in options)
            arch = [] if own else [f"-arch=sm_{architecture}"]
            command = ["nvcc", "-cubin", *options, *arch, "-o", str(target), source]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            said = f"{options}, sm_{architecture}: {done.stderr}{done.stdout}" if done.returncode else ""
            self._told[key] = (said, target)
        return self._told[key]


@pytest.fixture(scope="module")
def nvcc(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(tmp_path_factory.mktemp("cubins"))


def launched_alike(sides: Iterable[KernelSide]) -> list[list[tuple[KernelSide, cuda.Description]]]:
    """Sides that differ in nothing but their machine code: grids, arguments, arrays and attributes are equal."""
    groups: dict[str, list[tuple[KernelSide, cuda.Description]]] = {}
    for side in sides:
        d = side.described()
        # As many threads as no scenario writes: what the occupancy API will suggest is known on the device only.
        placed = [d.placed(launch, sms=132, suggested=96) for launch in d.launches]
        geometry = [(p.grid, p.block, p.smem, p.cooperative, p.args) for p in placed]
        attributes = (d.repeat, d.clear, d.carveout, d.cluster, d.pdl, d.captured, d.layout, dict(d.arrays))
        groups.setdefault(repr((geometry, attributes)), []).append((side, d))
    return [group for group in groups.values() if len(group) > 1]


def first_case(path: Path) -> list[KernelSide]:
    sides = list(sides_of(path))
    return [side for side in sides if side.case == sides[0].case]


ONE_PROGRAM = {
    ("no-launch-bounds-vs-launch-bounds", "fit-1", "fit-4"),
    ("rolled-vs-unrolled-four-tap", "before", "pragma"),
}
"""Rungs of a ladder that the compiler may make the same, as the scenario says: that is what the ladder shows."""


@pytest.mark.long
def test_every_shipped_source_is_used_by_a_scenario_or_by_another_workload() -> None:
    workloads = "".join(path.read_text(encoding="utf-8") for path in SOURCES.parents[1].rglob("*.py"))
    unused = [path.name for path in SOURCES.glob("*.cu") if str(path) not in combinations()]
    assert [name for name in unused if f'"{name}"' not in workloads] == []


if NVCC:

    @pytest.mark.long
    @pytest.mark.parametrize("source", sorted(map(str, SOURCES.glob("*.cu"))), ids=lambda s: Path(s).stem)
    def test_a_source_compiles_with_all_defines_of_its_scenarios(source: str, nvcc: Compiled) -> None:
        # Of a source that no scenario names: another workload builds it, as it is.
        asked = combinations().get(source, {(): ((), ARCHITECTURES[0])})
        every = [(options, a) for options, low in asked.values() for a in ARCHITECTURES if int(a) >= int(low)]
        jobs = every if EVERY_KERNEL else every[:1]
        with ThreadPoolExecutor(WORKERS) as pool:
            told = [said for said, _ in pool.map(lambda job: nvcc.told(source, *job), jobs)]
        assert not any(told), "\n".join(told)

    def test_an_error_is_one_message_with_the_line_of_the_source(tmp_path: Path) -> None:
        source = tmp_path / "broken.cu"
        source.write_text('extern "C" __global__ void broken(float* out) {\n  out[0] = nothing;\n}\n', encoding="utf-8")
        with pytest.raises(CompileError, match=r"broken\.cu:2: identifier \"nothing\" is undefined"):
            compile_cubin(source, ("-std=c++17",), arch="sm_90", backend="nvcc", scratch=tmp_path)

    @pytest.mark.long
    def test_the_digest_tells_code_and_not_names_or_lines(tmp_path: Path) -> None:
        text = 'extern "C" __global__ void {name}(const float* x, float* out) {{ out[threadIdx.x] = x[0] * {by}; }}'
        digests = []
        for name, by in (("one", "2.0f"), ("other", "2.0f"), ("one", "3.0f")):
            source = tmp_path / f"{name}{by}.cu"
            source.write_text("\n" * len(digests) + text.format(name=name, by=by), encoding="utf-8")
            cubin = compile_cubin(source, ("-lineinfo",), arch="sm_90", backend="nvcc", scratch=tmp_path)
            assert f".text.{name}" in dict(sections(cubin))
            digests.append(code_digest(cubin, [name]))
        assert digests[0] == digests[1], "the same code under another name, at another line"
        assert digests[0] != digests[2], "another constant"

    @pytest.mark.long
    def test_the_digest_sees_what_an_entry_calls_and_its_constants(tmp_path: Path) -> None:
        text = """__constant__ float weights[2] = {{1.0f, {weight}}};
__device__ __noinline__ float called(float x) {{ return x * {by} + weights[threadIdx.x & 1]; }}
extern "C" __global__ void entry(float* out) {{ out[threadIdx.x] = called(out[threadIdx.x]); }}
extern "C" __global__ void other(float* out) {{ out[0] = {unused}; }}"""
        digests = []
        for weight, by, unused in (
            ("2.0f", "3.0f", "1"),
            ("2.5f", "3.0f", "1"),
            ("2.0f", "4.0f", "1"),
            ("2.0f", "3.0f", "2"),
        ):
            source = tmp_path / "called.cu"
            source.write_text(text.format(weight=weight, by=by, unused=unused), encoding="utf-8")
            cubin = compile_cubin(source, (), arch="sm_90", backend="nvcc", scratch=tmp_path)
            digests.append(code_digest(cubin, ["entry"]))
        assert len(set(digests[:3])) == 3
        assert digests[3] == digests[0], "an entry that is not launched does not count"
else:
    print(f"{Path(__file__).name}: no nvcc on PATH, so nothing is compiled here", file=sys.stderr)


if NVCC and EVERY_KERNEL:
    ALIKE = {
        path.stem: groups
        for path in kernel_scenarios()
        if path.parent.name != "controls-gpu" and (groups := launched_alike(first_case(path)))
    }

    @pytest.mark.parametrize("name", sorted(ALIKE))
    def test_sides_that_are_launched_alike_differ_in_their_machine_code(name: str, nvcc: Compiled) -> None:
        for group in ALIKE[name]:
            architecture = "100" if any(">=10" in side.capability for side, _ in group) else "90"
            names: dict[tuple[str, str], str] = {}
            for side, d in group:
                said, cubin = nvcc.told(str(d.source), d.options, architecture)
                assert not said, said
                # What a side reads may be all that differs: then it is the layout that tells them apart.
                laid = [d.layout.entry] if d.layout else []
                timed, untimed = (
                    code_digest(cubin.read_bytes(), entries) for entries in ([x.entry for x in d.launches], laid)
                )
                same = names.setdefault((timed, untimed), side.side)
                one_program = same != side.side and (name, same, side.side) not in ONE_PROGRAM
                assert not one_program, f"{same} and {side.side} are one program"


def test_a_compilers_log_becomes_one_message() -> None:
    told = first_error(Path("/tmp/my.cu"), LOG)
    assert told.splitlines()[0] == '/tmp/my.cu:3: identifier "nothing" is undefined (and 1 more error)'
    assert "out[0] = nothing;" in told
    assert first_error(Path("/tmp/my.cu"), "killed").splitlines() == ["/tmp/my.cu does not compile:", "killed"]


def test_what_is_no_elf_file_is_refused() -> None:
    with pytest.raises(ValueError, match="ELF"):
        code_digest(b"// PTX text", ["entry"])
