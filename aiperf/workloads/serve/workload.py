"""serve.load: requests on a schedule to a server of the OpenAI protocol, which a side starts or which runs already.
serve.engine: the same kind of schedule served by an engine of our own, in the side's process.
serve.cluster: by several, each a rank.

What must not live here: the schedule (trace.py), sending (client.py), servers (server.py), metrics (metrics.py), the
engine (workloads/engine), routing (workloads/cluster).
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, Literal, TypedDict

from aiperf.workloads.contract import Context, Seconds, Workload
from aiperf.workloads.serve.answers import disagreement, unrecognised
from aiperf.workloads.serve.metrics import Objectives
from aiperf.workloads.serve.side import LoadedServer

_SOURCE = "monotonic clock of the client, from the scheduled time to the end of each answer"

METRICS = {
    "load": {
        "goodput": ("1/s", "higher"),
        "tokens_per_s": ("1/s", "higher"),
        "ttft": ("s", "lower"),
        "inter_token": ("s", "lower"),
        "end_to_end": ("s", "lower"),
        "queue": ("s", "lower"),
        "max_rate": ("1/s", "higher"),
    },
    "engine": {
        "goodput": ("1/s", "higher"),
        "ttft": ("s", "lower"),
        "ttft_urgent": ("s", "lower"),
        "inter_token": ("s", "lower"),
        "longest_gap": ("s", "lower"),
        "tpot_p90": ("s", "lower"),
        "end_to_end": ("s", "lower"),
        "queue": ("s", "lower"),
    },
    "cluster": {
        "goodput": ("1/s", "higher"),
        "ttft": ("s", "lower"),
        "inter_token": ("s", "lower"),
        "longest_gap": ("s", "lower"),
        "tpot_p90": ("s", "lower"),
        "end_to_end": ("s", "lower"),
        "queue": ("s", "lower"),
        "load_variance": ("", "lower"),
    },
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
    client: str = "",
    client_limit: Seconds = 0.0,
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
    ``warmup``: requests that all come at once in each of two steps before the first turn, no fewer than can be under
    way: ``concurrency``, else as many as a segment has, which 0 is.
    ``keep``: a file to which every request is added, a line of JSON each.
    ``errors``: share of the requests that may fail; refusals (429, 503) only miss their objectives.

    ``find: max_rate`` searches, from the trace's rate on, the highest one at which ``share`` of the requests meets all
    of ``slo``: each turn is a try with as many requests as a segment has.

    ``client``: the command of another client, run once a turn, at most ``client_limit`` (0: the segment, ``timeout``
    and a minute), and the file that it writes at ``{output}`` is read (docs/serving.md has what is filled in).

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
        latency_source=_SOURCE if not client else "the file that another client wrote",
        counters=side.counters,
        checks={"disagreement": disagreement, "unrecognised": unrecognised},
        facts=side.facts,
        close=side.close,
    )


def engine(
    context: Context,
    *,
    model: Literal["tiny", "small", "base", "1b"] = "tiny",
    requests: int = 24,
    rate: float = 0.0,
    arrivals: Literal["poisson", "bursty", "waves"] = "poisson",
    lengths: Literal["spread", "two", "popular"] = "spread",
    sessions: int = 8,
    prompt_tokens: list[int] = [16, 128],  # noqa: B006 read from the source, never changed
    new_tokens: list[int] = [4, 32],  # noqa: B006
    shared_tokens: int = 0,
    repeats: int = 1,
    urgent: float = 0.0,
    standard: float = 0.0,
    batching: Literal[
        "none",
        "static",
        "dynamic",
        "adaptive",
        "by_load",
        "continuous",
        "decode_first",
        "batched_prompts",
        "merged_prompts",
        "within_slo",
    ] = "continuous",
    max_batch: int = 8,
    delay: Seconds = 0.002,
    decode_budget: Seconds = 0.005,
    prefill_batch: int = 1,
    coalesce: Seconds = 0.0,
    prefill_chunk: int = 0,
    order: Literal["fifo", "short_lane", "length_buckets", "urgent_first", "reserved"] = "fifo",
    bucket_tokens: int = 64,
    page_tokens: int = 16,
    kv_pool: float = 1.0,
    pool_tokens: int = 0,
    prefix_cache: bool = False,
    eviction: Literal["lru", "fifo"] = "lru",
    admission: Literal["all", "in_time"] = "all",
    lookups: Literal["none", "linear", "trie", "radix"] = "none",
    ttft_slo: Seconds = 0.5,
    inter_token_slo: Seconds = 0.04,
    threads: int = 1,
) -> Workload:
    """An engine of our own serves a schedule of ``requests`` in real time, with real passes of a random-weight decoder;
    an iteration is the whole schedule.

    ``rate``: arrivals a second, for which it really waits; 0: all at once. ``lengths``: by even steps of the logarithm,
    or prompts of ``two`` lengths, every fourth the longer; ``popular``: of ``sessions`` prompts each request draws one,
    as 1 / rank. ``shared_tokens`` begin every prompt. No answer ends early.
    ``waves``: eight requests come slowly, then eight fast. Each is sent ``repeats`` times in all, a millisecond apart;
    what asks for the same within ``coalesce`` is computed once and answered each.

    ``batching``: ``none`` serves a request at a time; ``static`` waits for ``max_batch`` requests, ``dynamic`` for at
    most ``delay``, and such a batch stays together until its longest answer is whole; ``continuous`` lets requests join
    and leave between passes. ``adaptive`` waits less than ``delay`` the slower requests come; ``by_load`` takes single
    requests while the model is mostly idle. ``decode_first``: as continuous, and prompts get what a pass of decoding
    leaves of ``decode_budget``; ``batched_prompts``: ``prefill_batch`` of them in a pass, collected for at most
    ``delay``; ``merged_prompts``: one whose next page is under way waits for it; ``within_slo``: as many, up to
    ``prefill_batch``, as get their first token within ``ttft_slo``. ``prefill_chunk`` cuts prompts into pieces, between
    which the others get a token.

    Keys and values lie in pages of ``page_tokens``; ``kv_pool`` is the pool's share of what the largest ``max_batch``
    need, or it has room for ``pool_tokens`` (0: by its share). Continuous batching takes pages when it needs them;
    without any left it preempts the request that started last and computes it again. ``prefix_cache`` finds whole pages
    of earlier prompts of the iteration; where the pool needs some, it gives up those unused for longest (``lru``) or
    those that came first.
    ``order``: prompts up to ``bucket_tokens`` first, batches of one bucket of so many tokens, or the share ``urgent``
    first; with ``reserved`` 10 % of the places are kept for urgent requests, 30 % for the share ``standard``.
    ``admission: in_time`` rejects what is not urgent and would get its first token after ``ttft_slo``.

    ``lookups``: no model; an iteration asks an index of ``requests`` prompts, of which sixteen at a time have their
    ``shared_tokens`` in common, for the longest known beginning of as many others: the prompts one by one, a tree of
    tokens or of edges (``radix``).

    goodput: answers within ``ttft_slo``, and ``inter_token_slo`` on average, a second of the schedule, or of the
    iteration where all come at once. longest_gap: between two tokens of an answer. tpot_p90: the time per token that
    nine of ten answers keep. ttft_urgent: of urgent requests. Times count from the schedule.
    """
    asked = SimpleNamespace(**locals())
    _check_engine(asked)
    # Loaded here, because serve.load needs no torch.
    if lookups == "none":
        side = importlib.import_module("aiperf.workloads.engine.side").EngineSide(asked)
    else:
        side = importlib.import_module("aiperf.workloads.engine.lookups").LookupSide(asked)
    found: Workload = side.workload()
    return found


def cluster(
    context: Context,
    *,
    model: Literal["tiny", "small", "base", "1b"] = "tiny",
    requests: int = 32,
    rate: float = 0.0,
    arrivals: Literal["poisson", "bursty"] = "poisson",
    lengths: Literal["spread", "two", "six", "shifting", "opposed", "conversations", "tails"] = "spread",
    sessions: int = 8,
    prompt_tokens: list[int] = [16, 128],  # noqa: B006 read from the source, never changed
    new_tokens: list[int] = [4, 32],  # noqa: B006
    roles: str = "mixed",
    route: Literal[
        "round_robin", "least_requests", "prefix", "length_balanced", "composite", "predicted", "race"
    ] = "round_robin",
    prefill_at: Literal["prefill_worker", "decode_worker", "conditional"] = "prefill_worker",
    kv_receive: Literal["overlapped", "blocking"] = "overlapped",
    first_token: Literal["sent", "recomputed"] = "sent",
    roles_change: bool = False,
    dispatch: Literal["direct", "queue"] = "direct",
    rebalance: Literal["none", "predicted"] = "none",
    max_batch: int = 8,
    prefill_chunk: int = 0,
    page_tokens: int = 16,
    kv_pool: float = 1.0,
    prefix_cache: bool = False,
    prefix_pool: Literal["own", "shared"] = "own",
    stall_rate: float = 0.0,
    stall: Seconds = 0.1,
    ttft_slo: Seconds = 0.5,
    inter_token_slo: Seconds = 0.04,
    threads: int = 1,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """Several workers, each a rank with an engine as of ``serve.engine`` (continuous batching), answer one schedule; a
    router beside the first one gives each request to a worker when it arrives. Real passes, real time.

    ``roles: mixed``: every worker computes prompts and decodes. ``1p1d``, ``2p1d`` and so on: the first ones compute
    prompts and hand keys and values over to the others, which decode, by the ranks' process group (Gloo on CPUs, NCCL
    on GPUs), with a checksum. ``prefill_at``: prompts are computed by prefill workers, where they are decoded, or
    ``conditional``: long ones, and shorter ones while many decode, by prefill workers. ``kv_receive: blocking`` takes
    keys and values in between two passes, which wait for them. ``first_token: recomputed``: only keys and values count
    of what comes, and whoever decodes puts the prompt's last token through the model again. With ``roles_change``
    workers of one role take on the other while its queue is long.

    ``route``: among workers that compute prompts: each in turn, the one with the fewest requests under way, with most
    of the prompt in its prefix cache, with the least prompt work, with the least ``composite`` cost of load and known
    beginning, or with the fewest tokens to come, as far as answers are ``predicted`` (to a power of two). A decode
    worker is the one with the fewest. ``race``: the two with the fewest requests get it, the first answer counts, and
    the other worker stops.

    ``dispatch: queue``: no route; requests wait in one queue, and a worker that computes prompts asks for the next one
    when none waits with it and its batch has room. ``rebalance: predicted``: of a worker whose pool is too small for
    what its requests will hold at their ends, as predicted, a long one goes to the worker with the least, with its keys
    and values where it has begun; none moves twice.

    ``lengths``: as of ``serve.engine``; ``six`` is two long prompts among four short ones; ``shifting`` is half a
    schedule of long prompts with short answers, then the reverse; ``opposed``: every fourth has a long prompt and a
    short answer, the others the reverse; of ``tails`` a drawn quarter of the answers is long;
    ``conversations`` are ``sessions`` whose every turn has the prompt before and as many tokens more.
    ``max_batch`` and ``kv_pool`` are each worker's; with ``prefix_pool: shared`` pages of prompts that one worker has
    computed also lie in memory of the host, where the others find them. ``stall_rate`` times a second, drawn, each
    worker stands still for ``stall``, as one that its host pauses.

    Metrics are those of ``serve.engine``, over all workers, and load_variance: of the tokens that each worker has under
    way at a time, in units of their squared mean, over the iteration.
    """
    asked = SimpleNamespace(
        **locals(), batching="continuous", order="fifo", admission="all", urgent=0.0, shared_tokens=0, delay=0.0,
        bucket_tokens=1, repeats=1, standard=0.0, coalesce=0.0, prefill_batch=1, pool_tokens=0, eviction="lru",
    )  # fmt: skip
    _check_engine(asked)
    _check_cluster(asked)
    found: Workload = importlib.import_module("aiperf.workloads.cluster.side").ClusterSide(asked).workload()
    return found


def _check_cluster(asked: SimpleNamespace) -> None:
    if asked.roles == "mixed" and asked.prefill_at != "prefill_worker":
        raise ValueError(f"prefill_at: {asked.prefill_at} needs roles such as 1p1d; in mixed roles all workers do both")
    if asked.roles == "mixed" and asked.roles_change:
        raise ValueError("roles_change needs roles such as 1p1d; in mixed roles all workers do both")
    if asked.roles == "mixed" and asked.first_token != "sent":
        raise ValueError("first_token needs roles such as 1p1d; in mixed roles nothing is handed over")
    if asked.kv_receive == "blocking" and (asked.roles == "mixed" or asked.roles_change):
        raise ValueError(
            "kv_receive blocking needs roles such as 1p1d, which stay: two workers would wait for each other"
        )
    if asked.route == "race" and (asked.roles != "mixed" or asked.context.world_size < 2):
        raise ValueError("route race needs roles: mixed and ranks: 2 or more; one worker computes all of a request")
    _check_dispatch(asked)
    if min(asked.stall_rate, asked.stall) < 0 or (asked.stall_rate and not asked.rate):
        raise ValueError("stall_rate and stall must not be negative, and stall_rate needs a rate")
    if asked.prefix_pool == "shared" and not asked.prefix_cache:
        raise ValueError("prefix_pool shared needs prefix_cache: true")


def _check_dispatch(asked: SimpleNamespace) -> None:
    chosen = {"route": "round_robin", "prefill_at": "prefill_worker", "kv_receive": "overlapped", "rebalance": "none"}
    odd = [name for name, value in {**chosen, "roles_change": False}.items() if getattr(asked, name) != value]
    if asked.dispatch == "queue" and odd:
        raise ValueError(f"dispatch queue leaves no choice to {odd[0]}; workers ask for prompts: leave it out")
    if asked.rebalance != "none" and (asked.roles != "mixed" or asked.route == "race" or asked.context.world_size < 2):
        raise ValueError("rebalance needs roles: mixed, ranks: 2 or more, and another route than race")


def _check_engine(asked: SimpleNamespace) -> None:
    counts = ("requests", "max_batch", "bucket_tokens", "page_tokens", "threads", "repeats", "prefill_batch")
    if bad := [name for name in counts if getattr(asked, name) < 1]:
        raise ValueError(f"{bad[0]} is {getattr(asked, bad[0])}; it must be 1 or more")
    for name in ("prompt_tokens", "new_tokens"):
        span = getattr(asked, name)
        if len(span) != 2 or not 1 <= span[0] <= span[1]:
            raise ValueError(f"{name} is {span}; write [fewest, most], such as [16, 128]")
    if not 0 <= asked.shared_tokens < asked.prompt_tokens[0]:
        raise ValueError("shared_tokens must be from 0 to below the shortest prompt")
    if min(asked.rate, asked.delay, asked.prefill_chunk) < 0 or not 0 <= asked.urgent <= 1 or asked.kv_pool <= 0:
        raise ValueError("rate, delay and prefill_chunk must not be negative, urgent a share, kv_pool above 0")
    if asked.repeats > 1 and (asked.requests % asked.repeats or not asked.rate):
        raise ValueError("repeats must divide requests, and needs a rate")
    if asked.coalesce < 0 or (asked.coalesce and not asked.rate) or not 0 <= asked.standard <= 1 - asked.urgent:
        raise ValueError("coalesce must not be negative and needs a rate; urgent and standard are shares of one whole")
    if asked.batching == "decode_first" and asked.decode_budget <= 0:
        raise ValueError("decode_budget must be above 0")
    if asked.pool_tokens and asked.pool_tokens < asked.prompt_tokens[1] + asked.new_tokens[1] + asked.page_tokens - 1:
        raise ValueError("pool_tokens must have room for the longest prompt with the longest answer, in whole pages")
    _check_prompts(asked)
    _check_batching(asked)


def _check_prompts(asked: SimpleNamespace) -> None:
    if asked.lengths in ("conversations", "popular") and not 1 <= asked.sessions <= asked.requests:
        raise ValueError("sessions must be 1 or more, and no more than requests")
    if asked.lengths == "popular" and asked.repeats > 1:
        raise ValueError("lengths popular repeats prompts itself; leave repeats at 1")
    if asked.eviction != "lru" and not asked.prefix_cache:
        raise ValueError("eviction needs prefix_cache: true")


def _check_batching(asked: SimpleNamespace) -> None:
    own_pieces = ("decode_first", "batched_prompts", "merged_prompts", "within_slo")
    if asked.batching not in ("continuous", *own_pieces) and (asked.prefill_chunk or asked.prefix_cache):
        raise ValueError("prefill_chunk and prefix_cache need batching continuous")
    if asked.batching == "merged_prompts" and not asked.prefix_cache:
        raise ValueError("batching merged_prompts needs prefix_cache: true, in which the others find what is computed")
    if asked.batching == "within_slo" and asked.prefill_batch < 2:
        raise ValueError(
            "batching within_slo needs a prefill_batch of 2 or more: the most prompts that a pass may take"
        )
    if asked.batching in own_pieces and asked.prefill_chunk:
        raise ValueError(f"prefill_chunk needs batching continuous: {asked.batching} has pieces of its own")
