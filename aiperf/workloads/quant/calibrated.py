"""Inputs with outliers, and rounding that looks at activations first: GPTQ, AWQ and SmoothQuant.

What must not live here: the formats and their products (schemes.py), timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.quant import schemes
from aiperf.workloads.shared.seeded import draw_on_device, generator

_SEARCHED = 512
"""Rows of the calibration by which AWQ chooses; more hardly change its choice of one number."""
_ACTIVATIONS, _WEIGHTS = 20.0, 3.0
"""How many times as large an outlier is."""
_FACTORS = 8
"""Input channels for each factor that they share."""
_DAMPING = 0.01
_ALPHAS = tuple(step / 20 for step in range(20))


@dataclass(frozen=True)
class OutlierChannels:
    """How many channels are drawn larger than the others."""

    activations: int = 0
    weights: int = 0


def draw(x: Any, w: Any, outliers: OutlierChannels, *, seed: int) -> None:
    """Activations [m, k] and weight [n, k] in place: noise, with outliers as ``linear`` says."""
    draw_on_device(w, seed=seed, name="w")
    w[_channels(seed, "w", len(w), outliers.weights)] *= _WEIGHTS
    _draw_activations(x, outliers.activations, seed=seed, rows="x", channels="channels")


def calibration(x: Any, outliers: OutlierChannels, *, rows: int, seed: int, alike: bool) -> Any:
    """Other rows than those of x [m, k] in float32: drawn as x was, or with other channels large and other factors."""
    drawn = x.new_empty((rows, x.shape[1]))
    channels = "channels" if alike else "other channels"
    _draw_activations(drawn, outliers.activations, seed=seed, rows="calibration", channels=channels)
    return drawn.float()


def _draw_activations(x: Any, outliers: int, *, seed: int, rows: str, channels: str) -> None:
    draw_on_device(x, seed=seed, name=rows)
    if not outliers:
        return
    m, k = x.shape
    factors = max(1, k // _FACTORS)
    own, shared = (torch.empty(shape, device=x.device) for shape in ((m, factors), (factors, k)))
    draw_on_device(own, seed=seed, name=f"{rows}: factors")
    draw_on_device(shared, seed=seed, name=channels)
    x.copy_((x.float() + own @ shared / factors**0.5) / 2**0.5)
    x[:, _channels(seed, channels, k, outliers)] *= _ACTIVATIONS


def _channels(seed: int, name: str, among: int, count: int) -> Any:
    return torch.from_numpy(generator(seed, f"{name}: outliers").permutation(among)[:count].copy())


def smoothing(weight: Any, rows: Any) -> Any:
    """SmoothQuant's divisor of each input channel [k], of strength one half."""
    largest, weights = rows.abs().amax(dim=0), weight.float().abs().amax(dim=0)
    return (largest.clamp_min(1e-5) / weights.clamp_min(1e-5)).sqrt()


def salience(weight: Any, rows: Any) -> Any:
    """AWQ's divisor of each input channel [k]: a power of its mean magnitude, the one of twenty whose layer errs least
    on the calibration rows."""
    rows = rows[:_SEARCHED]
    wide, magnitude = weight.float(), rows.abs().mean(dim=0).clamp_min(1e-5)
    truth = rows @ wide.t()
    best, found = float("inf"), torch.ones_like(magnitude)
    for alpha in _ALPHAS:
        scale = magnitude**alpha
        scale /= (scale.max() * scale.min()).sqrt()
        codes, step, zero = schemes.int4_codes(wide * scale, "own")
        error = float((truth - (rows / scale) @ schemes.int4_values(codes, step, zero).t()).norm())
        if error < best:
            best, found = error, scale
    return found


def gptq(weight: Any, rows: Any) -> tuple[Any, Any, Any]:
    """Codes [n, k], scales and zeros [n, k / 128, 1]: column after column, each error made good by the columns that
    are still to come, as the calibration rows' second moments say."""
    left, group = weight.float().clone(), schemes.GROUP
    n, k = left.shape
    moments = rows.double().t() @ rows.double()
    moments.diagonal().add_(_DAMPING * moments.diagonal().mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments))
    upper = torch.linalg.cholesky(inverse, upper=True).float()
    codes = torch.empty((n, k), dtype=torch.int32, device=left.device)
    steps, zeros = [], []
    for column in range(k):
        if column % group == 0:
            _, step, zero = schemes.int4_codes(left[:, column : column + group], "own")
            steps.append(step)
            zeros.append(zero)
        low = zero[:, 0, 0] - 8 * step[:, 0, 0]
        wanted = left[:, column].clone()
        code = ((wanted - low) / step[:, 0, 0]).round_().clamp_(0, 15)
        codes[:, column] = code.to(torch.int32)
        error = (wanted - (code * step[:, 0, 0] + low)) / upper[column, column]
        left[:, column:].addr_(error, upper[column, column:], alpha=-1)
    return codes, torch.cat(steps, dim=1), torch.cat(zeros, dim=1)


def stored(weight: Any, rows: Any, kind: str, *, method: str, granularity: str) -> tuple[schemes.Stored, Any]:
    """The weight as a method keeps it, and what the step multiplies x by first: [k] in the weight's type, or None."""
    if method == "gptq":
        return schemes.pack_int4(*gptq(weight, rows)), None
    if method == "rtn":
        return schemes.store(weight, kind, granularity), None
    divisor = (salience if method == "awq" else smoothing)(weight, rows)
    return schemes.store(weight.float() * divisor, kind, granularity), (1 / divisor).to(weight.dtype)
