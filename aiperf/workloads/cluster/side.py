"""One rank of serve.cluster: a worker's engine and its connections, on the first rank the router too.

What must not live here: the policies themselves, the engine, the router's loop.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist

from aiperf.workloads.cluster.handover import Handover
from aiperf.workloads.cluster.inbox import Inbox, RouterGone
from aiperf.workloads.cluster.loads import load_variance
from aiperf.workloads.cluster.messages import connect
from aiperf.workloads.cluster.offloads.always import always
from aiperf.workloads.cluster.offloads.conditional import Conditional
from aiperf.workloads.cluster.offloads.never import never
from aiperf.workloads.cluster.prefix_pool import PooledPrefix, SharedPages
from aiperf.workloads.cluster.rebalances.predicted import LongRequestMover
from aiperf.workloads.cluster.router import Offload, Route, Router, WorkerView
from aiperf.workloads.cluster.routes.composite import CompositeCost
from aiperf.workloads.cluster.routes.least_requests import least_requests
from aiperf.workloads.cluster.routes.length_balanced import LengthBalanced
from aiperf.workloads.cluster.routes.longest_prefix import longest_prefix
from aiperf.workloads.cluster.routes.predicted import least_predicted
from aiperf.workloads.cluster.routes.race import RACERS, race, winners
from aiperf.workloads.cluster.routes.round_robin import round_robin
from aiperf.workloads.cluster.shifts.capacity_aware import CapacityAware
from aiperf.workloads.cluster.shifts.fixed import fixed
from aiperf.workloads.cluster.stalls import Stalls
from aiperf.workloads.contract import Workload
from aiperf.workloads.decoder.model import Shape
from aiperf.workloads.engine.demands import unique_tokens
from aiperf.workloads.engine.pages import BrokenBooks
from aiperf.workloads.engine.running import Running
from aiperf.workloads.engine.side import EngineSide


def route_of(asked: SimpleNamespace, shape: Shape, pool_tokens: int) -> Route:
    """The route that a side asked for, among workers whose pools hold so many tokens."""
    kinds: dict[str, Route] = {
        "round_robin": round_robin,
        "least_requests": least_requests,
        "prefix": longest_prefix,
        "length_balanced": LengthBalanced(shape),
        "composite": CompositeCost(pool_tokens),
        "predicted": least_predicted,
        "race": race,
    }
    return kinds[asked.route]


def offload_of(asked: SimpleNamespace) -> Offload:
    """The rule for prompts that a side asked for."""
    kinds: dict[str, Offload] = {
        "decode_worker": never,
        "prefill_worker": always,
        "conditional": Conditional(asked.page_tokens),
    }
    return kinds[asked.prefill_at]


def views_of(roles: str, ranks: int) -> list[WorkerView]:
    """The workers of ``mixed`` or such as ``1p1d``, prefill workers first. Raises ValueError when they are not as many
    as there are ranks."""
    if roles == "mixed":
        return [WorkerView(rank, True, True) for rank in range(ranks)]
    found = re.fullmatch(r"([1-9]\d*)p([1-9]\d*)d", roles)
    if found is None or sum(map(int, found.groups())) != ranks:
        raise ValueError(f'roles "{roles}" are not those of {ranks} ranks; write mixed, or counts such as 1p1d')
    prefill = int(found[1])
    return [WorkerView(rank, rank < prefill, rank >= prefill) for rank in range(ranks)]


_SWITCH_S = 0.0005
"""How long a thread that computes keeps the interpreter from one that has a message."""


class ClusterSide(EngineSide):
    """Every rank knows the schedule and the prompts; what arrives, the router says."""

    def __init__(self, asked: SimpleNamespace) -> None:
        super().__init__(asked)
        context = asked.context
        views = views_of(asked.roles, context.world_size)
        backend, group = "none", None
        if context.world_size > 1:
            backend = context.gang_backend(asked.backend)
            context.process_group(backend)
            group = dist.new_group(backend="gloo") if backend == "nccl" else None
        self._group, self.backend = group, backend
        self._pool = self._pages_of_all() if asked.prefix_pool == "shared" else None
        if self._pool is not None:
            self.engine.prefix = PooledPrefix(self.engine.pool, self._pool)
        pairs = [(a.rank, b.rank) for a in views for b in views if a is not b and self._hands_over(a, b)]
        again = asked.first_token == "recomputed"
        self.handover = Handover(context.rank, self.shape, context.device, pairs, recomputes=again) if pairs else None
        link, self._links = connect(context.rank, context.world_size, group=group)
        self._inbox = Inbox(link, self.handover, context.device, blocking=asked.kv_receive == "blocking")
        self._inbox.demands = self.demands
        self._inbox.cancel, self._inbox.load = self.engine.cancel, self.engine.tokens_here
        if asked.rebalance == "predicted":
            self._inbox.move, self._inbox.withdraw = self.engine.move, self.engine.withdraw
        if asked.dispatch == "queue" and views[context.rank].prefills:
            self._inbox.has_room = lambda: not self.engine.waiting and len(self.engine.running) < asked.max_batch
        if asked.stall_rate:
            span = asked.requests / asked.rate
            faults = Stalls(context.seed, context.rank, rate=asked.stall_rate, seconds=asked.stall, span=span)
            self._inbox.stalls = faults
        self._beside = ThreadPoolExecutor(1)
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self.engine.left = self._inbox.leave
        self.tallies: list[dict[str, float]] = [self._tally()]
        self._variances: list[float] = []

    def serve(self, prompts: list[list[int]]) -> list[Running]:
        """One iteration, the answers of all workers. Raises BrokenBooks when a request is not answered exactly once."""
        self._inbox.prompts = prompts
        if self.handover is not None:
            self.handover.sent_bytes = 0
        routed = self._beside.submit(self._router().run, self.demands, prompts) if self._links else None
        try:
            self.engine.serve(self._inbox)
        except RouterGone:
            if routed is not None:
                routed.result()
            raise
        except Exception as error:
            self._inbox.give_up(error)
            raise
        finished = winners(self._gathered()) if self._asked.route == "race" else self._gathered()
        if sorted(one.demand.number for one in finished) != list(range(len(self.demands))):
            raise BrokenBooks(f"{len(self.demands)} requests came in, and {len(finished)} answers went out")
        return finished

    def _router(self) -> Router:
        asked = self._asked
        views = views_of(asked.roles, asked.context.world_size)
        pool_tokens = self.engine.pool.count * asked.page_tokens
        route = route_of(asked, self.shape, pool_tokens)
        shift = CapacityAware(views) if asked.roles_change else fixed
        pulled = asked.dispatch == "queue"
        if asked.roles == "mixed":  # whoever gets a request does all of it
            copies = RACERS if asked.route == "race" else 1
            moves = LongRequestMover(pool_tokens) if asked.rebalance == "predicted" else None
            return Router(self._links, views, route, route, never, shift, asked.page_tokens, copies, moves, pulled)
        offload = offload_of(asked)
        page = asked.page_tokens
        return Router(self._links, views, route, least_requests, offload, shift, page, pulled=pulled)

    def _pages_of_all(self) -> SharedPages:
        """Twice the room that the schedule's prompts need, so that a place is found soon."""
        asked, pool = self._asked, self.engine.pool
        count = 2 * (unique_tokens(self.demands, 0) // pool.page + 1)
        context = asked.context
        return SharedPages(count, pool, rank=context.rank, ranks=context.world_size, group=self._group)

    def _hands_over(self, one: WorkerView, other: WorkerView) -> bool:
        """Whether a request may go from one to the other."""
        moves = self._asked.roles_change or self._asked.rebalance != "none"
        return moves or (other.decodes and not one.decodes)

    def _gathered(self) -> list[Running]:
        """The answers of all ranks, and what each counted."""
        own = (self.engine.finished, self._tally(), self._inbox.loads)
        everyone: list[Any] = [own] * self._asked.context.world_size
        if len(everyone) > 1:
            dist.all_gather_object(everyone, own, group=self._group)
        self.tallies = [tally for _, tally, _ in everyone]
        self._variances.append(load_variance([loads for _, _, loads in everyone]))
        return [one for answers, _, _ in everyone for one in answers]

    def _tally(self) -> dict[str, float]:
        sent = self.handover.sent_bytes if self.handover is not None else 0
        taken = self.engine.prefix.taken if isinstance(self.engine.prefix, PooledPrefix) else 0
        counts = {"handed_requests": float(len(self.engine.handed)), "handed_bytes": float(sent)}
        counts |= {"pool_hit_tokens": float(taken), "cancelled_requests": float(len(self.engine.cancelled))}
        counts |= {"pulled_requests": float(self._inbox.pulled), "moved_requests": float(self._inbox.moved)}
        return super().counters() | counts

    def counters(self) -> dict[str, float]:
        """Sums over the workers in the latest iteration, and how far the busiest one's tokens are above the mean."""
        total = {name: sum(tally[name] for tally in self.tallies) for name in self.tallies[0]}
        return total | {"load_spread": spread([tally["computed_tokens"] for tally in self.tallies])}

    def workload(self) -> Workload:
        """Times and answers are those of all ranks; the first one gives the times."""
        found, times = super().workload(), self.times.series
        first = self._asked.context.rank == 0

        def latencies() -> dict[str, list[float]]:
            series = times()
            return series if first else {}

        facts = {**found.facts, "backend": self.backend, "roles": self._asked.roles}
        return replace(found, latencies=latencies, values=self._values, facts=facts)

    def _values(self) -> dict[str, float]:
        """Means over the iterations since they were last asked for."""
        variances, self._variances = self._variances, []
        own = {"load_variance": sum(variances) / len(variances)} if variances else {}
        return {**self.times.means(), **own}

    def close(self) -> None:
        """The workers' connections end, and with them the threads that read them."""
        sys.setswitchinterval(self._switch_s)
        for link in self._links:
            link.close()
        self._beside.shutdown()
        if self._pool is not None:
            self._pool.close()
        super().close()


def spread(loads: Sequence[float]) -> float:
    """The largest over the mean; 1 where nothing was computed."""
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0
