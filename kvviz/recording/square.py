"""One head's attention at one step, as a picture or a sentence needs it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Square:
    """One head's attention at one step, with everything a picture or a sentence needs.

    N places stand in `tokens`, in order; Tq of them ask this step.

    Attributes:
        tokens: N texts, as the tokenizer decodes them.
        column_states: N states: "new", "recomputed" (computed before, and now once more), "read" (from the
            store), "earlier" (read; not the key that this recording saw written there: older than
            it, or moved), "pad", "empty" (a slot with nothing in it), "dropped" (fell out of this
            layer's window).
        row_positions: Tq positions, ascending; `row_states` says "new", "recomputed" or "pad" of each.
        weights: (Tq, N) float32, NaN where the layer had no such column; None if not kept.
        masked: (Tq, N) bool, true where the mask let nothing through.
        gap: largest |weights @ values - output| over the largest |output|; NaN if not measured.
        bytes: what the store's tensors take after this pass, all layers together.
        own_columns: the column of each row's own key: `row_positions`, unless columns are out of place.
    """

    step: int
    layer: int
    head: int
    sequence: int
    tokens: tuple[str, ...]
    column_states: tuple[str, ...]
    row_positions: tuple[int, ...]
    row_states: tuple[str, ...]
    weights: np.ndarray | None
    masked: np.ndarray
    cached: bool
    fed: int
    held_before: int
    held_after: int
    gap: float
    bytes: int = 0
    own_columns: tuple[int, ...] = ()
