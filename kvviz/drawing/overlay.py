"""`draw_overlay`: one step drawn over an earlier one, so that what is new stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kvviz.arguments import check_whole, describe, list_several
from kvviz.drawing import layout, painting, style
from kvviz.drawing.figures import pick_square
from kvviz.drawing.picture import Picture
from kvviz.recording.square import Square
from kvviz.words import join, pluralize

MOVED = (
    1e-3  # what differs by less is unchanged: a share of attention, or a part of an entry's size
)
EDGES = ("keys", "values", "queries", "outputs")


def draw_overlay(
    run,
    *,
    steps: tuple[int, int],
    layer: int | None = None,
    head: int = 0,
    sequence: int = 0,
) -> Picture:
    """A later step drawn over an earlier one: what is unchanged is pale, what is new stands out.

    Only what the recording kept is compared: attention, and any of the four edges. It's most
    telling for a recording without a cache: every row was computed both times, and yet only one new
    cell on each edge and one new row differ.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: `steps` aren't two steps of the same text, the earlier one first.

    >>> kv.draw_overlay(uncached, steps=(3, 4))
    Step 4 over step 3, layer 0, head 0: 1 new cell on each of keys and values, 1 new row; 9 rows...
    """
    expected = "two, the earlier first, such as (3, 4)"
    steps = [check_whole("steps", each) for each in list_several("steps", steps, expected)]
    if len(steps) != 2 or not steps[0] < steps[1]:
        came = describe(tuple(steps))
        raise ValueError(f"steps: expected {expected}, but got {came}")
    before, after = (pick_square(run, step, layer, head, sequence) for step in steps)
    n = before.n_columns
    if after.tokens[:n] != before.tokens:
        raise ValueError(f"steps {steps[0]} and {steps[1]}: expected the same text in both")
    compared = _compare(run, before, after)
    difference = _describe_difference(before, after, compared)
    title = f"Step {steps[1]} over step {steps[0]}"
    with style.scope():
        plan = layout.plan([_mark_same(after, n, compared)], titles=[title], said=[difference])
        figure = painting.make_figure(plan, veil=_list_pale(after, n, compared))
    return Picture(figure, f"{title}, layer {after.layer}, head {head}: {difference}")


Compared = dict[str, dict[int, int]]  # {what: {row or column in both steps: how much of it moved}}


def _compare(run, before: Square, after: Square) -> Compared:
    """How much moved of what both steps kept: cells of each row, and whole entries of the edges."""
    found: Compared = {}
    if before.weights is not None and after.weights is not None:
        places = before.row_positions, after.row_positions
        old, new = before.weights, after.weights[:, : before.n_columns]
        both, old, new = _pick_shared(places, old, new)
        moved = (np.abs(old - new) > MOVED).sum(-1)
        found["attention"] = dict(zip(both, moved.tolist(), strict=True))
    steps = [] if isinstance(run, Square) else [run[square.step] for square in (before, after)]
    for edge in EDGES:
        kept = [step.kept.get(edge, {}).get(after.layer) for step in steps]
        if not steps or any(tensor is None for tensor in kept):
            continue
        columns = edge in ("keys", "values")
        head = after.kv_head if columns else after.head
        places = [
            (step.column_positions if columns else step.row_positions)(after.layer).tolist()
            for step in steps
        ]
        old, new = (tensor[after.sequence, head].double().numpy() for tensor in kept)
        both, old, new = _pick_shared(places, old, new)
        moved = np.linalg.norm(new - old, axis=-1) > MOVED * np.linalg.norm(old, axis=-1)
        found[edge] = dict(zip(both, moved.astype(int).tolist(), strict=True))
    return {what: moved for what, moved in found.items() if moved}


def _pick_shared(places: Sequence, old: np.ndarray, new: np.ndarray) -> tuple:
    """The places in both, -1 left out, and what each of two arrays has there."""
    both = [place for place in places[0] if place >= 0 and place in places[1]]
    rows = [[where.index(place) for place in both] for where in map(list, places)]
    return both, old[rows[0]], new[rows[1]]


def _mark_same(after: Square, n: int, compared: Compared) -> Square:
    """The later step, with the state "same" for what is known to be as it was, of `n` columns.

    What was read from the cache is; what was recomputed is if it was compared. An edge that wasn't
    stays as it is, "recomputed".
    """

    def mark(states, edge):
        moved = compared.get(edge, {})
        return tuple(
            "new" if j >= n else "same" if moved.get(j, state != "read") == 0 else state
            for j, state in enumerate(states)
        )

    queries, outputs = (compared.get(edge, {}) for edge in ("queries", "outputs"))
    return replace(
        after,
        column_states=mark(after.column_states, "keys"),
        value_states=mark(after.states_of("values"), "values"),
        row_states=tuple(
            "new" if p >= n else "same" if queries.get(p) == outputs.get(p) == 0 else state
            for p, state in zip(after.row_positions, after.row_states, strict=True)
        ),
    )


def _list_pale(after: Square, n: int, compared: Compared) -> list[int]:
    """Rows of the earlier step that weren't computed again, or whose attention is as it was."""
    moved = compared.get("attention", {})
    return [p for p in range(n) if moved.get(p, p in after.row_positions) == 0]


def _describe_difference(before: Square, after: Square, compared: Compared) -> str:
    """What the later step adds, and which of what was compared is unchanged."""
    n_new = sum(p >= before.n_columns for p in after.row_positions)
    again = len(after.row_positions) - n_new
    columns = pluralize(after.n_columns - before.n_columns, "new cell")
    parts = [f"{columns} on each of keys and values, {pluralize(n_new, 'new row')}"]
    parts.append(
        f"{pluralize(again, 'row')} recomputed" if again else "the rest was not recomputed"
    )
    totals = {what: sum(moved.values()) for what, moved in compared.items()}
    if (unchanged := [what for what, n in totals.items() if not n]) and again:
        parts.append(f"unchanged: {join(unchanged)}")
    things = {"attention": "cell", "keys": "key", "values": "value"}
    things |= {"queries": "query", "outputs": "output"}
    for what, n in totals.items():
        if n:
            many = pluralize(n, things[what], "queries" if what == "queries" else "")
            parts.append(f"{many}{' of attention' if what == 'attention' else ''} moved")
    return "; ".join(parts)
