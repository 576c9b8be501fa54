"""A small decoder to read on paper: all that a KV cache touches, and nothing else.

RMSNorm (arXiv 1910.07467), rotary positions (RoFormer, 2104.09864), grouped-query attention
(2305.13245), a gated MLP (SwiGLU, 2002.05202), an output head tied to the embedding: a Llama.
Whatever a cache can get wrong is in `KVCache` or in five short methods of `Forge`.
B batch, Tq rows fed, Tk columns seen, H query heads, G key/value heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class KVEntry(NamedTuple):
    """What one layer keeps of the tokens so far: keys and values, each (B, G, held, D)."""

    keys: Tensor
    values: Tensor


class KVCache:
    """One slot a layer, empty at first. Dumb on purpose: growth is attention's work."""

    def __init__(self, n_layers: int):
        self._slots: list[KVEntry | None] = [None] * n_layers

    def get(self, layer: int) -> KVEntry | None:
        """A layer's entry; None before the first call."""
        return self._slots[layer]

    def update(self, layer: int, entry: KVEntry) -> None:
        """Put `entry` in the place of the layer's old one."""
        self._slots[layer] = entry

    def reset(self) -> None:
        """Empty every slot."""
        self._slots = [None] * len(self)

    @property
    def held(self) -> int:
        """How many tokens it holds, read from its tensors: no counter can disagree."""
        return 0 if (entry := self.get(0)) is None else entry.keys.shape[2]

    def __len__(self):  # layers, not tokens: an empty cache is still a cache
        return len(self._slots)

    def __repr__(self):
        return f"{type(self).__name__}({len(self)}), {self.held} tokens held"


def causal_mask(t: int, pos_start: int, pos_end: int, device=None) -> Tensor | None:
    """Which columns each of `t` rows, at places pos_start to pos_end - 1, may see.

    Returns:
        (t, pos_end) bool, true up to the row's own place; None for one row, which sees all.

    Raises:
        ValueError: `t` is not pos_end - pos_start, or there is no row.
    """
    if not 0 < t == pos_end - pos_start <= pos_end:
        raise ValueError(f"expected pos_end - pos_start rows, got {t}, {pos_start} and {pos_end}")
    if t == 1:
        return None
    rows = torch.arange(pos_start, pos_end, device=device)
    return torch.arange(pos_end, device=device) <= rows[:, None]


@dataclass(frozen=True)
class ForgeConfig:
    """Sizes, by default a small model's. `n_heads` query heads share `n_kv_heads` pairs."""

    vocab_size: int = 101
    hidden_size: int = 53
    n_layers: int = 4
    n_heads: int = 6
    n_kv_heads: int = 2
    head_dim: int = 14
    mlp_size: int = 67
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    max_positions: int = 97


def _weight(*shape):
    return nn.Parameter(torch.empty(shape), requires_grad=False)


class Layer(nn.Module):
    """The weights of one layer, each matrix (out, in): x @ w.T."""

    def __init__(self, c: ForgeConfig):
        super().__init__()
        self.attention_norm = _weight(c.hidden_size)
        self.query = _weight(c.n_heads * c.head_dim, c.hidden_size)
        self.key = _weight(c.n_kv_heads * c.head_dim, c.hidden_size)
        self.value = _weight(c.n_kv_heads * c.head_dim, c.hidden_size)
        self.output = _weight(c.hidden_size, c.n_heads * c.head_dim)
        self.mlp_norm = _weight(c.hidden_size)
        self.gate = _weight(c.mlp_size, c.hidden_size)
        self.up = _weight(c.mlp_size, c.hidden_size)
        self.down = _weight(c.hidden_size, c.mlp_size)


class Forge(nn.Module):
    """A Llama-type decoder: `small` and `from_pretrained` give one with weights."""

    def __init__(self, c: ForgeConfig):
        super().__init__()
        self.config = c
        self.embedding = _weight(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.n_layers))
        self.norm = _weight(c.hidden_size)
        # Radians a place for each pair of numbers, (D/2,): the first pair turns fastest.
        self.frequencies = 1 / c.rope_theta ** (torch.arange(0, c.head_dim, 2) / c.head_dim)

    @torch.no_grad()
    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits (B, Tq, vocab_size): after each row, a score for every possible next token.

        Args:
            ids: (B, Tq) int64, the tokens after those held: a prompt, a chunk or one.
            cache: read, and left holding `ids` too; one of your own needs `get` and `update`.
                Without one, positions start at zero.

        Raises:
            TypeError: `ids` is no tensor of int64, or `cache` no `KVCache`.
            ValueError: a wrong shape, batch, number of layers or token, or too many tokens.
        """
        cache = KVCache(len(self.layers)) if cache is None else cache  # one to throw away
        held = self._check(ids, cache)
        t = ids.shape[1]
        turns = self.turns(self.positions(t, held))
        mask = self.mask(t, held, held + t, ids.device)
        x = self.embedding[ids]  # (B, Tq, hidden_size)
        for number, layer in enumerate(self.layers):
            blend, entry = self._attention(number, layer, x, turns, mask, cache.get(number))
            cache.update(number, entry)
            x = x + blend
            normed = F.rms_norm(x, x.shape[-1:], layer.mlp_norm, self.config.norm_eps)
            x = x + (F.silu(normed @ layer.gate.T) * (normed @ layer.up.T)) @ layer.down.T
        x = F.rms_norm(x, x.shape[-1:], self.norm, self.config.norm_eps)
        return x @ self.embedding.T  # the output head is tied to the embedding

    def _attention(self, number, layer, x, turns, mask, past):
        def heads(projected):  # (B, Tq, heads * D) -> (B, heads, Tq, D)
            return projected.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

        normed = F.rms_norm(x, x.shape[-1:], layer.attention_norm, self.config.norm_eps)
        query = self.rotate(heads(normed @ layer.query.T), turns)
        key = self.rotate(heads(normed @ layer.key.T), turns)
        value = heads(normed @ layer.value.T)  # a value carries no place
        entry = self.append(past, KVEntry(key, value))
        output, _ = self.attend(number, query, entry.keys, entry.values, mask)
        return output.transpose(1, 2).flatten(2) @ layer.output.T, entry  # (B, Tq, H * D) @ ...

    def positions(self, t: int, held: int) -> Tensor:
        """(Tq,) int64: the places of `t` new tokens, counted on from those held."""
        return torch.arange(held, held + t)

    def turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the angles at these places, each (Tq, D/2): once for all layers."""
        angles = positions[:, None] * self.frequencies
        return angles.cos().to(self.embedding), angles.sin().to(self.embedding)

    def rotate(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Turn each pair of numbers in `x` (B, heads, Tq, D) by an angle that grows with place."""
        cos, sin = turns
        first, second = x.chunk(2, dim=-1)  # a pair is number i and number i + D/2
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def append(self, past: KVEntry | None, new: KVEntry) -> KVEntry:
        """The new tokens behind the past: (B, G, held, D) -> (B, G, held + Tq, D)."""
        if past is None:
            return new
        keys = torch.cat([past.keys, new.keys], dim=2)
        return KVEntry(keys, torch.cat([past.values, new.values], dim=2))

    def mask(self, t: int, pos_start: int, pos_end: int, device) -> Tensor | None:
        """(Tq, Tk) bool, true where a row may look; None if it may look everywhere."""
        return causal_mask(t, pos_start, pos_end, device)

    def attend(self, layer: int, query, keys, values, mask) -> tuple[Tensor, Tensor]:
        """Blend the values, each weighted by how well its key matches the query.

        query (B, H, Tq, D), keys and values (B, G, Tk, D), mask (Tq, Tk) bool or None -> output
        (B, H, Tq, D), weights (B, H, Tq, Tk). `layer` is its number, for whoever looks on.
        """
        shared_by = query.shape[1] // keys.shape[1]  # this many neighbouring query heads
        keys = keys.repeat_interleave(shared_by, dim=1)  # (B, G, Tk, D) -> (B, H, Tk, D)
        values = values.repeat_interleave(shared_by, dim=1)
        scores = query @ keys.transpose(2, 3) * query.shape[-1] ** -0.5  # (B, H, Tq, Tk)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-1)
        return weights @ values, weights

    def _check(self, ids, cache):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64:
            got = getattr(ids, "dtype", type(ids).__name__)
            raise TypeError(f"expected ids as a tensor of int64, got {got}")
        vocab, known, shape = self.config.vocab_size, self.config.max_positions, tuple(ids.shape)
        if len(shape) != 2 or not ids.numel() or ids.min() < 0 or ids.max() >= vocab:
            raise ValueError(f"expected ids (batch, tokens), 0 to {vocab - 1}, got {shape}: {ids}")
        if not (hasattr(cache, "get") and hasattr(cache, "update")):
            raise TypeError(f"expected a KVCache or None, got {type(cache).__name__}")
        if (n_layers := getattr(cache, "__len__", lambda: len(self.layers))()) != len(self.layers):
            raise ValueError(f"expected a cache of {len(self.layers)} layers, got {n_layers}")
        past = cache.get(0)
        if past is not None and (expected := past[0].shape[0]) != len(ids):
            raise ValueError(f"expected a batch of {expected}, as in the cache, got {len(ids)}")
        held = 0 if past is None else past[0].shape[2]
        if (total := held + shape[1]) > known:
            raise ValueError(f"expected at most {known} tokens, held and fed, got {total}")
        return held

    @classmethod
    def small(cls, seed: int = 0) -> Forge:
        """A random model, made in an instant: the same seed gives the same one."""
        forge, seeded = cls(ForgeConfig()), torch.Generator().manual_seed(seed)
        for weight in forge.parameters():
            mean, spread = (0.0, 0.2) if weight.ndim == 2 else (1.0, 0.1)
            weight.normal_(mean, spread, generator=seeded)
        forge.embedding.mul_(2)  # logits of order 10, as trained models have
        return forge

    @classmethod
    def from_pretrained(cls, model) -> Forge:
        """The same decoder with the weights of a Llama of `transformers`: shared, not copied.

        Raises:
            ValueError: no Llama with plain rotary positions, no biases and a tied head.
        """
        config = model.config.to_dict() if hasattr(model, "lm_head") else {}
        config |= config.get("rope_parameters") or {}
        for name, expected in _EXPECTED.items():
            if (got := config.get(name)) != expected:
                got = f"{type(model).__name__} with {got!r}"
                raise ValueError(f"expected a Llama with {name} {expected!r}, got {got}")
        forge, weights = cls(ForgeConfig(*(config[name] for name in _SIZES))), model.state_dict()
        layers = [f"layers.{i}.{name}" for i in range(len(forge.layers)) for name in _LAYER]
        names = zip(forge.state_dict(), ["embed_tokens", "norm", *layers], strict=True)
        shared = {ours: weights[f"model.{theirs}.weight"] for ours, theirs in names}
        forge.load_state_dict(shared, assign=True)
        return forge


# The library's names: what must hold, then in the order of `ForgeConfig` and of `Layer`.
_EXPECTED = {"model_type": "llama", "rope_type": "default", "tie_word_embeddings": True}
_EXPECTED |= {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
_SIZES = """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads
head_dim intermediate_size rope_theta rms_norm_eps max_position_embeddings""".split()
_LAYER = """input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj
post_attention_layernorm mlp.gate_proj mlp.up_proj mlp.down_proj""".split()
