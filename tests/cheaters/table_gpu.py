"""The entries of the shelf that need one GPU.

What must not live here: the sides themselves (sides/on_gpu.py and on_gpu_forged.py).
"""

from __future__ import annotations

from typing import Any

from tests.cheaters.entries import Entry

WALL = {"clock": "wall"}


def _g(group: Any, name: str, does: str, cheat: str, **more: Any) -> Entry:
    more = {"twin": "honest-gpu-keeps", **more}
    module = "on_gpu" if group in ("watched", "elsewhere") else "on_gpu_forged"
    return Entry(f"gpu-{name}", group, does, f"{module}:activate", {"cheat": cheat}, gpus=1, **more)


def _own(group: Any, name: str, does: str, function: str, cheat: dict[str, Any], **more: Any) -> Entry:
    more = {"intent": "accident", "twin": "honest-gpu-keeps", **more}
    module = "on_gpu" if group == "elsewhere" else "on_gpu_forged"
    return Entry(f"gpu-{name}", group, does, f"{module}:{function}", cheat, gpus=1, **more)


def _twin(group: Any, name: str, does: str, cheat: str, **more: Any) -> Entry:
    return Entry(
        f"honest-gpu-{name}", group, does, "on_gpu:activate", {"cheat": cheat}, gpus=1, honest=True, **more
    )  # fmt: skip


ACCIDENT: Any = "accident"

GPU = (
    _g("watched", "identity", "keeps its result by the identity of the input tensor", "identity", intent=ACCIDENT),
    _g("watched", "version", "keeps its result by address and version of its inputs", "version", intent=ACCIDENT),
    _g("watched", "elements", "keeps its result by a few elements of the input", "elements", intent=ACCIDENT,
       measure=WALL),
    _g("watched", "checksum", "keeps its result by a checksum of the input", "checksum", intent=ACCIDENT,
       measure=WALL),
    _g("watched", "poison", "works when it finds NaN in its output", "poison", measure=WALL),
    _g("watched", "since-last-call", "works when a millisecond has gone by since its last call", "since_last_call"),
    _g("watched", "outputs-called", "works for some steps after outputs() was called", "outputs_called"),
    _g("watched", "stack-name", "works when a caller's function is named after audits", "stack_name"),
    _g("watched", "one-in-ten", "leaves out one step in ten", "one_in_ten", intent=ACCIDENT),
    _g("watched", "stealth", "keeps its result and has the device idle for four fifths of the honest time", "stealth"),
    _g("watched", "stealth-wall", "the same on the wall clock", "stealth", measure=WALL),
    _g("elsewhere", "prepare", "works in prepare(), which is not timed", "prepare", intent=ACCIDENT),
    _g("elsewhere", "outputs-once", "works in outputs(), once after each step", "outputs_once", intent=ACCIDENT),
    _g("elsewhere", "stream", "works on another stream that nobody joins", "other_stream", intent=ACCIDENT,
       twin="honest-gpu-stream"),
    _g("elsewhere", "stream-joined", "works on another stream that outputs() joins", "other_stream_joined",
       intent=ACCIDENT, twin="honest-gpu-stream"),
    _own("elsewhere", "stream-small", "works briefly on another stream", "small", {"elsewhere": True},
         plain={"elsewhere": False}, twin="honest-gpu-stream"),
    _g("elsewhere", "thread", "has a thread launch the work, which outputs() waits for", "from_thread",
       intent=ACCIDENT, measure=WALL),
    _own("domain", "affine", "leaves out a factor of 1 and an offset of 0", "norm", {"plain": True},
         plain={"plain": False}, twin="honest-gpu-norm"),
    _own("domain", "softmax", "leaves out the maximum of a softmax", "softmax", {"no_maximum": True},
         plain={"no_maximum": False}, check="tolerance", twin="honest-gpu-norm"),
    _own("domain", "integers", "keeps counts of integers by their address and version", "embedding", {"memo": True},
         plain={"memo": False}, measure={"blocking_kernel": False}, twin="honest-gpu-norm"),
    _g("truth", "half-output", "computes in half precision and returns it so", "half_output", check="tolerance",
       intent=ACCIDENT),
    _g("truth", "tf32", "drops half of the mantissa under a tolerance of 1 %", "tf32",
       check={"kind": "tolerance", "rtol": 0.01}, intent=ACCIDENT),
    _g("clock", "event-elapsed", "replaces Event.elapsed_time", "event_elapsed", twin="honest-gpu-graph"),
    _g("clock", "event-record", "records the last event on an idle stream", "event_record", twin="honest-gpu-graph"),
    _g("clock", "synchronize", "replaces torch.cuda.synchronize by nothing", "synchronize", measure=WALL,
       twin="honest-gpu-graph"),
    _g("clock", "read", "replaces the method that reads the clock", "clock_read", twin="honest-gpu-graph"),
    _g("clock", "current-stream", "leaves an idle stream current, on which the reading ends", "current_stream",
       twin="honest-gpu-graph"),
    _g("judged", "compare", "replaces the function that compares", "compare"),
    _g("judged", "clone", "has the copy of its output computed by whoever copies it", "clone"),
    _g("harm", "hog-stream", "keeps the device busy during the other side's turns", "hog_stream"),
    _own("metrics", "memory", "has torch forget its peak and gives the memory back", "held", {"hidden": True},
         plain={"hidden": False}, metric="gpu_memory", intent="purpose", twin="honest-gpu-held"),
    _twin("watched", "keeps", "keeps its result and works all the same", "keeps_and_works"),
    _twin("elsewhere", "stream", "works on another stream and joins it", "own_stream_joined"),
    _twin("clock", "graph", "replays a graph of its step", "graph_of_step"),
    Entry("honest-gpu-norm", "domain", "applies a factor of 1 and an offset of 0", "on_gpu_forged:norm",
          {"plain": False}, gpus=1, honest=True),
    Entry("honest-gpu-held", "metrics", "needs the same memory", "on_gpu_forged:held", {"hidden": False}, gpus=1,
          honest=True, metric="gpu_memory"),
)  # fmt: skip
