"""What one layer's attention saw in one step, as a square: weights come from queries and keys.

A check keeps no attention, so that the model runs as fast as it does without. The weights are
computed again here, under the mask that gives the output that was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kvviz.checking.columns import CLOSE
from kvviz.recording.square import Square

MANY_CELLS = 40_000  # rows times columns; beyond that only the causal mask is tried


@dataclass(frozen=True, repr=False)
class Seen:
    """One layer in one step, of one sequence: Tq rows and Tk columns.

    Attributes:
        blank: the square without its attention; its columns are positions.
        query, keys, values, output: (H, Tq, D), (G, Tk, D), (G, Tk, D), (H, Tq, D); no output if
            attention raised.
        columns: Tk positions, which say where in the square each column is.
    """

    blank: Square
    query: Tensor
    keys: Tensor
    values: Tensor
    output: Tensor | None
    columns: tuple[int, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        return self.blank.row_positions

    @cached_property
    def attention(self) -> tuple[Tensor, Tensor] | None:
        """Weights (H, Tq, Tk), and (Tq, Tk) bool, where a row could see.

        None if no mask we know gives the output; then attention was of another kind.
        """
        n = self.keys.shape[1]
        if self.output is None or not n or self.values.shape[1] != n or len(self.columns) != n:
            return None
        best, shared_by = None, self.query.shape[0] // self.keys.shape[0]
        keys, values = (x.repeat_interleave(shared_by, 0) for x in (self.keys, self.values))
        if keys.shape[2] != self.query.shape[2] or values.shape[2] != self.output.shape[2]:
            return None
        scores = self.query @ keys.transpose(1, 2) * self.query.shape[-1] ** -0.5
        least = CLOSE * float(self.output.abs().max())
        for visible in self._masks():
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num()
            gap = float((weights @ values - self.output).abs().max())
            if gap <= least:
                best, least = (weights, visible), gap
            if best and gap <= CLOSE / 100 * float(self.output.abs().max()):
                break
        return best

    @cached_property
    def needed(self) -> set[int]:
        """The columns that some row can see: with a window, the last ones; all, if unknown."""
        if self.attention is None:
            return {*self.columns}
        return {self.columns[j] for j in self.attention[1].any(0).nonzero()[:, 0].tolist()}

    def _masks(self) -> Iterator[Tensor]:
        """Masks that a row may be given, the right one first; see `mask_rules`."""
        rows, columns = torch.tensor(self.rows), torch.tensor(self.columns)
        ages = rows[:, None] - columns
        yield ages >= 0
        if ages.numel() > MANY_CELLS:
            return
        yield torch.ones_like(ages, dtype=torch.bool)
        yield ages > 0
        yield (columns < rows.min()).expand_as(ages)
        yield ages >= rows.min()  # from the top left
        yield from (ages >= -ahead for ahead in range(1, len(rows) - 1))
        yield from ((ages >= 0) & (ages < wide) for wide in range(1, len(columns)))
        yield from ((ages >= 0) & (columns != hole) for hole in self.columns)

    def cut(self, n: int) -> Seen:
        """The same without the rows after the first n, and without their columns."""
        if n >= len(self.rows):
            return self
        blank, end = self.blank, self.rows[n]
        kept = [j for j, column in enumerate(self.columns) if column < end]
        cut = {name: getattr(blank, name) for name in ("value_states", "value_tokens")}
        blank = replace(
            blank, tokens=blank.tokens[:end], column_states=blank.column_states[:end],
            row_positions=self.rows[:n], row_states=blank.row_states[:n], weights=None,
            masked=blank.masked[:n, :end], fed=n, held_after=blank.held_before + n,
            own_columns=blank.own_columns[:n],
            **{name: each and each[:end] for name, each in cut.items()},
        )  # fmt: skip
        parts = self.query[:, :n], self.keys[:, kept], self.values[:, kept]
        output = None if self.output is None else self.output[:, :n]
        return Seen(blank, *parts, output, tuple(self.columns[j] for j in kept))

    def draw_head(self, head: int) -> Square:
        """The square of one head; without weights if attention was of another kind."""
        square = replace(self.blank, head=head)
        if self.attention is None:
            return square
        weights, visible = self.attention
        shape, columns = (len(self.rows), square.n_columns), list(self.columns)
        shares, masked = torch.full(shape, torch.nan), torch.zeros(shape, dtype=torch.bool)
        shares[:, columns], masked[:, columns] = weights[head], ~visible
        return replace(square, weights=shares.numpy(), masked=masked.numpy())


def choose_head(seen: Seen) -> int:
    """The head whose newest row gives most to one earlier token, the first not counted.

    The first token gets the rest of most heads' attention, whatever it is.
    """
    return 0 if seen.attention is None else int(measure_interest(seen.attention[0]).argmax())


def measure_interest(weights: Tensor) -> Tensor:
    """(H,) the largest share of the newest row between the first column and its own, in whole
    percents, so that every processor chooses the same head; weights (H, Tq, Tk)."""
    if weights.shape[2] < 3:
        return torch.zeros(weights.shape[0])
    return (100 * weights[:, -1, 1:-1]).round().amax(-1)


def choose_layer(layers: dict[int, Seen]) -> int:
    """The layer with the head that `choose_head` would choose of all layers."""
    interest = {
        number: float(measure_interest(seen.attention[0]).max())
        for number, seen in layers.items()
        if seen.attention is not None
    }
    return max(interest, key=interest.get, default=min(layers))
