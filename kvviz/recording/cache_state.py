"""Read a cache: how many tokens it took in, how many it has room for, how many bytes it takes.

A cache is one of `transformers`, with its layers in `layers`, or the forge's, with a `get`. It is
only read.
"""

from __future__ import annotations

import torch


def find_cache(output, given):
    """The cache after a forward pass: the one returned, or `given`, changed in place."""
    parts = output.values() if isinstance(output, dict) else output
    parts = parts if not isinstance(parts, torch.Tensor) else ()
    return next((part for part in parts if hasattr(part, "get_seq_length")), given)


def _list_layers(cache, n_layers):
    """The cache's layers by number: objects of the library, or entries of the forge's cache."""
    if cache is None:
        return {}
    if hasattr(cache, "layers"):
        return dict(enumerate(cache.layers))
    return {n: entry for n in range(n_layers) if (entry := cache.get(n)) is not None}


def count_held(cache, n_layers: int) -> dict[int, int]:
    """Tokens that each layer with keys and values has taken in so far, as plain ints."""
    held = {}
    for n, layer in _list_layers(cache, n_layers).items():
        if hasattr(layer, "get_seq_length"):
            held[n] = int(layer.get_seq_length())
        elif isinstance(layer, tuple):  # the forge's (keys, values), each (B, G, held, D)
            held[n] = layer[0].shape[2]
    return held


def count_slots(cache, n_layers: int) -> int | None:
    """How many tokens a preallocated cache has room for; None for one that grows or slides."""
    layers = _list_layers(cache, n_layers).values()
    layers = [layer for layer in layers if hasattr(layer, "get_seq_length")]
    full = [int(layer.get_max_length()) for layer in layers if not layer.is_sliding]
    room = max(full, default=-1)
    return room if room > 0 else None


def count_bytes(cache, n_layers: int) -> int:
    """Bytes of all tensors in the cache."""
    names = ("keys", "values", "conv_states", "recurrent_states")
    layers = _list_layers(cache, n_layers).values()
    kept = [getattr(layer, name, None) for layer in layers for name in names]
    flat = [t for part in kept for t in (part.values() if isinstance(part, dict) else [part])]
    return sum(t.nbytes for t in flat if isinstance(t, torch.Tensor))
