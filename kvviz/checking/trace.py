"""Watch a cache and a forge at work: what each method was given, and what it handed back.

Copies are taken when a method is called, so that what led to an error is known when it comes.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import torch

from kvviz.checking.causes import Cause
from kvviz.checking.compare import SEEN
from kvviz.checking.contract import (
    UNEXPECTED,
    copy_entry,
    entry_problem,
    is_filled,
    is_prefix,
    output_problem,
    return_problem,
)
from kvviz.checking.page_rules import find_page_size
from kvviz.words import pluralize

FORGE_METHODS = ("positions", "mask", "append", "attend")


@dataclass
class Pass:
    """One pass through the layers: a call of the forge, or a part of one that feeds in chunks.

    Attributes:
        index: the number of the call; token_ids: (B, Tq) that it was fed.
        before: layer -> tokens held by the entry that `get` returned.
        kept: name -> layer -> what `attend` was given, and its output.
        pasts: layer -> what `get` returned, where attention didn't see it first, as it was.
        news: layer -> the new entry that `append` was given.
        given: layer -> how many tokens the entry had that `update` was given.
        changed: layer -> whether `get` returned other numbers than `update` had been given.
        positions: what `positions` returned; None if it wasn't called. t: what it was told.
        was_read: whether `get` was called, of any layer. page_size: of a cache in pages.
    """

    index: int
    token_ids: torch.Tensor | None = None
    before: dict[int, int] = field(default_factory=dict)
    kept: dict[str, dict] = field(default_factory=lambda: {name: {} for name in SEEN})
    pasts: dict = field(default_factory=dict)
    news: dict = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    changed: dict[int, bool] = field(default_factory=dict)
    positions: torch.Tensor | None = None
    t: int | None = None
    was_read: bool = False
    rows_in_call: int = 0
    page_size: int | None = None

    @property
    def keys(self) -> dict:
        """What attention was given as keys, by layer."""
        return self.kept["keys"]

    @property
    def fed(self) -> int:
        return self.token_ids.shape[1]

    @property
    def rows(self) -> int:
        """Rows computed: of this pass, or of the whole call if it ran over its tokens again."""
        return self.rows_in_call or self.n_queries

    @property
    def n_queries(self) -> int:
        return self.kept["queries"][self.layers[0]].shape[2]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers whose attention was called, in order."""
        return tuple(sorted(self.kept["queries"]))

    def column_positions(self, layer: int) -> torch.Tensor:
        """(Tk,) int64: the position of each column if the cache grew as it should; -1 for none."""
        n = self.kept["keys"][layer].shape[2]
        total = self.before.get(layer, 0) + self.fed
        positions = torch.arange(n) + max(0, total - n)
        return torch.where(positions < total, positions, -1)


class Unusable(Exception):
    """What `forward` returned can't be compared with anything."""


class Trace:
    """What one forge and one cache did, call by call."""

    def __init__(self, forge):
        self.forge, self.cache, self.calls = forge, None, -1
        self.passes: list[Pass] = []
        self.rows: list[int] = []  # rows computed in each call
        self.problem: Cause | None = None  # the first thing returned that nobody could use
        self.misfit: Cause | None = None  # a mask that covers other columns than there are
        self.failed = ""  # the method that raised, as it was called
        self._busy, self._got, self._stored, self._new = set(), {}, {}, None
        self._positions = self._t = None
        self._is_feeding, self.emptied = False, None
        for name in FORGE_METHODS:
            setattr(forge, name, self._watched(name, getattr(forge, name)))

    def watch(self, cache):
        """The cache to watch; a length of its own must be the number of layers."""
        self.cache, expected = cache, len(self.forge.layers)
        n = getattr(cache, "__len__", lambda: expected)()  # as the forge asks for it
        if n != expected:
            says = f"len(cache) is {n}, expected {expected}, the number of layers, or no __len__"
            self._note((UNEXPECTED, says, None))

    @property
    def has_written(self) -> bool:
        """Whether anything has been written to the cache since it was made, or emptied."""
        return bool(self._stored)

    def restart(self):
        """Forget what was seen: another text begins."""
        self.calls, self.passes, self.rows = -1, [], []
        self._stored, self.emptied = {}, None

    def feed(self, ids):
        """One call of the forge; its logits. What was seen is kept even if it raises."""
        self.calls, first, done = self.calls + 1, len(self.passes), False
        self._positions = self._t = self._new = None
        try:
            self._is_feeding = True
            output = self.forge(given := ids.clone(), self.cache)
            done = True
        finally:
            self._is_feeding = False
            self._divide(ids, first, done)
        vocab = self.forge.config.vocab_size
        found = output_problem(output, (*ids.shape, vocab))
        if not torch.equal(given, ids):
            found = "ids changed", "forward changed the ids it was given", None
        if found:
            self.problem = None
            self._note(found)
            raise Unusable(found[1])
        return output

    def _divide(self, ids, first, done):
        """Which of the tokens each pass of this call was fed."""
        passes = self.passes[first:]
        rows = [each.n_queries for each in passes]
        self.rows.append(sum(rows))
        if passes and sum(rows) <= ids.shape[1] and (len(passes) > 1 or not done):
            for each, part in zip(passes, ids[:, : sum(rows)].split(rows, dim=1), strict=True):
                each.token_ids = part
        elif passes:
            passes[-1].token_ids, passes[-1].rows_in_call = ids, sum(rows)
            self.passes[first:] = passes[-1:]

    def call(self, cache, name, method, args, kwargs):
        """A call of the cache's `get`, `update` or `reset`."""
        if cache is not self.cache or self._busy & {"get", "update"}:
            return method(*args, **kwargs)
        if name == "reset":
            if self._is_feeding and self._stored and self.emptied is None:
                says = f"step {self.calls}: forward emptied the cache"
                self.emptied = Cause("cache emptied", says, self.calls)
            return method(*args, **kwargs)
        went = copy_entry([*args, *kwargs.values()][-1]) if name == "update" and args else None
        result = self._run(name, method, args, kwargs)
        with contextlib.suppress(Exception):
            layer = args[0] if args else kwargs["layer"]
            if name == "get":
                self._note(entry_problem(layer, result, self._stored.get(layer)))
                self._got[layer] = copy_entry(result)
            elif went is not None:
                self._stored[layer], self.passes[-1].given[layer] = went, went.keys.shape[2]
        return result

    def _watched(self, name, method):
        def watched(*args, **kwargs):
            if name in self._busy:
                return method(*args, **kwargs)
            with contextlib.suppress(Exception):
                self._before(name, *args, **kwargs)
            result = self._run(name, method, args, kwargs)
            if name == "attend":  # what it was given could be used after all
                self.problem = None
            self._note(return_problem(name, result, args))
            with contextlib.suppress(Exception):
                self._after(name, result, *args, **kwargs)
            return result

        return watched

    def _run(self, name, method, args, kwargs):
        self._busy.add(name)
        try:
            return method(*args, **kwargs)
        except BaseException:
            first = args[0] if args and isinstance(args[0], int) else ""
            self.failed = self.failed or f"{name}({first})"
            raise
        finally:
            self._busy.discard(name)

    def _before(self, name, *args, **kwargs):
        if name == "positions":
            self._t = kwargs.get("t", args[0] if args else None)
        elif name == "append":
            self._new = copy_entry(kwargs.get("new", args[-1]))
        elif name == "attend":
            self._begin(*args, **kwargs)

    def _begin(self, layer, query, keys, values, mask):
        if not self.passes or self.passes[-1].index != self.calls:
            self.passes.append(Pass(self.calls, page_size=find_page_size(self.cache)))
        elif layer in self.passes[-1].kept["queries"]:
            self.passes.append(Pass(self.calls, page_size=find_page_size(self.cache)))
        self._note_mask(layer, mask, keys.shape[2])
        now, was_read = self.passes[-1], layer in self._got
        past = self._got.pop(layer, None)
        now.was_read = now.was_read or was_read
        now.positions, now.t = self._positions, self._t
        for part, x in zip(SEEN, (query, keys, values), strict=False):
            now.kept[part][layer] = x.detach().to("cpu", torch.float32, copy=True)
        if is_filled(past):
            now.before[layer] = past.keys.shape[2]
            now.changed[layer] = not is_prefix(past, self._stored.get(layer), whole=True)
            if not is_prefix(past, (keys, values)):
                now.pasts[layer] = past
        elif not was_read:  # the forge has its own way to the cache
            now.before[layer] = max(0, keys.shape[2] - query.shape[2])
        if self._new is not None:
            now.news[layer] = self._new
        self._new = None

    def _note_mask(self, layer, mask, n_columns):
        """Keep a mask that covers other columns than attention has: only asked if it raises."""
        if isinstance(mask, torch.Tensor) and mask.shape[-1] not in (1, n_columns):
            rows, columns = (1, *mask.shape)[-2:]
            says = f"step {self.calls}: the mask is {rows} x {columns}, where attention has "
            says += pluralize(n_columns, "column")
            self.misfit = Cause("mask of another width", says, self.calls, layer)

    def _after(self, name, result, *args, **kwargs):
        if name == "positions":
            self._positions = result.detach().clone()
        elif name == "attend":
            layer = args[0] if args else kwargs["layer"]
            output = result[0].detach().to("cpu", torch.float32, copy=True)
            self.passes[-1].kept["outputs"][layer] = output

    def _note(self, found):
        """Keep the first problem, with the call in which it came."""
        if found and self.problem is None:
            name, says, layer = found
            step = max(self.calls, 0)
            self.problem = Cause(name, f"step {step}: {says}", step, layer)
