"""`draw_overlay`: one step drawn over an earlier one, so that what is new stands out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvviz.drawing import layout, painting, style
from kvviz.drawing.figures import pick_square
from kvviz.drawing.picture import Picture
from kvviz.recording.square import Square
from kvviz.words import pluralize

MOVED = 1e-3  # a cell has moved if its share of attention differs by more


def draw_overlay(
    run,
    *,
    steps: tuple[int, int],
    layer: int | None = None,
    head: int = 0,
    sequence: int = 0,
) -> Picture:
    """A later step drawn over an earlier one: what both have is pale, what is new stands out.

    It's most telling for a recording without a cache: every row was computed both times, and yet
    only one new cell on each edge and one new row differ.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: `steps` aren't two steps of the same text, the earlier one first.

    >>> kv.draw_overlay(uncached, steps=(3, 4))
    Step 4 over step 3, layer 0, head 0: 1 new cell on each of keys and values, 1 new row; 9 rows...
    """
    if len(tuple(steps)) != 2 or not steps[0] < steps[1]:
        raise ValueError(f"steps: expected two, the earlier first, such as (3, 4), got {steps}")
    before, after = (pick_square(run, step, layer, head, sequence) for step in steps)
    n = before.n_columns
    if after.tokens[:n] != before.tokens:
        raise ValueError(f"steps {steps[0]} and {steps[1]}: expected the same text in both")
    difference = _describe_difference(before, after)
    title = f"Step {steps[1]} over step {steps[0]}"
    with style.scope():
        plan = layout.plan([_mark_same(after, n)], titles=[title], notes=[difference])
        figure = painting.make_figure(plan, veil=n)
    return Picture(figure, f"{title}, layer {after.layer}, head {head}: {difference}")


def _mark_same(after: Square, n: int) -> Square:
    """The later step, with the states "same" for the first `n` columns and "new" for the rest."""

    def mark(states):
        return tuple(
            "new" if j >= n else "same" if state in ("new", "recomputed", "read") else state
            for j, state in enumerate(states)
        )

    return replace(
        after,
        column_states=mark(after.column_states),
        value_states=None if after.value_states is None else mark(after.value_states),
        row_states=tuple("new" if p >= n else "same" for p in after.row_positions),
    )


def _count_moved(before: Square, after: Square) -> int:
    """Cells that both steps computed, with different results."""
    if before.weights is None or after.weights is None:
        return 0
    both = [p for p in after.row_positions if p in before.row_positions]
    old = before.weights[[before.row_positions.index(p) for p in both]]
    new = after.weights[[after.row_positions.index(p) for p in both], : before.n_columns]
    return int((np.abs(old - new) > MOVED).sum())


def _describe_difference(before: Square, after: Square) -> str:
    """What the later step adds, and whether the rest is unchanged."""
    n_new = sum(p >= before.n_columns for p in after.row_positions)
    again = len(after.row_positions) - n_new
    columns = pluralize(after.n_columns - before.n_columns, "new cell")
    new = f"{columns} on each of keys and values, {pluralize(n_new, 'new row')}"
    if not again:
        return f"{new}; the rest was not recomputed"
    moved = _count_moved(before, after)
    rest = f"{pluralize(moved, 'cell')} moved" if moved else "nothing else moved"
    return f"{new}; {again} rows recomputed, {rest}"
