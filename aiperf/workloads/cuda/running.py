"""A description on a device: compiled, placed, launched, and the facts that the device reports.

What must not live here: the keywords of a scenario (describe.py), and a step that synchronises.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch

from aiperf.workloads.contract import Context, SkipSide, Workload
from aiperf.workloads.cuda.arrays import Arrays
from aiperf.workloads.cuda.compiling import code_digest, compile_cubin
from aiperf.workloads.cuda.describe import TURN, Description
from aiperf.workloads.cuda.extended import early_launch
from aiperf.workloads.cuda.geometry import Launch, Placed
from aiperf.workloads.cuda.textures import Texture
from aiperf.workloads.shared.cupy_kernels import import_cupy, view_stream
from aiperf.workloads.shared.queues import replay_of

_NON_PORTABLE_CLUSTER = 14
_PORTABLE_CLUSTER = 8
_WARP = 32


class KernelRun:
    """A compiled source with its arrays on the device."""

    def __init__(self, context: Context, description: Description, *, backend: str) -> None:
        self._cupy, self._seed = import_cupy(), context.seed
        self._described, self._backend = description, backend
        self._device = torch.device(context.device)
        # CuPy launches on the current device of the CUDA runtime.
        torch.cuda.set_device(self._device)
        self._properties = torch.cuda.get_device_properties(self._device)
        arch = f"sm_{self._properties.major}{self._properties.minor}"
        self._cubin = compile_cubin(
            description.source, description.options, arch=arch, backend=backend, scratch=context.scratch
        )
        # CuPy caches a module by its path, so the name depends on the content.
        path = context.scratch / f"{hashlib.sha256(self._cubin).hexdigest()}.cubin"
        path.write_bytes(self._cubin)
        self._module = self._cupy.RawModule(path=str(path))
        self._kernels: dict[str, Any] = {}
        self._arrays = Arrays(description, self._device, pad=context.pad)
        self._textures = {
            name: Texture(self._arrays.tensors[spec.of], linear=spec.linear)
            for name, spec in description.arrays.items()
            if spec.role == "texture" and name in description.used
        }
        self._arrays.handles = {name: texture.handle for name, texture in self._textures.items()}
        self._placed = [self._place(launch) for launch in description.launches]

    def workload(self) -> Workload:
        """Fill the arrays, launch once to see that it works, and describe the step."""
        described, arrays = self._described, self._arrays
        layout = [self._launcher(self._place(described.layout), early=False)] if described.layout else []
        lay = self._on_stream(layout, ())

        def redraw(seed: int) -> None:
            arrays.draw(seed)
            lay()
            for texture in self._textures.values():
                texture.fill()

        run = self._on_stream(self._calls(), described.clear)
        redraw(self._seed)
        run()
        torch.cuda.synchronize(self._device)
        step = replay_of(run) if described.captured else run
        launches = 1 if described.captured else len(self._placed) * described.repeat
        return Workload(
            step=step,
            work=arrays.work(),
            outputs=arrays.outputs,
            inputs=arrays.inputs,
            redraw=redraw,
            reference=arrays.reference if described.reference else None,
            counters=lambda: {"launches": float(launches)},
            facts=self._facts(),
            close=self._close,
        )

    def _close(self) -> None:
        self._textures.clear()
        self._arrays.tensors.clear()

    def _place(self, launch: Launch) -> Placed:
        """Geometry on this device, with the function's attributes set. Raises SkipSide for what cannot be launched."""
        kernel = self._kernel(launch.entry)
        sms = self._properties.multi_processor_count
        placed = self._described.placed(launch, sms=sms, suggested=_WARP)
        self._allow(kernel, placed)
        if launch.block == "occupancy":
            placed = self._described.placed(launch, sms=sms, suggested=self._suggested(launch, placed))
        resident = self._resident(placed) * sms
        if not resident:
            raise SkipSide(f"no block of {placed.entry} with {placed.threads} threads fits on a multiprocessor")
        if placed.cooperative and placed.blocks > resident:
            raise SkipSide(f"a cooperative grid of {placed.blocks} blocks is not resident; this GPU holds {resident}")
        return placed

    def _suggested(self, launch: Launch, placed: Placed) -> int:
        """Threads of a block where the device chooses; ``placed`` is the launch with blocks of one warp."""
        choices, sms = self._described.block_choices, self._properties.multi_processor_count
        if not choices:
            pointer = self._kernel(launch.entry).kernel.ptr
            return int(self._cupy.cuda.driver.occupancyMaxPotentialBlockSize(pointer, placed.smem, 0)[1])

        def resident_threads(threads: int) -> int:
            chosen = self._described.placed(launch, sms=sms, suggested=threads)
            self._allow(self._kernel(launch.entry), chosen)
            return self._resident(chosen) * threads

        return max(choices, key=resident_threads)

    def _allow(self, kernel: Any, placed: Placed) -> None:
        """Set the attributes that large shared memory, a carveout and large clusters need."""
        attributes = self._cupy.cuda.Device(self._device.index or 0).attributes
        most = attributes["MaxSharedMemoryPerBlockOptin"] - kernel.shared_size_bytes
        if placed.smem > most:
            raise SkipSide(f"{placed.entry} needs {placed.smem} bytes of dynamic shared memory; this GPU offers {most}")
        # The same entry may be launched with less as well, so the limit only ever rises.
        if placed.smem > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = placed.smem
        if self._described.carveout >= 0:
            kernel.preferred_shared_memory_carveout = self._described.carveout
        if self._described.cluster > _PORTABLE_CLUSTER:
            self._cupy.cuda.driver.funcSetAttribute(kernel.kernel.ptr, _NON_PORTABLE_CLUSTER, 1)

    def _kernel(self, entry: str) -> Any:
        if entry not in self._kernels:
            self._kernels[entry] = self._module.get_function(entry)
        return self._kernels[entry]

    def _resident(self, placed: Placed) -> int:
        """Blocks that a multiprocessor holds at once."""
        pointer = self._kernel(placed.entry).kernel.ptr
        found = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(pointer, placed.threads, placed.smem)
        return int(found)

    def _calls(self) -> list[Callable[[int, Any], None]]:
        """The launches of a step, all repetitions of them."""
        pdl, repeat = self._described.pdl, self._described.repeat

        def of(turn: int) -> list[Callable[[int, Any], None]]:
            return [self._launcher(p, early=pdl and turn + i > 0, turn=turn) for i, p in enumerate(self._placed)]

        numbered = any(TURN in str(arg) for placed in self._placed for arg in placed.args)
        later = [of(turn) for turn in range(1, repeat)] if numbered else [of(1)] * (repeat - 1)
        return [*of(0), *(call for calls in later for call in calls)]

    def _launcher(self, placed: Placed, *, early: bool, turn: int = 0) -> Callable[[int, Any], None]:
        """A call (stream pointer, CuPy's stream) that launches once, as the ``turn``-th repetition of the launches."""
        arguments = self._arrays.arguments(placed.args, self._known(placed) | {TURN: turn})
        function = self._kernel(placed.entry).kernel
        if early:
            extended = early_launch(function.ptr, placed, arguments)
            return lambda pointer, stream: extended(pointer)
        options = {"shared_mem": placed.smem, "enable_cooperative_groups": placed.cooperative}
        return lambda pointer, stream: function(placed.grid, placed.block, arguments, stream=stream, **options)

    def _on_stream(self, calls: list[Callable[[int, Any], None]], cleared: tuple[str, ...]) -> Callable[[], None]:
        """All of ``calls`` in order, on torch's current stream at that time."""
        current = torch.cuda.current_stream
        tensors = [self._arrays.tensors[name] for name in cleared]
        kept: dict[int, Any] = {}

        def run() -> None:
            pointer = current().cuda_stream
            if pointer not in kept:
                kept.clear()
                kept[pointer] = view_stream(pointer)
            stream = kept[pointer]
            for tensor in tensors:
                tensor.zero_()
            for call in calls:
                call(pointer, stream)

        return run

    def _facts(self) -> dict[str, Any]:
        described = self._described
        facts = self._entry_facts(self._placed[0])
        entries = {placed.entry: placed for placed in self._placed}
        if len(entries) > 1:
            facts["entries"] = {name: self._entry_facts(placed) for name, placed in entries.items()}
        code, step = self._digests()
        return facts | {
            "compile_options": " ".join(described.options),
            "compiler": self._backend,
            "code_digest": code,
            "step_digest": step,
        }

    def _digests(self) -> tuple[str, str]:
        """Of the timed machine code, and of all parts of a step: two sides with one step digest cannot differ."""
        described = self._described
        code = code_digest(self._cubin, [placed.entry for placed in self._placed])
        launches = [*self._placed, *([self._place(described.layout)] if described.layout else [])]
        parts = [
            code,
            code_digest(self._cubin, [described.layout.entry]) if described.layout else "",
            [(p.grid, p.block, p.smem, p.cooperative, self._values(p)) for p in launches],
            {name: described.arrays[name] for name in described.used},
            (described.repeat, described.captured, described.clear),
            (described.carveout, described.cluster, described.pdl),
        ]
        return code, hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def _values(self, placed: Placed) -> list[str]:
        """Arguments of a launch: names of arrays, values of the rest."""
        values = self._arrays.arguments(placed.args, self._known(placed))
        held = {*self._arrays.tensors, *self._arrays.handles}
        return [str(arg) if arg in held else repr(value) for arg, value in zip(placed.args, values, strict=True)]

    def _known(self, placed: Placed) -> dict[str, int]:
        sms = self._properties.multi_processor_count
        return {**self._described.names, "threads": placed.threads, "sms": sms, TURN: 0}

    def _entry_facts(self, placed: Placed) -> dict[str, Any]:
        kernel = self._kernel(placed.entry)
        resident = self._resident(placed)
        warps = resident * -(-placed.threads // _WARP)
        held = self._properties.max_threads_per_multi_processor // _WARP
        shared = int(kernel.shared_size_bytes) + placed.smem
        found = {
            "registers": int(kernel.num_regs),
            "local_bytes": int(kernel.local_size_bytes),
            "shared_bytes": shared,
            "binary_version": int(kernel.binary_version),
            "grid": _sides(placed.grid),
            "block": _sides(placed.block),
            "blocks_per_sm": resident,
            "theoretical_occupancy": round(warps / held, 4),
            "waves": round(math.prod(placed.grid) / (resident * self._properties.multi_processor_count), 3),
        }
        if self._described.carveout >= 0:
            found["carveout"] = int(kernel.preferred_shared_memory_carveout)
        if self._described.cluster > 1:
            found["cluster"] = self._described.cluster
        return found


def _sides(sides: tuple[int, int, int]) -> int | str:
    """A plain number for a row of blocks or threads, else ``16x16``."""
    kept = sides[: 3 if sides[2] > 1 else 2]
    return kept[0] if sides[1:] == (1, 1) else "x".join(map(str, kept))
