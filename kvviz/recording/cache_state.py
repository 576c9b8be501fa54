"""Read a cache: how many tokens it took in, how many it has room for, how many bytes it takes.

A cache is one of `transformers`, or has a `get`, as the forge's. It is only read.
"""

from __future__ import annotations

import types

import torch
from transformers import Cache, EncoderDecoderCache, PreTrainedConfig


def find_cache(output, given):
    """The cache after a forward pass: the one returned, or `given`, changed in place."""
    parts = output.values() if isinstance(output, dict) else output
    parts = parts if isinstance(output, (dict, tuple)) else ()
    return next((part for part in parts if isinstance(part, Cache)), given)


def _list_layers(cache) -> dict[int, object]:
    """The layers of a cache of the library, by number; of any other cache, none."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    return dict(enumerate(cache.layers)) if isinstance(cache, Cache) else {}


def _list_entries(cache, n_layers) -> dict[int, object]:
    """What another cache gives for each layer, as the forge's gives (keys, values)."""
    if cache is None or isinstance(cache, Cache):
        return {}
    if hasattr(cache, "get"):
        return {n: entry for n in range(n_layers) if (entry := cache.get(n)) is not None}
    raise TypeError(
        f"{type(cache).__name__} is unsupported: record reads a Cache of transformers, or a cache "
        "with get(layer), as the Forge's"
    )


def count_held(cache, n_layers: int) -> dict[int, int]:
    """Tokens that each layer with keys and values has taken in so far, as plain ints."""
    layers, entries = _list_layers(cache).items(), _list_entries(cache, n_layers).items()
    held = {n: int(each.get_seq_length()) for n, each in layers if hasattr(each, "get_seq_length")}
    pairs = {n: each for n, each in entries if isinstance(each, tuple) and len(each) == 2}
    # Keys are (B, G, held, D).
    keys = {n: pair[0] for n, pair in pairs.items() if isinstance(pair[0], torch.Tensor)}
    return held | {n: each.shape[-2] for n, each in keys.items()}


def count_columns(cache, fed: int) -> dict[int, tuple[int, int]]:
    """How many columns each layer of the library's cache will have, and where the last one ends."""
    columns = {}
    for n, layer in _list_layers(cache).items():
        if hasattr(layer, "get_mask_sizes"):
            n_columns, first = map(int, layer.get_mask_sizes(fed))
            columns[n] = n_columns, first + n_columns
    return columns


def list_written(cache) -> dict[int, str | None]:
    """The layers of the library's cache that hold keys, and what is odd about how they do."""
    written = {}
    for n, layer in _list_layers(cache).items():
        if not isinstance(keys := getattr(layer, "keys", None), torch.Tensor):
            continue
        written[n] = None
        if getattr(layer, "is_sliding", False):
            total, kept = int(layer.get_seq_length()), keys.shape[-2] if keys.ndim == 4 else 0
            if kept < min(total, int(layer.get_max_length()) - 1):
                written[n] = f"layer {n} of its cache keeps {total} tokens in its own way"
    return written


def count_slots(cache) -> int | None:
    """How many tokens a preallocated cache has room for; None for one that grows or slides."""
    layers = [each for each in _list_layers(cache).values() if hasattr(each, "get_seq_length")]
    full = [int(layer.get_max_length()) for layer in layers if not layer.is_sliding]
    room = max(full, default=-1)
    return room if room > 0 else None


def count_bytes(cache, n_layers: int) -> int | None:
    """Bytes of all tensors in the cache; None if it holds tokens, but no tensors can be found."""
    if isinstance(cache, Cache):
        root, is_empty = cache, not any(count_held(cache, n_layers).values())
    else:
        root = [*_list_entries(cache, n_layers).values()]
        is_empty = not root
    n_bytes = sum(tensor.nbytes for tensor in _list_tensors(root))
    return n_bytes if n_bytes or is_empty else None


_NO_PARTS = (torch.nn.Module, PreTrainedConfig, type, types.ModuleType, types.FunctionType)


def _list_tensors(root) -> list[torch.Tensor]:
    """Every tensor with axes that can be reached from an object, each once."""
    found, seen, ahead = [], {}, [root]
    while ahead:
        thing = ahead.pop()
        if id(thing) in seen or isinstance(thing, _NO_PARTS):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, torch.Tensor):
            found += [thing] if thing.ndim else []
        elif isinstance(thing, dict):
            ahead += thing.values()
        elif isinstance(thing, (list, tuple, set)):
            ahead += thing
        else:
            ahead += getattr(thing, "__dict__", {}).values()
    return found
