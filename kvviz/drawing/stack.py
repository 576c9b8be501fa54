"""`draw_column`: which entries of the cache changed between two passes, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kvviz.drawing import fonts, style
from kvviz.drawing.axes import make_axes, measure_names, write_number
from kvviz.drawing.inputs import to_numbers
from kvviz.drawing.marks import Cells, add, get_inset, make_boxes, measure_cell, write
from kvviz.drawing.picture import Picture

FLOOR = 1e-3  # a relative change at or below it is rounding
WIDEST = 128  # positions in one picture; beyond that, only the newest are drawn
LEFT, LOW = 92, 56  # pixels


def draw_column(
    change,
    *,
    tokens: Sequence[str] = (),
    title: str,
    floor: float = FLOOR,
    sentence: str | None = None,
) -> Picture:
    """Draw layers by positions: each cell is a cache entry, coloured by how much it changed.

    Args:
        change: (n_layers, N), the size of the difference over the size of the entry, 0 or more.
        tokens: N texts to write over the columns.
        title: what the picture shows.
        floor: an entry at or below it has not moved; from there to 1, the colour deepens.
        sentence: replaces the sentence that says how many entries moved, and where.

    Raises:
        ValueError: a wrong shape, numbers that aren't finite, or a wrong number of texts.

    >>> kv.draw_column([[0, 0, 0.5], [0, 0.1, 0.7]], title="After an edit")
    After an edit: 3 of 6 entries moved; positions moved in layer 0: 2; layer 1: 1 to 2
    """
    change = to_numbers("change", change)
    if change.ndim != 2 or not change.size or not np.isfinite(change).all():
        raise ValueError(f"change: expected numbers (n_layers, N), but got shape {change.shape}")
    n_layers, n = change.shape
    if len(tokens) not in (0, n):
        raise ValueError(f"tokens: expected {n}, one for each position, but got {len(tokens)}")
    left_out = _describe_left_out(max(0, n - WIDEST))
    sentence = sentence or f"{title}: {describe_moved(change, floor)}"
    sentence += f"; {left_out}" if left_out else ""
    change, tokens = change[:, -WIDEST:], tokens[-WIDEST:]
    n = change.shape[1]
    cell, height = max(8, min(40, 560 // n)), max(6, min(18, 330 // n_layers))
    wide, tall, top = cell * n, height * n_layers, 66 + 34 * bool(len(tokens))
    size = (max(460, LEFT + wide + 60), top + tall + LOW)
    figure, ax = make_axes(title, size, left=LEFT, right=size[0] - LEFT - wide)
    ax.set_position((LEFT / size[0], LOW / size[1], wide / size[0], tall / size[1]))
    ax.set_axis_off()
    ax.set(xlim=(0, n), ylim=(n_layers, 0))
    with style.scope():
        _paint_entries(ax, change, floor)
        _label(ax, n_layers, height, _thin_out(tokens, cell))
        whole = figure.axes[0]
        write(whole, 16, top + tall / 2, "layer", color=style.QUIET, va="center")
        _draw_legend(whole, LEFT, size[1] - 26, floor)
        write(whole, 16, 42, left_out, size=style.SMALL, color=style.QUIET)
    return Picture(figure, sentence)


def _describe_left_out(n: int) -> str:
    return f"{'position 0 is' if n == 1 else f'positions 0 to {n - 1} are'} not drawn" if n else ""


def _thin_out(tokens: Sequence[str], cell: float) -> list[str]:
    """Keep tokens far enough apart, always with the newest, and make the others empty."""
    every = ceil(12 / cell)
    return ["" if (len(tokens) - 1 - j) % every else token for j, token in enumerate(tokens)]


def _paint_entries(ax: Axes, change: np.ndarray, floor: float) -> None:
    """Paint layer 0 at the bottom; from `floor` to 1, the colour deepens in equal factors."""
    n_layers = len(change)
    with np.errstate(divide="ignore"):
        steps = np.log(change / floor) / np.log(1 / floor) * len(style.CHANGES)
    level = np.where(change > floor, np.clip(steps, 0, len(style.CHANGES) - 1), -1).astype(int)
    inset = get_inset(measure_cell(ax))
    for k, color in enumerate((style.UNMOVED, *style.CHANGES), -1):
        layers, positions = np.nonzero(level == k)
        if len(layers):
            corners = make_boxes(positions, n_layers - 1 - layers, inset=inset)
            spots = list(zip(layers.tolist(), positions.tolist(), strict=True))
            state = "unmoved" if k < 0 else f"moved {k}"
            add(ax, [Cells("column", state, spots, corners, facecolors=color)])


def _label(ax: Axes, n_layers: int, height: float, tokens: Sequence[str]) -> None:
    """Write layers beside the rows, each `height` pixels high, and tokens over the columns."""
    cell = measure_cell(ax)
    for layer in range(0, n_layers, max(1, ceil(18 / height))):
        y, color = n_layers - layer - 0.5, style.QUIET
        write(ax, -6 / cell, y, str(layer), size=style.SMALL, ha="right", color=color)
    for j, token in enumerate(tokens):
        words, font = fonts.make_label(token, size=style.SMALL, width=50)
        write(
            ax,
            j + 0.6,
            -6 / cell,
            words,
            font=font,
            rotation=55,
            rotation_mode="anchor",
            va="baseline",
        )


def _draw_legend(ax: Axes, x: float, y: float, floor: float) -> None:
    first, *between, last = style.CHANGES
    steps = [(style.UNMOVED, "not moved"), (first, f"{write_number(100 * floor)}%")]
    steps += [(color, "") for color in between] + [(last, "100% of its size")]
    for color, words in steps:
        ax.add_patch(Rectangle((x, y - 7), 14, 14, facecolor=color, edgecolor="none"))
        x += 18
        if words:
            write(ax, x + 3, y, words, size=style.SMALL, color=style.QUIET, va="center")
            x += 16 + measure_names([words], style.SMALL)


def describe_moved(change, floor: float = FLOOR) -> str:
    """How many entries moved, and at which positions of which layers."""
    over = np.asarray(change) > floor
    if not over.any():
        return f"no entry moved, in any of {len(over)} layers"
    parts: list[list] = []  # [first layer, last layer, positions]
    for layer, row in enumerate(over):
        positions = _describe_run(np.flatnonzero(row))
        if not parts or parts[-1][2] != positions:
            parts.append([layer, layer, positions])
        parts[-1][1] = layer
    words = [
        f"layer {first}: {run}" if first == last else f"layers {first} to {last}: {run}"
        for first, last, run in parts
    ]
    return f"{over.sum()} of {over.size} entries moved; positions moved in {'; '.join(words)}"


def _describe_run(positions: np.ndarray) -> str:
    if len(positions) < 2:
        return str(positions[0]) if len(positions) else "none"
    first, last = positions[0], positions[-1]
    whole = last - first + 1 == len(positions)
    return f"{first} to {last}" if whole else f"some from {first} to {last}"
