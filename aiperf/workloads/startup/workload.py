"""startup.request: time from a request's start to its answer, by a small model server in a stated warm state.

What must not live here: what the server computes (server.py) and compiles (compiled.py), timing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared import models
from aiperf.workloads.shared.bytecode import kept_variables
from aiperf.workloads.shared.cupy_kernels import import_cupy
from aiperf.workloads.startup import compiled as compiling
from aiperf.workloads.startup import kernels, server

_WARM_UPS = 3
_END_S = 10.0
"""For a serving process to end by itself once it is hung up on."""
_COUNTS = (*compiling.COUNTS, kernels.STAMP)
_BUILD_BITS = 48
"""Of a build's number, which travels as a float64."""
_MADE_BEFORE = "caches and packages are made once, before any process of the server starts"
_OUTSIDE = {
    "common_shapes": "warm-up requests come before the first request, which the step is about",
    **dict.fromkeys(("cache_dir", "mega_cache", "aot_package"), _MADE_BEFORE),
}
"""Value of ``warm_up`` or ``compiled`` -> why a server with it takes longer before its first step."""


class _Client:
    """Connections to the forking server; each has a process of its own behind it."""

    def __init__(self, arguments: list[str], scratch: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="serving-", dir=scratch.absolute()))
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        descriptor = self._listener.fileno()
        self._server = subprocess.Popen(
            # -P keeps the working folder off the server's import path
            [sys.executable, "-P", "-m", server.__name__, str(descriptor), *arguments, str(self._folder)],
            # CuPy keeps what it compiles in the user's folder otherwise.
            env={**os.environ, **kept_variables(), "CUPY_CACHE_IN_MEMORY": "1"},
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
        )
        self.started = 0
        self.counts = dict.fromkeys(_COUNTS, 0.0)
        self._connection: socket.socket | None = None
        self._processes: list[int] = []
        """A descriptor of each serving process that nobody has waited for: a number could be another's by then."""

    def await_loaded(self) -> None:
        """Wait until the server has its model; it loads beside whatever its starter does meanwhile."""
        assert self._server.stdout is not None
        if self._server.stdout.readline() != b"loaded\n":
            raise RuntimeError(f"the model server ended with status {self._server.wait()}")

    def start(self) -> None:
        """A new serving process, with the model on its device; returns when it says that it is ready."""
        self.stop()
        for left in self._folder.glob(f"{server.OWN}*"):
            shutil.rmtree(left, ignore_errors=True)
        self._connection = socket.create_connection(self._listener.getsockname())
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = server.receive(self._connection, 9)
        if said[:1] != server.READY:
            raise RuntimeError(
                "the serving process ended before it was ready; its last words are in this side's stderr"
            )
        # It waits for a request, so its number is its own.
        self._processes.append(os.pidfd_open(int.from_bytes(said[1:], sys.byteorder)))
        self.started += 1

    def ask(self, request: bytes, answer_bytes: int, *, build: int = 0) -> bytes:
        """One request, to be answered with the kernel ``build`` (0: with none), and its answer; ``counts`` are then
        those of the process that gave it."""
        assert self._connection is not None
        self._connection.sendall(build.to_bytes(8, sys.byteorder) + request)
        answer = server.receive(self._connection, answer_bytes + 8 * len(_COUNTS))
        if not answer:
            raise RuntimeError("the serving process ended in a request; its last words are in this side's stderr")
        counted = np.frombuffer(answer, dtype=np.float64, offset=answer_bytes)
        self.counts = dict(zip(_COUNTS, counted.tolist(), strict=True))
        return answer[:answer_bytes]

    def stop(self) -> None:
        """Hang up, which ends the serving process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def await_end(self) -> None:
        """Hang up and wait until every serving process so far has ended, with its GPU context and memory; one that does
        not is killed."""
        self.stop()
        while self._processes:
            process = self._processes.pop()
            try:
                if not select.select([process], [], [], _END_S)[0]:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                    select.select([process], [], [], _END_S)
            finally:
                os.close(process)

    def start_anew(self) -> None:
        """A new serving process, after the end of the one before."""
        self.await_end()
        self.start()

    def close(self) -> None:
        """End the server too, and remove what it made; it holds nothing else that wants clearing up."""
        self.await_end()
        self._server.kill()
        self._server.wait()
        self._listener.close()
        assert self._server.stdout is not None
        self._server.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def request(
    context: Context,
    *,
    process: Literal["new", "resident"] = "resident",
    model: str = "tiny",
    batch: int = 4,
    seq: int = 64,
    warm_up: Literal["none", "common_shapes"] = "none",
    compiled: Literal["none", "cold", "cache_dir", "mega_cache", "aot_package"] = "none",
    requests: int = 1,
    new_kernel: bool = False,
) -> Workload:
    """``requests`` prompts of [batch, seq] tokens, each answered with the logits of its next token, [batch, vocab].

    A server with torch imported and the model in host memory forks a process for each connection, so that every
    iteration meets one that has computed nothing yet. ``resident``: it is started before every iteration, untimed, and
    has its model on the device; with ``warm_up: common_shapes`` it has also answered prompts of this shape. ``new``:
    every request starts its own, timed, GPU context and copy of the model included.

    ``compiled``: the process gets compiled code for its first prompt, ``cold`` by torch.compile with an empty cache
    folder, ``cache_dir`` with the folder of a process that compiled the same, ``mega_cache`` with an empty one and the
    bundle of torch.compiler.save_cache_artifacts, ``aot_package`` from a package of AOTInductor, weights included.
    Those are made in set-up. The compiler is imported, and has tried out the CPU's vector instructions, before the
    fork.

    ``new_kernel``: the logits go through a kernel of CUDA C++ (tanh(x)), and each request names a build of it
    that no process has seen. The process compiles it with NVRTC, loads it and answers with it: a ``new`` one has no
    other, a warm one had another build in force until then. The kernel writes its build's number, which is compared.

    Items: requests. Models: tiny, small, base. Source: AI Systems Performance Engineering, chapters 3, 13, 14 and 19.
    """
    if model not in models.TRANSFORMERS:
        raise ValueError(f'model "{model}" does not answer prompts; there are {", ".join(models.TRANSFORMERS)}')
    if min(requests, batch, seq) < 1:
        raise ValueError("requests, batch and seq must each be 1 or more")
    if process == "new" and warm_up != "none":
        raise ValueError("process: new is about a server that was not there before; it cannot be warm")
    warm_ups = _WARM_UPS if warm_up == "common_shapes" else 0
    if compiled != "none" and context.device != "cpu":
        raise SkipSide("servers with compiled code are supported only on the CPU")
    if new_kernel:
        if not context.on_gpu:
            raise SkipSide("a CUDA kernel that a server exchanges needs a GPU")
        import_cupy()
    numbers = [torch.get_num_threads(), context.seed, batch, seq, warm_ups, int(new_kernel)]
    client = _Client([*map(str, numbers), model, context.device, compiled], context.scratch)
    try:
        prompts = models.draw(model, "batch", seed=context.seed, batch=batch * requests, seq=seq)
        client.await_loaded()
    except BaseException:
        client.close()
        raise
    answers = torch.zeros(requests, batch, models.TRANSFORMERS[model]["vocab"])
    # Whether the kernel that each request named has answered it.
    by_new_kernel = torch.zeros(requests if new_kernel else 0, dtype=torch.int64)

    def step() -> None:
        for index, (prompt, answer) in enumerate(zip(prompts.chunk(requests), answers, strict=True)):
            if process == "new":
                client.start()
            build = kernels.FIRST + 1 + secrets.randbits(_BUILD_BITS) if new_kernel else 0
            logits = client.ask(prompt.numpy().tobytes(), answer.numel() * answer.element_size(), build=build)
            if new_kernel:
                by_new_kernel[index] = int(client.counts[kernels.STAMP] == build)
            answer.copy_(torch.from_numpy(np.frombuffer(logits, dtype=np.float32).copy()).view_as(answer))
            if process == "new":
                client.stop()

    def redraw(seed: int) -> None:
        prompts.copy_(models.draw(model, "batch", seed=seed, batch=batch * requests, seq=seq))

    @functools.cache
    def wide() -> Any:
        # Only where a truth is asked for; that of every audit has the same weights.
        return models.build(model, seed=context.seed, device="cpu", batch=1, seq=seq).module.double()

    def reference() -> dict[str, Any]:
        with torch.no_grad():
            logits = wide()(prompts)[:, -1].view(requests, batch, -1)
        return outputs(kernels.capped(logits) if new_kernel else logits, torch.ones_like(by_new_kernel))

    def outputs(logits: Any = answers, by_kernel: Any = by_new_kernel) -> dict[str, Any]:
        return {"answers": logits, **({"by_new_kernel": by_kernel} if new_kernel else {})}

    return Workload(
        step=step,
        work=Work(items=requests, item="requests"),
        outputs=outputs,
        inputs=lambda: {"prompts": prompts},
        redraw=redraw,
        prepare=client.start_anew if process == "resident" else client.await_end,
        done_outside=_OUTSIDE.get(warm_up, _OUTSIDE.get(compiled, "")),
        anew=True,
        reference=reference,
        counters=lambda: {
            "processes_in_step": float(requests if process == "new" else 0),
            "graphs": client.counts["graphs"],
            "cache_hits": client.counts["cache_hits"],
        },
        facts={
            "parameters": models.parameters_of(model),
            "threads": torch.get_num_threads(),
            "server_device": context.device,
        },
        close=client.close,
    )
