"""Greedy loops that handle a library's cache wrongly, written without knowledge of the check.

`WRONG`: the name that the check must give each; "not recognised" where no name fits.
"""

import torch
from transformers import DynamicCache


def _loop(model, ids, n, tamper=lambda cache: None, **extra):
    """Nothing wrong but `tamper`, done to the cache before each single token."""
    cache = _new(model)
    fed = ids
    with torch.no_grad():
        for step in range(n):
            if step:
                tamper(cache)
            more = {name: value(ids, fed) for name, value in extra.items()}
            out = model(input_ids=fed, cache=cache, **more)
            fed = out.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, fed], dim=1)
    return ids


def _new(model):
    """Nothing wrong: an empty cache for the model."""
    return DynamicCache(config=model.config)


def _each(cache, change):
    """Nothing wrong: puts `change` of keys and values in every layer."""
    for layer in cache.layers:
        layer.keys, layer.values = change(layer.keys), change(layer.values)


def drops_oldest(model, ids, n):
    """Keeps the last seven tokens: positions stand still and the start is gone."""
    return _loop(model, ids, n, lambda cache: _each(cache, lambda x: x[:, :, -7:]))


def swaps_layers(model, ids, n):
    """Exchanges layers 0 and 1 before each step."""

    def tamper(cache):
        cache.layers[0], cache.layers[1] = cache.layers[1], cache.layers[0]

    return _loop(model, ids, n, tamper)


def shares_values(model, ids, n):
    """The last layer's values are those of the layer below."""

    def tamper(cache):
        cache.layers[2].values = cache.layers[1].values

    return _loop(model, ids, n, tamper)


def rolls_keys(model, ids, n):
    """Keys roll by one column before each step, but values don't."""

    def tamper(cache):
        cache.layers[1].keys = cache.layers[1].keys.roll(1, dims=2)

    return _loop(model, ids, n, tamper)


def rolls_both(model, ids, n):
    """Keys and values roll together: same logits, but entries out of order."""
    return _loop(model, ids, n, lambda cache: _each(cache, lambda x: x.roll(1, dims=2)))


def bfloat16_values(model, ids, n):
    """Values go through bfloat16 in the last layer."""

    def tamper(cache):
        cache.layers[2].values = cache.layers[2].values.bfloat16().float()

    return _loop(model, ids, n, tamper)


def flips_heads(model, ids, n):
    """The two key/value heads of layer 1 are exchanged before each step."""

    def tamper(cache):
        cache.layers[1].keys = cache.layers[1].keys.flip(1)

    return _loop(model, ids, n, tamper)


def decays_in_place(model, ids, n):
    """Past values shrink by a thousandth at each step, in place."""

    def tamper(cache):
        cache.layers[0].values.mul_(0.999)

    return _loop(model, ids, n, tamper)


def forgets_once(model, ids, n):
    """Blanks the values of token 2 in layer 0 once, when the cache holds nine tokens."""

    def tamper(cache):
        if cache.layers[0].keys.shape[2] == 9:
            cache.layers[0].values[:, :, 2] = 0

    return _loop(model, ids, n, tamper)


def mask_with_hole(model, ids, n):
    """After the prompt the attention mask hides token 0; positions are right."""

    def seen(ids, fed):
        mask = torch.ones_like(ids)
        mask[:, 0] = int(fed.shape[1] > 1)
        return mask

    def positions(ids, fed):
        return torch.arange(ids.shape[1] - fed.shape[1], ids.shape[1])[None]

    return _loop(model, ids, n, attention_mask=seen, position_ids=positions)


def fills_twice(model, ids, n):
    """Right tokens, but the prompt is computed again, into a cache that is thrown away."""
    with torch.no_grad():
        model(input_ids=ids, cache=_new(model))
    return _loop(model, ids, n)


def tries_and_keeps(model, ids, n):
    """Tries the second best token at step 3 in the same cache and never rolls it back."""
    cache, fed = _new(model), ids
    with torch.no_grad():
        for step in range(n):
            out = model(input_ids=fed, cache=cache)
            if step == 3:
                model(input_ids=out.logits[:, -1].topk(2).indices[:, 1:], cache=cache)
            fed = out.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, fed], dim=1)
    return ids


WRONG = {
    drops_oldest: "cache went back",
    swaps_layers: "another layer's slot",
    shares_values: "values of another layer",
    rolls_keys: "keys apart from their values",
    rolls_both: "wrong order",
    bfloat16_values: "precision",
    flips_heads: "not recognised",
    decays_in_place: "not recognised",
    forgets_once: "not recognised",
    mask_with_hole: "first column dropped",
    fills_twice: "started over",
    tries_and_keeps: "another token fed",
}
