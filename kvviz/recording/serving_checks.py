"""Check a saved recording of an engine: every field of a step against the others."""

from __future__ import annotations

import numpy as np

from kvviz.arguments import is_whole
from kvviz.recording.serving_step import PHASES, ServingRequest, ServingStep

_SERVED = {"name", "engine", "prompt_ids", "new_ids", "prompt", "text", "finished", "seen", "fed"}


def check_step(step: ServingStep, index: int):
    """Check the fields of a step, the one with this number.

    Raises:
        ValueError: a field that does not agree with the others, by step and name.
    """

    def expect(is_right, name, came):
        if not is_right:
            raise ValueError(f"step {index}: {name} does not agree with the rest: {came}")

    for name, least in (("index", index), ("engine", 0), ("page_size", 1), ("n_pages", 1)):
        number = getattr(step, name)
        expect(is_whole(number) and number >= least, name, number)
    expect(step.index == index, "index", step.index)
    expect(step.requests, "requests", "nobody was fed")
    for each in step.holding:
        _check_request(step, each, expect)
    names = [each.name for each in step.holding]
    expect(len({*names}) == len(names), "requests", "two of one name")
    _check_names(step, expect)
    _check_pages(step, expect)
    _check_attention(step, expect)


def _check_request(step, each: ServingRequest, expect):
    where = f"request {each.name!r}"
    counts = each.rows, each.held_before, each.held
    expect(isinstance(each.name, str), where, each.name)
    expect(all(is_whole(n) and n >= 0 for n in counts), where, counts)
    expect(each.held == each.held_before + each.rows, where, f"held {each.held}")
    expect(each.phase in PHASES, where, f"phase {each.phase!r}")
    is_idle = each in step.idle
    expect((each.phase == "idle") == is_idle == (each.rows == 0), where, f"{each.rows} rows")
    expect(each.phase != "decode" or each.rows == 1, where, f"{each.rows} rows in decode")
    positions = tuple(range(each.held_before, each.held))
    expect(each.positions == positions, where, "its positions")
    ids = each.token_ids
    expect(len(ids) == each.rows and all(map(is_whole, ids)), where, f"{len(ids)} token ids")
    expect(not ids or min(ids) >= 0, where, "a negative token id")
    needed = -(-each.held // step.page_size)
    expect(len(each.pages) >= needed, where, f"{len(each.pages)} pages for {each.held} tokens")


def _check_names(step, expect):
    for name in ("waiting", "preempted", "finished"):
        names = getattr(step, name)
        expect(all(isinstance(each, str) for each in names), name, names)
        expect(len({*names}) == len(names), name, names)
    holding = {each.name for each in step.holding}
    expect(not holding & {*step.waiting}, "waiting", step.waiting)
    expect({*step.preempted} <= {*step.waiting}, "preempted", step.preempted)


def _check_pages(step, expect):
    owners: dict[int, list[str]] = {}
    for each in step.holding:
        expect(all(is_whole(page) and page >= 0 for page in each.pages), "pages", each.pages)
        expect(len({*each.pages}) == len(each.pages), "pages", each.pages)
        for page in each.pages:
            owners.setdefault(page, []).append(each.name)
    same = step.owners.keys() == owners.keys()
    same = same and all(sorted(step.owners[page]) == sorted(owners[page]) for page in owners)
    expect(same, "owners", [*step.owners])
    groups = [*step.owners], step.cached, step.free, step.lent, step.reserved
    pages = [page for group in groups for page in group]
    expect(all(is_whole(page) and page >= 0 for page in pages), "pages", "a page's number")
    expect(len({*pages}) == len(pages), "pages", "one page in two places")
    usable = len(pages) - len(step.reserved)
    expect(usable == step.n_pages, "n_pages", f"{step.n_pages}, but {usable} are listed")
    expect(step.fill.keys() == {*step.owners, *step.cached}, "fill", [*step.fill])
    expect(step.fill == _count_fill(step), "fill", "the cells that requests fill")


def _count_fill(step):
    """Cells filled in each page, from what the requests hold; a cached page is full."""
    size, fill = step.page_size, dict.fromkeys(step.cached, step.page_size)
    for each in step.holding:
        for number, page in enumerate(each.pages):
            filled = min(size, max(0, each.held - number * size))
            fill[page] = max(fill.get(page, 0), filled)
    return fill


def _check_attention(step, expect):
    windows = step.windows
    fits = all(is_whole(n) and n > 0 and layer >= 0 for layer, n in windows.items())
    expect(fits, "windows", windows)
    if step.attention is None:
        return
    for layer, weights in step.attention.items():
        shape = step.rows, len(step.list_columns(layer))
        fits = isinstance(weights, np.ndarray) and weights.dtype == np.float32
        fits = fits and weights.ndim == 3 and weights.shape[1:] == shape and layer >= 0
        expect(fits, f"attention of layer {layer}", getattr(weights, "shape", None))


def check_requests(requests: list[dict], steps: list[ServingStep]):
    """Check the requests' fields, as `ServedRequest` takes them, against the steps.

    Raises:
        ValueError: a field that does not agree with the others.
    """
    fed: dict[tuple, list[int]] = {}
    for fields in requests:
        name = fields.get("name")

        def expect(is_right, what, came, name=name):
            if not is_right:
                raise ValueError(f"request {name!r}: {what} does not agree with the rest: {came}")

        expect(fields.keys() == _SERVED, "fields", sorted(fields))
        texts = [fields[each] for each in ("name", "prompt", "text")]
        expect(all(isinstance(text, str) for text in texts), "text", texts)
        expect(is_whole(fields["engine"]) and fields["engine"] >= 0, "engine", fields["engine"])
        expect(isinstance(fields["finished"], bool), "finished", fields["finished"])
        ids = [*fields["prompt_ids"], *fields["new_ids"]]
        expect(all(is_whole(n) and n >= 0 for n in ids), "token ids", len(ids))
        seen, own = fields["seen"], fields["fed"]
        fits = all(is_whole(n) and 0 <= n < len(steps) for n in seen) and [*seen] == sorted({*seen})
        expect(fits and {*own} <= {*seen} and [*own] == sorted({*own}), "steps", seen)
        for index in own:
            _check_fed(steps[index], fields, ids, expect)
        fed.setdefault((fields["engine"], name), []).extend(own)
    for step in steps:
        for each in step.requests:
            if fed.get((step.engine, each.name), []).count(step.index) != 1:
                raise ValueError(f"step {step.index}: request {each.name!r} isn't listed once")


def _check_fed(step, fields, ids, expect):
    """A step that fed a request fed it its own tokens."""
    own = [each for each in step.requests if each.name == fields["name"]]
    expect(len(own) == 1 and step.engine == fields["engine"], "steps", step.index)
    tokens = tuple(ids[own[0].held_before : own[0].held])
    expect(tokens == own[0].token_ids, "token ids", f"those fed in step {step.index}")
