"""Count pages, and the bytes they take: `kv.count.pages_needed` and `kv.count.paged_bytes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvviz.arguments import check_number, check_whole, describe
from kvviz.layer_caches import layers


def pages_needed(held: int | Sequence[int], page_size: int, *, prefix: int = 0) -> int:
    """Pages that texts of these lengths take, where a page holds tokens of one text.

    The full pages of a beginning that all texts have in common are counted once. A page that isn't
    full holds the rest of that beginning and then a text's own tokens, so each text has its own.

    Args:
        held: tokens held of one text, or of each of several.
        page_size: tokens in a page.
        prefix: how many tokens, from the first one on, are the same in all of them.

    Raises:
        ValueError: a length or `prefix` is below 0, `page_size` is below 1, or a text is shorter
            than the prefix.

    >>> kv.count.pages_needed(33, 16)
    3
    >>> kv.count.pages_needed([33, 40], 16), kv.count.pages_needed([33, 40], 16, prefix=32)
    (6, 4)
    """
    lengths, prefix = _check_lengths(held), check_whole("prefix", prefix, least=0)
    page_size = check_whole("page_size", page_size, least=1)
    if lengths and min(lengths) < prefix:
        raise ValueError(f"prefix: expected at most {min(lengths)}, the shortest, but got {prefix}")
    full = prefix // page_size if lengths else 0
    own = [-(-length // page_size) - full for length in lengths if length > prefix]
    # Texts that end with the prefix have no token of their own: one last page does for all.
    ended = -(-prefix // page_size) - full if prefix in lengths else 0
    return full + sum(own) + ended


def paged_bytes(
    config,
    held: int | Sequence[int],
    page_size: int,
    *,
    prefix: int = 0,
    bytes_per_number: float = 4,
) -> float:
    """Bytes ALLOCATED for these texts in pages, the empty cells of their last pages included.

    `cache_bytes` counts what's HELD. A page has room for the keys and values of `page_size` tokens
    in all layers, so this is what the pages in use of a `PagedKVCache` take.

    Args:
        config, bytes_per_number: see `cache_bytes`.
        held, page_size, prefix: see `pages_needed`.

    Raises:
        TypeError: `config` is not a config.
        ValueError: anything that `pages_needed` or `layers` refuses, `bytes_per_number` not above
            0, or a layer with a window or a state, which engines keep in pages of another size.

    >>> kv.count.paged_bytes(model.config, 10, 16), kv.count.cache_bytes(model.config, 10)
    (16896, 10560)
    """
    bytes_per_number = check_number("bytes_per_number", bytes_per_number, above=0)
    kept = layers(config)
    if others := [each.kind for each in kept if each.kind != "full_attention"]:
        raise ValueError(f"expected layers that attend to all tokens, but got {others[0]}")
    n_pages = pages_needed(held, page_size, prefix=prefix)
    return n_pages * int(page_size) * bytes_per_number * sum(each.per_token for each in kept)


def _check_lengths(held) -> list[int]:
    """One length or several, as a list."""
    if isinstance(held, Mapping):
        raise ValueError(f"held: expected lengths, but got {describe(held)}")
    is_one = isinstance(held, str | bytes) or getattr(held, "shape", None) == ()
    if is_one or not isinstance(held, Iterable):
        held = [held]
    return [check_whole("held", length, least=0) for length in held]
