"""Floating-point operations of a kernel, from the instruction counters of Nsight Compute.

What must not live here: reading reports (ncu_read.py), and the work that a scenario declares.

An instruction of the CUDA cores counts by its name: one for an addition or a multiplication, two for a fused
multiply-add, twice that in half precision, whose instructions hold two lanes (the weights of Nsight Compute's own
roofline sections). The tensor path counts its operations itself, by the type of its sources. Names are those that
NVIDIA's library lists for GH100; a chip or release that splits a total by destination or sparsity has its parts here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_HALVES = ("_sparsity_off", "_sparsity_on")
INSTRUCTIONS = {
    f"smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on.sum": lanes * weight
    for letter, lanes in (("f", 1), ("d", 1), ("h", 2))
    for operation, weight in (("add", 1), ("mul", 1), ("fma", 2))
}
"""Counter of thread instructions -> operations of each."""


def _counters(*sources: str) -> tuple[str, ...]:
    return tuple(f"sm__ops_path_tensor_src_{source}.sum" for source in sources)


def _split(*sources: str) -> tuple[str, ...]:
    return _counters(*(f"{source}{half}" for source in sources for half in _HALVES))


TENSOR = {
    "bf16": (_counters("bf16_dst_fp32"), _split("bf16_dst_fp32")),
    "fp16": (
        _counters("fp16"),
        _counters("fp16_dst_fp16", "fp16_dst_fp32"),
        _split("fp16_dst_fp16", "fp16_dst_fp32"),
    ),
    "tf32": (_counters("tf32_dst_fp32"), _split("tf32_dst_fp32")),
    "fp64": (_counters("fp64"),),
    "fp8": (_counters("fp8"), _split("fp8"), _counters("fp8_dst_fp16", "fp8_dst_fp32")),
}
"""Type of the sources -> counters of the operations: the first alternative that is there as a whole is taken."""


def wanted(offers: Callable[[str], bool]) -> tuple[str, ...]:
    """The counters to ask for, of those that a profiler offers on this chip; names without ``.sum`` are asked about."""
    known = [name for name in INSTRUCTIONS if offers(name.removesuffix(".sum"))]
    for alternatives in TENSOR.values():
        known += next((names for names in alternatives if all(offers(n.removesuffix(".sum")) for n in names)), ())
    return tuple(known)


def operations(value: Callable[[str], float | None], *, tensor_pct: float | None) -> float | None:
    """Floating-point operations of one launch; None unless every counter that they hang on was read.

    ``value`` reads a counter. ``tensor_pct`` distinguishes a tensor path that was idle from one that was not counted.
    """
    cores = [(value(name), weight) for name, weight in INSTRUCTIONS.items()]
    tensor = _tensor(value, tensor_pct)
    if tensor is None or any(number is None for number, _ in cores):
        return None
    return tensor + sum((number or 0.0) * weight for number, weight in cores)


def _tensor(value: Callable[[str], float | None], tensor_pct: float | None) -> float | None:
    known = list(_of_types(value))
    if len(known) == len(TENSOR) or tensor_pct == 0 or sum(known) > 0:
        return sum(known)
    # Busy with a type that was not counted, or not known to be idle.
    return None


def _of_types(value: Callable[[str], float | None]) -> Iterator[float]:
    for alternatives in TENSOR.values():
        for names in alternatives:
            numbers = [number for name in names if (number := value(name)) is not None]
            if len(numbers) == len(names):
                yield sum(numbers)
                break
