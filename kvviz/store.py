"""Read a cache of `transformers`: what it has seen, has room for, and weighs. It is not changed."""

from __future__ import annotations

import torch


def after_pass(output, given):
    """The store after a pass: what came out, else what went in (it is changed in place)."""
    parts = output.values() if isinstance(output, dict) else output
    parts = parts if not isinstance(parts, torch.Tensor) else ()
    return next((part for part in parts if hasattr(part, "get_seq_length")), given)


def _attention_layers(cache):
    """The store's layers that hold keys and values, by number."""
    layers = enumerate(getattr(cache, "layers", ()))
    return {number: layer for number, layer in layers if hasattr(layer, "get_seq_length")}


def seen(cache):
    """Tokens each layer has taken in so far, as plain ints."""
    return {n: int(layer.get_seq_length()) for n, layer in _attention_layers(cache).items()}


def slots(cache):
    """How many tokens a preallocated store has room for; None where it grows or slides."""
    full = [layer for layer in _attention_layers(cache).values() if not layer.is_sliding]
    room = max((int(layer.get_max_length()) for layer in full), default=-1)
    return room if room > 0 else None


def n_bytes(cache):
    """Bytes of all tensors that the store keeps."""
    names = ("keys", "values", "conv_states", "recurrent_states")
    kept = [getattr(layer, name, None) for layer in getattr(cache, "layers", ()) for name in names]
    flat = [t for part in kept for t in (part.values() if isinstance(part, dict) else [part])]
    return sum(t.nbytes for t in flat if isinstance(t, torch.Tensor))
