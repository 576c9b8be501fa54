"""Count the work and the memory of generation: arithmetic, no clock and no model.

Throughout, `prompt` tokens come in and `new` ones are generated. The first new token comes out of
the prompt's own pass, so there are `new` passes, and the last new token is never fed.
"""

from __future__ import annotations


def rows(prompt: int, new: int, *, cached: bool) -> list[int]:
    """Rows computed in each pass: p, p + 1, ... without a store; p, 1, 1, ... with one.

    Raises:
        ValueError: `prompt` below 1 or `new` below 0.
    """
    _check("prompt", prompt, 1)
    _check("new", new, 0)
    if cached:
        return [prompt, *[1] * (new - 1)][:new]
    return [prompt + step for step in range(new)]


def positions(prompt: int, new: int, *, cached: bool) -> int:
    """Token positions that the model runs over, all passes together."""
    return sum(rows(prompt, new, cached=cached))


def cells(prompt: int, new: int, *, cached: bool) -> int:
    """Cells of one head's causal square that are filled in, all passes together.

    A row at place i has i + 1 cells: it sees itself and everything before it.
    """
    last = [prompt + step for step in range(new)]
    per_pass = zip(last, rows(prompt, new, cached=cached), strict=True)
    return sum(_triangle(end) - _triangle(end - n_rows) for end, n_rows in per_pass)


def bytes_per_token(config, *, bytes_per_number: float = 4) -> float:
    """Bytes that one more token adds to the store, where nothing slides: keys and values alike.

    `2 x layers x n_kv_heads x head_dim x bytes_per_number` for a plain decoder; see `cache_bytes`.
    """
    return bytes_per_number * _numbers(config) * len(_kinds(config))


def cache_bytes(config, held: int, *, batch: int = 1, bytes_per_number: float = 4) -> float:
    """Bytes of the keys and values held after `held` tokens, one store a batch row.

    A layer with a window of W keeps W - 1 tokens at most; a latent layer keeps its latent and
    its rotated part (DeepSeek-V2, arXiv 2405.04434); linear attention keeps none.

    Args:
        config: a config of `transformers`, of a decoder.
        held: tokens in the store, those of the prompt included.
        batch: sequences held at once.
        bytes_per_number: 4 for float32, 2 for bfloat16, 1 for 8 bits, 0.5 for 4.

    Raises:
        ValueError: `held` below 0, or `batch` below 1.
    """
    _check("held", held, 0)
    _check("batch", batch, 1)
    window = getattr(config.get_text_config(), "sliding_window", None)
    numbers = 0
    for kind in _kinds(config):
        kept = min(held, window - 1) if kind == "sliding_attention" else held
        numbers += kept * _numbers(config)
    return batch * bytes_per_number * numbers


def in_units(n_bytes: int) -> str:
    """`450 KiB`, `1.32 MiB`: units of 1,024, three digits."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.{4 if n_bytes >= 1000 * size else 3}g} {unit}"
    return f"{n_bytes} bytes"


def _kinds(config):
    """How each layer that keeps keys and values attends, in order."""
    config = config.get_text_config()
    slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    everywhere = "sliding_attention" if slides else "full_attention"
    kinds = getattr(config, "layer_types", None) or [everywhere] * config.num_hidden_layers
    return [kind for kind in kinds if kind != "linear_attention"]


def _numbers(config):
    """Numbers that one token leaves in one layer's store."""
    config = config.get_text_config()
    if getattr(config, "kv_lora_rank", None):
        return config.kv_lora_rank + config.qk_rope_head_dim
    n_heads = config.num_attention_heads
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // n_heads
    return 2 * n_kv_heads * head_dim


def _triangle(n):
    return n * (n + 1) // 2


def _check(name, value, least):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, and got {value!r}")
