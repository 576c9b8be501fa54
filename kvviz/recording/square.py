"""One head's attention at one step, and the facts that pictures and sentences derive from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kvviz.arguments import check_whole, describe
from kvviz.recording.square_cells import find_attention_cells

TRUSTED = 1e-4  # the largest relative gap between weights times values and the layer's output
PAST = ("read", "earlier", "same", "dropped")  # columns whose rows an earlier step computed
BLANK = ("pad", "empty")  # columns with nothing to attend to
EDGES = ("keys", "values", "queries", "outputs")
WRITTEN = ("new", "recomputed")


@dataclass(frozen=True)
class Square:
    """One head's attention at one step: N columns, of which Tq rows are computed in this step.

    Attributes:
        tokens: N texts, as the tokenizer decodes them; the key in each column belongs to this one.
        column_states: N states of the keys: "new", "recomputed" (an earlier step computed it, too),
            "read" (from the cache), "earlier" (read, but not the key this recording saw written
            there: it is from an earlier prompt, or was moved), "pad", "empty" (a slot with nothing
            in it), "dropped" (out of this layer's window).
        row_positions: Tq positions, ascending; `row_states` says "new", "recomputed" or "pad" of
            each.
        weights: (Tq, N) float32, NaN where the layer had no such column; None if not kept.
        masked: (Tq, N) bool, true where the mask let nothing through.
        gap: largest |weights @ values - output| over the largest |output|; NaN if not measured.
        bytes: what the cache's tensors take after this step, all layers together; None if that
            isn't known.
        own_columns: the column of each row's own key; empty means the same as `row_positions`.
        value_states, value_tokens: like `column_states` and `tokens`, for the values; None where
            they are the same as the keys'.
        implementation: which attention ran; see `Step`. In 16 bits, "eager" can round a score
            otherwise than "sdpa", and another token can come out.
        kv_head: the key/value head that this head reads.
        cropped: positions whose row, key and value this step computed, and that were taken out of
            the cache before a later step read them; also empty if nothing is known of a later one.
        surplus: columns that an earlier step wrote in addition to one for each token fed.
        n_layers, n_sequences: how many layers and sequences `bytes` is for.

    Raises:
        ValueError: in the methods, a row that isn't there, a start, span or number of columns that
            isn't a whole number of at least 0, or a role that isn't an edge's.
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
    bytes: int | None = 0
    own_columns: tuple[int, ...] = ()
    value_states: tuple[str, ...] | None = None
    value_tokens: tuple[str, ...] | None = None
    implementation: str | None = None
    kv_head: int = 0
    surplus: tuple[int, ...] = ()
    cropped: tuple[int, ...] = ()
    n_layers: int = 1
    n_sequences: int = 1

    # -- columns -----------------------------------------------------------------------------

    @property
    def n_columns(self) -> int:
        """N: keys, values and empty slots."""
        return len(self.column_states)

    def real_columns(self, start: int = 0) -> list[int]:
        """Columns from `start` on that are neither padding nor empty."""
        start = check_whole("start", start, least=0)
        return [j for j in range(start, self.n_columns) if self.column_states[j] not in BLANK]

    @cached_property
    def tally(self) -> Counter[str]:
        """How many keys are in each state."""
        return Counter(self.column_states)

    @cached_property
    def value_tally(self) -> Counter[str]:
        """How many values are in each state."""
        return Counter(self.states_of("values"))

    @cached_property
    def n_visible(self) -> int:
        """Columns that a row can see: read from the cache, or written now."""
        return sum(self.tally[state] for state in ("new", "recomputed", "read", "earlier"))

    @cached_property
    def n_unknown(self) -> int:
        """Columns in front that are from an earlier prompt, whose tokens weren't recorded."""
        known = (j for j, state in enumerate(self.column_states) if state != "earlier")
        n = next(known, self.n_columns)
        is_unknown = set(self.tokens[:n]) <= {"?"} and n <= min(self.row_positions, default=0)
        return n if is_unknown else 0

    @property
    def twice(self) -> list[int]:
        """Surplus columns that hold the same token as the column before them."""
        pairs = ((j, self.tokens[j - 1 : j + 1], self.column_states[j]) for j in self.surplus if j)
        return [j for j, (one, other), state in pairs if one == other and state == "read"]

    @property
    def grown(self) -> int:
        """How many tokens the cache holds more than before this step."""
        return self.held_after - self.held_before

    def states_of(self, role: str) -> tuple[str, ...]:
        """N states of the "keys" or of the "values"."""
        if not isinstance(role, str) or role not in ("keys", "values"):
            raise ValueError(f"role: expected 'keys' or 'values', but got {describe(role)}")
        moved = role == "values" and self.value_states is not None
        return self.value_states if moved else self.column_states

    def edge_states(self, role: str) -> list[str]:
        """The states of an edge as it's drawn, of N columns or of Tq rows: some are "cropped"."""
        if not isinstance(role, str) or role not in EDGES:
            raise ValueError(f"role: expected one of {', '.join(EDGES)}, but got {describe(role)}")
        columns = role in ("keys", "values")
        states = self.states_of(role) if columns else self.row_states
        if not self.cropped:
            return list(states)
        places = range(self.n_columns) if columns else self.row_positions
        out = set(self.cropped)
        both = zip(places, states, strict=True)
        return ["cropped" if p in out and s in WRITTEN else s for p, s in both]

    @cached_property
    def moved_values(self) -> list[int]:
        """Columns whose value is known to belong to another token than their key."""
        if self.value_tokens is None:
            return []
        pairs = zip(self.tokens, self.value_tokens, strict=True)
        differ = [j for j, (key, value) in enumerate(pairs) if key != value]
        states = self.column_states, self.states_of("values")
        return [j for j in differ if all(each[j] != "earlier" for each in states)]

    @property
    def has_two_orders(self) -> bool:
        """Whether keys and values are in different orders."""
        states = self.states_of("values")
        same_counts = self.tally == self.value_tally
        return bool(self.moved_values) or (same_counts and states != self.column_states)

    def crop(self, n: int) -> Square:
        """The same without empty slots from column `n` on."""
        n = max(check_whole("n", n, least=0), self.n_filled)
        if n >= self.n_columns:
            return self
        return replace(
            self,
            tokens=self.tokens[:n],
            column_states=self.column_states[:n],
            value_tokens=None if self.value_tokens is None else self.value_tokens[:n],
            value_states=None if self.value_states is None else self.value_states[:n],
            weights=None if self.weights is None else self.weights[:, :n],
            masked=self.masked[:, :n],
        )

    def written(self, role: str) -> list[int]:
        """Columns of the "keys" or the "values" that this step computed."""
        return [j for j, state in enumerate(self.states_of(role)) if state in WRITTEN]

    # -- rows --------------------------------------------------------------------------------

    @cached_property
    def real_rows(self) -> list[int]:
        """Indexes into `row_positions` of the rows that are not padding."""
        return [r for r, state in enumerate(self.row_states) if state != "pad"]

    @property
    def newest(self) -> int | None:
        """Index into `row_positions` of the last row that is not padding, or None."""
        return self.real_rows[-1] if self.real_rows else None

    @property
    def n_recomputed(self) -> int:
        """Rows that an earlier step computed, too."""
        return self.row_states.count("recomputed")

    @property
    def n_cropped(self) -> int:
        """Rows that were taken out of the cache before a later step read them."""
        return len({*self.row_positions} & {*self.cropped})

    def _check_row(self, row) -> int:
        return check_whole("row", row, least=0, most=len(self.row_positions) - 1)

    def own_column(self, row: int) -> int:
        """The column of this row's own key; `row` is an index into `row_positions`."""
        return (self.own_columns or self.row_positions)[self._check_row(row)]

    def token_of(self, row: int) -> str:
        """The token this row belongs to."""
        return self.tokens[self.own_column(row)]

    # -- attention ---------------------------------------------------------------------------

    @property
    def is_doubtful(self) -> bool:
        """Whether weights times values miss the layer's output by more than rounding."""
        return self.gap > TRUSTED

    def most_attended(self, row: int) -> tuple[int, float] | None:
        """Column and share that this row attends to most; None if to nothing, or if not kept.

        Of equal shares it is the first, so that every processor gives the same column.
        """
        row = self._check_row(row)
        if self.weights is None:
            return None
        weights = self.weights[row].astype(float)
        shares = np.where(self.masked[row] | ~np.isfinite(weights), -1, weights)
        largest = float(shares.max())
        return None if largest < 0 else (int((shares >= largest - 1e-4).argmax()), largest)

    def left_over(self, row: int) -> float | None:
        """Share of this row's weight that no column got, but an attention sink; None if not kept.

        0 where it is less than a hundredth, which rounding explains.
        """
        row = self._check_row(row)
        if self.weights is None:
            return None
        rest = 1 - float(np.nansum(self.weights[row], dtype=float))
        return rest if rest > 0.01 else 0.0

    def share_before(self, start: int) -> float | None:
        """Share that the newest row gives to the columns before `start`; None if not kept."""
        start = check_whole("start", start, least=0)
        if self.weights is None or self.newest is None:
            return None
        return float(np.nansum(self.weights[self.newest, :start], dtype=float))

    def attention_cells(self, start: int = 0) -> dict[str, tuple[list[int], list[int]]]:
        """Row indexes and columns of the "ink", "masked" and "not kept" cells from `start` on."""
        return find_attention_cells(self, check_whole("start", start, least=0))

    def past_rows(self, start: int = 0) -> list[int]:
        """Positions from `start` on whose rows this step didn't compute."""
        computed, start = set(self.row_positions), check_whole("start", start, least=0)
        if self.own_columns not in ((), self.row_positions):  # a column says nothing of a position
            return [p for p in range(start, self.n_filled) if p not in computed]
        real = self.real_columns(start)
        return [p for p in real if p not in computed and self.column_states[p] in PAST]

    def legend(self, span: int, start: int = 0) -> set[str]:
        """The states to explain when columns from `start` on are drawn in room for `span`."""
        span, start = check_whole("span", span, least=0), check_whole("start", start, least=0)
        states = {state for role in ("keys", "values") for state in self.edge_states(role)[start:]}
        rows = zip(self.edge_states("queries"), self.row_positions, strict=True)
        states |= {state for state, position in rows if position >= start}
        states |= {state for state, (cells, _) in self.attention_cells(start).items() if cells}
        states |= {"not computed"} if self.past_rows(start) else set()
        return states | ({"to come"} if self.n_filled - start < span else set())

    @property
    def n_filled(self) -> int:
        """Columns that aren't empty slots."""
        return self.n_columns - self.tally["empty"]
