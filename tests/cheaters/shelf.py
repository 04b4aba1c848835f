"""The shelf of cheaters: scenario file, what its after side does, and how the harness must name it.

What must not live here: running them.
"""

from typing import NamedTuple


class Cheater(NamedTuple):
    """One pair whose before side is honest."""

    scenario: str
    """File in this folder."""
    cheat: str
    """What the after side does; empty for the honest control."""
    reason: str
    """Fragment of the failed check, fault or failure that must be told; empty for the honest control."""
    gpus: int = 0


SHELF = (
    Cheater("honest.yaml", "", ""),
    Cheater("cached-result.yaml", "returns a cached result", "out differs in"),
    Cheater("skips-odd-iterations.yaml", "skips work on odd iterations", "out differs in"),
    Cheater("works-elsewhere.yaml", "works on another thread and returns early", "out differs in"),
    Cheater("works-elsewhere-gpu.yaml", "works on another stream", "out differs in", gpus=1),
    Cheater("works-elsewhere-gpu-small.yaml", "works briefly on another stream", "out differs in", gpus=1),
    Cheater("partial-output.yaml", "writes only part of the output", "out differs in"),
    Cheater("mutates-inputs.yaml", "mutates its inputs", "changed its inputs"),
    Cheater("lazy-tensor.yaml", "returns an object that computes when read", "lazy_tensor.Lazy is no"),
    Cheater(
        "lazy-subclass.yaml", "returns a tensor subclass that computes when read", "lazy_subclass.LazyTensor is no"
    ),
    Cheater("computes-on-read.yaml", "computes in outputs()", "outputs"),
    Cheater("less-work-declared.yaml", "does and declares half of the work", "items a step"),
    Cheater("less-work-hidden.yaml", "does half of the work and declares all of it", "out differs in"),
)
