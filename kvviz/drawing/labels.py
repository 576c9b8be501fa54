"""Label a square: its tokens over the keys, beside the queries, and under values that moved."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.collections import LineCollection

from kvviz.drawing import fonts, style
from kvviz.drawing.marks import Canvas, add, measure_cell, write
from kvviz.drawing.square_drawing import GAP, get_thickness
from kvviz.recording.square import Square


def draw_labels(
    ax: Canvas, square: Square, *, start=0, gap=GAP, top=0, rows=True, above=54.0, room=66.0
) -> list:
    """Write tokens over the keys and beside the queries, the newest in bold; thin out crowded ones.

    The first `top` columns belong to an earlier prompt: their tokens aren't known. A label is cut
    if it would reach more than `above` pixels over the keys, or `room` pixels to the left of the
    queries.
    """
    cell, newest = measure_cell(ax), square.newest
    size, turn = _choose_size(cell)
    over = top - gap / cell - get_thickness(cell)
    longest = _find_longest(above, size, turn)
    own = -1 if newest is None else square.own_column(newest)
    owners: dict[int, list[int]] = {}
    for r, position in enumerate(square.row_positions if rows else ()):
        owners.setdefault(square.own_column(r), []).append(position)
    artists, struck = [], []
    for j in _thin_out(range(start + top, square.n_filled), own, cell):
        faint = square.column_states[j] in ("pad", "dropped")
        color = style.FAINT if faint else style.TEXT
        token, bold = square.tokens[j], j == own
        words, font = fonts.make_label(token, bold=bold, size=size, width=longest * 0.75)
        x, y = j - start + 0.5 + (4 if turn < 90 else 3.5) / cell, over - 6 / cell
        if j in square.cropped:
            struck.append(_find_strike(words, font, x, y, turn, cell))
        artists.append(
            write(
                ax,
                x,
                y,
                words,
                font=font,
                color=color,
                rotation=turn,
                rotation_mode="anchor",
                va="baseline",
                gid=f"column:{j}",
            )
        )
        words, font = fonts.make_label(token, bold=bold, size=size, width=room * 0.75)
        for p in owners.get(j, ()):
            x, y, gid = over - top - 9 / cell, p - start + 0.5, f"row:{p}"
            artists.append(write(ax, x, y, words, font=font, color=color, ha="right", gid=gid))
            if p in square.cropped:
                low = y + 0.3 * size / 0.75 / cell
                struck.append(_find_strike(words, font, x, low, 0, cell, is_end=True))
    if struck:  # words aren't cut at the border of their axes, so these lines aren't, either
        looks = {"colors": style.TEXT, "linewidths": 0.08 * size, "zorder": 4, "clip_on": False}
        artists += add(ax, [LineCollection(struck, gid="struck out", **looks)])
    return artists


def _find_strike(words: str, font, x, y, turn: float, cell: float, is_end=False) -> np.ndarray:
    """The ends (2, 2) of a line through a label whose baseline begins, or ends, at x, y."""
    turn = np.radians(turn)
    along = np.array([np.cos(turn), -np.sin(turn)]) / cell
    up = np.array([-np.sin(turn), -np.cos(turn)]) / cell
    middle = np.array([x, y]) + 0.3 * font.get_size_in_points() / 0.75 * up
    large = fonts.get_font(font.get_file(), 8 * font.get_size_in_points())
    long = fonts.measure(words, large) / 8 / 0.75  # of small letters, a width is rounded up
    middle = middle - long * along if is_end else middle
    return np.array([middle - 2 * along, middle + (long + 2) * along])


def draw_value_labels(
    ax: Canvas, square: Square, *, span: int, start=0, gap: float = GAP, room=66
) -> list:
    """Write tokens under values that belong to a different token than the key above them."""
    cell = measure_cell(ax)
    size, turn = _choose_size(cell)
    right, down = np.cos(np.radians(turn)) / cell, np.sin(np.radians(turn)) / cell
    under = span + gap / cell + get_thickness(cell) + 10 / cell
    moved = [j for j in square.moved_values if j >= start and square.value_tokens[j]]
    artists = []
    for j in _thin_out(moved, moved[-1] if moved else 0, cell):
        words, font = fonts.make_label(square.value_tokens[j], size=size, width=room * 0.75)
        long = fonts.measure(words, font) / 0.75
        artists.append(
            write(
                ax,
                j - start + 0.5 + 3.5 / cell - long * right,
                under + long * down,
                words,
                font=font,
                color=style.VALUES,
                rotation=turn,
                rotation_mode="anchor",
                va="baseline",
                gid=f"value:{j}",
            )
        )
    return artists


def draw_brackets(
    ax: Canvas, square: Square, *, span: int, start=0, gap: float = GAP, top: int
) -> list:
    """Brackets under the values: an earlier prompt and this text, and what is held twice."""
    cell, ends = measure_cell(ax), [(j - start - 1, j - start + 1, "twice") for j in square.twice]
    if top:
        ends = [(0, top, "earlier prompt"), (top, square.n_filled - start, "this text")]
    ends = [each for each in ends if each[0] >= 0]
    if not ends:
        return []
    under = span + gap / cell + get_thickness(cell) + 5 / cell
    low, lines, artists = under + 5 / cell, [], []
    for left, right, words in ends:
        left, right = left + 3 / cell, right - 3 / cell
        lines.append([(left, under), (left, low), (right, low), (right, under)])
        x, y, gid = (left + right) / 2, low + 11 / cell, f"bracket:{words}"
        if top or cell > 16:
            artists.append(
                write(ax, x, y, words, size=style.SMALL, color=style.QUIET, ha="center", gid=gid)
            )
    brackets = LineCollection(lines, colors=style.QUIET, linewidths=0.8, gid="brackets")
    return [*add(ax, [brackets]), *artists]


def measure_heights(squares: Sequence[Square], *, start: int = 0, cell: float = 16) -> float:
    """Pixels that the tokens over the columns from `start` on take upwards."""
    size, turn = _choose_size(cell)
    tokens = {token for square in squares for token in square.tokens[start:]}
    made = [fonts.make_label(token, bold=True, size=size) for token in tokens]
    longest = max((fonts.measure(*label) for label in made), default=0) / 0.75
    turn = np.radians(turn)
    return ceil(longest * np.sin(turn) + size * np.cos(turn) / 0.75)


def _find_longest(above: float, size: float, turn: float) -> float:
    """Pixels of a label that stay within `above` pixels when it's turned; see `measure_heights`."""
    turn = np.radians(turn)
    return (above - size * np.cos(turn) / 0.75) / np.sin(turn)


def _choose_size(cell: float) -> tuple[float, float]:
    """Size in points and angle in degrees of labels over cells of `cell` pixels."""
    return (style.LABEL, 55) if cell >= 16 else (7.5, 65) if cell >= 11 else (7, 90)


def _thin_out(columns: Sequence[int], newest: int, cell: float) -> list[int]:
    """Columns far enough apart for their labels; the newest is always one of them."""
    every = ceil(8.7 / cell)
    kept = [j for j in columns if (newest - j) % every == 0 and abs(newest - j) >= every]
    return sorted({*kept, *(j for j in columns if j == newest)})
