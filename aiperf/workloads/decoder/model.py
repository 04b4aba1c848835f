"""The decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU; random weights drawn from a seed.

What must not live here: caches (caches.py), sampling (generate.py), speculation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache, Extend
from aiperf.workloads.decoder.precision import Rounded, halves, linear
from aiperf.workloads.shared.seeded import draw_on_device

EPS = 1e-5
"""What RMSNorm adds to the mean square."""
_THETA = 10_000.0
_NORM_SPREAD = 0.1
"""Standard deviation of the norms' weights around 1: a forgotten weight must show."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    """Hidden units of the feed-forward network."""
    vocab: int

    @property
    def head_dim(self) -> int:
        """Values of one head."""
        return self.width // self.heads

    @property
    def layer_parameters(self) -> int:
        """Weights that a token is multiplied with in one layer; norms are left out."""
        return self.width * (2 * self.head_dim * (self.heads + self.kv_heads) + 3 * self.inner)

    @property
    def head_parameters(self) -> int:
        """Weights of the projection to the vocabulary."""
        return self.width * self.vocab

    def kv_bytes(self, element: float) -> float:
        """Bytes of keys and values that one token leaves in a cache whose values take ``element`` bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element


PRESETS = {
    "tiny": Shape(layers=2, width=128, heads=4, kv_heads=4, inner=384, vocab=1024),
    "small": Shape(layers=4, width=256, heads=8, kv_heads=8, inner=768, vocab=4096),
    "base": Shape(layers=12, width=768, heads=12, kv_heads=12, inner=2048, vocab=32768),
    "1b": Shape(layers=16, width=2048, heads=32, kv_heads=8, inner=8192, vocab=128256),
    "8b": Shape(layers=32, width=4096, heads=32, kv_heads=8, inner=14336, vocab=128256),
    "70b-2layer": Shape(layers=2, width=8192, heads=64, kv_heads=8, inner=28672, vocab=128256),
}


@dataclass
class DecoderLayer:
    """Weights of one layer, as [out, in]."""

    attention_norm: Any
    qkv: Any
    """Queries of all heads, then keys, then values of the KV heads."""
    out: Any
    mlp_norm: Any
    gate_up: Any
    down: Any


@dataclass(frozen=True)
class Spot:
    """Where tokens of one pass are: their cache, rotations, and which keys they see."""

    cache: Cache
    cos: Any
    sin: Any
    mask: Any
    causal: bool


Attend = Callable[[Any, Spot, Extend], Any]
"""What heads make of queries, keys and values [batch, count, ...] of new tokens and of those that a layer keeps."""
Join = Callable[[Any], Any]
"""What a product adds to the states; a model that holds a part of the weights adds up those of all parts."""


def _layer(x: Any, layer: DecoderLayer, spot: Spot, keep: Extend, attend: Attend, join: Join) -> Any:
    """Hidden states [batch, count, width] after a layer, plain or compiled."""
    return _fed_forward(x + join(linear(attend(_qkv(x, layer), spot, keep), layer.out)), layer, join)


def _qkv(x: Any, layer: DecoderLayer) -> Any:
    """Queries, keys and values of all heads, one behind the other: [batch, count, ...]."""
    return linear(normed(x, layer.attention_norm), layer.qkv)


def _fed_forward(x: Any, layer: DecoderLayer, join: Join) -> Any:
    gate, up = halves(normed(x, layer.mlp_norm), layer.gate_up)
    return x + join(linear(F.silu(gate) * up, layer.down))


def normed(x: Any, weight: Any = None) -> Any:
    """``x`` [..., width], of a mean square of one, times ``weight`` [width]."""
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


@dataclass
class Decoder:
    """A decoder-only transformer for ``max_tokens`` positions."""

    shape: Shape
    embedding: Any
    layers: Sequence[DecoderLayer]
    norm: Any
    head: Any
    max_tokens: int
    places: Sequence[int] = ()
    """The layer of a cache that each layer uses; empty: the one of its own number."""
    run_layer: Callable[..., Any] = _layer
    cos: Any = field(init=False)
    sin: Any = field(init=False)

    def __post_init__(self) -> None:
        self.places = self.places or range(len(self.layers))
        device, half = self.embedding.device, self.shape.head_dim // 2
        frequency = _THETA ** (-torch.arange(half, dtype=torch.float32, device=device) / half)
        angle = torch.arange(self.max_tokens, dtype=torch.float32, device=device)[:, None] * frequency
        cos, sin = torch.cos(angle), torch.sin(angle)
        self.cos, self.sin = (torch.cat(x, dim=1).to(self.embedding.dtype) for x in ((cos, cos), (-sin, sin)))

    @property
    def device(self) -> Any:
        """Where the weights are."""
        return self.embedding.device

    @property
    def dtype(self) -> Any:
        """The type in which it computes."""
        return self.embedding.dtype

    def forward(self, tokens: Any, cache: Cache, *, every: bool = False) -> Any:
        """Logits [batch, 1, vocab] after the last of ``tokens`` [batch, count], or with ``every`` [batch, count, vocab]
        after each. The tokens follow those in ``cache``, which holds them afterwards."""
        spot = self.spot(cache, tokens.shape[1])
        x = self.through(F.embedding(tokens, self.embedding), spot, 0, len(self.layers))
        cache.advance(tokens.shape[1])
        return self.logits(x if every else x[:, -1:])

    def spot(self, cache: Cache, count: int) -> Spot:
        """Where the next ``count`` tokens are."""
        rows, mask = cache.rows(count), cache.mask(count)
        return Spot(cache, self.cos[rows], self.sin[rows], mask, mask is None and count > 1)

    def through(self, x: Any, spot: Spot, start: int, stop: int) -> Any:
        """Hidden states [batch, count, width] after layers ``start`` to ``stop``, which extend the cache."""
        for index in range(start, stop):
            layer, keep = self.layers[index], spot.cache.at(self.places[index])
            x = self.run_layer(x, layer, spot, keep, self.attend, self.join)
        return x

    def attend(self, qkv: Any, spot: Spot, keep: Extend) -> Any:
        """As ``Attend`` says: [batch, count, width]."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        parts = qkv.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)
        turned, v = parts.split((heads + kv_heads, kv_heads), dim=1)
        q, k = _rotated(turned, spot.cos, spot.sin).split((heads, kv_heads), dim=1)
        return self.mix(q, *keep(k, v), spot).transpose(1, 2).flatten(2)

    @staticmethod
    def mix(q: Any, k: Any, v: Any, spot: Spot) -> Any:
        """What queries [batch, heads, count, head_dim] make of the keys and values that they see, of the same shape."""
        gqa = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=spot.mask, is_causal=spot.causal, enable_gqa=gqa)

    @staticmethod
    def join(product: Any) -> Any:
        """As ``Join`` says."""
        return product

    def beside(self, one: Any, cache: Cache, many: Any, others: Cache) -> tuple[Any, Any]:
        """Logits [1, 1, vocab] after the last of ``one`` [1, count], and [batch, 1, vocab] after ``many`` [batch, 1].
        All go through the weights together; each part attends to its own cache, which holds it afterwards."""
        count, parts = one.shape[1], [(self.spot(cache, one.shape[1]), 1), (self.spot(others, 1), len(many))]
        x = F.embedding(torch.cat((one, many.T), dim=1), self.embedding)
        for index, layer in enumerate(self.layers):
            attended = []
            for part, (spot, batch) in zip(_qkv(x, layer).split((count, len(many)), dim=1), parts, strict=True):
                own, keep = part.reshape(batch, -1, part.shape[-1]), spot.cache.at(self.places[index])
                attended.append(self.attend(own, spot, keep).reshape(1, part.shape[1], -1))
            x = _fed_forward(x + self.join(linear(torch.cat(attended, dim=1), layer.out)), layer, self.join)
        cache.advance(count)
        others.advance(1)
        logits = self.logits(x[:, count - 1 :])
        return logits[:, :1], logits[:, 1:].transpose(0, 1)

    def attention_of(self, index: int, last: Any, keys: Any, spot: Spot) -> Any:
        """How much the last token of ``spot``, whose state before a layer is ``last`` [batch, 1, width], attends to
        each of ``keys`` [batch, kv_heads, tokens, head_dim], by mean over heads: [batch, tokens]."""
        heads, width = self.shape.heads, self.shape.width
        q = _qkv(last, self.layers[index])[..., :width].unflatten(-1, (heads, -1)).transpose(1, 2)
        q = _rotated(q, spot.cos[-1:], spot.sin[-1:]) * self.shape.head_dim**-0.5
        keys = keys.repeat_interleave(heads // self.shape.kv_heads, dim=1)
        return (q @ keys.transpose(2, 3)).softmax(dim=-1).mean(dim=(1, 2))

    def keep_only(self, x: Any, spot: Spot, start: int, stop: int) -> None:
        """Keys and values of hidden states ``x`` for layers ``start`` to ``stop``, which are not run."""
        for index in range(start, stop):
            layer = self.layers[index]
            both = F.linear(normed(x, layer.attention_norm), layer.qkv[self.shape.width :])
            k, v = both.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2).chunk(2, dim=1)
            spot.cache.extend(self.places[index], _rotated(k, spot.cos, spot.sin), v)

    def logits(self, x: Any) -> Any:
        """Logits of hidden states."""
        return F.linear(normed(x, self.norm), self.head)

    def first_layers(self, count: int) -> Decoder:
        """A smaller decoder with a copy of the embedding, the first ``count`` layers, and the head."""
        return copy.deepcopy(replace(self, layers=self.layers[:count]))

    def rounded(self, which: Sequence[int]) -> Decoder:
        """The same weights, the matrices of these layers in fp8."""
        layers = list(self.layers)
        for i in which:
            layers[i] = DecoderLayer(**{n: Rounded(w) if w.dim() > 1 else w for n, w in vars(layers[i]).items()})
        return replace(self, layers=layers)

    def compiled(self) -> Decoder:
        """The same weights; a layer is compiled for each shape that it meets first."""
        return replace(self, run_layer=torch.compile(_layer, dynamic=False, fullgraph=True))

    def only(self, which: Sequence[int]) -> Decoder:
        """The same weights with only these of the layers, which use their own places in a cache of all layers."""
        return replace(self, layers=[self.layers[index] for index in which], places=tuple(which))


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions: pairs of values half a head apart turned by their angle; ``sin`` has the sign of each half."""
    half, turned = x.shape[-1] // 2, x * cos
    turned[..., :half].addcmul_(x[..., half:], sin[..., :half])
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return turned


def draw(
    shape: Shape,
    *,
    seed: int,
    max_tokens: int,
    device: str = "cpu",
    dtype: Any = torch.float32,
    keep: Callable[[Iterator[DecoderLayer]], Sequence[DecoderLayer]] = list,
) -> Decoder:
    """A decoder with random weights, equal for equal seeds on devices of one kind; ``keep`` takes each layer drawn."""

    def drawn(name: str, *size: int) -> Any:
        weight = torch.empty(size, dtype=dtype, device=device)
        draw_on_device(weight, seed=seed, name=name)
        return weight.mul_(size[-1] ** -0.5) if len(size) > 1 else weight.mul_(_NORM_SPREAD).add_(1)

    width, kv = shape.width, shape.kv_heads * shape.head_dim

    def layers() -> Iterator[DecoderLayer]:
        for i in range(shape.layers):
            yield DecoderLayer(
                attention_norm=drawn(f"attention_norm-{i}", width),
                qkv=drawn(f"qkv-{i}", width + 2 * kv, width),
                out=drawn(f"out-{i}", width, width),
                mlp_norm=drawn(f"mlp_norm-{i}", width),
                gate_up=drawn(f"gate_up-{i}", 2 * shape.inner, width),
                down=drawn(f"down-{i}", width, shape.inner),
            )

    embedding, head = drawn("embedding", shape.vocab, width).mul_(width**0.5), drawn("head", shape.vocab, width)
    return Decoder(shape, embedding, keep(layers()), drawn("norm", width), head, max_tokens)
