"""The functions that compile.process compiles, with their weights and their inputs of stated lengths.

What must not live here: torch.compile and its settings, caches, timing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from aiperf.workloads.shared import models
from aiperf.workloads.shared.seeded import own_seed

_WIDTH = {
    "branch": 0,
    "elementwise_chain": 0,
    "elementwise_mlp": 64,
    "row_norms": 64,
    "offset_attention": 3 * 64,
    "block": 256,
    "decode_block": 256,
}
WITH_NUMBER = ("elementwise_mlp", "offset_attention")
"""Functions that take a number besides."""
_HEADS = 8
_ROOM = 512
"""Keys that a sequence of ``decode_block`` has room for."""
_GELU = math.sqrt(2 / math.pi)


def _ratio(a: Any) -> Any:
    return a / (a.abs() + 1)


def _break(a: Any, b: Any) -> Any:
    x = _ratio(a)
    if b.sum() < 0:
        b = -b
    return x * b


def _where(a: Any, b: Any) -> Any:
    return _ratio(a) * torch.where(b.sum() < 0, -b, b)


def _cond(a: Any, b: Any) -> Any:
    return _ratio(a) * torch.cond(b.sum() < 0, lambda b: -b, lambda b: b.clone(), (b,))


def _chain(x: Any) -> Any:
    """The tanh form of GELU as people write it out by hand: eager torch makes a pass over memory for each operation."""
    return 0.5 * x * (1 + torch.tanh(_GELU * (x + 0.044715 * x * x * x)))


def _chain_in_place(x: Any) -> Any:
    """The same by operations that write over their operand, which needs one tensor besides the input."""
    inner = (x * x * x).mul_(0.044715).add_(x).mul_(_GELU).tanh_().add_(1)
    return x.mul_(0.5).mul_(inner)


def _offset_attention(x: Any, offset: Any) -> Any:
    """Queries, keys and values, one beside the other; of a cache that is not full yet, keys below ``offset`` count."""
    q, k, v = x.chunk(3, dim=-1)
    scores = q @ k.t() * q.shape[-1] ** -0.5
    hidden = torch.arange(len(x), device=x.device) >= offset
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v


def _listed(x: Any) -> Any:
    """The norm of each row, through Python's numbers and a list."""
    norms = []
    for row in x:
        norms.append(math.sqrt((row * row).sum().item()))
    return torch.tensor(norms, dtype=x.dtype, device=x.device)


def _stacked(x: Any) -> Any:
    """The same, row by row in tensors."""
    return torch.stack([(row * row).sum().sqrt() for row in x])


BRANCHES: dict[str, Callable[..., Any]] = {"break": _break, "where": _where, "cond": _cond}
ROW_NORMS: dict[str, Callable[..., Any]] = {"listed": _listed, "stacked": _stacked}


class ElementwiseMlp(nn.Module):
    """Two small products with element-wise work between them, and a factor: [length, 64] to [length, 64]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any, factor: Any) -> Any:
        """One row per token."""
        return self.second(torch.sigmoid(functional.gelu(self.first(x))) * factor) + x


class DecodeBlock(nn.Module):
    """A layer for one new token of each of up to ``rows`` sequences, whose earlier keys and values are there: [batch,
    width] to [batch, width]. Each call writes the new ones over those of the call before."""

    keys: Any
    values: Any
    places: Any

    def __init__(self, width: int, heads: int, rows: int) -> None:
        super().__init__()
        self._heads = heads
        self.norm, self.other_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 8 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(rows, _ROOM, heads, width // heads))
        # Sequences of half the room to all of it, each with its own next place.
        self.register_buffer("places", torch.randint(_ROOM // 2, _ROOM, (rows,)))

    def forward(self, x: Any) -> Any:
        """One row per sequence."""
        batch = len(x)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self._heads, -1)).unbind(1)
        rows, places = torch.arange(batch, device=x.device), self.places[:batch]
        self.keys.index_put_((rows, places), k)
        self.values.index_put_((rows, places), v)
        keys, values = (kept[:batch].transpose(1, 2) for kept in (self.keys, self.values))
        seen = torch.arange(_ROOM, device=x.device) <= places[:, None]
        mixed = functional.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=seen[:, None, None])
        x = x + self.out(mixed.flatten(1))
        gate, up = self.gate_up(self.other_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class InPlace(nn.Module):
    """Writes what ``body`` makes of its input over that input, as code does that updates a hidden state in place."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Any) -> Any:
        """The input itself, overwritten."""
        return x.copy_(self.body(x))


@dataclass(frozen=True)
class Subject:
    """A function before compilation, with one set of arguments for each call of a round."""

    function: Any
    """A function or a module."""
    layers: list[Any]
    """Its repeated parts, each a module; empty when it has none."""
    cases: dict[str, tuple[Any, ...]]
    """Name -> tensors; the length is dimension ``dim`` of each."""
    dim: int
    redraw: Callable[[int], None]
    tokens: int
    """Elements or rows of all cases, padding left out."""


def build(
    name: str,
    *,
    variant: str,
    lengths: list[int],
    layers: int,
    device: str,
    seed: int,
    width: int = 0,
    dtype: Any = torch.float32,
) -> Subject:
    """The function called ``name``; weights and inputs depend on the seed alone."""
    width = width or _WIDTH[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own_seed(seed, "weights"))
        kinds: dict[str, Callable[[], nn.Module]] = {
            "block": lambda: models.TransformerBlock(width, _HEADS),
            "decode_block": lambda: DecodeBlock(width, _HEADS, max(lengths)),
        }
        parts: list[Any] = [kinds[name]() for _ in range(layers)] if name in kinds else []
        function: Any = {
            "branch": lambda: BRANCHES[variant],
            "row_norms": lambda: ROW_NORMS[variant],
            "elementwise_chain": lambda: _chain_in_place if variant == "mutating" else _chain,
            "offset_attention": lambda: _offset_attention,
            "elementwise_mlp": lambda: ElementwiseMlp(width).to(device).eval(),
            "block": lambda: nn.Sequential(*parts).to(device).eval(),
            "decode_block": lambda: nn.Sequential(*parts).to(device, dtype).eval(),
        }[name]()
        if variant == "mutating" and name == "block":
            function = InPlace(function)
    shapes: dict[str, tuple[int, ...]] = {}
    for number, length in enumerate(lengths):
        for sign in ("positive", "negative") if name == "branch" else ("",):
            wide = (*WITH_NUMBER, "row_norms", "decode_block")
            rows = dict.fromkeys(wide, (length, width)) | {"block": (1, length, width)}
            shapes[f"{number}-{length}{sign and '-'}{sign}"] = rows.get(name, (length,))
    arity = 2 if name == "branch" else 1
    cases = {key: tuple(torch.empty(s, device=device, dtype=dtype) for _ in range(arity)) for key, s in shapes.items()}

    def redraw(seed: int) -> None:
        for key, tensors in cases.items():
            source = torch.Generator().manual_seed(own_seed(seed, key))
            for tensor in tensors:
                tensor.copy_(torch.randn(tensor.shape, generator=source))
            if name == "branch":
                # The sum decides the branch; each round takes both.
                tensors[1].abs_().mul_(-1.0 if key.endswith("negative") else 1.0)

    redraw(seed)
    return Subject(function, parts, cases, 1 if name == "block" else 0, redraw, tokens=sum(lengths) * arity)


def truth(subject: Subject, arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> dict[str, Any]:
    """The uncompiled function in float64 over the true lengths; ``arguments`` adds what the step passes besides."""
    wide = copy.deepcopy(subject.function).double() if isinstance(subject.function, nn.Module) else subject.function
    with torch.no_grad():
        found = {}
        for key, tensors in subject.cases.items():
            found[key] = wide(*(t.double() if isinstance(t, torch.Tensor) else t for t in arguments(tensors)))
        return found
