"""What a workload is: a function from (context, typed keywords) to a Workload.

What must not live here: any workload, any timing, torch at import time.

A workload module imports only this contract, numpy and GPU libraries (torch, cupy, kvikio). The function's keyword
parameters are annotated with plain names that aiperf can read from the source without importing it: ``Size`` (bytes),
``Seconds``, ``int``, ``float``, ``bool``, ``str``, ``list[...]``, ``dict[...]`` and ``Literal[...]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Size = int
"""A size in bytes; YAML writes ``256MiB``."""
Seconds = float
"""A time in seconds; YAML writes ``2ms``."""
Array = Any
"""A torch.Tensor, numpy.ndarray or cupy.ndarray."""


class SkipSide(Exception):
    """Raised in set-up when only the worker can find out that this host cannot run the side; carries the reason."""


class ProgramEnded(RuntimeError):
    """A program that the side started and works with has ended by itself; the first line of the message says how."""


class ProgramNotReady(RuntimeError):
    """A program that the side started runs and did not become ready in time; the first line of the message names the
    limit."""


@dataclass(frozen=True)
class Work:
    """What one step of the whole gang does; every rank returns the same."""

    bytes: float = 0
    """Useful bytes, counted once."""
    flops: float = 0
    items: float = 0
    item: str = "items"
    """What an item is: tokens, samples, elements, messages."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Peak of the host -> amount charged to it by one step (bytes, or FLOPs for gemm_*). Names: cpu_stream (read +
    written bytes of host memory past the caches), cpu_gemm_fp32, cpu_gemm_bf16, disk_read, page_cache_read, dram (GPU,
    read + written), l2 (GPU, read + written past the first-level caches), shared (GPU, read), h2d, d2h, p2p,
    all_reduce_nccl, all_reduce_gloo (bus bytes), gemm_fp32, gemm_tf32, gemm_bf16, gemm_fp16, gemm_fp8. Leave a peak out
    when the working set sits in a cache above it."""
    maybe_cached: Mapping[str, float] = field(default_factory=dict)
    """Peak -> what of its charge may not have passed it when the step ends, e.g. writes that still lie in a cache:
    whether a side is beyond the peak is judged without it."""


@dataclass(frozen=True)
class Outcome:
    """What a workload's own named check found."""

    passed: bool
    detail: str
    value: float | None = None
    """The quality metric, when there is one."""


def no_outputs() -> Mapping[str, Array]:
    """The outputs of a workload that gives none, which only a scenario without a check may use."""
    return {}


@dataclass(frozen=True)
class Workload:
    """What a side runs. Plain callables, so that it can be driven from a notebook too."""

    step: Callable[[], object]
    """The timed region: one iteration. May leave device work queued on the current stream."""
    work: Work = field(default_factory=Work)
    outputs: Callable[[], Mapping[str, Array]] = no_outputs
    """The arrays that the latest step produced, by name. Written anew, whole, by every step. Required unless the
    scenario says ``check: {kind: none, reason: ...}``."""
    inputs: Callable[[], Mapping[str, Array]] | None = None
    """The arrays that step reads and must leave unchanged. The harness redraws float ones in place for an audit, and
    whole numbers that are neither constant nor sorted: those that each occur once in another order, others with other
    counts. Where that breaks what they mean - lengths that add up - give a ``redraw``."""
    one_input: bool = False
    """Whether ``inputs`` are the parts of one value, its structure among them: it is redrawn where any part is."""
    redraw: Callable[[int], object] | None = None
    """Redraw the inputs in place from a seed, when scaled normal noise would not do. Equal seeds, equal inputs."""
    fixed_inputs: str = ""
    """Why audits meet inputs that are not, or not all, redrawn: ``reads a file that set-up wrote``. Shown with the
    result, which ``--strict`` refuses without it; so are the reasons below."""
    reset: Callable[[], None] | None = None
    """Back to the state after set-up (parameters, optimizer), before an audit; for steps with state."""
    prepare: Callable[[], None] | None = None
    """Untimed preparation before every iteration, e.g. drop the page cache. Forces one iteration a sample."""
    anew: bool = False
    """Whether each iteration meets a process or a compiler's cache of its own, which nothing before it warmed up: no
    warm-up is asked of it but the first iteration and one more."""
    reference: Callable[[], Mapping[str, Array]] | None = None
    """float64 truth for the current inputs, keys as in outputs."""
    counters: Callable[[], Mapping[str, float]] | None = None
    """Structural counts of one step: launches, syncs, graph breaks, files opened."""
    latencies: Callable[[], Mapping[str, Iterable[float]] | Iterable[float]] | None = None
    """Seconds that each unit of work took that ended since this was last called, by series: ``ttft`` (to a request's
    first token), ``inter_token``, ``end_to_end``, ``queue``, or ``latency`` of any other unit, which plain seconds are,
    too. In the order in which the units ended; of an open loop from the arrival that its schedule gave, which is drawn
    from the context's seed. Asked after every turn, outside of what is timed; what ended in warm-up and audits is
    thrown away, and on the device's clock also what had to wait for the stream to be let go (``blocking_kernel``).
    Percentiles of each series become metrics (``ttft_p99``); a gang's are those of its slowest rank."""
    latency_source: str = ""
    """How ``latencies`` are taken, since nothing checks them: ``monotonic clock around each request``. Without it no
    side counts as better by them."""
    done_outside: str = ""
    """Why ``prepare``, ``inputs`` or ``outputs`` of this side take longer than those of another, set-up does what its
    first iteration would, its memory lies in other processes, or it runs on other CPUs or at another priority than it
    was given: ``prepare restores the table that a step empties``. Without it no side counts as better by what it saves
    so."""
    elsewhere: bool = False
    """Whether processes that the workload starts do the work, or a part of it: the memory of the side's own process
    does not tell what it takes then, and is not reported."""
    rounds: int = 0
    """Turns of a launch, for a workload that follows a schedule of its own: each is one step, nothing runs untimed
    before it, and no other steps are taken but the two before the first turn (with ``anew``) and audits. 0: as the time
    allows."""
    values: Callable[[], Mapping[str, float]] | None = None
    """Metric -> its value over the steps since this was last called; asked after every turn, after ``latencies``. The
    metrics are declared beside the function, so that a scenario can name them:
    ``METRICS = {"load": {"goodput": ("1/s", "higher")}}``. A launch's value is the mean over its turns."""
    faults: Callable[[], Mapping[str, str]] | None = None
    """Code -> sentence of what is wrong with the launch's numbers; asked once, after the last turn. A load that was not
    sent on schedule voids the pair, and too many such pairs make the comparison invalid: rate_off, client_busy,
    sent_late. What the side did makes it invalid at once: token_count, prefix_cache. What could not be seen is noted:
    cache_unknown, foreign_client."""
    checks: Mapping[str, Callable[[Mapping[str, Array], Mapping[str, Array]], Outcome]] = field(default_factory=dict)
    """Named checks: (outputs of before, outputs of this side) as numpy arrays -> Outcome."""
    poison: bool = True
    """False when overwriting the outputs would break the step (they are state)."""
    kept_outputs: str = ""
    """Why ``poison`` is False: ``reduced in place: the output is the state``."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was really in force, read back: backend, transport, page kind, GDS active, registers, worker count."""
    close: Callable[[], None] | None = None


@dataclass
class Context:
    """Where a workload is set up."""

    device: str = "cpu"
    """``cpu`` or ``cuda:N`` (N already this rank's)."""
    rank: int = 0
    local_rank: int = 0
    """This rank among those of its node."""
    world_size: int = 1
    seed: int = 0
    """Equal on both sides of a pair."""
    scratch: Path = Path(".")
    """A private folder of this rank on its node's own disk, removed after the pair."""
    shared_scratch: Path = Path(".")
    """A folder shared by all sides and ranks of the pair, of ranks on several nodes on the file system that they
    share; the first to come fills it (write elsewhere, then rename)."""
    pad: int = 0
    """Bytes by which to offset large buffers: randomised per launch so that addresses are not a hidden constant."""
    gpus: int = 0
    """GPUs that this side may use."""
    store_port: int = 0
    """Port of loopback at which the ranks of one host meet; 0 for one rank, and on several nodes."""
    store_file: Path | None = None
    """File at which ranks on several nodes meet, in a folder that only their user can enter."""

    @property
    def on_gpu(self) -> bool:
        """Whether the side computes on a GPU."""
        return self.device.startswith("cuda")

    def use_gpu(self, fault: str) -> Any:
        """The side's GPU as a torch.device, now the current one. Raises SkipSide with ``fault`` where it has none."""
        if not self.on_gpu:
            raise SkipSide(fault)
        import torch

        device = torch.device(self.device)
        torch.cuda.set_device(device)
        return device

    def gang_backend(self, wanted: str = "auto") -> Literal["gloo", "nccl"]:
        """The backend ``wanted``, or with ``auto`` that of the device. Raises SkipSide for NCCL on the CPU."""
        if wanted == "nccl" and not self.on_gpu:
            raise SkipSide("NCCL moves GPU memory only, and this side runs on the CPU")
        return "nccl" if wanted == "nccl" or (wanted == "auto" and self.on_gpu) else "gloo"

    def process_group(self, backend: Literal["gloo", "nccl"]) -> None:
        """Join the gang's default process group, destroyed by the harness at close. Raises RuntimeError for a single
        rank."""
        if self.world_size < 2:
            raise RuntimeError("a process group needs ranks: 2 or more on this side")
        import torch
        import torch.distributed as dist

        if dist.is_initialized():
            return
        store, device = self.store(), torch.device(self.device) if backend == "nccl" else None
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world_size, device_id=device)

    def store(self) -> Any:
        """The store at which the ranks of the gang meet, as torch.distributed has them: a file over several nodes,
        because a port would be open to anybody who reaches the head's."""
        import datetime

        import torch.distributed as dist

        limit = datetime.timedelta(seconds=60)
        if self.store_file is None:
            return dist.TCPStore("127.0.0.1", self.store_port, self.world_size, is_master=False, timeout=limit)
        store = dist.FileStore(str(self.store_file))
        store.set_timeout(limit)
        return store
