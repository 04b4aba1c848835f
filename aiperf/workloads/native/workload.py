"""Family native.program: an entry of a C++ source, compiled in set-up with the host's compiler, over seeded arrays.

What must not live here: the entries' data (entries.py), compiling (build.py), searching (search.py), timing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

from aiperf.workloads.contract import Context, SkipSide, Workload
from aiperf.workloads.native.build import Library, build
from aiperf.workloads.native.entries import ENTRIES, SINGLE_THREADED, Arrays, EntryCase
from aiperf.workloads.native.search import CandidateRun, Search
from aiperf.workloads.shared.numa import made_on, node_of


def _arguments(entry: str, given: Mapping[str, int]) -> dict[str, int]:
    if entry not in ENTRIES:
        raise ValueError(f'entry "{entry}" is not known; known: {", ".join(ENTRIES)}')
    known = ENTRIES[entry][1]
    for name, value in given.items():
        if name not in known:
            raise ValueError(f'{entry} takes no argument "{name}"; it takes {", ".join(known) or "none"}')
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be 1 or more")
    return {**known, **given}


def _maker(asked: SimpleNamespace) -> Callable[[int], EntryCase]:
    given: dict[str, Any] = dict(_arguments(asked.entry, asked.args))
    if asked.entry == "uneven_sincos":
        given |= {"skew": asked.skew, "schedule": asked.schedule}
    return partial(ENTRIES[asked.entry][0], **given)


def _check(asked: SimpleNamespace) -> None:
    if asked.n < 1 or asked.threads < 1 or any(n < 1 for n in asked.verify_n):
        raise ValueError("n, threads and each of verify_n must be 1 or more")
    if (asked.choose == "given") == bool(asked.candidates):
        raise ValueError("choose first and searched need candidates; choose given takes none")
    if any(not values for values in asked.candidates.values()) or set(asked.candidates) & set(asked.defines):
        raise ValueError("candidates has one or more values for each of its names, none of which is in defines")
    if asked.verify_n and not asked.candidates:
        raise ValueError("verify_n is about candidates")
    if asked.entry in SINGLE_THREADED and asked.threads > 1:
        raise ValueError(f"{asked.entry} runs on one thread; leave threads at 1")


def program(
    context: Context,
    *,
    source: str,
    entry: str,
    n: int,
    threads: int = 1,
    flags: list[str] = ["-O2"],  # noqa: B006 - read only
    defines: dict[str, int] = {},  # noqa: B006 - read only
    args: dict[str, int] = {},  # noqa: B006 - read only
    skew: Literal["uniform", "mod256", "power_law", "one_tail"] = "uniform",
    schedule: Literal["static", "dynamic"] = "static",
    candidates: dict[str, list[int]] = {},  # noqa: B006 - read only
    verify_n: list[int] = [],  # noqa: B006 - read only
    choose: Literal["given", "first", "searched"] = "given",
    numa: Literal["any", "local", "remote"] = "any",
) -> Workload:
    """One call of ``entry`` of ``source`` (a file of native/), compiled with ``flags`` and ``-D`` ``defines``.

    Entries, with their ``args``: ``dot_windows`` (repeats): dot products of n float32; ``l2norm_rows`` (width): n
    float32 in rows; ``claim_all`` (claim, levels): n int32 items taken by atomic counters; ``uneven_sincos`` (claim;
    ``skew``, ``schedule``): n float64 items of unequal work; ``matmul``: the product of two n x n float32 matrices, on
    one thread; ``chase_lines`` (parts): n lines of 64 bytes, each with the number of the next one, on one thread.
    ``threads`` host threads start and end in each step. ``numa``: the threads stay on one NUMA node; the arrays lie
    there or (``remote``) on the node farthest from it.

    ``candidates``: names of further defines, each with its values; every combination is a kernel. Set-up draws them in
    an order from the seed and takes the ``first`` that is right, at ``n`` and each of ``verify_n``. ``searched`` starts
    from that one and changes one define at a time, keeps what is right and faster, and ends where no change is.
    Each side compiles its own. Counters: ``candidates_tried``, ``candidates_rejected`` (wrong, or do not compile),
    ``search_s``; ``first_call_s`` and ``best_call_s``, a call of the first right kernel and of the chosen one, timed
    turn about after the search; where the chosen one is faster ``calls_to_break_even``, search_s over the difference.

    Items: dot products, rows, items, turns of sin*cos, products, reads. FLOPs: 2 a value of a dot product, 3 of a row,
    2 a term of a product's element; bytes: each value of rows and items. Source: chapters 3, 8, 10, 12, 20, appendix.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    make = _maker(asked)
    made, placed, restore = _placed(asked, make)
    library, counters, facts = _chosen_or(restore, asked, make, made)
    return Workload(
        step=_call(library, entry, made, n=n, threads=threads),
        work=made.work,
        outputs=lambda: made.outputs,
        inputs=lambda: made.inputs,
        redraw=made.redraw,
        reference=made.reference,
        counters=lambda: _counted(counters, made, placed.get("memory_node")),
        done_outside="set-up runs candidates on the arrays of the step" if choose == "searched" else "",
        facts={
            "compiler": library.compiler,
            "flags": library.command,
            "library_sha": library.code_sha,
            "threads": threads,
            "cores": len(os.sched_getaffinity(0)),
            **(facts | placed),
        },
        close=restore,
    )


def _placed(
    asked: SimpleNamespace, make: Callable[[int], EntryCase]
) -> tuple[EntryCase, dict[str, int], Callable[[], None]]:
    """The arrays of the step, drawn; where they were to lie and do; the way back to all CPUs."""

    def drawn() -> EntryCase:
        made = make(asked.n)
        made.redraw(asked.context.seed)
        return made

    if asked.numa == "any":
        return drawn(), {}, lambda: None
    made, facts, restore = made_on(asked.numa, drawn)
    wanted = facts.pop("asked_memory_node")
    for name, array in made.inputs.items():
        if (found := node_of(array.ctypes.data)) != wanted:
            restore()
            there = "an unknown node" if found is None else f"node {found}"
            raise SkipSide(f"{name} was to lie on NUMA node {wanted}, but lies on {there}")
    return made, {**facts, "memory_node": wanted}, restore


def _counted(counters: dict[str, float], made: EntryCase, node: int | None) -> dict[str, float]:
    """The counters, once it is known that the inputs have stayed on the NUMA ``node``, where one was asked for."""
    for name, array in made.inputs.items() if node is not None else ():
        if (found := node_of(array.ctypes.data)) != node:
            raise RuntimeError(
                f"{name} was on NUMA node {node} and is on {found} now: the kernel moved it (kernel.numa_balancing)"
            )
    return counters


def _call(library: Library, entry: str, made: EntryCase, *, n: int, threads: int) -> Callable[[], object]:
    """The entry of a built source, on the arrays of ``made``."""
    function = library.entry(entry)
    sources, targets = (_pointers(arrays) for arrays in (made.inputs, made.outputs))
    numbers = (ctypes.c_int64 * len(made.args))(*made.args)
    return lambda: function(sources, targets, n, threads, numbers)


def _chosen_or(
    restore: Callable[[], None], asked: SimpleNamespace, make: Callable[[int], EntryCase], made: EntryCase
) -> tuple[Library, dict[str, float], dict[str, Any]]:
    """As ``_chosen``; where there is none, the thread gets its CPUs back."""
    try:
        return _chosen(asked, make, made)
    except BaseException:
        restore()
        raise


def _chosen(
    asked: SimpleNamespace, make: Callable[[int], EntryCase], made: EntryCase
) -> tuple[Library, dict[str, float], dict[str, Any]]:
    """The library to be timed, with counters and facts about its choice."""

    def built(more: Mapping[str, int]) -> Library:
        # search_s is to have all that a search compiles, and nothing that the other side has compiled.
        folder = asked.context.scratch if asked.candidates else asked.context.shared_scratch
        return build(asked.source, flags=asked.flags, defines={**asked.defines, **more}, folder=folder)

    if asked.choose == "given":
        return built({}), {}, {}
    if any(array.dtype.kind != "f" for array in made.outputs.values()):
        raise ValueError(f"candidates are verified by outputs in floating point, and {asked.entry} has others")
    problems = [(n, make(n)) for n in asked.verify_n]
    for _, problem in problems:
        problem.redraw(asked.context.seed)
    problems.append((asked.n, made))
    truths = [problem.reference() for _, problem in problems]

    def runs_of(defines: Mapping[str, int]) -> list[CandidateRun]:
        library = built(defines)
        calls = [_call(library, asked.entry, problem, n=n, threads=asked.threads) for n, problem in problems]
        return [CandidateRun(c, p.outputs, truth) for c, (_, p), truth in zip(calls, problems, truths, strict=True)]

    search = Search(asked.candidates, runs_of)
    first = search.first_right(asked.context.seed)
    best = search.refine(first) if asked.choose == "searched" else first
    first_call, best_call = search.compare(first, best)
    counters = {
        "candidates_tried": float(len(search.tried)),
        "candidates_rejected": float(search.rejected),
        "search_s": search.seconds,
        "first_call_s": first_call,
        "best_call_s": best_call,
    }
    if best_call < first_call:
        counters["calls_to_break_even"] = search.seconds / (first_call - best_call)
    return built(best), counters, {"first": first, "chosen": best}


def _pointers(arrays: Arrays) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays.values()))
