"""parallel.sharded: a training step whose weights are sharded over the ranks, by fully_shard or in the compiled graph.

What must not live here: models, other strategies (workload.py), timing.
"""

from __future__ import annotations

import importlib
from types import MethodType, SimpleNamespace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.utils import checkpoint as checkpointing

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.parallel import gradient_exchange as exchange
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.compiler_counts import compiler_counts

_SCHEDULED = {
    "aten_distributed_optimizations.enable_overlap_scheduling": True,
    "aten_distributed_optimizations.collective_bucketing": True,
    "reorder_for_peak_memory": False,
    "allow_buffer_reuse": False,
}
"""Of Inductor: collectives in buckets, moved away from what waits for them; other reordering would undo that."""


def sharded(
    context: Context,
    *,
    how: Literal["eager", "compiled_blocks", "traced", "traced_scheduled"] = "eager",
    model: str = "small",
    batch: int = 4,
    seq: int = 64,
    learning_rate: float = 1e-5,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """One update of a transformer on ``batch`` samples for each rank, of whose weights, gradients and update each rank
    has an equal share; weights are gathered for the forward pass, and those of blocks again for the backward pass.

    ``eager`` is torch's fully_shard, a unit for each block and one for the rest; ``compiled_blocks`` the same with each
    block's forward and backward pass compiled. ``traced`` is SimpleFSDP: weights are DTensors that their modules gather
    when they read them, so that the compiler gets the whole model with its collectives, one for each weight, in one
    graph; ``traced_scheduled`` has Inductor put them in buckets and move them beside computation.

    Outputs: this rank's share of the averaged gradients. Bytes: the gradients of one exchange; items: tokens of all
    ranks. Models: tiny, small, medium, base. Source: AI Systems Performance Engineering, chapter 13.
    """
    if context.world_size < 2:
        raise ValueError("sharded weights need ranks: 2 or more on this side")
    if model not in models.TRANSFORMERS:
        raise ValueError(f'model "{model}" is not a transformer; there are {", ".join(models.TRANSFORMERS)}')
    context.process_group(context.gang_backend(backend))
    parts = context.world_size
    task = models.build(
        model, seed=context.seed, device=context.device, batch=batch * parts, seq=seq, part=context.rank, parts=parts
    )
    step = _ShardedStep(task, _module(task, how, device=context.device, ranks=parts), learning_rate)
    return Workload(
        step=step.run,
        work=Work(bytes=4.0 * task.parameters, flops=task.train_flops, items=task.items, item=task.item),
        outputs=step.shares,
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        # Copies of shards on the GPU would count as memory of the side.
        reset=models.snapshot(task.module, step.optimizer, on_host=True),
        counters=lambda: dict(step.compiled),
        checks={"gradients_close": agreement.gradients_close},
        facts={
            "backend": dist.get_backend(),
            "parts": parts,
            "gradient_bytes": 4 * task.parameters,
            "sharded_parameters": sum(1 for p in task.module.parameters() if hasattr(p, "to_local")),
        },
    )


class _ShardedStep:
    """One timed step: forward and backward pass and the update of this rank's shares."""

    def __init__(self, task: models.Task, module: Any, learning_rate: float) -> None:
        self._task, self._module = task, module
        self.optimizer = torch.optim.SGD(task.module.parameters(), lr=learning_rate)
        self.compiled: dict[str, float] = {}
        """What the compiler did in this side's steps; other sides of the process compile in theirs."""

    def run(self) -> None:
        """The timed region."""
        before = compiler_counts("graphs", "graph_breaks")
        self.optimizer.zero_grad(set_to_none=True)
        self._task.loss(self._module(self._task.batch), self._task.targets).backward()
        self.optimizer.step()
        for name, count in compiler_counts(*before).items():
            self.compiled[name] = self.compiled.get(name, 0.0) + count - before[name]

    def shares(self) -> dict[str, Any]:
        """This rank's rows of the averaged gradients, by parameter."""
        rows = {name: grad.to_local() for name, grad in models.gradients(self._task.module).items()}
        return {name: part for name, part in rows.items() if part.numel()}


def _module(task: models.Task, how: str, *, device: str, ranks: int) -> Any:
    """What is called for a forward pass; the task's module holds the shards."""
    if how.startswith("traced"):
        _trace(task.module, device=device, ranks=ranks)
        if how == "traced":
            return torch.compile(task.module, fullgraph=True)
        # Registers the operators that a graph from the compiler's cache calls: a process that loads such a graph does
        # not run the bucketing pass, which would import them.
        importlib.import_module("torch._inductor.fx_passes.bucketing")
        return torch.compile(task.module, fullgraph=True, options=_SCHEDULED)
    if how == "compiled_blocks":
        # The method, not the module: fully_shard's hooks stay around it, and names as they are.
        forward = torch.compile(models.TransformerBlock.forward, fullgraph=True)
        for block in task.module.blocks:
            block.forward = MethodType(forward, block)
    asked = SimpleNamespace(offload="none", shard="full", wrap="block", prefetch="next")
    sharded = exchange.shard(task, device=device, ranks=ranks, asked=asked)
    # As fully_shard's default has it: what lies outside the blocks is wanted again at once.
    sharded.set_reshard_after_forward(False, recurse=False)
    return sharded


def _trace(module: Any, *, device: str, ranks: int) -> None:
    """Shard each weight in place by its first dimension, and have its module read it whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(device.split(":")[0], (ranks,))

    everywhere, average = [Replicate()], [Partial("avg")]

    def gathered(shard: Any) -> Any:
        return shard.redistribute(placements=everywhere).to_local(grad_placements=average)

    def whole(name: str) -> property:
        # Without the checkpoint the backward pass would keep the gathered weights of all layers.
        return property(lambda part: checkpointing.checkpoint(gathered, part._parameters[name], use_reentrant=False))

    for part in module.modules():
        names = [name for name, weight in part.named_parameters(recurse=False)]
        for name in names:
            shard = distribute_tensor(part._parameters[name].detach(), mesh, [Shard(0)])
            part.register_parameter(name, torch.nn.Parameter(shard))
        if names:
            kind = type(part)
            part.__class__ = type(f"Sharded{kind.__name__}", (kind,), {name: whole(name) for name in names})
