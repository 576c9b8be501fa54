"""`draw_column`: which entries of the cache changed between two passes, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kvviz.arguments import check_number, list_several
from kvviz.drawing import fonts, style
from kvviz.drawing.axes import make_axes, measure_names, write_number
from kvviz.drawing.inputs import check_words, to_numbers
from kvviz.drawing.marks import Cells, add, get_inset, make_boxes, measure_cell, write
from kvviz.drawing.picture import Picture
from kvviz.words import pluralize

FLOOR = 1e-3  # a relative change at or below it is rounding
WIDEST = 128  # positions in one picture; beyond that, only the newest are drawn
LEFT, LOW = 92, 66  # pixels
STEP = 34  # pixels for each colour of the scale
NEW = style.fill("keys", "new")


def draw_column(
    change,
    *,
    tokens: Sequence[str] = (),
    title: str,
    floor: float = FLOOR,
    sentence: str | None = None,
) -> Picture:
    """Draw layers by positions: each cell is a cache entry, coloured by how much it changed.

    A column that didn't exist before is new, and drawn like a new key.

    Args:
        change: (n_layers, N), the size of the difference over the size of the entry, 0 or more;
            NaN in all layers of a new column.
        tokens: N texts to write over the columns.
        title: what the picture shows.
        floor: an entry at or below it has not moved; from there to 1, the colour deepens.
        sentence: replaces the sentence that says how many entries moved, and where.

    Raises:
        ValueError: a wrong shape, numbers that aren't finite, no column to compare, or a wrong
            number of texts.

    >>> kv.draw_column([[0, 0, 0.5], [0, 0.1, 0.7]], title="After an edit")
    After an edit: 3 of 6 entries moved; positions moved in layer 0: 2; layer 1: 1 to 2
    """
    check_words(title, sentence)
    tokens = [*map(str, list_several("tokens", tokens, "a list of texts"))]
    floor = check_number("floor", floor, above=0)
    change = _check(to_numbers("change", change), floor)
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
    has_new = bool(np.isnan(change).any())
    size = (max(580 if has_new else 460, LEFT + wide + 60), top + tall + LOW)
    figure, ax = make_axes(title, size, left=LEFT, right=size[0] - LEFT - wide)
    ax.set_position((LEFT / size[0], LOW / size[1], wide / size[0], tall / size[1]))
    ax.set_axis_off()
    ax.set(xlim=(0, n), ylim=(n_layers, 0))
    with style.scope():
        _paint_entries(ax, change, floor)
        _label(ax, n_layers, height, _thin_out(tokens, cell))
        whole = figure.axes[0]
        write(whole, 16, top + tall / 2, "layer", color=style.QUIET, va="center")
        _draw_legend(whole, LEFT, size[1] - 40, floor, has_new)
        write(whole, 16, 42, left_out, size=style.SMALL, color=style.QUIET)
    return Picture(figure, sentence)


def _check(change: np.ndarray, floor: float) -> np.ndarray:
    if change.ndim != 2 or not change.size:
        raise ValueError(f"change: expected numbers (n_layers, N), but got shape {change.shape}")
    new = np.isnan(change).any(0)
    if new.all() or not np.isfinite(change[:, ~new]).all():
        raise ValueError("change: expected numbers, and NaN only in new columns")
    partly = np.flatnonzero(new & ~np.isnan(change).all(0))
    for position in partly[:1]:
        layer = int(np.isnan(change[:, position]).argmax())
        raise ValueError(
            f"change: NaN means a new column, in all layers, but at position {position} it's only "
            f"in some, such as layer {layer}"
        )
    if floor >= 1:
        raise ValueError(f"floor: expected a number between 0 and 1, but got {floor}")
    return change


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
    level = np.where(change > floor, np.clip(steps, 0, len(style.CHANGES) - 1), -1)
    level = np.where(np.isnan(change), len(style.CHANGES), level).astype(int)
    inset, cell = get_inset(measure_cell(ax)), measure_cell(ax)
    for k, color in enumerate((style.UNMOVED, *style.CHANGES, NEW), -1):
        layers, positions = np.nonzero(level == k)
        if len(layers):
            corners = make_boxes(positions, n_layers - 1 - layers, inset=inset)
            spots = list(zip(layers.tolist(), positions.tolist(), strict=True))
            state = "unmoved" if k < 0 else "new" if color == NEW else f"moved {k}"
            add(ax, [Cells("column", state, spots, corners, facecolors=color)])
            if color == NEW:
                at = positions + 0.5, n_layers - layers - 0.5
                ax.plot(*at, "+", color=style.PAPER, markersize=min(6, cell / 2), gid="new:mark")


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


def _draw_legend(ax: Axes, x: float, y: float, floor: float, has_new: bool) -> None:
    """A swatch for entries that didn't move, a scale of those that did, one for new columns."""

    def draw_box(x, wide, color):
        ax.add_patch(Rectangle((x, y - 7), wide, 14, facecolor=color, edgecolor="none"))

    def name(x, words):
        write(ax, x, y, words, size=style.SMALL, color=style.QUIET, va="center")
        return x + measure_names([words], style.SMALL) + 20

    draw_box(x, 14, style.UNMOVED)
    x = name(x + 20, "not moved")
    for k, color in enumerate(style.CHANGES):
        draw_box(x + k * STEP, STEP, color)
    wide = STEP * len(style.CHANGES)
    for power in range(ceil(np.log10(floor) - 1e-9), 1):
        at = x + wide * (1 - power / np.log10(floor))
        ax.plot([at, at], [y + 7, y + 10], color=style.QUIET, linewidth=0.8)
        words = f"{write_number(100 * 10**power)}%"
        write(ax, at, y + 18, words, size=style.SMALL, color=style.QUIET, va="center", ha="center")
    x = name(x + wide + 6, "of its size")
    if has_new:
        draw_box(x, 14, NEW)
        ax.plot([x + 7], [y], "+", color=style.PAPER, markersize=6)
        name(x + 20, "new column")


def describe_moved(change, floor: float = FLOOR) -> str:
    """How many entries moved, and at which positions of which layers."""
    change = np.asarray(change)
    old = ~np.isnan(change).all(0)
    new = np.flatnonzero(~old)
    moved = _describe_old(change > floor, int(old.sum()) * len(change))
    if not len(new):
        return moved
    where = f"position{'s' * (len(new) > 1)} {_describe_run(new)}"
    return f"{moved}; {pluralize(len(new), 'new column')}, {where}"


def _describe_old(over: np.ndarray, n: int) -> str:
    """The same of the columns that aren't new: which of their `n` entries are over the floor."""
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
    return f"{over.sum()} of {n} entries moved; positions moved in {'; '.join(words)}"


def _describe_run(positions: np.ndarray) -> str:
    if len(positions) < 2:
        return str(positions[0]) if len(positions) else "none"
    first, last = positions[0], positions[-1]
    whole = last - first + 1 == len(positions)
    return f"{first} to {last}" if whole else f"some from {first} to {last}"
