"""Columns that are out of order: which token's key, or value, is in each."""

from __future__ import annotations

from typing import NamedTuple

import torch

_MOST_WRITTEN = 512  # witnesses remembered, to recognise columns that are out of order


class Order(NamedTuple):
    """What is in each column where a sequence's columns are out of order.

    Attributes:
        tokens: (B, columns) int64, the token id of each column.
        rows: (B, columns) int64, the row of this pass that wrote the column; -1 if it was held
            before. A sequence whose columns are in order has -1 throughout.
    """

    tokens: torch.Tensor
    rows: torch.Tensor

    def select(self, sequence: int) -> Order | None:
        """One sequence's columns, each field (columns,); None if they are in order."""
        rows = self.rows[sequence]
        return Order(self.tokens[sequence], rows) if bool((rows >= 0).any()) else None


class Written:
    """The first keys, or values, that a recording saw written, in its first sequence."""

    def __init__(self):
        self.witnesses: list[torch.Tensor] = []
        self.tokens: list[int] = []

    def add(self, witness, fed, order):
        """Remember the columns that this pass wrote: the last ones, unless they are elsewhere."""
        if len(self.tokens) < _MOST_WRITTEN:
            own = witness[-len(fed) :].clone() if order is None else witness[order.rows >= 0]
            self.witnesses.append(own)
            self.tokens += fed.tolist()

    def find(self, witness, fed) -> Order | None:
        """Each column's token and row, if the columns not seen before are as many as were fed."""
        if not self.tokens:
            return None
        before = torch.cat(self.witnesses)
        near = (witness[:, None] - before).abs().amax(-1) <= 1e-4 * before.abs().max()
        new = (~near.any(-1)).nonzero()[:, 0]
        if len(new) != len(fed):
            return None
        tokens = torch.tensor(self.tokens)[near.long().argmax(-1)]
        rows = torch.full_like(tokens, -1)
        tokens[new], rows[new] = fed, torch.arange(len(fed))
        return Order(tokens, rows)


def gather(orders, now):
    """One `Order` of (B, columns) from those of single sequences; None if there are none."""
    if not orders:
        return None
    shape = now.token_ids.shape[0], now.visible
    whole = Order(tokens=torch.full(shape, -1), rows=torch.full(shape, -1))
    for sequence, order in orders.items():
        whole.tokens[sequence], whole.rows[sequence] = order
    return whole
