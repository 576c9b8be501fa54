"""What a stepper says of the cell that you point at: a share of attention, or a cell of an edge."""

from __future__ import annotations

import numpy as np

from kvviz import tokens
from kvviz.drawing import layout, sentences
from kvviz.recording.square import Square
from kvviz.widgets.zoom import find_first_cell

SHOWN = 3  # how many of a vector's numbers are shown
# How a key, a value, a query or an output came about. A frame names each by its number here.
STATES = {
    "new": "computed now",
    "written": "computed now and written to the cache",
    "recomputed": "recomputed now",
    "read": "read from the cache",
    "earlier": "read from the cache, left by an earlier prompt",
    "pad": "padding",
    "empty": "an empty slot",
    "dropped": "out of the window",
    "cropped": "computed now, cropped afterwards",
    "taken out": "computed now and written to the cache, cropped afterwards",
}
WORDS, NUMBERS = list(STATES.values()), {state: n for n, state in enumerate(STATES)}


def list_cells(square: Square, plan: layout.Plan, i: int, step) -> dict:
    """What you can point at in square `i` of a plan; lists begin with its first column or row.

    `at` is the left, top and width of the first cell, and `edge` how far an edge is from the square
    and how thick it is, in pixels as displayed. A share is in percent, and None where the mask let
    nothing through. `widths` says how many numbers a vector of each role has, and `numbers` holds
    the first of them, for the roles that the recording kept. `cropped` lists the positions of rows
    that were cropped afterwards, if there are any.
    """
    start = plan.start
    rows = [r for r, position in enumerate(square.row_positions) if position >= start]
    labels = [tokens.visible(token) for token in square.tokens[start:]]
    states = {role: square.edge_states(role)[start:] for role in ("keys", "values")}
    states["queries"] = states["outputs"] = [square.edge_states("queries")[r] for r in rows]
    cells = {
        "at": find_first_cell(plan, i),
        "edge": [plan.gap, round(plan.edge - plan.gap, 2)],
        "span": plan.span,
        "start": start,
        "tokens": labels,
        "rows": [square.row_positions[r] for r in rows],
        "shares": _list_shares(square, rows, start),
        "states": {role: _number(role, each, square) for role, each in states.items()},
    }
    if square.value_tokens is not None:
        cells["valueTokens"] = [tokens.visible(token) for token in square.value_tokens[start:]]
    if square.cropped:
        cells["cropped"] = list(square.cropped)
    if numbers := _list_numbers(square, rows, start, step):
        cells["numbers"] = numbers
    key, value = step.widths_by_layer[square.layer]
    cells["widths"] = {"keys": key, "values": value, "queries": key, "outputs": value}
    return cells


def _number(role: str, states, square: Square) -> list[int]:
    in_cache = square.cached and role in ("keys", "values")
    in_full = {"new": "written", "cropped": "taken out"} if in_cache else {}
    return [NUMBERS[in_full.get(each, each)] for each in states]


def _list_shares(square: Square, rows: list[int], start: int) -> list:
    if square.weights is None:
        return [[None] * (square.n_columns - start)] * len(rows)
    seen = ~square.masked & np.isfinite(square.weights)
    return [
        [sentences.percent(w) if there else None for w, there in zip(*row, strict=True)]
        for row in zip(square.weights[rows, start:], seen[rows, start:], strict=True)
    ]


def _list_numbers(square: Square, rows: list[int], start: int, step) -> dict:
    """Role -> the first few numbers of each vector, for what the recording kept."""
    found = {}
    for role in ("keys", "values", "queries", "outputs"):
        if (kept := step.kept.get(role, {}).get(square.layer)) is None:
            continue
        if role in ("keys", "values"):
            vectors = kept[square.sequence, square.kv_head]
            held = step.column_positions(square.layer).tolist()
            there = dict(zip(held, vectors, strict=True))
            vectors = [there.get(column) for column in range(start, square.n_columns)]
        else:
            vectors = [kept[square.sequence, square.head][r] for r in rows]
        found[role] = [v if v is None else _round(v[:SHOWN]) for v in vectors]
    return found


def _round(vector) -> list[float]:
    return [round(number, 2) + 0.0 for number in vector.tolist()]  # no -0.0
