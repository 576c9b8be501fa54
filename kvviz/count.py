"""Count the work and the memory of generation: arithmetic, no clock and no model.

Throughout, `n_prompt` tokens come in and `n_new` ones are generated. The first new token comes out of
the prompt's own pass, so there are `n_new` passes, and the last new token is never fed.

The bytes of a store are read off the config of a `transformers` decoder: `layers` says what each
layer keeps, and one sum over the layers prices it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

WINDOW_FIELDS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
KINDS = ("full_attention", *WINDOW_FIELDS, "linear_attention")
UNSAID = ("cpmant", "dory", "mimo_v2_flash", "mllama_text_model")  # by the fields that we read
FLOAT32 = 4  # bytes
UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}  # in bytes


def rows(n_prompt: int, n_new: int, *, cached: bool) -> list[int]:
    """Rows computed in each pass: p, p + 1, ... without a store; p, 1, 1, ... with one.

    Raises:
        ValueError: `n_prompt` below 1 or `n_new` below 0.
    """
    _check("n_prompt", n_prompt, 1)
    _check("n_new", n_new, 0)
    if cached:
        return [n_prompt, *[1] * (n_new - 1)][:n_new]
    return [n_prompt + step for step in range(n_new)]


def positions(n_prompt: int, n_new: int, *, cached: bool) -> int:
    """Token positions that the model runs over, all passes together."""
    return sum(rows(n_prompt, n_new, cached=cached))


def cells(n_prompt: int, n_new: int, *, cached: bool) -> int:
    """Cells of one head's causal square that are filled in, all passes together.

    A row at place i has i + 1 cells: it sees itself and everything before it.
    """
    last = [n_prompt + step for step in range(n_new)]
    per_pass = zip(last, rows(n_prompt, n_new, cached=cached), strict=True)
    return sum(_triangle(end) - _triangle(end - n_rows) for end, n_rows in per_pass)


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of one sequence, counted in numbers.

    Attributes:
        layer: its place in the model, from 0.
        kind: `full_attention`, `sliding_attention`, `chunked_attention` or `linear_attention`.
        per_token: numbers that one token leaves, keys and values together.
        window: the W tokens that a row sees, itself included; None where it sees all.
        conv: numbers of a linear layer's convolution state, however many tokens it has seen.
        recurrent: numbers of its recurrent state, which is float32 whatever the model is.
    """

    layer: int
    kind: str
    per_token: int = 0
    window: int | None = None
    conv: int = 0
    recurrent: int = 0


def layers(config) -> list[LayerCache]:
    """What each layer keeps, in order; a layer that keeps nothing of its own is left out.

    One token leaves, in one layer:

    - multi-head, `2 x n_heads x head_dim` numbers;
    - grouped or multi-query, `2 x n_kv_heads x head_dim` (one head: arXiv 1911.02150; some:
      arXiv 2305.13245);
    - latent, `kv_lora_rank + qk_rope_head_dim`, for all heads together (arXiv 2405.04434);
    - in a layer that uses an earlier layer's keys and values, none (arXiv 2405.12981).

    With a window of W, the layer's next row needs the last W - 1 tokens (arXiv 2310.06825). A
    linear layer keeps two states of constant size in place of tokens (arXiv 2412.06464).

    Args:
        config: of a decoder, as `transformers` or `kvviz.models.load_config` reads it. Of a model
            of several parts, the text part counts.

    Raises:
        TypeError: `config` is no config.
        ValueError: an encoder-decoder, a layer of another kind, or a field that is missing.
    """
    if not hasattr(config, "get_text_config"):
        raise TypeError(f"expected a config, such as model.config, got {type(config).__name__}")
    if config.is_encoder_decoder:
        raise _unpriced(config, "a decoder alone", "an encoder-decoder")
    config = config.get_text_config(decoder=True)
    if config.model_type in UNSAID:
        raise _unpriced(config, "fields that say what is kept", "some of its own")
    n_layers = _field(config, "num_hidden_layers")
    kinds = getattr(config, "layer_types", None) or [None] * n_layers
    modes = getattr(config, "kv_sharing_modes", None) or [None] * n_layers
    own = [n for n in range(n_layers) if modes[n] != "reuse"]
    return [_layer_cache(n, kinds[n], config.per_layer_config[n]) for n in own]


def bytes_per_token(config, *, bytes_per_number: float = 4) -> float:
    """Bytes that one more token adds to the store, where nothing slides: keys and values alike.

    `2 x layers x n_kv_heads x head_dim x bytes_per_number` for a plain decoder; see `layers`.

    Raises:
        ValueError: `bytes_per_number` is no positive number, or `layers` cannot price the config.
    """
    _check_size(bytes_per_number)
    return bytes_per_number * sum(store.per_token for store in layers(config))


def cache_bytes(config, held: int, *, batch_size: int = 1, bytes_per_number: float = 4) -> float:
    """Bytes of the keys, values and states HELD after `held` tokens, one cache for each sequence.

    They are the `nbytes` of the tensors in a `DynamicCache`: `(batch_size, n_kv_heads, kept, head_dim)`
    for keys and for values, where a layer with a window of W has kept W - 1 tokens at most. Before
    the first token there is none.

    What is ALLOCATED can be more. A `DynamicCache` keeps the W - 1 tokens as a view of the tensor
    it made in the last pass, which stays as long as the view does: W tokens after a step of one,
    all of a prompt after the prompt. A store laid out in advance: `allocated_bytes`.

    Args:
        config: see `layers`.
        held: tokens that went in, those of the prompt included.
        batch_size: sequences held at once.
        bytes_per_number: 4 for float32, 2 for bfloat16, 1 for 8 bits, 0.5 for 4. It does not touch
            the recurrent states of linear layers: these are float32.

    Raises:
        ValueError: `held` below 0, `batch_size` below 1, `bytes_per_number` not above 0, or a config
            that `layers` cannot price.
    """
    _check("held", held, 0)
    priced = _priced(config, held, 1, batch_size, bytes_per_number)
    return priced if held else 0


def allocated_bytes(
    config, slots: int, *, batch_size: int = 1, bytes_per_number: float = 4
) -> float:
    """Bytes ALLOCATED by a store laid out in advance for `slots` tokens, however few it holds.

    They are the `nbytes` of the tensors in a `StaticCache(config, max_cache_len=slots)` after its
    first pass: `slots` tokens in a layer that sees all, at most W in one with a window of W, one
    more than such a layer ever needs to hold.

    Args:
        slots: tokens there is room for, in each of `batch_size` sequences.
        config, batch_size, bytes_per_number: see `cache_bytes`.

    Raises:
        ValueError: `slots` below 1, or what `cache_bytes` refuses.
    """
    _check("slots", slots, 1)
    return _priced(config, slots, 0, batch_size, bytes_per_number)


def in_units(n_bytes: int) -> str:
    """`450 KiB`, `1.32 MiB`: units of 1,024, three digits."""
    for unit, size in UNITS.items():
        if n_bytes >= size:
            return f"{n_bytes / size:.{4 if n_bytes >= 1000 * size else 3}g} {unit}"
    return "1 byte" if n_bytes == 1 else f"{n_bytes} bytes"


def _priced(config, tokens, spared, batch_size, bytes_per_number):
    """Bytes with `tokens` in each layer, but in a window at most W less those `spared`."""
    _check("batch_size", batch_size, 1)
    _check_size(bytes_per_number)
    total = 0
    for store in layers(config):
        kept = min(tokens, store.window - spared) if store.window else tokens
        total += bytes_per_number * (kept * store.per_token + store.conv)
        total += FLOAT32 * store.recurrent
    return batch_size * total


def _layer_cache(layer, kind, config):
    """`config` is this layer's own: in some models local and full layers have other sizes."""
    kind = kind or _kind(config)
    if kind not in KINDS:
        raise _unpriced(config, f"layers of {', '.join(KINDS)}", kind)
    if kind == "linear_attention":
        return LayerCache(layer, kind, **_states(config))
    window = _field(config, WINDOW_FIELDS[kind], 2) if kind in WINDOW_FIELDS else None
    return LayerCache(layer, kind, _per_token(config), window)


def _kind(config):
    """How a layer attends whose config does not list it: by the window that it has."""
    slides = (kind for kind, name in WINDOW_FIELDS.items() if getattr(config, name, None))
    return next(slides, "full_attention")


def _per_token(config):
    if getattr(config, "kv_lora_rank", None):
        return _field(config, "kv_lora_rank") + _field(config, "qk_rope_head_dim")
    n_heads = _field(config, "num_attention_heads")
    flags = [getattr(config, name, None) for name in ("multi_query", "new_decoder_architecture")]
    one = flags == [True, False]  # as Falcon says it
    n_kv_heads = 1 if one else getattr(config, "num_key_value_heads", None) or n_heads
    head_dim = getattr(config, "head_dim", None) or _field(config, "hidden_size") // n_heads
    return 2 * n_kv_heads * head_dim


def _states(config):
    """Sizes of a gated delta rule's states: (channels, width) and (heads, key, value)."""
    if not hasattr(config, "linear_key_head_dim"):
        raise _unpriced(config, "linear layers of the gated delta rule", "others")
    key_dim, value_dim = (_field(config, f"linear_{part}_head_dim") for part in ("key", "value"))
    n_value_heads = _field(config, "linear_num_value_heads")
    channels = 2 * _field(config, "linear_num_key_heads") * key_dim + n_value_heads * value_dim
    conv = channels * _field(config, "linear_conv_kernel_dim")
    return {"conv": conv, "recurrent": n_value_heads * key_dim * value_dim}


def _field(config, name, least=1):
    value = getattr(config, name, None)
    if not _whole(value, least):
        raise _unpriced(config, f"`{name}`, a whole number, at least {least}", repr(value))
    return value


def _unpriced(config, expected, came):
    kind = config.model_type
    return ValueError(f"a store of {kind} cannot be priced: expected {expected}, and got {came}")


def _triangle(n):
    return n * (n + 1) // 2


def _check(name, value, least):
    if not _whole(value, least):
        raise ValueError(f"{name} must be a whole number, at least {least}, and got {value!r}")


def _check_size(bytes_per_number):
    is_number = isinstance(bytes_per_number, Real) and not isinstance(bytes_per_number, bool)
    if not is_number or not 0 < bytes_per_number < math.inf:
        raise ValueError(f"bytes_per_number must be a number above 0, got {bytes_per_number!r}")


def _whole(value, least):
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= least
