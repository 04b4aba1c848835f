"""``transformers serve`` with known delays: ``delayed_serve.py DECODE FIRST ARGUMENT ...``.

After each pass of the model it computes on, doing nothing, for the share DECODE of the time since the pass before;
after a pause, in which nothing was under way, of the pass's own time. The first token of an answer is held back for the
share FIRST of the time since its request came. With 0 0 it is the same program without delays.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import time
from typing import Any

_TEXT = re.compile(rb'"content": ?"[^"]')
"""In the first event of an answer that holds text of it."""
_PAUSE = 3.0
"""Times of a pass from its end to the end of the one before; more is a pause."""


def delay(share: float) -> None:
    """Have every pass of a Llama take ``share`` longer."""
    from transformers import LlamaForCausalLM

    plain = LlamaForCausalLM.forward
    latest = time.perf_counter()

    @functools.wraps(plain)
    def forward(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal latest
        began = time.perf_counter()
        found = plain(self, *args, **options)
        done = time.perf_counter()
        if share:
            step = done - latest
            until = done + share * (step if step < _PAUSE * (done - began) else done - began)
            while time.perf_counter() < until:
                pass
        latest = time.perf_counter()
        return found

    LlamaForCausalLM.forward = forward


def hold_back(share: float) -> None:
    """Have the first token of every answer leave later by ``share`` of the time since its request came."""
    import uvicorn

    class Config(uvicorn.Config):
        def __init__(self, app: Any, *args: Any, **options: Any) -> None:
            async def held(scope: Any, receive: Any, send: Any) -> None:
                await _held(app, share, scope, receive, send)

            super().__init__(held, *args, **options)

    uvicorn.Config = Config  # type: ignore[misc]


async def _held(app: Any, share: float, scope: Any, receive: Any, send: Any) -> None:
    came, waits = time.perf_counter(), share > 0

    async def later(message: Any) -> None:
        nonlocal waits
        if waits and _TEXT.search(message.get("body", b"")):
            waits = False
            await asyncio.sleep(share * (time.perf_counter() - came))
        await send(message)

    await app(scope, receive, later)


if __name__ == "__main__":
    delay(float(sys.argv[1]))
    hold_back(float(sys.argv[2]))
    from transformers.cli.transformers import main

    sys.argv = ["transformers", *sys.argv[3:]]
    main()
