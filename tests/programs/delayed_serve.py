"""``transformers serve`` whose every decoding step takes a known share longer: ``delayed_serve.py SHARE ARGUMENT ...``.

After each pass of the model it computes on, doing nothing, for that share of the time since the pass before; after a
pause, in which nothing was under way, of the pass's own time. SHARE 0 is the same program without the delay.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

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


if __name__ == "__main__":
    delay(float(sys.argv[1]))
    from transformers.cli.transformers import main

    sys.argv = ["transformers", *sys.argv[2:]]
    main()
