"""Small pairs of the CPU workloads and the steps that an audit takes, shared by the tests of this folder."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.worker import arrays, contents
from aiperf.workloads.contract import Context, Workload


@dataclass(frozen=True)
class Pair:
    """Two sides of one workload function, small."""

    workload: str
    before: dict[str, Any]
    after: dict[str, Any]
    shared: dict[str, Any] = field(default_factory=dict)
    rtol: float = 0.0
    atol: float = 0.0

    def __str__(self) -> str:
        return f"{self.workload}-{'-'.join(str(v) for v in [*self.shared.values(), *self.after.values()])}"


_FILES = {"bytes": 1 << 20, "samples": 64}
PAIRS = [
    Pair("tensor.op", {"source": "gather", "stride": 2}, {}, {"op": "copy", "n": 1000}),
    Pair("tensor.op", {"source": "strided", "stride": 3}, {}, {"op": "copy", "n": 1000}),
    *(Pair("tensor.op", {"impl": "python_loop"}, {}, {"op": op, "n": 64}) for op in ("add", "copy", "where")),
    *(
        Pair("attention.forward", {"backend": "composed"}, {"backend": b}, {"kv_len": 48, "mask": m}, 1e-5, 1e-6)
        for b in ("flash", "math", "default")
        for m in ("none", "causal")
    ),
    *(
        Pair("host.task", {"pages": "4k"}, {"pages": "thp"}, {"work": "touch", "bytes": 4 << 20, "access": a, **t})
        for a, t in (("random", {"touches": 999}), ("sequential", {}), ("first_touch", {}))
    ),
    Pair(
        "host.task",
        {"threads_each": "default"},
        {"threads_each": "cores_per_worker", "workers": 1},
        {"work": "matmul", "n": 32, "units": 2},
        1e-4,
        1e-4,
    ),
    Pair(
        "data.loader",
        {"num_workers": 0},
        {"num_workers": 2},
        {"batches": 3, "batch_size": 2, "sample_shape": [3, 16, 16]},
    ),
    Pair("storage.read", {"read_size": 4096}, {"read_size": 1 << 20}, {"bytes": 1 << 20}),
    Pair("storage.read", {"read_size": 4096}, {"read_size": 65536}, {"bytes": 1 << 20, "io": "direct"}),
    Pair("storage.read", {"order": "random"}, {}, {"bytes": 1 << 20, "read_size": 8192}),
    *(
        Pair("storage.read", {"layout": "files"}, {"layout": "shards"}, {**_FILES, "cache": c})
        for c in ("warm", "cold")
    ),
    Pair(
        "storage.read", {"read_size": 65536}, {"read_size": 1 << 18, "depth": 2}, {"source": "http", "bytes": 1 << 20}
    ),
    Pair("dataset.decode", {}, {"codec": "lz4", "decode_in": "other_thread"}, {"bytes": 1 << 18, "samples": 8}),
    Pair("dataset.decode", {}, {"codec": "zlib1"}, {"bytes": 1 << 18, "samples": 8, "cache": "cold"}),
    Pair("dataset.parse", {"way": "csv_pandas"}, {"way": "npy_mapped"}, {"rows": 64}),
    Pair("model.step", {}, {"guards": "inference_mode_and_no_grad"}, {"mode": "infer", "batch": 2, "seq": 8}),
    Pair("model.step", {"accumulate": 3, "batch": 1}, {"batch": 3}, {"mode": "infer", "seq": 8}, 1e-4, 1e-5),
    Pair("model.step", {"lengths": "padded"}, {"lengths": "packed"}, {"mode": "infer", "seq": 16}, 1e-4, 1e-5),
    Pair("model.step", {"pruned": "zeroed"}, {}, {"mode": "infer", "seq": 8, "prune": 0.5}, 1e-4, 1e-5),
    Pair("moe.layer", {"execution": "dense"}, {}, {"tokens": 24, "hidden": 16, "expert_hidden": 8}, 1e-4, 1e-5),
    *(
        Pair("llm.generate", {}, side, {"sequences": 2, "prompt_tokens": 9, "new_tokens": 4}, 1e-3, 1e-4)
        for side in ({"kv": "static"}, {"kv": "paged"})
    ),
    Pair(
        "serve.engine",
        {"batching": "none"},
        {"prefill_chunk": 6, "kv_pool": 0.5},
        {"requests": 5, "prompt_tokens": [4, 20], "new_tokens": [2, 8], "page_tokens": 4, "max_batch": 3},
        1e-3,
        1e-4,
    ),
    Pair("model.step", {}, {"cudnn_benchmark": True}, {"mode": "infer", "batch": 2, "seq": 8}),
    Pair("model.step", {}, {"deterministic": True}, {"model": "conv:small", "batch": 2, "seq": 8}, 1e-4, 1e-6),
    Pair("model.graphs", {"pool": "none"}, {"pool": "none"}, {"sizes": [1, 2], "seq": 6}),
    Pair("model.halves", {}, {"streams": 1}, {"batches": 2, "seq": 6}),
    Pair("model.replaced", {}, {}, {"batch": 2, "seq": 6}),
    Pair("model.decode", {}, {"capture": "none"}, {"batch": 2, "lengths": [5, 9]}),
    Pair("tensor.op", {"impl": "numpy"}, {"impl": "torch"}, {"op": "byte_tokenise", "n": 500, "copied": True}),
    Pair("model.step", {}, {"compile": "default"}, {"model": "mlp:small", "batch": 4}, 1e-3, 1e-5),
]


def set_up(pair: Pair, which: str, folder: Path, *, seed: int = 3) -> Workload:
    """One side, as the harness would set it up."""
    family, function = pair.workload.split(".")
    make = getattr(importlib.import_module(f"aiperf.workloads.{family}.workload"), function)
    own = folder / which
    own.mkdir(exist_ok=True)
    context = Context(seed=seed, scratch=own, shared_scratch=folder, pad=64)
    return make(context, **{**pair.shared, **getattr(pair, which)})


def audit(workload: Workload, *, seed: int) -> dict[str, np.ndarray]:
    """Redraw, reset, poison, step: what the harness does around an audited iteration."""
    if workload.redraw is not None:
        workload.redraw(seed)
    elif workload.inputs is not None:
        for name, array in workload.inputs().items():
            if arrays.is_floating(array):
                contents.redraw(array, name=name, seed=seed, mean=0.0, std=1.0)
    if workload.reset is not None:
        workload.reset()
    for array in workload.outputs().values():
        arrays.poison(array)
    run(workload)
    return snapshot(workload)


def run(workload: Workload) -> None:
    """One iteration."""
    if workload.prepare is not None:
        workload.prepare()
    workload.step()


def snapshot(workload: Workload) -> dict[str, np.ndarray]:
    """Copies of the outputs as numpy arrays."""
    return {name: arrays.to_numpy(array)[0].copy() for name, array in workload.outputs().items()}


def differences(one: dict[str, np.ndarray], other: dict[str, np.ndarray], *, rtol: float, atol: float) -> list[str]:
    """Names of outputs that are missing on a side, or differ by more than the tolerance (NaN differs from all)."""
    missing = sorted(one.keys() ^ other.keys())
    unequal = (n for n in one.keys() & other.keys() if not np.allclose(one[n], other[n], rtol=rtol, atol=atol))
    return missing + sorted(unequal)


def finish(*workloads: Workload) -> None:
    """Close what has to be closed."""
    for workload in workloads:
        if workload.close is not None:
            workload.close()
