"""One head's attention at one step, as a picture or a sentence needs it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Square:
    """One head's attention at one step, with everything a picture or a sentence needs.

    There are N columns, in order of position, and Tq rows computed in this step.

    Attributes:
        tokens: N texts, as the tokenizer decodes them.
        column_states: N states of the keys: "new", "recomputed" (an earlier step computed it too),
            "read" (from the cache), "earlier" (read, but not a key that this recording saw
            written: it is older, or has changed), "pad", "empty" (a slot with nothing in it),
            "dropped" (it left this layer's window).
        row_positions: Tq positions, ascending.
        row_states: for each row, "new", "recomputed" or "pad".
        weights: (Tq, N) float32, NaN where the layer had no such column; None if not kept.
        masked: (Tq, N) bool, true where the mask let nothing through.
        gap: largest |weights @ values - output| over the largest |output|; NaN if not measured.
        bytes: what the tensors in the cache take after this pass, all layers together.
        own_columns: the column of each row's own key: `row_positions`, unless columns are out of
            order.
        value_states, value_tokens: the same as `column_states` and `tokens`, for the values; None
            where they are the keys'. They differ where keys and values are in different orders.
        left_over: for each row, the share of its weight that went to no column but to an attention
            sink that is not drawn; 0 up to rounding, None if the weights were not kept.
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
    value_states: tuple[str, ...] | None = None
    value_tokens: tuple[str, ...] | None = None
    left_over: tuple[float, ...] | None = None
