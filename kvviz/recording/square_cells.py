"""The cells of a square, row by column: what is drawn in ink, what is masked, what wasn't kept."""

from __future__ import annotations

import numpy as np


def find_attention_cells(square, start: int) -> dict[str, tuple[list[int], list[int]]]:
    """Row indexes and columns of the "ink", "masked" and "not kept" cells from `start` on."""
    rows = np.array([r for r in square.real_rows if square.row_positions[r] >= start], dtype=int)
    real = np.array(square.real_columns(start), dtype=int)
    masked, none = square.masked[np.ix_(rows, real)], np.zeros((len(rows), len(real)), dtype=bool)
    ink, not_kept = none, none
    if square.weights is None:
        held = np.array([square.column_states[j] != "dropped" for j in real], dtype=bool)
        not_kept = ~masked & held
    else:
        ink = ~masked & np.isfinite(square.weights[np.ix_(rows, real)])
    found = {}
    for state, there in (("ink", ink), ("masked", masked), ("not kept", not_kept)):
        r, j = np.nonzero(there)
        found[state] = rows[r].tolist(), real[j].tolist()
    return found
