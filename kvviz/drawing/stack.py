"""A picture of the whole stack: which entries of the store moved between two passes, how far."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.patches import Rectangle

from kvviz.drawing import charts as chart
from kvviz.drawing import square as draw
from kvviz.drawing import style
from kvviz.drawing.marks import write
from kvviz.drawing.picture import Picture

FLOOR = 1e-3  # a relative change at or below it is rounding
WIDEST = 128  # places in one picture; of more, the newest are drawn


def draw_column(
    change, *, tokens: Sequence[str] = (), title: str, floor: float = FLOOR, sentence=None
) -> Picture:
    """Layers by places: each cell an entry of the store, coloured by how far it moved.

    Args:
        change: (n_layers, N), the size of the difference over the size of the entry, 0 or more.
        tokens: N texts, over the columns.
        title: what to see.
        floor: at or below it an entry has not moved; from there to 1 the colour deepens.
        sentence: the text twin, instead of how many entries moved, and where.

    Raises:
        ValueError: another shape, a number that is none, or not one text for each place.
    """
    change = np.asarray(change, dtype=float)
    if change.ndim != 2 or not change.size or not np.isfinite(change).all():
        raise ValueError(f"change: expected numbers (n_layers, N), and got shape {change.shape}")
    n_layers, n_places = change.shape
    if len(tokens) not in (0, n_places):
        raise ValueError(f"tokens: expected {n_places}, one a place, and got {len(tokens)}")
    sentence = sentence or f"{title}: {moved(change, floor)}"
    left_out = _left_out(max(0, n_places - WIDEST))
    sentence += f"; {left_out}" if left_out else ""
    change, tokens = change[:, -WIDEST:], tokens[-WIDEST:]
    n_places = change.shape[1]
    cell, left = max(8, min(40, 560 // n_places)), 92
    height = max(6, min(18, 330 // n_layers))
    top, low = 66 + 34 * bool(len(tokens)), 56
    size = (max(460, left + cell * n_places + 60), top + height * n_layers + low)
    figure, ax = chart.page(title, size, left=left, right=size[0] - left - cell * n_places)
    box = (left, low, cell * n_places, height * n_layers)
    ax.set_position([box[i] / size[i % 2] for i in range(4)])
    ax.set_axis_off()
    ax.set(xlim=(0, n_places), ylim=(n_layers, 0))
    with style.scope():
        draw.column(ax, change, tokens=_thinned(tokens, cell), floor=floor)
        whole = figure.axes[0]
        write(whole, 16, top + height * n_layers / 2, "layer", color=style.QUIET, va="center")
        _legend(whole, left, size[1] - 26)
        write(whole, 16, 42, left_out, size=style.SMALL, color=style.QUIET)
    return Picture(figure, sentence)


def _left_out(n: int) -> str:
    return f"{'place 0 is' if n == 1 else f'places 0 to {n - 1} are'} not drawn" if n else ""


def _thinned(tokens: Sequence[str], cell: float) -> list[str]:
    """No text for those that have no room beside the next; the newest has one."""
    every = ceil(12 / cell)
    return ["" if (len(tokens) - 1 - j) % every else token for j, token in enumerate(tokens)]


def _legend(ax, x, y):
    steps = [(style.UNMOVED, "not moved"), (style.CHANGES[0], "a little")]
    steps += [(color, "") for color in style.CHANGES[1:-1]]
    steps += [(style.CHANGES[-1], "as far as it is large")]
    for color, words in steps:
        ax.add_patch(Rectangle((x, y - 7), 14, 14, facecolor=color, edgecolor="none"))
        x += 18
        if words:
            write(ax, x + 3, y, words, va="center", size=style.SMALL, color=style.QUIET)
            x += 16 + chart.room([words], style.SMALL)


def moved(change, floor: float = FLOOR) -> str:
    """In words: how many entries moved, and from which place on in which layers."""
    over = np.asarray(change) > floor
    if not over.any():
        return f"no entry moved, in any of {len(over)} layers"
    parts = []
    for layer, row in enumerate(over):
        places = np.flatnonzero(row)
        run = _run(places) if len(places) else "none"
        if not parts or parts[-1][2] != run:
            parts.append([layer, layer, run])
        parts[-1][1] = layer
    said = [
        f"layer {first}: {run}" if first == last else f"layers {first} to {last}: {run}"
        for first, last, run in parts
    ]
    return f"{over.sum()} of {over.size} entries moved; places moved in " + "; ".join(said)


def _run(places):
    whole = list(range(places[0], places[-1] + 1)) == places.tolist()
    if len(places) == 1:
        return f"{places[0]}"
    return f"{places[0]} to {places[-1]}" if whole else f"some from {places[0]} to {places[-1]}"
