"""Write what an engine did to one `.npz` file, and read it back.

The steps' numbers and the requests are one piece of JSON, named "serving"; each square of
attention is an array named after its step and layer, such as "3/attention/0".
"""

from __future__ import annotations

import io
import json
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvviz import files
from kvviz.arguments import check_whole
from kvviz.recording.serving_checks import check_requests, check_step
from kvviz.recording.serving_step import ServingRequest, ServingStep

VERSION = 1
_TUPLES = ("free", "cached", "reserved", "lent", "waiting", "preempted", "finished")
_BY_PAGE = ("owners", "fill", "windows")
_GROUPS = ("requests", "idle")


class SavedServing(NamedTuple):
    """What a file holds: the steps, the requests' fields, each token's text, the run's limit."""

    steps: list[ServingStep]
    requests: list[dict]
    texts: dict[int, str]
    max_bytes: int


def write_serving(path, steps, requests, texts: dict[int, str], max_bytes: int) -> Path:
    """Write steps to `path`; the file is complete, or it is not there.

    Raises:
        ValueError: the name doesn't end in .npz.
        OSError: the file can't be written.
    """
    path = files.to_path(path, ".npz")
    arrays = {
        f"{step.index}/attention/{layer}": weights
        for step in steps
        for layer, weights in (step.attention or {}).items()
    }
    meta = {
        "kvviz": VERSION,
        "steps": [_list_fields(step) for step in steps],
        "requests": [asdict(each) for each in requests],
        "texts": texts,
        "max_bytes": max_bytes,
    }
    content = io.BytesIO()
    np.savez_compressed(content, serving=json.dumps(meta), **arrays)
    return files.write_whole(path, content.getvalue())


def _list_fields(step):
    """A step's fields, all but its attention."""
    fields = {name: getattr(step, name) for name in ("index", "engine", "page_size", "n_pages")}
    fields |= {name: getattr(step, name) for name in (*_TUPLES, *_BY_PAGE)}
    fields |= {name: [asdict(each) for each in getattr(step, name)] for name in _GROUPS}
    return fields | {"has_attention": step.attention is not None}


def read_serving(path) -> SavedServing:
    """Read what `write_serving` wrote.

    Raises:
        OSError: there is no such file, it's a folder, or it can't be read.
        ValueError: it is not a recording of an engine, one of another version, or one whose fields
            do not agree.
    """
    path = files.check_file(files.to_path(path))
    with open(path, "rb") as opened:
        return _read(path, opened)


def _read(path, opened) -> SavedServing:
    try:
        with np.load(opened, allow_pickle=False) as file:
            if "serving" not in file.files:
                raise ValueError("there is no recording of an engine in it")
            meta = json.loads(str(file["serving"]))
            if meta["kvviz"] != VERSION:
                raise ValueError(f"expected version {VERSION}, but got {meta['kvviz']!r}")
            squares = _read_squares(file, len(meta["steps"]))
        steps = []
        for fields, attention in zip(meta["steps"], squares, strict=True):
            steps.append(_restore_step(fields, attention))
            check_step(steps[-1], len(steps) - 1)
        requests = [_restore_request(fields) for fields in meta["requests"]]
        check_requests(requests, steps)
        texts = {int(token): text for token, text in meta["texts"].items()}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("texts: expected the text of each token")
        check_whole("max_bytes", meta["max_bytes"], least=0)
        return SavedServing(steps, requests, texts, meta["max_bytes"])
    except Exception as error:
        name = "a recording that ServingRun.save wrote"
        why = textwrap.shorten(str(error) or type(error).__name__, 200, placeholder=" ...")
        raise ValueError(f"{path} is not {name} ({why})") from error


def _read_squares(file, n_steps):
    """Each step's attention, by layer."""
    squares = [{} for _ in range(n_steps)]
    for name in file.files:
        if name != "serving":
            index, kind, layer = name.split("/")
            if kind != "attention":
                raise ValueError(f"{name}: expected attention")
            squares[int(index)][int(layer)] = file[name]
    return squares


def _restore_step(fields, attention):
    fields = dict(fields)
    if bool(attention) and not fields["has_attention"]:
        raise ValueError(f"step {fields['index']}: attention that it doesn't mention")
    fields["attention"] = attention if fields.pop("has_attention") else None
    for name in _TUPLES:
        fields[name] = tuple(fields[name])
    for name in _BY_PAGE:
        fields[name] = {int(key): value for key, value in fields[name].items()}
    fields["owners"] = {page: tuple(names) for page, names in fields["owners"].items()}
    for name in _GROUPS:
        fields[name] = tuple(ServingRequest(**_restore_request(each)) for each in fields[name])
    return ServingStep(**fields)


def _restore_request(fields):
    """Lists become tuples."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
