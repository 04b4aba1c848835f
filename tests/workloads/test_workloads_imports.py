"""What set-up will import: that it is told, that set-up does import it, and that it is all there is to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aiperf.workloads.decoder import caches
from aiperf.workloads.shared.imports import imports_of

ROOT = str(Path(__file__).parents[2])
KEYED = ("triton.runtime.cache:triton_key",)
COMPILED = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache:torch_key", *KEYED)


@pytest.mark.parametrize(
    ("workload", "params", "ahead"),
    [
        ("tensor.op", {}, ()),
        ("tensor.op", {"impl": "compiled"}, COMPILED),
        ("tensor.op", {"impl": "triton"}, ()),
        ("model.step", {"compile": "default"}, ("aiperf.workloads.shared.wrapping",)),
        ("model.step", {"mode": "train"}, ("torch._dynamo",)),
        ("model.step", {"mode": "infer", "compile": "none"}, ()),
        ("stream.pipeline", {"kernel": "train_step"}, ("torch._dynamo",)),
        ("stream.pipeline", {"kernel": "spin"}, ()),
        ("parallel.train", {}, ("torch._dynamo",)),
        ("parallel.forward", {}, ()),
        ("attention.forward", {"backend": "flex"}, COMPILED),
        ("attention.forward", {"backend": "math"}, ()),
        ("linalg.matmul", {"sparsity": "2:4"}, ("torch._dynamo", "torch.distributed.tensor")),
        ("linalg.matmul", {"sparsity": "pruned"}, ()),
        ("compile.process", {}, ()),
        ("compile.xla", {}, ("jax", "jax.nn", "jax.monitoring")),
        ("serve.engine", {}, ("aiperf.workloads.engine.side",)),
        ("serve.cluster", {}, ("aiperf.workloads.cluster.side",)),
        ("serve.load", {}, ()),
        ("/home/me/work.py:tensor.op", {"impl": "compiled"}, ()),
    ],
)
def test_only_what_set_up_imports_by_itself_comes_ahead(workload, params, ahead):
    assert imports_of(workload, params) == ahead


@pytest.mark.parametrize(
    ("workload", "params", "on_gpu"),
    [
        ("tensor.op", {"impl": "triton"}, KEYED),
        ("tensor.op", {"impl": "torch"}, ()),
        ("linalg.matmul", {"backend": "triton"}, KEYED),
        ("linalg.matmul", {"backend": "torch"}, ()),
        ("model.step", {"backend": "triton"}, ()),
    ],
)
def test_triton_compiles_in_set_up_on_a_gpu_and_not_in_its_interpreter(workload, params, on_gpu):
    assert imports_of(workload, params, "cuda") == on_gpu
    assert imports_of(workload, params) == ()


@pytest.mark.parametrize("workload", ["llm.generate", "parallel.forward"])
def test_a_decoder_prepares_for_the_fused_kernel_where_there_is_one(workload):
    assert imports_of(workload, {}, "cuda") == ("torch.nn.attention.bias",)
    assert imports_of(workload, {}) == ()


def test_a_cache_loads_the_fused_kernel_s_rule_before_a_step_asks_for_it_and_only_where_there_is_one(monkeypatch):
    asked = []
    monkeypatch.setattr(caches.importlib, "import_module", asked.append)
    for dtype, device in ((torch.float16, "cpu"), (torch.float32, "cuda"), (torch.bfloat16, "cuda:1")):
        caches.Room(1, 1, 1, 8, 4, dtype, device)
    assert asked == ["torch.nn.attention.bias"]


def test_jagged_tensors_are_prepared_for_where_they_are_used():
    assert imports_of("attention.forward", {"layout": "jagged"}, "cuda") == (
        "torch._dynamo",
        "torch.distributed.tensor",
    )
    assert imports_of("attention.forward", {"layout": "jagged"}) == ()
    assert imports_of("attention.forward", {"layout": "padded"}, "cuda") == ()


SET_UP = """
import json, os, sys
from pathlib import Path
import torch, torch.distributed
from aiperf.worker.load import set_up
from aiperf.workloads.shared.imports import imports_of
from aiperf.workloads.contract import Context

def told(workload, params, folder):
    names = imports_of(workload, params)
    ahead = [name.partition(":")[0] for name in names]
    already = [name for name in ahead if name in sys.modules and name != "triton.runtime.cache"]
    set_up(workload, Context(device="cpu", seed=1, scratch=folder, shared_scratch=folder), params)
    there = set(sys.modules)
    for name in ahead:
        __import__(name)
    called = "triton.runtime.cache:triton_key" in names
    made = called and sys.modules["triton.runtime.cache"].triton_key.cache_info().currsize
    if called:
        from torch._inductor import codecache

        def again(*_):
            raise AssertionError("torch hashes its files again")

        codecache.build_code_hash = again
        codecache.torch_key()
    return [already, sorted(set(sys.modules) - there), [called, bool(made)]]

# A decoder on a CPU does without the compiler, which the fused kernel's rule would import.
import aiperf.workloads.engine.side, aiperf.workloads.llm.workload
print(json.dumps("torch._dynamo" in sys.modules), flush=True)

# A process for each, forked from one that has imported torch: that takes longer than most set-ups.
for number, (workload, params) in enumerate(json.loads(sys.argv[1])):
    folder = Path(sys.argv[2], str(number))
    folder.mkdir()
    if not (child := os.fork()):
        print(json.dumps(told(workload, params, folder)), flush=True)
        os._exit(0)  # taking the interpreter down takes a second
    assert os.waitpid(child, 0)[1] == 0, workload
"""
SMALL = [
    ("model.step", {"mode": "train", "model": "tiny", "batch": 1, "seq": 8}),
    ("model.step", {"mode": "infer", "model": "tiny", "batch": 1, "seq": 8, "compile": "default"}),
    ("tensor.op", {"n": 1024, "op": "add", "impl": "compiled"}),
]


@pytest.mark.long
def test_set_up_does_import_what_comes_ahead_and_nothing_more_does(tmp_path):
    program = [sys.executable, "-c", SET_UP, json.dumps(SMALL), str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHINDUCTOR_")}
    told = subprocess.run(program, capture_output=True, text=True, check=True, env={**env, "PYTHONPATH": ROOT})
    decoder, *found = [json.loads(line) for line in told.stdout.splitlines()]
    assert not decoder
    assert len(found) == len(SMALL)
    for side, (already, more, (called, made)) in zip(SMALL, found, strict=True):
        assert (side, already) == (side, [])
        assert set(more) <= {"aiperf.workloads.shared.wrapping"}, side
        assert made == called, side
