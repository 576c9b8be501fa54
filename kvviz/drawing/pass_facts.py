"""What `draw_pass` shows: the rows of several requests in a pass, and which columns each sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from kvviz.arguments import check_whole
from kvviz.drawing.requests import Look, choose_looks, list_names, pick_step
from kvviz.drawing.sentences import percent
from kvviz.words import join, pluralize

STATES = ("ink", "visible", "masked", "other")


@dataclass(frozen=True)
class Run:
    """Neighbouring columns with the same owners: from `start` up to, not including, `end`."""

    looks: tuple[Look, ...]
    start: int
    end: int


class Pass:
    """One pass: Tq rows of all requests by N columns, each key once.

    Attributes:
        rows: Tq names; owners: N tuples of names; positions: N, each in its own request.
        new: (N,) bool, whether this pass wrote the column.
        states: (Tq, N), each of `STATES`: "masked" is a column of the row's own request that it
            may not see, and "other" is another request's.
        weights: (Tq, N) float, a head's attention; None if it wasn't kept.
    """

    def __init__(self, step, looks: dict[str, Look], layer: int | None, head: int):
        self.step, self.looks, self.layer, self.head = step, looks, layer, head
        rows, columns = step.list_rows(), step.list_columns(layer)
        visible = step.find_visible(layer)
        kept = (step.attention or {}).get(layer)
        places: dict[tuple, int] = {}
        for each in columns:
            is_paged = each.page is not None
            key = (each.page, each.cell) if is_paged else (each.request, each.position)
            places.setdefault(key, len(places))
        keys = [
            places[(c.page, c.cell) if c.page is not None else (c.request, c.position)]
            for c in columns
        ]
        n = len(places)
        self.rows = [row.request for row in rows]
        self.owners: list[tuple[str, ...]] = [()] * n
        self.positions = np.zeros(n, dtype=int)
        self.new = np.zeros(n, dtype=bool)
        self.states = np.full((len(rows), n), "other", dtype=object)
        self.weights = None if kept is None else np.zeros((len(rows), n))
        fed = {(row.request, row.position) for row in rows}
        names = np.array(self.rows)
        for j, column in enumerate(columns):
            k, own = keys[j], names == column.request
            self.owners[k] = tuple(name for name in looks if name in column.requests)
            self.positions[k] = column.position
            self.new[k] |= (column.request, column.position) in fed
            self.states[own, k] = np.where(
                visible[own, j], "visible" if kept is None else "ink", "masked"
            )
            crossed = visible[:, j] & ~own
            self.states[crossed, k] = "visible" if kept is None else "ink"
            if kept is not None:
                self.weights[:, k] += np.nan_to_num(kept[head][:, j])

    @cached_property
    def column_looks(self) -> list[tuple[Look, ...]]:
        """How the owners of each column look."""
        return [tuple(self.looks[name] for name in names) for names in self.owners]

    @cached_property
    def blocks(self) -> list[tuple[Look, int, int]]:
        """Each request with the first of its rows, and the one after its last."""
        found = []
        for name, run in groupby(range(len(self.rows)), lambda row: self.rows[row]):
            rows = [*run]
            found.append((self.looks[name], rows[0], rows[-1] + 1))
        return found

    @cached_property
    def runs(self) -> list[Run]:
        """Neighbouring columns with the same owners."""
        found = []
        for looks, run in groupby(range(len(self.owners)), lambda k: self.column_looks[k]):
            columns = [*run]
            found.append(Run(looks, columns[0], columns[-1] + 1))
        return found

    @cached_property
    def crossings(self) -> int:
        """Cells in which a row sees a column that isn't its own request's."""
        owns = np.array([[row in names for names in self.owners] for row in self.rows])
        seen = np.isin(self.states, ("ink", "visible")) & ~owns
        if self.weights is not None:
            seen |= (np.abs(self.weights) > 1e-6) & ~owns
        return int(seen.sum())


def read_pass(serving, step: int, layer: int | None, head: int) -> Pass:
    """The pass of this step, for a layer and a head; by default, the first layer kept."""
    taken = pick_step(serving, step)
    kept = taken.attention or {}
    if layer is None:
        layer = min(kept, default=None)
    else:
        layer = check_whole("layer", layer, least=0)
        if kept and layer not in kept:
            known = ", ".join(map(str, sorted(kept)))
            raise ValueError(f"layer {layer}: attention was kept for layers {known}")
    head = check_whole("head", head, least=0)
    if layer in kept and head >= len(kept[layer]):
        raise ValueError(f"head {head}: layer {layer} has heads 0 to {len(kept[layer]) - 1}")
    return Pass(taken, choose_looks(list_names(serving)), layer, head)


# -- words ---------------------------------------------------------------------------------------


def write_title(one: Pass) -> str:
    n = len(one.blocks)
    return f"Step {one.step.index}: {pluralize(n, 'request')} in one pass"


def write_note(one: Pass) -> str:
    """How large the pass is, and who sees what."""
    size = f"{pluralize(len(one.rows), 'row')} by {pluralize(len(one.owners), 'column')}"
    shared = sum(len(names) > 1 for names in one.owners)
    once = f"; {pluralize(shared, 'column')} shared, drawn once" if shared else ""
    return f"{size}{once}; {_describe_crossings(one)}"


def _describe_crossings(one: Pass) -> str:
    if one.crossings:
        cells = pluralize(one.crossings, "cell")
        return f"in {cells}, a row sees a column that isn't its own request's"
    return "no row sees a column that isn't its own request's"


def describe_pass(one: Pass) -> str:
    """The facts that are drawn, in one sentence, with whole percents."""
    where = f"step {one.step.index}"
    if one.layer is not None:
        where += f", layer {one.layer}" + (f", head {one.head}" if one.weights is not None else "")
    parts = [write_note(one)]
    for look, first, end in one.blocks:
        parts.append(f"{look.name}: {_describe_block(one, first, end)}")
    for run in one.runs:
        if len(run.looks) > 1:
            n, names = run.end - run.start, join([look.name for look in run.looks])
            parts.append(f"{pluralize(n, 'column')} shared by {names}")
    if one.weights is None:
        parts.append("attention was not kept")
    return f"{where}: {'; '.join(parts)}"


def _describe_block(one: Pass, first: int, end: int) -> str:
    seen = np.isin(one.states[first:end], ("ink", "visible")).any(0)
    n = end - first
    words = f"{pluralize(n, 'row')} {'sees' if n == 1 else 'see'} {pluralize(seen.sum(), 'column')}"
    new = int((one.new & seen).sum())
    words += f", {new} written now"
    if one.weights is None:
        return words
    shares = np.where(one.states[end - 1] == "ink", one.weights[end - 1], -1)
    most = int((shares >= shares.max() - 1e-4).argmax())
    share = percent(shares[most])
    return f"{words}, the newest row attends most to position {one.positions[most]}, {share}%"
