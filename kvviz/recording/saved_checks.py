"""Check a saved run: every field of a step against the others, and against the steps before."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kvviz.arguments import is_whole
from kvviz.recording.step import KEEP


class _Sizes(NamedTuple):
    """What a step's tensors have to agree on."""

    sequences: int
    fed: int
    held: int

    @property
    def visible(self) -> int:
        return self.held + self.fed


def check_steps(steps: list[dict]):
    """Check the fields of all steps, as `Step` takes them.

    Raises:
        ValueError: a field that does not agree with the others, by step and name.
    """
    earlier: list[_Sizes] = []
    for index, fields in enumerate(steps):
        sizes = _check_tokens(index, fields)
        _check_counts(index, fields, sizes)
        _check_lineage(index, fields["lineage"], sizes, earlier)
        _check_kept(index, fields, sizes)
        earlier.append(sizes)


def _expect(is_right, index, name, came):
    if not is_right:
        raise ValueError(f"step {index}: {name} does not agree with the rest: {came}")


def _expect_tensor(index, name, tensor, dtype, *shape):
    """A tensor of this kind and shape; a tuple lists the sizes that an axis may have."""
    _expect(isinstance(tensor, torch.Tensor), index, name, type(tensor).__name__)
    options = [size if isinstance(size, tuple) else (size,) for size in shape]
    fits = tensor.ndim == len(shape) and all(
        size in allowed or None in allowed
        for size, allowed in zip(tensor.shape, options, strict=True)
    )
    _expect(fits and tensor.dtype == dtype, index, name, f"{tensor.dtype} {tuple(tensor.shape)}")


def _check_tokens(index, fields):
    ids, held = fields["token_ids"], fields["held_before"]
    _expect_tensor(index, "token_ids", ids, torch.int64, None, None)
    _expect(ids.numel() and ids.min() >= -1, index, "token_ids", tuple(ids.shape))
    _expect(is_whole(held) and held >= 0, index, "held_before", held)
    sizes = _Sizes(*ids.shape, held)
    _expect_tensor(index, "position_ids", fields["position_ids"], torch.int64, *ids.shape)
    if fields["pads"] is not None:
        shape = sizes.sequences, sizes.visible
        _expect_tensor(index, "pads", fields["pads"], torch.bool, *shape)
    return sizes


def _check_counts(index, fields, sizes):
    n_bytes, slots = fields["bytes"], fields["slots"]
    _expect(n_bytes is None or (is_whole(n_bytes) and n_bytes >= 0), index, "bytes", n_bytes)
    # A slot, or a column that is not a position, takes a byte at least.
    most = max(sizes.visible, n_bytes or 0)
    for name in ("before", "after"):
        held = fields[name]
        fits = all(is_whole(n) and 0 <= n <= most and layer >= 0 for layer, n in held.items())
        _expect(fits, index, name, held)
    held = fields["before"]
    _expect(sizes.held == max(held.values(), default=0), index, "held_before", held)
    _expect(n_bytes != 0 or not any(fields["after"].values()), index, "bytes", n_bytes)
    fits = slots is None or (is_whole(slots) and sizes.visible <= slots <= most)
    _expect(fits, index, "slots", slots)
    implementation = fields["implementation"]
    _expect(isinstance(implementation, str), index, "implementation", implementation)
    rows, columns = fields["rows_by_layer"], fields["columns_by_layer"]
    _expect(rows and rows.keys() == columns.keys(), index, "rows_by_layer", rows)
    for name, counted, limit in (("rows", rows, sizes.visible), ("columns", columns, most)):
        fits = all(is_whole(n) and 0 < n <= limit for n in counted.values())
        _expect(fits and min(counted) >= 0, index, f"{name}_by_layer", counted)
    groups = fields["kv_heads_by_layer"]
    fits = groups.keys() == columns.keys() and all(is_whole(n) and n > 0 for n in groups.values())
    _expect(fits, index, "kv_heads_by_layer", groups)
    widths = fields["widths_by_layer"]
    pairs = [pair for pair in widths.values() if isinstance(pair, list) and len(pair) == 2]
    fits = widths.keys() == columns.keys() and len(pairs) == len(widths)
    fits = fits and all(is_whole(n) and n > 0 for pair in pairs for n in pair)
    _expect(fits, index, "widths_by_layer", widths)
    gaps = fields["gaps"]
    fits = gaps.keys() <= columns.keys() and all(isinstance(gap, float) for gap in gaps.values())
    _expect(fits, index, "gaps", gaps)


def _check_lineage(index, lineage, sizes, earlier):
    n, fed, held = sizes
    for name in ("keys_known", "values_known"):
        _expect_tensor(index, name, getattr(lineage, name), torch.bool, n, held)
    _expect_tensor(index, "recomputed", lineage.recomputed, torch.bool, n, fed)
    _expect(len(lineage.parents) == n, index, "parents", lineage.parents)
    cache = lineage.cache
    _expect(cache is None or (is_whole(cache) and cache >= 0), index, "cache", cache)
    for parent in filter(None, lineage.parents):
        step, row = parent
        fits = is_whole(step) and is_whole(row) and 0 <= step < index
        fits = fits and 0 <= row < earlier[step].sequences and earlier[step].visible >= held
        _expect(fits, index, "parents", lineage.parents)
    for name in ("key_order", "value_order"):
        if (order := getattr(lineage, name)) is None:
            continue
        for tensor in order:
            _expect_tensor(index, name, tensor, torch.int64, n, sizes.visible)
        fits = order.rows.min() >= -1 and order.rows.max() < fed and order.tokens.min() >= -1
        _expect(fits, index, name, "a row or a token that is not there")


def _check_kept(index, fields, sizes):
    n, any_size = sizes.sequences, None
    for name, by_layer in fields["kept"].items():
        _expect(name in (*KEEP, "allowed"), index, "kept", name)
        for layer, tensor in by_layer.items():
            where = f"kept {name} of layer {layer}"
            if name == "logits":
                _expect(layer == -1, index, "kept logits", layer)
                _expect_tensor(index, "kept logits", tensor, torch.float32, n, any_size)
                continue
            _expect(layer in fields["columns_by_layer"], index, where, "there is no such layer")
            rows, columns = (fields[f"{axis}_by_layer"][layer] for axis in ("rows", "columns"))
            if name == "allowed":
                shape = (1, n), (any_size,), rows, columns
                _expect_tensor(index, where, tensor, torch.bool, *shape)
                continue
            last = {"attention": (rows, columns), "queries": (rows, any_size)}
            last |= {"outputs": last["queries"], "keys": (columns, any_size)}
            heads = fields["kv_heads_by_layer"][layer]
            n_heads = heads if name == "keys" else any_size
            shape = n, n_heads, *last.get(name, last["keys"])
            _expect_tensor(index, where, tensor, torch.float32, *shape)
            fits = tensor.shape[1] % heads == 0
            _expect(fits, index, where, f"{tensor.shape[1]} heads over {heads}")
    shown = [fields["kept"].get(name, {}).keys() for name in ("attention", "allowed")]
    _expect(shown[0] == shown[1] == fields["gaps"].keys(), index, "kept attention", [*shown[0]])
