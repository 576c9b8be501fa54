"""Try a cache class by hand, without a forge, to see which slot a write lands in.

Only asked after something went wrong: it names a mistake and never finds one.
"""

from __future__ import annotations

import torch

from kvviz.checking.causes import Cause
from kvviz.checking.contract import copy_entry, describe, parts
from kvviz.forge import KVEntry


def probe_cache(cache_class, n_layers: int, shape) -> Cause | None:
    """What `get` returns before the first write, twice in a row, and of each layer's own entry.

    `shape` is (G, D). May raise whatever the class raises.
    """
    cache, seeded = cache_class(n_layers), torch.Generator().manual_seed(0)
    for layer in range(n_layers):
        first = cache.get(layer)
        if first is not None and not is_empty(first):
            if _is_shared(
                cache_class,
                n_layers,
                KVEntry(*torch.randn(2, 1, shape[0], 3, shape[1], generator=seeded)),
            ):
                says = "a new cache held what had been written to another"
                return Cause("state shared between caches", says)
            says = f"get({layer}) returned {describe(first)} before anything was written"
            return Cause("not empty at first", says, layer=layer)
    n_heads, width = shape
    size = (n_layers, 2, 1, n_heads, 3, width)
    entries = [KVEntry(*pair) for pair in torch.randn(size, generator=seeded)]
    for layer, entry in enumerate(entries):
        cache.update(layer, KVEntry(*(x.clone() for x in entry)))
        if layer == 0 and not _reads_alike(copy_entry(cache.get(0)), copy_entry(cache.get(0))):
            says = "get(0) was called twice in a row, and returned two different things"
            return Cause("two reads differ", says)
    return _name_owners([_owners(cache.get(layer), entries) for layer in range(n_layers)])


def _is_shared(cache_class, n_layers: int, entry) -> bool:
    """Whether what is written to one cache comes out of a new one."""
    cache_class(n_layers).update(0, KVEntry(*(x.clone() for x in entry)))
    found = copy_entry(cache_class(n_layers).get(0))
    return found is not None and all(map(_is_equal, found, entry))


def _name_owners(owners) -> Cause | None:
    """The cause, from which layer's keys and values each layer was given; None for unknown."""
    found = [layer for pair in owners for layer in pair]
    if None not in found and len(set(found)) == 1 and len(owners) > 1:
        says = f"every layer was given what had been stored for layer {found[0]}"
        return Cause("one slot for all layers", says)
    for layer, (keys_of, values_of) in enumerate(owners):
        if keys_of is None or values_of is None or keys_of == values_of == layer:
            continue
        if keys_of == values_of:
            says = f"layer {layer} was given what had been stored for layer {keys_of}"
            return Cause("another layer's slot", says, layer=layer)
        name, other = ("values", values_of) if keys_of == layer else ("keys", keys_of)
        says = f"layer {layer} was given the {name} of layer {other}"
        return Cause(f"{name} of another layer", says, layer=layer)
    return None


def _owners(entry, entries):
    """Which layer's keys, and which layer's values, an entry has; None for neither's."""
    found = parts(entry) or (None, None)
    return tuple(
        next((i for i, each in enumerate(entries) if _is_equal(x, each[part])), None)
        for part, x in enumerate(found)
    )


def _reads_alike(one, other) -> bool:
    """Whether two copies of an entry are equal to the bit; true if the first is none."""
    if one is None or other is None:
        return one is None
    pairs = zip(one, other, strict=True)
    return all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in pairs)


def is_empty(entry) -> bool:
    """Whether it is an entry of no tokens, which holds nothing."""
    found = parts(entry)
    return found is not None and all(x.numel() == 0 for x in found)


def _is_equal(x, y) -> bool:
    if x is None or x.shape != y.shape:
        return False
    return bool((x.to(y.dtype) - y).abs().max() <= 0.1 * y.abs().max())
