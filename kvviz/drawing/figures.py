"""More to see where it teaches: all heads of a layer at once, and one step laid over another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvviz import tokens
from kvviz.drawing import layout, style
from kvviz.drawing import sentences as say
from kvviz.drawing import square as draw
from kvviz.drawing.picture import Picture, _square

MOVED = 1e-3  # of a share of attention: two steps that differ by more are not one picture
IN_A_LINE = 5


def draw_heads(run, *, step: int = 0, layer: int | None = None, sequence=0) -> Picture:
    """Every head of one layer at one step, small: who looks where.

    Raises:
        ValueError: no such step, layer or sequence, or attention that was not kept.
    """
    return of_heads(heads_of(run, step, layer, sequence))


def heads_of(run, step: int, layer: int, sequence: int = 0) -> list:
    """The squares of every head."""
    if not hasattr(run, "rows"):
        raise TypeError(f"expected a recording, and got {type(run).__name__}")
    first = _square(run, step, layer, 0, sequence)
    if first.weights is None:
        raise ValueError(f"layer {first.layer}: attention was not kept in this recording")
    n_heads = run[step].attention[first.layer].shape[1]
    return [first, *(run[step].square(first.layer, head, sequence) for head in range(1, n_heads))]


def of_heads(squares, *, span: int | None = None) -> Picture:
    """One head's squares beside another's; `span` leaves room for more columns."""
    titles, first = [f"head {square.head}" for square in squares], squares[0]
    with style.scope():
        many = min(IN_A_LINE, len(squares))
        figure = layout.grid(squares, titles=titles, strip=many, span=span)
    asking = tokens.quoted(say.asks(first, draw.newest(first)))
    where = f"step {first.step}, layer {first.layer}, {asking} in each head"
    return Picture(figure, f"{where}: {'; '.join(map(said_of_head, squares))}")


def said_of_head(square) -> str:
    """Where the newest row looks most."""
    return f"head {square.head} {say.most(square, draw.newest(square))}"


def draw_overlay(
    run, *, steps: tuple[int, int], layer: int | None = None, head: int = 0, sequence=0
) -> Picture:
    """A later step laid over an earlier one: what both have is pale, what is new lights up.

    Best of a recording without a cache: there every row was computed both times, and still one
    new cell on each edge and one new row are all that differs.

    Raises:
        ValueError: `steps` is not two steps, the earlier first, of one text.
    """
    if len(tuple(steps)) != 2 or not steps[0] < steps[1]:
        raise ValueError(f"steps: expected two, the earlier first, such as (3, 4), got {steps}")
    before, after = (_square(run, step, layer, head, sequence) for step in steps)
    n = len(before.column_states)
    if after.tokens[:n] != before.tokens:
        raise ValueError(f"steps {steps[0]} and {steps[1]}: expected one text, and theirs differ")
    found = _found(before, after, _moved(before, after))
    columns = tuple(
        "new" if place >= n else "same" if state in ("new", "recomputed", "read") else state
        for place, state in enumerate(after.column_states)
    )
    states = tuple("new" if place >= n else "same" for place in after.row_positions)
    shown = replace(after, column_states=columns, row_states=states)
    title = f"Step {steps[1]} over step {steps[0]}"
    with style.scope():
        figure = layout.grid([shown], titles=[title], veil=n, note=found)
    return Picture(figure, f"{title}, layer {after.layer}, head {head}: {found}")


def _moved(before, after) -> int:
    """Cells that both steps computed, and not alike."""
    if before.weights is None or after.weights is None:
        return 0
    rows = [
        (before.row_positions.index(p), after.row_positions.index(p))
        for p in after.row_positions
        if p in before.row_positions
    ]
    n = len(before.column_states)
    gaps = [np.abs(before.weights[i] - after.weights[j, :n]) for i, j in rows]
    return int(sum((gap > MOVED).sum() for gap in gaps))


def _found(before, after, moved: int) -> str:
    """In words: what the later step has more, and whether the rest is what it was."""
    columns = len(after.column_states) - len(before.column_states)
    rows = [place for place in after.row_positions if place >= len(before.column_states)]
    again = len(after.row_positions) - len(rows)
    new = f"{say.count(columns, 'new cell')} on each of keys and values"
    new += f", {say.count(len(rows), 'new row')}"
    if not again:
        return f"{new}; the rest was not computed again"
    rest = f"{say.count(moved, 'cell')} moved" if moved else "nothing else moved"
    return f"{new}; {again} rows computed again, {rest}"
