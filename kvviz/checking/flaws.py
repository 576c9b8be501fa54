"""What differs in a learner's step: cells that are wrong, too many, or missing."""

from __future__ import annotations

import torch

from kvviz.checking.seen import Seen, choose_head
from kvviz.recording.square import Square

Flaws = dict[tuple, str]  # (role, place) -> "wrong", "extra" or "missing"; see drawing.flaws.Side


def find_flaws(ours: Seen, right: Seen, gate: float) -> Flaws:
    """Every cell of a step that differs from the right one by more than `gate`."""
    return find_edge_flaws(ours, right, gate) | _find_cell_flaws(ours, right)


def find_edge_flaws(ours: Seen, right: Seen, gate: float) -> Flaws:
    """Those of keys, values, queries and outputs: attention isn't computed for these."""
    flaws = {}
    for role in ("keys", "values"):
        x, y = getattr(ours, role), getattr(right, role)
        places = ours.columns[: x.shape[1]]
        flaws |= _compare(role, (x, places), (y, right.columns), gate)
        end = ours.blank.n_columns  # before it, what is not there has left a window
        if x.shape[1] < len(ours.columns):
            end = max(places, default=-1) + 1
        gone = set(right.columns) - set(places)
        gone &= right.needed if gone else gone
        flaws |= {(role, place): "missing" for place in sorted(gone) if place >= end}
    for role in ("queries", "outputs"):
        x, y = (seen.query if role == "queries" else seen.output for seen in (ours, right))
        flaws |= _compare(role, (x, ours.rows), (y, right.rows), gate)
        there = () if x is None else ours.rows  # attention raised: there is no output
        gone = sorted(set(right.rows) - set(there))
        flaws |= {(role, place): "missing" for place in gone}
    return flaws


def _compare(role: str, ours: tuple, right: tuple, gate: float) -> Flaws:
    """Tensors (heads, places, numbers) with their places; those of `right` are expected."""
    (x, places), (y, expected) = ours, right
    at, flaws = {place: i for i, place in enumerate(expected)}, {}
    scale = 0.0 if y is None else y.abs().max()
    for i, place in enumerate(places):
        if place not in at:
            flaws[role, place] = "extra"
        elif x is not None and y is not None and _differs(x[:, i], y[:, at[place]], gate * scale):
            flaws[role, place] = "wrong"
    return flaws


def _differs(x, y, most) -> bool:
    return x.shape != y.shape or not (x - y).abs().max() <= most


def _find_cell_flaws(ours: Seen, right: Seen) -> Flaws:
    """Cells that a row can see and shouldn't, or should and can't; of rows that both have."""
    if ours.attention is None or right.attention is None:
        return {}
    at_row = {row: i for i, row in enumerate(right.rows)}
    at_column = {column: j for j, column in enumerate(right.columns)}
    flaws = {}
    for i, row in enumerate(ours.rows):
        for j, column in enumerate(ours.columns):
            if row in at_row and column in at_column:
                expected = right.attention[1][at_row[row], at_column[column]]
                if ours.attention[1][i, j] != expected:
                    flaws["attention", (row, column)] = "wrong"
    return flaws


def choose_wrong_head(ours: Seen, right: Seen, gate: float) -> int:
    """The head that shows the mistake best: of the key/value heads that differ, if some do, the
    one whose newest row attends most differently."""
    pairs, size = (ours.attention, right.attention), right.query.shape[0]
    shared_rows = [row for row in ours.rows if row in right.rows]
    if None in pairs or ours.query.shape[0] != size or not shared_rows:
        return choose_head(right)
    row, n = shared_rows[-1], min(len(ours.columns), len(right.columns))
    one, other = (seen.attention[0][:, seen.rows.index(row), :n] for seen in (ours, right))
    moved = (100 * (one - other).abs().amax(-1)).round()
    shared_by = size // right.keys.shape[0]
    differs = torch.zeros(right.keys.shape[0], dtype=torch.bool)
    for name in ("keys", "values"):
        x, y = (getattr(seen, name)[:, :n] for seen in (ours, right))
        if x.shape == y.shape:
            differs |= ~((x - y).abs().amax((1, 2)) <= gate * y.abs().max())
    if differs.any():
        moved = moved.masked_fill(~differs.repeat_interleave(shared_by), -1)
    return int(moved.argmax()) if moved.max() > 0 else choose_head(right)


def find_square_flaws(ours: Square, right: Square) -> Flaws:
    """What differs between two squares of which no keys and values were kept: the rows, the
    columns, and their tokens."""
    flaws: Flaws = {}
    for role in ("keys", "values"):
        for j in range(max(ours.n_filled, right.n_filled)):
            if j >= right.n_filled:
                flaws[role, j] = "extra"
            elif j >= ours.n_filled:
                flaws[role, j] = "missing"
            elif ours.tokens[j] != right.tokens[j]:
                flaws[role, j] = "wrong"
    for role in ("queries", "outputs"):
        rows, expected = set(ours.row_positions), set(right.row_positions)
        flaws |= {(role, row): "extra" for row in sorted(rows - expected)}
        flaws |= {(role, row): "missing" for row in sorted(expected - rows)}
    return flaws
