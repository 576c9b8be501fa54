"""Broken caches, each one a real mistake: `KVCache` or `Forge` with one method changed.

`GALLERY` holds them by name. A broken forge gets its weights the way a correct one does, from
`small` or `from_pretrained`.

>>> from kvviz.forge import KVCache
>>> cache = GALLERY["written twice"].cache_class(4)
>>> logits = kv.Forge.small()(ids, cache)
>>> cache.held
7
"""

from typing import NamedTuple

import torch

from kvviz.forge import Forge, KVCache, KVEntry, causal_mask


class Fault(NamedTuple):
    """A mistake and the classes that make it; mistakes of one `group` can leave the same tensors.

    >>> kv.faults.stale_cache.says
    'Emptying the cache empties nothing: the next text is appended to the last one.'
    """

    name: str
    group: str
    cache_class: type[KVCache]
    forge_class: type[Forge]
    says: str


GALLERY: dict[str, Fault] = {}


def _override(method, group=None):
    """Replace this method, in a new subclass, with the function below, which names the fault."""
    base = KVCache if hasattr(KVCache, method.__name__) else Forge

    def broken(function):
        name, says = function.__name__.replace("_", " "), function.__doc__
        kind = type(function.__name__, (base,), {method.__name__: function, "__doc__": says})
        classes = (kind, Forge) if base is KVCache else (KVCache, kind)
        GALLERY[name] = Fault(name, group or name, *classes, says)
        return GALLERY[name]

    return broken


@_override(Forge.positions, group="key at position 0")
def position_restarts(self, t, pos_start):
    """Every call starts at position 0: a token's offset in the call is taken for its position."""
    return Forge.positions(self, t, 0)


@_override(Forge.positions)
def position_counted_twice(self, t, pos_start):
    """A new token counts as held and as new: after the prompt, positions are one too high."""
    return Forge.positions(self, t, pos_start + 1 if pos_start else 0)


@_override(Forge.positions)
def counter_left_behind(self, t, pos_start):
    """Positions come from a counter beside the cache, which emptying the cache doesn't reset."""
    self.current_pos = getattr(self, "current_pos", 0) + t
    return Forge.positions(self, t, self.current_pos - t)


@_override(Forge.append, group="key at position 0")
def keys_stored_before_rotation(self, past, new):
    """In decode, the key is stored unrotated, which makes it a key at position 0."""
    if past is not None:  # undo the new keys' rotation
        positions = self.positions(new.keys.shape[2], past.keys.shape[2])
        new = new._replace(keys=self.rotate(new.keys, self.rotation(-positions)))
    return Forge.append(self, past, new)


@_override(Forge.append)
def keys_rotated_twice(self, past, new):
    """Keys are rotated when they're stored, and rotated again each time they're read."""
    if past is not None:
        positions = self.positions(past.keys.shape[2], 0)
        past = past._replace(keys=self.rotate(past.keys, self.rotation(positions)))
    return Forge.append(self, past, new)


@_override(Forge.append, group="own key missing")
def new_token_not_appended(self, past, new):
    """In decode, the result of the concatenation is dropped: only the prompt is ever held."""
    decode = past is not None and new.keys.shape[2] == 1
    return past if decode else Forge.append(self, past, new)


@_override(Forge.attend, group="own key missing")
def own_key_left_out(self, layer, query, keys, values, mask):
    """In decode, a token attends before its own key and value are appended."""
    end = -1 if query.shape[2] == 1 < keys.shape[2] else None
    return Forge.attend(self, layer, query, keys[:, :, :end], values[:, :, :end], mask)


@_override(Forge.append, group="keys apart from their values")
def keys_in_front(self, past, new):
    """New keys go in front of the past and new values behind it: no key finds its own value."""
    entry = Forge.append(self, past, new)
    return entry if past is None else KVEntry(Forge.append(self, new, past).keys, entry.values)


@_override(Forge.append, group="wrong order")
def keys_and_values_in_front(self, past, new):
    """New keys and values go in front of the past: harmless to one query, as sums have no order."""
    return new if past is None else Forge.append(self, new, past)


@_override(Forge.append, group="wrong order")
def keys_and_values_reversed(self, past, new):
    """Everything comes out last first: harmless to one query, but a chunk's mask needs order."""
    entry = Forge.append(self, past, new)
    return entry if past is None else KVEntry(*(x.flip(2) for x in entry))


@_override(KVCache.update)
def write_never_happens(self, layer, entry):
    """Attention hands back the longer keys and values, and nobody puts them into the slot."""


@_override(KVCache.update)
def written_twice(self, layer, entry):
    """The newest token goes into the cache twice."""
    KVCache.update(self, layer, KVEntry(*(torch.cat([x, x[:, :, -1:]], dim=2) for x in entry)))


@_override(KVCache.update)
def moved_but_not_rotated_again(self, layer, entry):
    """The oldest tokens are dropped and the rest renumbered, but their keys stay as they were."""
    KVCache.update(self, layer, KVEntry(*(x[:, :, -3:] for x in entry)))


@_override(KVCache.update)
def keys_and_values_swapped(self, layer, entry):
    """Keys go where the values belong, and values go where the keys belong."""
    KVCache.update(self, layer, KVEntry(keys=entry.values, values=entry.keys))


@_override(KVCache.update)
def one_slot_for_all_layers(self, layer, entry):
    """Every layer reads what the last layer wrote in the call before."""
    KVCache.update(self, layer, entry)
    if layer == len(self) - 1:
        self._slots = [entry] * len(self)


@_override(KVCache.reset)
def stale_cache(self):
    """Emptying the cache empties nothing: the next text is appended to the last one."""


@_override(Forge.mask, group="mask missing")
def prefill_without_a_mask(self, t, pos_start, pos_end, device):
    """Several rows fed at once may see the tokens after them."""


@_override(Forge.mask, group="mask from the top left")
def one_query_under_a_causal_flag(self, t, pos_start, pos_end, device):
    """One query is masked like the first row of a square: it sees only the first key."""
    first = torch.arange(pos_end, device=device)[None] == 0
    return first if t == 1 else causal_mask(t, pos_start, pos_end, device)


@_override(Forge.mask, group="mask from the top left")
def top_left_mask_for_a_chunk(self, t, pos_start, pos_end, device):
    """A chunk's triangle starts at the first key: its first row sees one of all the keys held."""
    return None if t == 1 else torch.ones(t, pos_end, device=device).tril().bool()


@_override(Forge.mask)
def window_nobody_asked_for(self, t, pos_start, pos_end, device):
    """Each row sees only the last four columns."""
    rows = torch.arange(pos_start, pos_end, device=device)[:, None]
    distance = rows - torch.arange(pos_end, device=device)
    return (distance >= 0) & (distance < 4)


@_override(Forge.mask)
def first_column_dropped(self, t, pos_start, pos_end, device):
    """Later calls don't see the first column, where most heads put the attention they can spare."""
    rows = torch.arange(pos_start, pos_end, device=device)[:, None]
    columns = torch.arange(pos_end, device=device)
    return (columns <= rows) & (columns >= min(pos_start, 1))


@_override(Forge.forward)
def cache_never_read(self, ids, cache=None):
    """The cache is filled but never read: every call starts over with the whole text."""
    if cache is None:
        return Forge.forward(self, ids)
    self.text = torch.cat([self.text, ids], dim=1) if cache.held else ids
    cache.reset()
    return Forge.forward(self, self.text, cache)[:, -ids.shape[1] :]


@_override(KVCache.update, group="precision")
def kept_in_bfloat16(self, layer, entry):
    """Kept with 8 significant bits, in half the bytes of float32."""
    KVCache.update(self, layer, KVEntry(*(x.bfloat16().to(x.dtype) for x in entry)))


@_override(KVCache.update, group="precision")
def kept_in_float16(self, layer, entry):
    """Kept with 11 significant bits, in half the bytes of float32."""
    KVCache.update(self, layer, KVEntry(*(x.half().to(x.dtype) for x in entry)))


@_override(KVCache.update, group="precision")
def kept_in_8_bits(self, layer, entry):
    """Kept as whole numbers up to 127, with one scale per key and per value."""
    kept = [(x / (scale := x.abs().amax(-1, keepdim=True) / 127)).round() * scale for x in entry]
    KVCache.update(self, layer, KVEntry(*kept))


@_override(KVCache.update, group="precision")
def scale_along_the_wrong_axis(self, layer, entry):
    """Values in 8 bits share each channel's scale with all other tokens: a larger one moves it."""
    scale = entry.values.abs().amax(2, keepdim=True) / 127
    KVCache.update(self, layer, KVEntry(entry.keys, (entry.values / scale).round() * scale))
