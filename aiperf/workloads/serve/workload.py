"""serve.load: requests on a schedule to a server of the OpenAI protocol, which a side starts or which runs already.

What must not live here: the schedule (trace.py), sending (client.py), servers (server.py), judging (judge.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal, TypedDict

from aiperf.workloads.contract import Context, Seconds, Workload
from aiperf.workloads.serve.side import LoadedServer

METRICS = {
    "load": {
        "goodput": ("1/s", "higher"),
        "tokens_per_s": ("1/s", "higher"),
        "ttft": ("s", "lower"),
        "inter_token": ("s", "lower"),
        "end_to_end": ("s", "lower"),
        "queue": ("s", "lower"),
        "max_rate": ("1/s", "higher"),
    }
}
"""Workload -> what it gives besides times of steps: metric -> unit, and which is better."""


class Trace(TypedDict, total=False):
    """A schedule to be drawn."""

    arrivals: Literal["poisson", "constant", "bursty"]
    rate: float
    requests: int
    prompt_tokens: int | list[int]
    output_tokens: int | list[int]
    shared_prefix: float
    burst: int
    seed: int


class Objectives(TypedDict, total=False):
    """What a request must not exceed to count as good, from its scheduled time."""

    ttft: Seconds
    inter_token: Seconds
    end_to_end: Seconds


def load(
    context: Context,
    *,
    trace: Trace | str,
    server: str = "",
    url: str = "",
    model: str = "",
    slo: Objectives = {},  # noqa: B006 read from the source, never changed
    load: float = 0.0,
    find: Literal["", "max_rate"] = "",
    share: float = 0.95,
    segments: int = 10,
    warmup: int = 0,
    concurrency: int = 0,
    cache: Literal["cold", "warm"] = "cold",
    endpoint: Literal["chat", "completions"] = "chat",
    extra: dict[str, Any] = {},  # noqa: B006
    ready: str = "/health",
    ready_limit: Seconds = 240.0,
    timeout: Seconds = 60.0,
    errors: float = 0.0,
    port: int = 0,
    cwd: str = "",
    log: str = "",
    keep: str = "",
) -> Workload:
    """An open loop of streamed, greedy requests; every time counts from the schedule.

    ``server``: the command that starts it, in which ``{port}`` is a free port and ``{model}`` the model's folder or
    name; ``url``: one that runs already. ``trace``: a schedule to be drawn, or a file of JSON lines (``timestamp``,
    ``prompt`` or ``prompt_tokens``, ``output_tokens``); it is cut into ``segments``, in which the sides take turns.
    ``load``: requests a second in place of the trace's. ``model: tiny-random`` is a Llama of random weights, made on
    the spot. ``concurrency``: requests under way at most, as a client with so many connections has it; 0 is any.
    ``warmup``: requests that all come at once in each of two steps before the first turn; 0 is as many as a segment
    has, of which no more can be under way. ``keep``: a file to which every request is added, a line of JSON each.
    ``errors``: share of the requests that may fail; refusals (429, 503) only miss their objectives.

    ``find: max_rate`` searches, from the trace's rate on, the highest one at which ``share`` of the requests meets all
    of ``slo``: each turn is a try with as many requests as a segment has.

    goodput: requests within all of ``slo`` a second of the schedule; without ``slo`` those answered whole.
    """
    asked = SimpleNamespace(**locals())
    side = LoadedServer(context, asked)
    return Workload(
        step=side.step,
        outputs=side.outputs,
        redraw=side.redraw,
        rounds=segments,
        values=side.values,
        faults=side.faults,
        anew=True,
        elsewhere=True,
        latencies=side.latencies,
        latency_source="monotonic clock of the client, from the scheduled time to the end of each answer",
        counters=side.counters,
        checks={"disagreement": side.disagreement},
        facts=side.facts,
        close=side.close,
    )
