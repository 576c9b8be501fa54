"""A decoder small enough to read on paper: everything a KV cache touches, and nothing else.

It's a Llama: RMSNorm (arXiv 1910.07467), rotary positions (RoFormer, 2104.09864), grouped-query
attention (2305.13245), a gated MLP (SwiGLU, 2002.05202), and an output head tied to the embedding.
Everything a cache can get wrong is in `KVCache`, in `Forge.forward`, or in five short methods that
it leads to.
Axes: B batch, Tq rows fed, Tk visible columns, H query heads, G key/value heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.arguments import check_whole, describe


class KVEntry(NamedTuple):
    """What one layer keeps for the tokens so far: keys and values, each (B, G, held, D).

    >>> KVEntry(keys=torch.zeros(1, 2, 6, 14), values=torch.zeros(1, 2, 6, 14)).keys.shape
    torch.Size([1, 2, 6, 14])
    """

    keys: Tensor
    values: Tensor


class KVCache:
    """One slot per layer, empty at first. Dumb on purpose: growing an entry is attention's job.

    >>> cache = KVCache(n_layers=4)
    >>> logits = Forge.small()(ids, cache)
    >>> cache
    KVCache(4), 6 tokens held

    Raises:
        ValueError: no number of layers; in the methods, a layer that the cache doesn't have.
    """

    def __init__(self, n_layers: int):
        n_layers = check_whole("n_layers", n_layers, least=1, most=10_000)
        self._slots: list[KVEntry | None] = [None] * n_layers

    def get(self, layer: int) -> KVEntry | None:
        """A layer's entry; None before the first call.

        >>> KVCache(4).get(0) is None
        True
        """
        return self._slots[self._check_layer(layer)]

    def update(self, layer: int, entry: KVEntry) -> None:
        """Replace a layer's entry with this one, whatever it is: a subclass may keep other things.

        >>> cache = KVCache(1)
        >>> cache.update(0, KVEntry(torch.zeros(1, 2, 6, 14), torch.zeros(1, 2, 6, 14)))
        >>> cache.held
        6
        """
        self._slots[self._check_layer(layer)] = entry

    def reset(self) -> None:
        """Empty every slot.

        >>> cache = KVCache(4)
        >>> logits = Forge.small()(ids, cache)
        >>> cache.reset()
        >>> cache.held
        0
        """
        self._slots = [None] * len(self)

    @property
    def held(self) -> int:
        """How many tokens it holds, read from its tensors, so no counter can disagree.

        >>> KVCache(4).held
        0
        """
        return 0 if (entry := self.get(0)) is None else entry[0].shape[2]

    def _check_layer(self, layer) -> int:  # as in a list, -1 is the last one
        n_layers = len(self._slots)
        if not isinstance(self._slots, list):  # a subclass's own
            return layer
        return check_whole("layer", layer, least=-n_layers, most=n_layers - 1)

    def __len__(self):  # layers, not tokens: an empty cache is still a cache
        return len(self._slots)

    def __repr__(self):
        return f"{type(self).__name__}({len(self)}), {self.held} tokens held"


def causal_mask(t: int, pos_start: int, pos_end: int, device=None) -> Tensor | None:
    """Which columns each of `t` rows, at positions pos_start to pos_end - 1, may see.

    Returns:
        (t, pos_end) bool, True up to the row's own position; None for one row, which sees all.

    Raises:
        ValueError: `t` isn't pos_end - pos_start, or it's below 1; or no `device` of torch.

    >>> causal_mask(2, pos_start=4, pos_end=6).int()
    tensor([[1, 1, 1, 1, 1, 0],
            [1, 1, 1, 1, 1, 1]], dtype=torch.int32)
    """
    t, pos_start = check_whole("t", t), check_whole("pos_start", pos_start)
    pos_end = check_whole("pos_end", pos_end)
    if not 0 < t == pos_end - pos_start <= pos_end:
        raise ValueError(f"expected t = pos_end - pos_start, got {t}, {pos_start} and {pos_end}")
    try:
        device = device and torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(f"device: expected torch's, but got {describe(device)}") from None
    if t == 1:
        return None
    rows = torch.arange(pos_start, pos_end, device=device)
    return torch.arange(pos_end, device=device) <= rows[:, None]


@dataclass(frozen=True)
class ForgeConfig:
    """A model's sizes; the defaults make a small one. Query heads share the key/value heads.

    >>> config = ForgeConfig()
    >>> config.n_heads // config.n_kv_heads
    3
    """

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
    """The weights of one layer; each matrix is (out, in), used as x @ w.T."""

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
    """A Llama-type decoder; `small` and `from_pretrained` give you one with weights.

    >>> forge = Forge.small()
    >>> forge(ids).shape
    torch.Size([1, 6, 101])

    Raises:
        TypeError: `c` isn't a `ForgeConfig`.
    """

    def __init__(self, c: ForgeConfig):
        super().__init__()
        if not isinstance(c, ForgeConfig):
            raise TypeError(f"c: expected a ForgeConfig, but got {describe(c)}")
        self.config = c
        self.embedding = _weight(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.n_layers))
        self.norm = _weight(c.hidden_size)
        # Radians per position for each pair of numbers, (D/2,): the first pair rotates fastest.
        self.frequencies = 1 / c.rope_theta ** (torch.arange(0, c.head_dim, 2) / c.head_dim)

    @torch.no_grad()
    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits (B, Tq, vocab_size): after each row, a score for every possible next token.

        Args:
            ids: (B, Tq) int64, the tokens that follow those held: a prompt, a chunk or one token.
            cache: it's read, and afterwards holds `ids` too. Your own cache class needs `get` and
                `update`; if it drops tokens, also `next_position`, how many it has been fed.
                Without a cache, positions start at 0.

        Raises:
            TypeError: `ids` isn't a tensor of int64, or `cache` isn't a `KVCache`.
            ValueError: a wrong shape, batch size, number of layers or token id, or too many tokens.

        >>> forge, cache = Forge.small(), KVCache(4)
        >>> prefill, decode = forge(ids[:, :5], cache), forge(ids[:, 5:], cache)
        >>> torch.allclose(decode, forge(ids)[:, 5:], atol=1e-4)
        True
        """
        self._check_input(ids, cache)
        past = None if cache is None else cache.get(0)
        t = ids.shape[1]
        held = 0 if past is None else past[0].shape[2]
        # A call starts where the cache ends, unless the cache dropped tokens and says otherwise.
        pos_start = getattr(cache, "next_position", held)
        rotation = self.rotation(self.positions(t, pos_start))
        mask = self.mask(t, held, held + t, ids.device)  # by column: a dropped token has none
        x = self.embed(ids)
        for layer in range(len(self.layers)):
            past = None if cache is None else cache.get(layer)
            x, entry = self.block(layer, x, rotation, mask, past)
            if cache is not None:
                cache.update(layer, entry)
        return self.unembed(x)

    def embed(self, ids: Tensor) -> Tensor:
        """Each token's own vector: (B, Tq) -> (B, Tq, hidden_size). It carries no position.

        >>> Forge.small().embed(ids).shape
        torch.Size([1, 6, 53])
        """
        return self.embedding[ids]

    def block(self, layer: int, x, rotation, mask, past: KVEntry | None) -> tuple[Tensor, KVEntry]:
        """One layer, attention and then the MLP; also the layer's entry, longer by the rows fed.

        Args:
            layer: its number.
            x: (B, Tq, hidden_size), what the layer below gave, or `embed`.
            rotation, mask: what those methods gave; the same for all layers.
            past: this layer's entry for the tokens before, (B, G, held, D); None if there are none.

        Returns:
            x (B, Tq, hidden_size) for the layer above, and the entry (B, G, held + Tq, D).

        >>> forge = Forge.small()
        >>> rotation, mask = forge.rotation(forge.positions(6, 0)), forge.mask(6, 0, 6)
        >>> x, entry = forge.block(0, forge.embed(ids), rotation, mask, past=None)
        >>> x.shape, entry.keys.shape
        (torch.Size([1, 6, 53]), torch.Size([1, 2, 6, 14]))
        """
        weights, epsilon = self.layers[layer], self.config.norm_eps
        past = KVEntry(*past) if type(past) is tuple else past  # keys and values, unnamed
        normed = F.rms_norm(x, x.shape[-1:], weights.attention_norm, epsilon)
        query = self.rotate(self._split_heads(normed @ weights.query.T), rotation)
        key = self.rotate(self._split_heads(normed @ weights.key.T), rotation)
        value = self._split_heads(normed @ weights.value.T)  # values carry no position
        entry = self.append(past, KVEntry(key, value))
        output, _ = self.attend(layer, query, entry.keys, entry.values, mask)
        x = x + output.transpose(1, 2).flatten(2) @ weights.output.T  # (B, Tq, H * D) @ ...
        normed = F.rms_norm(x, x.shape[-1:], weights.mlp_norm, epsilon)
        x = x + (F.silu(normed @ weights.gate.T) * (normed @ weights.up.T)) @ weights.down.T
        return x, entry

    def _split_heads(self, projected):  # (B, Tq, heads * D) -> (B, heads, Tq, D)
        return projected.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def unembed(self, x: Tensor) -> Tensor:
        """Logits from what the last layer gave: (B, Tq, hidden_size) -> (B, Tq, vocab_size).

        >>> Forge.small().unembed(torch.ones(1, 6, 53)).shape
        torch.Size([1, 6, 101])
        """
        x = F.rms_norm(x, x.shape[-1:], self.norm, self.config.norm_eps)
        return x @ self.embedding.T  # the output head is tied to the embedding

    def positions(self, t: int, pos_start: int) -> Tensor:
        """(Tq,) int64: the positions of `t` new tokens, which follow the tokens held.

        >>> Forge.small().positions(t=2, pos_start=6)
        tensor([6, 7])
        """
        return torch.arange(pos_start, pos_start + t)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each position's angles, each (Tq, D/2), shared by all layers.

        >>> cos, sin = Forge.small().rotation(torch.tensor([0, 1]))
        >>> cos.shape, bool((sin[0] == 0).all())
        (torch.Size([2, 7]), True)
        """
        angles = positions[:, None] * self.frequencies
        return angles.cos().to(self.embedding), angles.sin().to(self.embedding)

    def rotate(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate each pair of numbers in `x` (B, heads, Tq, D) by its position's angle.

        >>> forge, x = Forge.small(), torch.ones(1, 6, 1, 14)
        >>> torch.equal(forge.rotate(x, forge.rotation(torch.tensor([0]))), x)
        True
        """
        cos, sin = rotation
        first, second = x.chunk(2, dim=-1)  # number i pairs with number i + D/2
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def append(self, past: KVEntry | None, new: KVEntry) -> KVEntry:
        """The past, then the new tokens: (B, G, held, D) -> (B, G, held + Tq, D).

        >>> past, new = (KVEntry(*torch.zeros(2, 1, 2, n, 14)) for n in (6, 1))
        >>> Forge.small().append(past, new).keys.shape
        torch.Size([1, 2, 7, 14])
        """
        if past is None:
            return new
        keys = torch.cat([past.keys, new.keys], dim=2)
        return KVEntry(keys, torch.cat([past.values, new.values], dim=2))

    def mask(self, t: int, pos_start: int, pos_end: int, device=None) -> Tensor | None:
        """(Tq, Tk) bool, True where a row may see a column; None if it may see them all.

        >>> Forge.small().mask(3, 4, 7).shape
        torch.Size([3, 7])
        """
        return causal_mask(t, pos_start, pos_end, device)

    def attend(self, layer: int, query, keys, values, mask) -> tuple[Tensor, Tensor]:
        """Blend the values, each weighted by how well its key matches the query.

        query (B, H, Tq, D), keys and values (B, G, Tk, D), mask (Tq, Tk) bool or None -> output
        (B, H, Tq, D), weights (B, H, Tq, Tk). `layer` is the layer's number, for a recording.

        >>> query, keys, values = torch.ones(1, 6, 1, 14), *torch.ones(2, 1, 2, 4, 14)
        >>> Forge.small().attend(0, query, keys, values, mask=None)[1][0, 0]
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
        """
        shared_by = query.shape[1] // keys.shape[1]  # neighbouring query heads per key/value head
        keys = keys.repeat_interleave(shared_by, dim=1)  # (B, G, Tk, D) -> (B, H, Tk, D)
        values = values.repeat_interleave(shared_by, dim=1)
        scores = query @ keys.transpose(2, 3) * query.shape[-1] ** -0.5  # (B, H, Tq, Tk)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-1)
        return weights @ values, weights

    def _check_input(self, ids, cache):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64:
            got = getattr(ids, "dtype", type(ids).__name__)
            raise TypeError(f"expected ids as a tensor of int64, got {got}")
        vocab, known, shape = self.config.vocab_size, self.config.max_positions, tuple(ids.shape)
        if len(shape) != 2 or not ids.numel() or ids.min() < 0 or ids.max() >= vocab:
            came = describe(ids.tolist()) if len(shape) == 2 and 0 < ids.numel() < 9 else shape
            raise ValueError(f"expected ids (batch, tokens), 0 to {vocab - 1}, got {came}")
        if cache is not None and not (hasattr(cache, "get") and hasattr(cache, "update")):
            raise TypeError(f"expected a KVCache or None, got {type(cache).__name__}")
        if (n_layers := getattr(cache, "__len__", lambda: len(self.layers))()) != len(self.layers):
            raise ValueError(f"expected a cache of {len(self.layers)} layers, got {n_layers}")
        past = None if cache is None else cache.get(0)
        if past is not None and (expected := past[0].shape[0]) != len(ids):
            raise ValueError(f"expected batch size {expected}, as in the cache, got {len(ids)}")
        held = 0 if past is None else past[0].shape[2]
        if (total := held + shape[1]) > known:
            raise ValueError(f"expected at most {known} tokens, held and fed, got {total}")

    @classmethod
    def small(cls, seed: int = 0) -> Forge:
        """A random model, ready in an instant; the same seed gives the same weights.

        Raises:
            ValueError: `seed` isn't a whole number.

        >>> torch.equal(Forge.small(seed=3)(ids), Forge.small(seed=3)(ids))
        True
        """
        forge, seeded = cls(ForgeConfig()), torch.Generator().manual_seed(check_whole("seed", seed))
        for weight in forge.parameters():
            mean, spread = (0.0, 0.2) if weight.ndim == 2 else (1.0, 0.1)
            weight.normal_(mean, spread, generator=seeded)
        forge.embedding.mul_(2)  # gives logits around 10, as in trained models
        return forge

    @classmethod
    def from_pretrained(cls, model) -> Forge:
        """The same decoder with the weights of a `transformers` Llama, shared and not copied.

        Raises:
            ValueError: not a Llama with plain rotary positions, no biases and a tied head.

        >>> Forge.from_pretrained(model)
        Traceback (most recent call last):
        ValueError: expected a Llama with tie_word_embeddings True, got LlamaForCausalLM with False
        """
        config = model.config.to_dict() if hasattr(model, "lm_head") else {}
        config |= config.get("rope_parameters") or {}
        for name, expected in _EXPECTED.items():
            if (got := config.get(name)) != expected:
                got = f"{type(model).__name__} with {describe(got)}" if config else describe(model)
                raise ValueError(f"expected a Llama with {name} {expected!r}, got {got}")
        forge, weights = cls(ForgeConfig(*(config[name] for name in _SIZES))), model.state_dict()
        layers = [f"layers.{i}.{name}" for i in range(len(forge.layers)) for name in _LAYER]
        names = zip(forge.state_dict(), ["embed_tokens", "norm", *layers], strict=True)
        shared = {ours: weights[f"model.{theirs}.weight"] for ours, theirs in names}
        forge.load_state_dict(shared, assign=True)
        return forge


# The library's names: required settings, then sizes and weights in our order.
_EXPECTED = {"model_type": "llama", "rope_type": "default", "tie_word_embeddings": True}
_EXPECTED |= {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
_SIZES = """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads
head_dim intermediate_size rope_theta rms_norm_eps max_position_embeddings""".split()
_LAYER = """input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj
post_attention_layernorm mlp.gate_proj mlp.up_proj mlp.down_proj""".split()
