"""The small network of compile.process as a JAX function under jax.jit: XLA compiles it for each shape.

What must not live here: what is padded to which length, torch.compile (workload.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.imports import XLA

_COMPILED = "/jax/core/compile/backend_compile_duration"
"""What JAX reports each time that XLA has compiled a program."""


class XlaPrograms:
    """A function of JAX on the CPU, and the programs that XLA made of it."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        try:
            self._jax, self._nn, monitoring = (importlib.import_module(name) for name in XLA)
        except ImportError as error:
            raise SkipSide(f"JAX, which compiles with XLA, is not installed: {error}") from error
        self._jax.config.update("jax_platforms", "cpu")
        self._jax.config.update("jax_enable_compilation_cache", False)  # a file may hold what another step compiled
        monitoring.register_event_duration_secs_listener(self._heard)
        self._weights = {name: self._jax.device_put(array) for name, array in weights.items()}
        self._run: Callable[..., Any] | None = None
        self.compiled = 0
        """Programs since they were forgotten."""
        self.facts = {"jax": str(self._jax.__version__)}

    def _heard(self, event: str, *_: Any, **__: Any) -> None:
        self.compiled += event == _COMPILED

    def forget(self) -> None:
        """No shape has been seen."""
        self._jax.clear_caches()
        self._run, self.compiled = self._jax.jit(self._mlp), 0

    def __call__(self, x: Any, factor: float) -> Any:
        """The function of rows [length, width] as an array of NumPy."""
        assert self._run is not None
        return np.asarray(self._run(self._weights, x, factor))

    def _mlp(self, weights: Mapping[str, Any], x: Any, factor: Any) -> Any:
        """As ``subjects.ElementwiseMlp`` computes it."""
        hidden = self._nn.gelu(x @ weights["first.weight"].T + weights["first.bias"], approximate=False)
        return (self._nn.sigmoid(hidden) * factor) @ weights["second.weight"].T + weights["second.bias"] + x
