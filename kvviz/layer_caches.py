"""What each layer of a model keeps of the tokens it has seen, according to the model's config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from kvviz.arguments import describe, is_whole

WINDOW_FIELDS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
KINDS = ("full_attention", *WINDOW_FIELDS, "linear_attention")
# The fields that are read here don't give the size of these models' caches.
MOST_LAYERS = 10_000
UNSUPPORTED = ("cpmant", "dory", "mimo_v2_flash", "mllama_text_model")


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of one sequence, counted in numbers.

    Attributes:
        layer: its number in the model, from 0.
        kind: `full_attention`, `sliding_attention`, `chunked_attention` or `linear_attention`.
        per_token: numbers that one token leaves, keys and values together.
        window: the W tokens that a row attends to, itself included; None if it attends to all.
        conv: numbers in a linear layer's convolution state, however many tokens it has seen.
        recurrent: numbers in its recurrent state, which is float32 in every model.
    """

    layer: int
    kind: str
    per_token: int = 0
    window: int | None = None
    conv: int = 0
    recurrent: int = 0


def layers(config) -> list[LayerCache]:
    """What each layer keeps, in order, without the layers that reuse another's keys and values.

    How many numbers one token leaves in a layer depends on the layer's attention:

    - multi-head: `2 x n_heads x head_dim`;
    - multi-query (arXiv 1911.02150) or grouped-query (2305.13245): `2 x n_kv_heads x head_dim`;
    - latent (2405.04434): `kv_lora_rank + qk_rope_head_dim`, for all heads together;
    - with an earlier layer's keys and values (2405.12981): 0.

    That is what the library's cache holds. It can be more than the model needs: Falcon 40B has 8
    different key/value heads, and the library holds a copy for each of its 128 query heads.

    With a window of W, the layer's next row needs the last W - 1 tokens (arXiv 2310.06825). A
    linear layer keeps two states of constant size in place of tokens (arXiv 2412.06464).

    Args:
        config: a decoder's, as `transformers` or `kvviz.models.load_config` reads it. If the model
            has several parts, only the text part counts.

    Raises:
        TypeError: `config` is not a config.
        ValueError: an encoder, an encoder-decoder, a model without a cache, an unknown kind of
            layer, or a missing field.

    >>> kv.count.layers(model.config)[2]
    LayerCache(layer=2, kind='full_attention', per_token=88, window=None, conv=0, recurrent=0)
    """
    if not hasattr(config, "get_text_config") or isinstance(config, type):
        raise TypeError(f"expected a config, such as model.config, got {describe(config)}")
    if config.is_encoder_decoder:
        _refuse(config, "a decoder-only model", "an encoder-decoder")
    config = config.get_text_config(decoder=True)
    if getattr(config, "is_decoder", True) is False:
        _refuse(config, "a decoder", "an encoder (is_decoder=False)")
    if not hasattr(config, "use_cache"):
        _refuse(config, "a decoder with a cache", "a config without `use_cache`")
    if config.model_type in UNSUPPORTED:
        _refuse(config, "fields that give the size of its cache", "others")
    n_layers = _read(config, "num_hidden_layers")
    if n_layers > MOST_LAYERS:
        _refuse(config, f"`num_hidden_layers` up to {MOST_LAYERS:,}", describe(n_layers))
    kinds = getattr(config, "layer_types", None) or [None] * n_layers
    modes = getattr(config, "kv_sharing_modes", None) or [None] * n_layers
    own = [n for n in range(n_layers) if modes[n] != "reuse"]
    return [_layer_cache(n, kinds[n], config.per_layer_config[n]) for n in own]


def _layer_cache(layer, kind, config):
    """What one layer keeps; `config` is that layer's, since layers can differ in size."""
    kind = kind or _find_kind(config)
    if kind not in KINDS:
        _refuse(config, f"layers of {', '.join(KINDS)}", kind)
    if kind == "linear_attention":
        return LayerCache(layer, kind, **_count_states(config))
    window = _read(config, WINDOW_FIELDS[kind], least=2) if kind in WINDOW_FIELDS else None
    return LayerCache(layer, kind, _count_per_token(config), window)


def _find_kind(config):
    """The kind of a layer that its config doesn't list: full attention unless it has a window."""
    slides = (kind for kind, name in WINDOW_FIELDS.items() if getattr(config, name, None))
    return next(slides, "full_attention")


def _count_per_token(config):
    """Numbers that one token leaves in this layer, keys and values together."""
    if getattr(config, "kv_lora_rank", None):
        return _read(config, "kv_lora_rank") + _read(config, "qk_rope_head_dim")
    n_heads = _read(config, "num_attention_heads")
    flags = [getattr(config, name, None) for name in ("multi_query", "new_decoder_architecture")]
    is_multi_query = flags == [True, False]  # as Falcon's config puts it
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    n_kv_heads = 1 if is_multi_query else n_kv_heads
    head_dim = getattr(config, "head_dim", None) or _read(config, "hidden_size") // n_heads
    return 2 * n_kv_heads * head_dim


def _count_states(config):
    """Numbers in the states of a gated delta rule: (channels, width) and (heads, key, value)."""
    if not hasattr(config, "linear_key_head_dim"):
        came = "linear layers of another kind, whose states can't be counted"
        _refuse(config, "attention, or linear layers of the gated delta rule", came)
    key_dim, value_dim = (_read(config, f"linear_{part}_head_dim") for part in ("key", "value"))
    n_value_heads = _read(config, "linear_num_value_heads")
    channels = 2 * _read(config, "linear_num_key_heads") * key_dim + n_value_heads * value_dim
    conv = channels * _read(config, "linear_conv_kernel_dim")
    return {"conv": conv, "recurrent": n_value_heads * key_dim * value_dim}


def _read(config, name, least=1):
    value = getattr(config, name, None)
    if not is_whole(value) or value < least:
        _refuse(config, f"`{name}`, a whole number of at least {least}", describe(value))
    return value


def _refuse(config, expected, came) -> NoReturn:
    raise ValueError(f"{config.model_type} is unsupported: expected {expected}, but got {came}")
