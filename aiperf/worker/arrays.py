"""Arrays of torch, cupy and numpy as the audit handles them: poison, snapshot, digest.

What must not live here: when an audit happens, what counts as equal, and new contents (contents.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

from aiperf.workloads.shared.parts import by_parts, device_in_use

PATTERN = 0x5A
"""Number written over integer outputs, where no other one is asked for."""
_SMALL = 1 << 20
"""Bytes below which a digest is cryptographic, and host memory is not worth the way to a GPU."""
_CHUNK = 1 << 22
"""Elements that are looked at together on a GPU."""
_WEIGHT = 0x1E3779B97F4A7C15
_MIX = 0x2545F4914F6CDD1D
_LOW = 0xFFFFFFFF
Worst = Literal["finite", "infinite", "nan"]
WORSE: tuple[Worst, ...] = ("finite", "infinite", "nan")
"""From the best that can be in an array to the worst."""


class LazyOutput(TypeError):
    """An output is not a plain array: it may not have been computed yet."""


def kind(array: Any) -> str:
    """``torch``, ``numpy`` or ``cupy``, by exact type: a subclass may compute only when it is read. Raises LazyOutput
    for anything else."""
    name = f"{type(array).__module__}.{type(array).__qualname__}"
    if name in {"torch.Tensor", "torch.nn.parameter.Parameter"}:
        return "torch"
    if name == "numpy.ndarray":
        return "numpy"
    if name in {"cupy.ndarray", "cupy._core.core.ndarray"}:
        return "cupy"
    raise LazyOutput(f"{name} is not a torch.Tensor, numpy.ndarray or cupy.ndarray")


def poison(array: Any, pattern: int = PATTERN) -> None:
    """Overwrite with NaN (floating and complex) or ``pattern`` (integers; bools with whether it is even), in place."""
    if kind(array) == "torch":
        import torch

        # A tensor born in inference mode can be written only there; the others can be written there too.
        with torch.inference_mode():
            if array.is_floating_point() or array.is_complex():
                array.fill_(float("nan"))
            else:
                array.fill_(_as_bool(pattern) if array.dtype == torch.bool else pattern)
        return
    array.fill(float("nan") if array.dtype.kind in "fc" else _as_bool(pattern) if array.dtype.kind == "b" else pattern)


def _as_bool(pattern: int) -> bool:
    return not pattern & 1


def is_poisoned(array: Any, pattern: int = PATTERN) -> bool:
    """Whether the array holds nothing but what ``poison`` writes."""
    flat = array.reshape(-1)
    if kind(array) == "torch":
        nans = flat.is_floating_point() or flat.is_complex()
        wanted = None if nans else pattern
        if (seen := _look_by_torch(flat, lambda device: _torch_poisoned(flat.detach(), device, wanted))) is not None:
            return bool(seen)
        flat = flat.numpy(force=True)
    if flat.dtype.kind not in "biufc":
        filled = clone(array)
        poison(filled, pattern)
        return digest(array) == digest(filled)
    nans, number = flat.dtype.kind in "fc", flat.dtype.type(_as_bool(pattern) if flat.dtype.kind == "b" else pattern)

    def part_is(part: slice) -> bool:
        values = flat[part]
        return bool((values != values if nans else values == number).all())

    return part_is(slice(None)) if kind(array) == "cupy" else all(by_parts(part_is, flat.size))


def _torch_poisoned(flat: Any, device: str, pattern: int | None) -> bool:
    """Whether all of it is ``pattern``; NaN without one."""
    import torch

    if pattern is None:
        return all(bool(seen.isnan().all()) for seen in _chunks(flat, device))
    number = torch.tensor(_as_bool(pattern) if flat.dtype == torch.bool else pattern).to(flat.dtype)
    return all(bool((seen == number).all()) for seen in _chunks(flat, device))


def worst_value(array: Any) -> Worst:
    """``nan`` where an element is NaN, else ``infinite`` where one is not finite, else ``finite``."""
    flat = array.reshape(-1)
    if kind(array) == "torch":
        if not (flat.is_floating_point() or flat.is_complex()):
            return WORSE[0]
        flat = flat.detach()
        if (seen := _look_by_torch(flat, lambda device: _torch_worst(flat, device))) is not None:
            return cast(Worst, seen)
        flat = flat.numpy(force=True)
    if flat.dtype.kind not in "fc":
        return WORSE[0]
    if kind(flat) == "cupy":
        return worst_of(flat)
    return max(by_parts(lambda part: worst_of(flat[part]), flat.size), key=WORSE.index, default=WORSE[0])


def worst_of(values: Any) -> Worst:
    """The same of an array of numpy's or cupy's floating type."""
    import numpy as np

    if np.isfinite(values).all():
        return "finite"
    return "nan" if np.isnan(values).any() else "infinite"


def _torch_worst(flat: Any, device: str) -> Worst:
    sick = (chunk for chunk in _chunks(flat, device) if not chunk.isfinite().all())
    return max((WORSE[1 + bool(chunk.isnan().any())] for chunk in sick), key=WORSE.index, default=WORSE[0])


def _chunks(flat: Any, device: str) -> Iterator[Any]:
    """Parts of a flat tensor on ``device``, of 8-bit floats as float32."""
    for chunk in flat.split(_CHUNK):
        seen = chunk.to(device)
        yield seen.float() if "float8" in str(seen.dtype) else seen


def _look_by_torch(tensor: Any, look: Callable[[str], Any]) -> Any:
    """``look(device)`` on a GPU, or on the CPU for types that numpy lacks; None where numpy can look as well."""
    if (seen := _by_gpu(tensor, look)) is not None:
        return seen
    only_torch = str(tensor.dtype).removeprefix("torch.").startswith(("bfloat16", "float8", "complex32"))
    return look("cpu") if only_torch else None


def is_floating(array: Any) -> bool:
    """Whether the elements are real floating-point numbers."""
    return bool(array.is_floating_point()) if kind(array) == "torch" else array.dtype.kind == "f"


def clone(array: Any) -> Any:
    """A copy on the array's own device, queued behind what its stream already holds."""
    return array.detach().clone() if kind(array) == "torch" else array.copy()


def on_host(array: Any) -> bool:
    """Whether an array lies in the memory of the host."""
    return kind(array) == "numpy" or (kind(array) == "torch" and str(array.device) == "cpu")


def same_memory(array: Any, other: Any) -> bool:
    """Whether two arrays are one, or views of the same elements."""
    return array is other or (other is not None and _place(array) == _place(other))


def _place(array: Any) -> tuple[Any, ...]:
    """Where an array's elements lie, and how many."""
    if kind(array) == "torch":
        return str(array.device), array.data_ptr(), tuple(array.shape)
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return kind(array), interface["data"][0], tuple(array.shape)


def to_numpy(array: Any) -> tuple[Any, str]:
    """A numpy array and the name of the original dtype; types numpy lacks widen to float32 without loss."""
    which = kind(array)
    if which == "torch":
        dtype = str(array.dtype).removeprefix("torch.")
        array, wide = array.detach(), dtype.startswith(("bfloat16", "float8"))
        if array.is_cuda:
            return _brought(array, "float32" if wide else dtype), dtype
        return (array.float() if wide else array).numpy(force=True), dtype
    if which == "cupy":
        array = array.get()
    return array, str(array.dtype)


def _brought(tensor: Any, dtype: str) -> Any:
    """A GPU's tensor in memory of numpy, which asks for huge pages: on most hosts torch's comes in small ones."""
    import numpy as np
    import torch

    host = np.empty(tuple(tensor.shape), dtype)
    there = torch.from_numpy(host).reshape(-1).split(_CHUNK)
    for into, part in zip(there, tensor.reshape(-1).split(_CHUNK), strict=True):
        into.copy_(part.float() if dtype == "float32" else part)
    return host


def dtype_of(array: Any) -> str:
    """The name of the type of an array's elements, whatever library holds it."""
    return str(array.dtype).removeprefix("torch.")


def octets(array: Any) -> Any:
    """The bytes of the elements in their logical order: a flat uint8 tensor where torch holds them, else numpy's."""
    if kind(array) == "torch":
        import torch

        return array.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    import numpy as np

    return np.ascontiguousarray(array if kind(array) == "numpy" else array.get()).reshape(-1).view(np.uint8)


def host_octets(held: Any) -> Any:
    """What ``octets`` gave, or a part of it, as a numpy array."""
    if kind(held) == "numpy":
        return held
    return _brought(held, "uint8") if held.is_cuda else held.numpy(force=True)


def digest(array: Any) -> str:
    """A hash of shape, dtype and bytes; equal for equal arrays whatever library or device holds them."""
    return digest_of(octets(array), dtype_of(array), tuple(array.shape))


def digest_of(whole: Any, dtype: str, shape: tuple[int, ...]) -> str:
    """The same of the bytes alone, as ``octets`` gives them."""
    state = hashlib.blake2b(f"{dtype}{tuple(shape)}".encode(), digest_size=16)
    if whole.nbytes < _SMALL:
        state.update(host_octets(whole).data)
    else:
        state.update(str(_weighted_sum(whole)).encode())
    return state.hexdigest()


def _weighted_sum(octets: Any) -> int:
    """Sum of the 8-byte words, each mixed with its position, weighted and mixed again, modulo 2^64.

    A cryptographic hash would take longer than the step it checks. Without the first mixing, rows that change places
    in a pattern cancel; without the second, the signs of a few neighbours do.
    """
    import numpy as np

    words = len(octets) // 8
    rest = int.from_bytes(bytes(octets[words * 8 :].tolist()), "little")
    on_torch = kind(octets) == "torch"
    if on_torch or (device_in_use() and octets.flags.writeable):
        import torch

        tensor = octets if on_torch else torch.from_numpy(octets)
        if (total := _by_gpu(tensor, lambda device: _weighted_sum_by_torch(tensor, words, device))) is not None:
            return int(rest + total) % 2**64
        octets = tensor.numpy()
    values = octets[: words * 8].view(np.uint64)

    def part_sum(part: slice) -> int:
        weights = np.arange(part.start, part.stop, dtype=np.uint64) * np.uint64(_WEIGHT) | np.uint64(1)
        mixed = (values[part] ^ weights) * np.uint64(_MIX)
        mixed ^= mixed >> np.uint64(32)
        mixed *= weights
        mixed ^= mixed >> np.uint64(32)
        return int(mixed.sum())

    return (rest + sum(by_parts(part_sum, words))) % 2**64


def _by_gpu(tensor: Any, look: Callable[[str], Any]) -> Any:
    """What ``look(device)`` says; None where no GPU has the tensor near or, of the host's memory, none has room."""
    import torch

    if not (near := _on_gpu(tensor)):
        return None
    try:
        return look(near)
    except torch.cuda.OutOfMemoryError:
        if tensor.is_cuda:
            raise
        return None


def _on_gpu(tensor: Any) -> str:
    """Where a GPU looks at a tensor fastest: on its own device, or, of much of the host's memory, on the one in use."""
    if tensor.is_cuda:
        return str(tensor.device)
    return device_in_use() if tensor.nbytes >= _SMALL else ""


def _weighted_sum_by_torch(octets: Any, words: int, device: str) -> int:
    """The same sum with signed words, of which torch has no others."""
    import torch

    total = 0
    if octets.storage_offset() % 8:
        octets = octets.clone()  # else it cannot be seen as words
    for start in range(0, words, _CHUNK):
        values = octets[start * 8 : min(start + _CHUNK, words) * 8].view(torch.int64).to(device)
        weights = torch.arange(start, start + len(values), device=device).mul_(_WEIGHT).bitwise_or_(1)
        mixed = (values ^ weights).mul_(_MIX)
        mixed.bitwise_xor_((mixed >> 32).bitwise_and_(_LOW)).mul_(weights)
        total += int(mixed.bitwise_xor_((mixed >> 32).bitwise_and_(_LOW)).sum())
    return total
