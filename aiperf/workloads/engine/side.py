"""One side of serve.engine: a model, a pool, the policies that were asked for, and what an iteration reports.

What must not live here: the policies themselves, the engine's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch

from aiperf.workloads.contract import Work, Workload
from aiperf.workloads.decoder.model import PRESETS, Shape, draw
from aiperf.workloads.engine.admission.everyone import everyone
from aiperf.workloads.engine.admission.in_time import InTime
from aiperf.workloads.engine.answers import ServedTimes, answer_arrays, same_answers, write_answers
from aiperf.workloads.engine.arrivals import Arrivals, Schedule
from aiperf.workloads.engine.batching.adaptive import AdaptiveDelay
from aiperf.workloads.engine.batching.batched_prompts import BatchedPrompts
from aiperf.workloads.engine.batching.by_load import BatchesByLoad
from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.batching.decode_first import DecodeFirst
from aiperf.workloads.engine.batching.dynamic import DynamicBatches
from aiperf.workloads.engine.batching.merged_prompts import MergedPrompts
from aiperf.workloads.engine.batching.one_by_one import OneByOne
from aiperf.workloads.engine.batching.static import StaticBatches
from aiperf.workloads.engine.batching.within_slo import WithinSlo
from aiperf.workloads.engine.coalescing import Coalesced
from aiperf.workloads.engine.demands import Demand, draw_demands, draw_prompts, unique_tokens
from aiperf.workloads.engine.engine import Admission, Batching, Engine, Order
from aiperf.workloads.engine.orders.fifo import fifo
from aiperf.workloads.engine.orders.length_buckets import LengthBuckets
from aiperf.workloads.engine.orders.reserved import ReservedPlaces
from aiperf.workloads.engine.orders.short_lane import ShortLane
from aiperf.workloads.engine.orders.urgent_first import urgent_first
from aiperf.workloads.engine.pages import PagePool
from aiperf.workloads.engine.prefix import PrefixCache
from aiperf.workloads.engine.running import Running
from aiperf.workloads.shared.seeded import gemm_peak


def batching_of(asked: SimpleNamespace) -> Batching:
    """The policy that a side asked for."""
    kinds: dict[str, Callable[[], Batching]] = {
        "none": OneByOne,
        "static": lambda: StaticBatches(asked.max_batch),
        "dynamic": lambda: DynamicBatches(asked.max_batch, asked.delay),
        "adaptive": lambda: AdaptiveDelay(asked.max_batch, asked.delay),
        "by_load": lambda: BatchesByLoad(asked.max_batch, asked.delay),
        "continuous": lambda: ContinuousBatching(asked.max_batch, asked.prefill_chunk),
        "batched_prompts": lambda: BatchedPrompts(asked.max_batch, prompts=asked.prefill_batch, delay=asked.delay),
        "merged_prompts": lambda: MergedPrompts(asked.max_batch, prompts=asked.prefill_batch, delay=asked.delay),
        "within_slo": lambda: WithinSlo(asked.max_batch, prompts=asked.prefill_batch, delay=asked.ttft_slo),
        "decode_first": lambda: DecodeFirst(asked.max_batch, budget=asked.decode_budget),
    }
    return kinds[asked.batching]()


def order_of(asked: SimpleNamespace) -> Order:
    """The order of the queue that a side asked for."""
    kinds: dict[str, Callable[[], Order]] = {
        "fifo": lambda: fifo,
        "short_lane": lambda: ShortLane(asked.bucket_tokens),
        "length_buckets": lambda: LengthBuckets(asked.bucket_tokens),
        "urgent_first": lambda: urgent_first,
        "reserved": lambda: ReservedPlaces(asked.max_batch),
    }
    return kinds[asked.order]()


class EngineSide:
    """Serves the same schedule in every iteration, each time from an empty pool."""

    def __init__(self, asked: SimpleNamespace) -> None:
        context = asked.context
        self._asked, self._threads = asked, torch.get_num_threads()
        torch.set_num_threads(asked.threads)
        self.shape: Shape = PRESETS[asked.model]
        self.demands: tuple[Demand, ...] = draw_demands(asked, context.seed)
        longest = max(demand.prompt_tokens for demand in self.demands)
        new = max(demand.new_tokens for demand in self.demands)
        self._prompts = torch.zeros(asked.requests, longest, dtype=torch.long, device=context.device)
        self.redraw(context.seed)
        model = draw(self.shape, seed=context.seed, max_tokens=longest + new, device=context.device)
        pool = PagePool(self.shape, pages=self._pages(), page=asked.page_tokens, device=context.device)
        admission: Admission = InTime(asked.ttft_slo) if asked.admission == "in_time" else everyone
        cache = PrefixCache(pool, by_use=asked.eviction == "lru") if asked.prefix_cache else None
        self.engine = Engine(model, pool, batching_of(asked), order_of(asked), admission, cache)
        self.held = answer_arrays(asked.requests, new, context.device)
        self.times = ServedTimes(asked.ttft_slo, asked.inter_token_slo)

    def _pages(self) -> int:
        """Those of ``pool_tokens``, or else the share ``kv_pool`` of what the largest ``max_batch`` requests need; one
        request always fits."""
        page = self._asked.page_tokens
        if self._asked.pool_tokens:
            return int(self._asked.pool_tokens // page)
        needs = sorted((-(-(d.prompt_tokens + d.new_tokens) // page) for d in self.demands), reverse=True)
        return max(needs[0], round(self._asked.kv_pool * sum(needs[: self._asked.max_batch])))

    def redraw(self, seed: int) -> None:
        """Other prompts of the same lengths."""
        draw_prompts(self._prompts, self.demands, shared=self._asked.shared_tokens, vocab=self.shape.vocab, seed=seed)

    def step(self) -> None:
        """Serve the whole schedule."""
        self.engine.order = order_of(self._asked)  # it may count whom it has passed over
        with torch.inference_mode():
            finished = self.serve(self._prompts.tolist())
        write_answers(self.held, finished)
        rate = self._asked.rate
        self.times.add(finished, seconds=len(self.demands) / rate if rate else self.engine.now)

    def serve(self, prompts: list[list[int]]) -> list[Running]:
        """One iteration; the answers of all requests that were not rejected."""
        schedule: Arrivals = Schedule(self.demands, prompts)
        if self._asked.coalesce:
            schedule = together = Coalesced(schedule, self._asked.coalesce)
            self.engine.left = partial(together.answer, self.engine)
        self.engine.serve(schedule)
        return self.engine.finished

    def counters(self) -> dict[str, float]:
        """What the latest iteration took."""
        engine, tally = self.engine, self.engine.tally
        return {
            "forward_passes": float(tally.passes),
            "computed_tokens": float(tally.computed),
            "wasted_tokens": float(tally.wasted),
            "preemptions": float(tally.preempted),
            "prefix_hit_tokens": float(engine.prefix.hits if engine.prefix is not None else 0),
            "rejected_requests": float(len(engine.rejected)),
        }

    def close(self) -> None:
        """The process has its threads back."""
        torch.set_num_threads(self._threads)

    def _work(self) -> Work:
        """What serving takes at the least: each shared token once, no padding, nothing recomputed."""
        asked, shape = self._asked, self.shape
        new = sum(demand.new_tokens for demand in self.demands)
        prompts = sum(demand.prompt_tokens for demand in self.demands)
        kept = (
            new - asked.requests + (unique_tokens(self.demands, asked.shared_tokens) if asked.prefix_cache else prompts)
        )
        flops = 2.0 * (shape.layers * shape.layer_parameters * kept + shape.head_parameters * new)
        if asked.admission != "all" or asked.coalesce:
            flops = 0.0  # nobody knows before how many are rejected, or computed once for several
        return Work(flops=flops, items=new, item="tokens", peaks=gemm_peak(asked.context.device, "float32", flops))

    def workload(self) -> Workload:
        """As the contract has it."""
        return Workload(
            step=self.step,
            work=self._work(),
            outputs=lambda: dict(self.held),
            inputs=lambda: {"prompts": self._prompts},
            redraw=self.redraw,
            counters=self.counters,
            latencies=self.times.series,
            latency_source="the host's clock, when a token has been read from the device; from the scheduled arrival",
            values=self.times.means,
            checks={"same_answers": same_answers},
            facts={
                "pool_pages": self.engine.pool.count,
                "kv_pool_bytes": int(self.engine.pool.kv.nbytes),
                "threads": torch.get_num_threads(),
            },
            close=self.close,
        )
