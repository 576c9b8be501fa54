"""Read a store: what it has seen, has room for, and weighs. It is not changed."""

from __future__ import annotations

import torch


def after_pass(output, given):
    """The store after a pass: what came out, else what went in (it is changed in place)."""
    parts = output.values() if isinstance(output, dict) else output
    parts = parts if not isinstance(parts, torch.Tensor) else ()
    return next((part for part in parts if hasattr(part, "get_seq_length")), given)


def _layers(cache, n_layers):
    """The store's layers by number: objects of the library, or entries of the forge's cache."""
    if cache is None:
        return {}
    if hasattr(cache, "layers"):
        return dict(enumerate(cache.layers))
    return {n: entry for n in range(n_layers) if (entry := cache.get(n)) is not None}


def seen(cache, n_layers):
    """Tokens each layer with keys and values has taken in so far, as plain ints."""
    layers = _layers(cache, n_layers).items()
    counted = {n: layer for n, layer in layers if hasattr(layer, "get_seq_length")}
    filled = {n: entry for n, entry in layers if isinstance(entry, tuple)}
    return {n: int(layer.get_seq_length()) for n, layer in counted.items()} | {
        n: entry[0].shape[2] for n, entry in filled.items()
    }


def slots(cache, n_layers):
    """How many tokens a preallocated store has room for; None where it grows or slides."""
    layers = [
        layer for layer in _layers(cache, n_layers).values() if hasattr(layer, "get_seq_length")
    ]
    full = [int(layer.get_max_length()) for layer in layers if not layer.is_sliding]
    room = max(full, default=-1)
    return room if room > 0 else None


def n_bytes(cache, n_layers):
    """Bytes of all tensors that the store keeps."""
    names = ("keys", "values", "conv_states", "recurrent_states")
    layers = _layers(cache, n_layers).values()
    kept = [getattr(layer, name, None) for layer in layers for name in names]
    flat = [t for part in kept for t in (part.values() if isinstance(part, dict) else [part])]
    return sum(t.nbytes for t in flat if isinstance(t, torch.Tensor))
