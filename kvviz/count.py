"""Count the work and the memory of generation: arithmetic, without a clock and without a model.

Throughout, `n_prompt` tokens come in and `n_new` are generated. The first new token comes out of
the prefill, so there are `n_new` passes, and the last new token is never fed.

The bytes of a cache follow from the config of a `transformers` decoder: `layers` says what each
layer keeps, and one sum over the layers gives the bytes.
"""

from __future__ import annotations

from kvviz.arguments import check_flag, check_number, check_whole
from kvviz.layer_caches import LayerCache as LayerCache
from kvviz.layer_caches import layers as layers
from kvviz.page_counts import paged_bytes as paged_bytes
from kvviz.page_counts import pages_needed as pages_needed

FLOAT32 = 4  # bytes
LONGEST = 1_000_000  # passes in a list
UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}  # in bytes


def rows(n_prompt: int, n_new: int, *, cached: bool) -> list[int]:
    """Rows computed in each pass: p, p + 1, ... without a cache; p, 1, 1, ... with one.

    Raises:
        ValueError: `n_prompt` below 1, `n_new` not from 0 to a million, or `cached` no bool.

    >>> kv.count.rows(5, 3, cached=False), kv.count.rows(5, 3, cached=True)
    ([5, 6, 7], [5, 1, 1])
    """
    n_prompt, cached = check_whole("n_prompt", n_prompt, least=1), check_flag("cached", cached)
    n_new = check_whole("n_new", n_new, least=0, most=LONGEST)
    if cached:
        return [n_prompt, *[1] * (n_new - 1)][:n_new]
    return [n_prompt + step for step in range(n_new)]


def positions(n_prompt: int, n_new: int, *, cached: bool) -> int:
    """Token positions that the model runs over, in all passes together.

    Raises:
        ValueError: as `rows`.

    >>> kv.count.positions(20, 200, cached=False), kv.count.positions(20, 200, cached=True)
    (23900, 219)
    """
    return sum(rows(n_prompt, n_new, cached=cached))


def cells(n_prompt: int, n_new: int, *, cached: bool) -> int:
    """Cells of one head's causal square that are filled in, in all passes together.

    The row at position i has i + 1 cells: it attends to itself and to everything before it.

    Raises:
        ValueError: as `rows`.

    >>> kv.count.cells(5, 3, cached=False), kv.count.cells(5, 3, cached=True)
    (64, 28)
    """
    per_pass = enumerate(rows(n_prompt, n_new, cached=cached), int(n_prompt))
    return sum(_triangle(end) - _triangle(end - n_rows) for end, n_rows in per_pass)


def bytes_per_token(config, *, bytes_per_number: float = 4) -> float:
    """Bytes that one more token adds to the cache, keys and values together, in windows too.

    `2 x layers x n_kv_heads x head_dim x bytes_per_number` for a plain decoder; see `layers`.

    Raises:
        TypeError: `config` is not a config.
        ValueError: `bytes_per_number` isn't above 0, or `layers` doesn't support the config.

    >>> kv.count.bytes_per_token(model.config), 2 * 3 * 2 * 22 * 4
    (1056, 1056)
    """
    size = check_number("bytes_per_number", bytes_per_number, above=0)
    return size * sum(kept.per_token for kept in layers(config))


def cache_bytes(config, held: int, *, batch_size: int = 1, bytes_per_number: float = 4) -> float:
    """Bytes of keys, values and states HELD after `held` tokens, with a cache for each sequence.

    They are the `nbytes` of the tensors in a `DynamicCache`: `(batch_size, n_kv_heads, kept,
    head_dim)` for keys and for values, where a layer with a window of W has kept at most W - 1
    tokens. Before the first token, nothing is held.

    What is ALLOCATED can be more. A `DynamicCache` keeps the W - 1 tokens as a view of the tensor
    that it made in the last pass, and that tensor stays as long as the view does: W tokens after a
    decode step, all of the prompt after the prefill. For a preallocated cache, see
    `allocated_bytes`.

    Args:
        config: see `layers`.
        held: tokens fed so far, including the prompt's.
        batch_size: sequences held at once.
        bytes_per_number: 4 for float32, 2 for bfloat16, 1 for 8 bits, 0.5 for 4. It does not
            change the recurrent states of linear layers, which are float32.

    Raises:
        TypeError: `config` is not a config.
        ValueError: `held` below 0, `batch_size` below 1, `bytes_per_number` not above 0, or a
            config that `layers` doesn't support.

    >>> kv.count.cache_bytes(model.config, 10), kv.count.cache_bytes(model.config, 10, batch_size=2)
    (10560, 21120)
    """
    held = check_whole("held", held, least=0)
    total = _sum_bytes(config, held, 1, batch_size, bytes_per_number)
    return total if held else 0


def allocated_bytes(
    config, slots: int, *, batch_size: int = 1, bytes_per_number: float = 4
) -> float:
    """Bytes ALLOCATED by a cache with room for `slots` tokens, however few it holds.

    They are the `nbytes` of the tensors in a `StaticCache(config, max_cache_len=slots)` after its
    first pass: `slots` tokens in a layer that attends to all, and at most W in a layer with a
    window of W, one more than such a layer ever needs to hold.

    Args:
        slots: tokens that each of `batch_size` sequences has room for.
        config, batch_size, bytes_per_number: see `cache_bytes`.

    Raises:
        TypeError: `config` is not a config.
        ValueError: `slots` below 1, or anything that `cache_bytes` refuses.

    >>> kv.count.allocated_bytes(model.config, 16)
    16896
    """
    slots = check_whole("slots", slots, least=1)
    return _sum_bytes(config, slots, 0, batch_size, bytes_per_number)


def quantised_bytes(
    config,
    held: int,
    *,
    bits: float,
    group: int = 64,
    scale_bytes: float = 4,
    recent: int = 0,
    batch_size: int = 1,
    bytes_per_number: float = 4,
) -> float:
    """Bytes HELD after `held` tokens where keys and values are whole numbers of `bits` bits.

    Each `group` of whole numbers has a scale that turns them back into floats, and scales are
    counted. The `recent` newest tokens of each layer are still floats, as in KIVI (arXiv
    2402.02750), and so are the states of linear layers. A layer with a window keeps at most W - 1
    tokens, as in `cache_bytes`.

    Args:
        held: tokens fed so far, including the prompt's.
        bits: of a whole number; two numbers of 4 bits share a byte.
        group: whole numbers that share a scale: `head_dim` with a scale per token and head.
        scale_bytes: of one scale, with its zero point if it has one: 4 for a float32 scale.
        recent: tokens that aren't rounded yet.
        config, batch_size: see `cache_bytes`.
        bytes_per_number: of a float that isn't rounded.

    Raises:
        TypeError: `config` is not a config.
        ValueError: `bits` or `bytes_per_number` not above 0, `scale_bytes` below 0, `group` below 1
            or not a divisor of a layer's whole numbers, `recent` not between 0 and `held`, or
            anything that `cache_bytes` refuses.

    >>> kv.count.quantised_bytes(model.config, 10, bits=8, group=22), 10 * 264 * (1 + 4 / 22)
    (3120.0, 3120.0)
    """
    held, group = check_whole("held", held, least=0), check_whole("group", group, least=1)
    batch_size = check_whole("batch_size", batch_size, least=1)
    recent = check_whole("recent", recent, least=0)
    bits = check_number("bits", bits, above=0)
    bytes_per_number = check_number("bytes_per_number", bytes_per_number, above=0)
    scale_bytes = check_number("scale_bytes", scale_bytes, least=0)
    if recent > held:
        raise ValueError(f"recent: expected at most the {held} tokens held, but got {recent}")
    total = 0
    for layer in layers(config):
        kept = min(held, layer.window - 1) if layer.window else held
        floats = min(recent, kept)
        rounded = (kept - floats) * layer.per_token
        if rounded % group:
            raise ValueError(
                f"group: expected a divisor of the {rounded:,} whole numbers in layer "
                f"{layer.layer}, but got {group}"
            )
        total += rounded * bits / 8 + rounded // group * scale_bytes
        total += bytes_per_number * (floats * layer.per_token + layer.conv)
        total += FLOAT32 * layer.recurrent
    return batch_size * total if held else 0


def in_units(n_bytes: int) -> str:
    """Bytes as text, in units of 1,024 and three digits.

    Raises:
        ValueError: `n_bytes` isn't a finite number of at least 0.

    >>> in_units(46_080), in_units(1_384_120)
    ('45 KiB', '1.32 MiB')
    """
    n_bytes = check_number("n_bytes", n_bytes, least=0)
    for unit, size in UNITS.items():
        if n_bytes >= size:
            return f"{n_bytes / size:.{4 if n_bytes >= 1000 * size else 3}g} {unit}"
    return "1 byte" if n_bytes == 1 else f"{n_bytes} bytes"


def _sum_bytes(config, tokens, spared, batch_size, bytes_per_number):
    """Bytes with `tokens` in each layer, or at most W - `spared` in a window of W."""
    batch_size = check_whole("batch_size", batch_size, least=1)
    bytes_per_number = check_number("bytes_per_number", bytes_per_number, above=0)
    total = 0
    for layer in layers(config):
        kept = min(tokens, layer.window - spared) if layer.window else tokens
        total += bytes_per_number * (kept * layer.per_token + layer.conv)
        total += FLOAT32 * layer.recurrent
    return batch_size * total


def _triangle(n):
    return n * (n + 1) // 2
