"""What each method is called with and must return; what came instead, in words.

A problem is (name of the cause, what is said, layer), or None.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.forge import KVEntry
from kvviz.words import pluralize

CALLED = {
    "__init__": "Your cache is made by calling its class with the number of layers: its "
    "`__init__` takes n_layers.",
    "get": "`get` is called as get(layer), with the layer's number.",
    "update": "`update` is called as update(layer, entry), with the layer's number and one "
    "KVEntry of keys and values.",
    "reset": "`reset` is called without arguments.",
    "crop": "`crop` is called as crop(-n): a negative number, of the tokens to take out.",
    "positions": "`positions` is called as positions(t, pos_start).",
    "mask": "`mask` is called as mask(t, pos_start, pos_end, device).",
    "append": "`append` is called as append(past, new), with two KVEntry; past may be None.",
    "attend": "`attend` is called as attend(layer, query, keys, values, mask).",
    "forward": "`forward` is called as forward(ids, cache).",
}
UNEXPECTED = "unexpected return value"


def parts(entry) -> tuple[Tensor, Tensor] | None:
    """Keys and values of an entry, or of a tuple of both; None if it's neither."""
    try:
        found = entry[:2] if type(entry) is tuple else (entry.keys, entry.values)
        keys, values = found
    except Exception:
        return None
    return (keys, values) if isinstance(keys, Tensor) and isinstance(values, Tensor) else None


def copy_entry(entry) -> KVEntry | None:
    """A float32 copy of an entry; None if it is no entry."""
    found = parts(entry)
    if found is None or any(x.ndim != 4 for x in found):
        return None
    return Stored(*(x.detach().to("cpu", torch.float32, copy=True) for x in found)).of(found)


class Stored(KVEntry):
    """A copy that remembers the kind of number it was taken from."""

    dtype: torch.dtype | None = None

    def of(self, found):
        """Remember the dtype of keys and values."""
        self.dtype = found[0].dtype if found[0].dtype != torch.float32 else found[1].dtype
        return self


def is_filled(entry) -> bool:
    """Whether it is an entry that holds at least one token."""
    return entry is not None and entry.keys.shape[2] > 0


def is_prefix(entry, longer, *, whole=False) -> bool:
    """Whether an entry's columns are the first ones of a longer entry, or all of them."""
    if longer is None:
        return not whole
    for x, y in zip(entry, longer, strict=True):
        if not whole:
            y = y[:, :, : x.shape[2]]
        if x.dtype == y.dtype and torch.equal(x, y):  # as it nearly always is
            continue
        if x.shape != y.shape or not (x - y).abs().max() <= 1e-5 * y.abs().max():
            return False
    return True


def describe(value) -> str:
    """A value in a few words: its type, and the shapes or types inside."""
    kind = type(value).__name__
    if isinstance(value, Tensor):
        return f"a tensor of {name_dtype(value.dtype)}, shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)) and len(value) <= 3:
        return f"{kind} of {', '.join(name_type(part) for part in value)}"
    return "None" if value is None else f"{kind}"


def name_type(value) -> str:
    """What a value is, in one word."""
    return "None" if value is None else type(value).__name__


def name_dtype(dtype) -> str:
    """`torch.float64` as "float64"."""
    return str(dtype).removeprefix("torch.")


def entry_problem(layer, entry, stored):
    """What is wrong with what `get` returned; `stored` is what `update` was given last."""
    if entry is None:
        return None
    call, found = f"get({layer}) returned", parts(entry)
    if found is None or any(x.ndim != 4 for x in found):
        if found and stored:
            says = f"{call} keys of shape {tuple(found[0].shape)}; "
            says += f"update was given {tuple(stored[0].shape)}"
            return "entry of another shape", says, layer
        is_plain = isinstance(entry, (tuple, list, dict, int, float, str))
        if stored is None and is_plain and not _has_tensor(entry):
            says = f"{call} {describe(entry)} before anything was written, expected None"
            return "not empty at first", says, layer
        return UNEXPECTED, f"{call} {describe(entry)}, expected a KVEntry of two tensors", layer
    keys, values = found
    if keys.shape[2] != values.shape[2]:
        return _unequal(call, layer, found, stored)
    if stored is None and not keys.shape[2]:
        says = f"{call} an entry of no tokens before anything was written, expected None"
        return "not empty at first", says, layer
    if stored is None:
        return None
    for name, x, was in zip(("keys", "values"), found, stored, strict=True):
        if x.shape[:2] != was.shape[:2] or x.shape[3] != was.shape[3]:
            came, gave = tuple(x.shape), tuple(was.shape)
            says = f"{call} {name} of shape {came}; update was given {gave}"
            return "entry of another shape", says, layer
    if (came := keys.dtype if keys.dtype != torch.float32 else values.dtype) != stored.dtype:
        says = f"{call} {name_dtype(came)}; update was given {name_dtype(stored.dtype)}"
        return "entry in another dtype", says, layer
    return None


def _has_tensor(entry) -> bool:
    inside = list(entry.values()) if isinstance(entry, dict) else entry
    return isinstance(inside, (tuple, list)) and any(isinstance(x, Tensor) for x in inside)


def _unequal(call, layer, found, stored):
    """Keys and values of different lengths: which of them is short, and who made it so."""
    n_keys, n_values = (x.shape[2] for x in found)
    says = f"{call} {pluralize(n_keys, 'key')} and {pluralize(n_values, 'value')}"
    if stored is not None:
        were = tuple(x.shape[2] for x in stored)
        says += f"; update was given {were[0]} and {were[1]}"
    return "keys and values of unequal length", says, layer


def return_problem(method, value, arguments=()):
    """What is wrong with what a method of the forge returned."""
    if method == "attend":
        if type(value) in (tuple, list) and len(value) == 2 and isinstance(value[0], Tensor):
            return None
        return UNEXPECTED, f"attend returned {describe(value)}, expected (output, weights)", None
    if method == "append" and (type(value) in (tuple, list) or parts(value) is None):
        says = f"append returned {describe(value)}: return a KVEntry, KVEntry(keys, values)"
        return UNEXPECTED, says, None
    if method == "append" and (lengths := [x.shape[2] for x in parts(value)])[0] != lengths[1]:
        says = (
            f"append returned {pluralize(lengths[0], 'key')} and {pluralize(lengths[1], 'value')}"
        )
        return "keys and values of unequal length", says, None
    if method == "mask" and value is not None:
        if not isinstance(value, Tensor) or value.dtype != torch.bool:
            says = f"mask returned {describe(value)}, expected bool, True where a row may see"
            return UNEXPECTED, says, None
        if len(arguments) == 4 and value.shape != (expected := (arguments[0], arguments[2])):
            says = f"mask returned {describe(value)}, expected shape {expected}"
            return UNEXPECTED, says, None
    if method == "positions" and not isinstance(value, Tensor):
        says = f"positions returned {describe(value)}: return a tensor, (t,) int64"
        return UNEXPECTED, says, None
    if method == "positions" and value.ndim != 1:
        shape = f"a tensor of shape {tuple(value.shape)}"
        return UNEXPECTED, f"positions returned {shape}: return a tensor, (t,) int64", None
    return None


def output_problem(output, shape):
    """What is wrong with what `forward` returned."""
    if isinstance(output, Tensor) and output.shape == shape:
        return None
    came = describe(output)
    return UNEXPECTED, f"forward returned {came}, expected logits of shape {shape}", None
