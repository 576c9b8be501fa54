"""Choose the head that a picture shows if nobody says which."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kvviz.arguments import check_whole, list_several


def find_telling_head(run, layers: Iterable[int] | None, sequence: int) -> tuple[int, int]:
    """The (layer, head) that `Run.choose_head` returns.

    Averages within a thousandth are equal, and of equal heads it is the first, so that every
    processor chooses the same one.
    """
    if layers is not None:
        listed = list_several("layers", layers, "a list of layers")
        layers = [check_whole("layers", layer) for layer in listed]
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
        own = square.own_column(square.newest)
        usual = torch.tensor([square.real_columns()[0], own - 1, own])
        for layer in layers:
            further = ~torch.isin(step.column_positions(layer), usual)
            shares = step.attention[layer][sequence][:, row, further].nan_to_num(0.0)
            totals[layer] += shares.amax(-1) if further.any() else 0
    averages = {
        (layer, head): round(float(total) / len(run), 3)
        for layer, each in totals.items()
        for head, total in enumerate(each)
    }
    return max(averages, key=averages.__getitem__)
