"""Write the steps of a run to one `.npz` file, and read them back.

The counts are one piece of JSON, named "meta"; each tensor is an array named after its step and
field, such as "3/token_ids" or "3/kept/attention/0".
"""

from __future__ import annotations

import io
import json
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from kvviz import files
from kvviz.arguments import check_whole
from kvviz.recording.lineage import Lineage
from kvviz.recording.orders import Order
from kvviz.recording.saved_checks import check_steps

VERSION = 3
_COUNTS = ("held_before", "bytes", "slots", "implementation")
_COUNTS_BY_LAYER = (
    "before",
    "after",
    "gaps",
    "rows_by_layer",
    "columns_by_layer",
    "kv_heads_by_layer",
    "widths_by_layer",
)
_TENSORS = ("token_ids", "position_ids", "pads")
_LINEAGE_TENSORS = ("keys_known", "values_known", "recomputed")
_ORDERS = ("key_order", "value_order")


class Saved(NamedTuple):
    """What a file holds: each step's fields, the text of each token, and the run's limit."""

    steps: list[dict]
    texts: dict[int, str]
    max_bytes: int


def write_steps(path, steps, texts: dict[int, str], max_bytes: int) -> Path:
    """Write steps to `path`; the file is complete, or it is not there.

    Raises:
        ValueError: the name doesn't end in .npz.
        OSError: the file can't be written.
    """
    path = files.to_path(path, ".npz")
    arrays = {}
    for step in steps:
        arrays |= {f"{step.index}/{name}": array for name, array in _list_arrays(step)}
    counts = [
        {name: getattr(step, name) for name in (*_COUNTS, *_COUNTS_BY_LAYER)}
        | {"parents": step.lineage.parents, "cache": step.lineage.cache}
        for step in steps
    ]
    meta = {"kvviz": VERSION, "steps": counts, "texts": texts, "max_bytes": max_bytes}
    content = io.BytesIO()
    np.savez_compressed(content, meta=json.dumps(meta), **arrays)
    return files.write_whole(path, content.getvalue())


def _list_arrays(step):
    """Each tensor of a step, as (name, array)."""
    tensors = {name: getattr(step, name) for name in _TENSORS}
    tensors |= {name: getattr(step.lineage, name) for name in _LINEAGE_TENSORS}
    for name in _ORDERS:
        if (order := getattr(step.lineage, name)) is not None:
            tensors |= {f"{name}/{field}": tensor for field, tensor in order._asdict().items()}
    for name, by_layer in step.kept.items():
        tensors |= {f"kept/{name}/{layer}": tensor for layer, tensor in by_layer.items()}
    return [(name, tensor.numpy()) for name, tensor in tensors.items() if tensor is not None]


def read_steps(path) -> Saved:
    """Read what `write_steps` wrote.

    Raises:
        OSError: there is no such file, it's a folder, or it can't be read.
        ValueError: it is not a recording, one of another version, or one whose fields do not agree.
    """
    path = files.check_file(files.to_path(path))
    with open(path, "rb") as opened:
        return _read(path, opened)


def _read(path, opened) -> Saved:
    try:
        with np.load(opened, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            if meta["kvviz"] != VERSION:
                raise ValueError(f"expected version {VERSION}, but got {meta['kvviz']!r}")
            tensors = {str(n): {} for n in range(len(meta["steps"]))}
            for name in file.files:
                if name != "meta":
                    index, _, rest = name.partition("/")
                    tensors[index][rest] = torch.from_numpy(file[name])
        steps = [_restore(*both) for both in zip(meta["steps"], tensors.values(), strict=True)]
        check_steps(steps)
        texts = {int(token): str(text) for token, text in meta["texts"].items()}
        check_whole("max_bytes", meta["max_bytes"], least=0)
        return Saved(steps, texts, meta["max_bytes"])
    except Exception as error:
        why = textwrap.shorten(str(error) or type(error).__name__, 200, placeholder=" ...")
        raise ValueError(f"{path} is not a recording that Run.save wrote ({why})") from error


def _restore(counts, tensors):
    """The fields of a step, as `Step` takes them."""
    fields = {name: counts[name] for name in _COUNTS}
    for name in _COUNTS_BY_LAYER:
        fields[name] = {int(layer): value for layer, value in counts[name].items()}
    kept = {}
    for name in tensors:
        if name.startswith("kept/"):
            _, what, layer = name.split("/")
            kept.setdefault(what, {})[int(layer)] = tensors[name]
    lineage = Lineage(
        parents=[parent and tuple(parent) for parent in counts["parents"]],
        keys_known=tensors["keys_known"],
        values_known=tensors["values_known"],
        recomputed=tensors["recomputed"],
        key_order=_restore_order("key_order", tensors),
        value_order=_restore_order("value_order", tensors),
        cache=counts.get("cache"),  # not in files of before it was recorded
    )
    of_step = {name: tensors.get(name) for name in _TENSORS}
    return {**fields, **of_step, "kept": kept, "lineage": lineage}


def _restore_order(name, tensors):
    if f"{name}/rows" not in tensors:
        return None
    return Order(tokens=tensors[f"{name}/tokens"], rows=tensors[f"{name}/rows"])
