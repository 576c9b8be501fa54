"""Choose the head that a picture shows if nobody says which."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def find_telling_head(run, layers: Iterable[int] | None, sequence: int):
    """The (layer, head) that `Run.choose_head` returns.

    Of each row's attention, only what goes to columns after the first real one and other than its
    own counts. Averages within a thousandth are equal, and of equal heads it is the first, so that
    every processor chooses the same one.
    """
    kept = [step.kept.get("attention", {}).keys() for step in run]
    common = set.intersection(*map(set, kept)) if kept else set()
    layers = sorted(common if layers is None else common.intersection(layers))
    if not layers:
        raise ValueError("expected a recording that kept attention for at least one of the layers")
    totals = {layer: torch.zeros(run[0].attention[layer].shape[1]) for layer in layers}
    for step in run:
        square = step.square(layers[0], 0, sequence)
        if square.newest is None:
            continue
        row = square.newest - len(square.row_positions)  # from the end: a layer may have fewer rows
        ends = torch.tensor([square.real_columns()[0], square.own_column(square.newest)])
        for layer in layers:
            between = ~torch.isin(step.column_positions(layer), ends)
            shares = step.attention[layer][sequence][:, row, between]
            totals[layer] += shares.nan_to_num(0.0).sum(-1)
    spread = {
        (layer, head): round(float(total) / len(run), 3)
        for layer, each in totals.items()
        for head, total in enumerate(each)
    }
    return max(spread, key=spread.__getitem__)
