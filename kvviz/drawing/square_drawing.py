"""Draw one square: attention in the middle, keys, values, queries and outputs on its four edges.

One data unit is one cell: column j lies at x = j, the row at position p at y = p, downwards, so a
token keeps its column and its row from step to step. Every function draws on a given canvas, leaves
out the columns before `start`, and returns what it drew; `marks.find_cells` reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PolyCollection

from kvviz.drawing import marks, style
from kvviz.drawing.marks import Canvas, Cells, add, make_boxes, measure_cell, write
from kvviz.drawing.sentences import percent
from kvviz.recording.square import Square

GAP = 20  # pixels between a square and its edges


def set_frame(ax: Canvas, span: int, *, left=3.0, right=3.0, top=3.0, bottom=3.0) -> None:
    """Make room for `span` columns and as many rows, with margins in cells; no axis lines."""
    ax.set_axis_off()
    ax.set_xlim(-left, span + right)
    ax.set_ylim(span + bottom, -top)
    ax.set_aspect("equal")


def get_thickness(cell: float) -> float:
    """Thickness of an edge, in cells of `cell` pixels."""
    return max(1.0, marks.SMALL_CELL / cell)


# -- inside the square ---------------------------------------------------------------------------


def draw_attention(ax: Canvas, square: Square, *, start: int = 0, top: int = 0) -> list:
    """Draw this step's rows in ink, cells they can't see hatched, and other steps' rows dashed.

    The first `top` rows are left out.
    """
    past, real = square.past_rows(start), square.real_columns(start)
    outside = [(p, j) for p in past for j in real if j <= p and p >= start + top]
    artists = _draw_not_computed(ax, outside, start) if outside else []
    return artists + draw_computed(ax, square, start=start)


def draw_computed(ax: Canvas, square: Square, *, start: int = 0) -> list:
    """Draw this step's rows in ink, and the cells they can't see hatched."""
    found, cell, artists = square.attention_cells(start), measure_cell(ax), []
    for state, (rows, columns) in found.items():
        if rows:
            artists += add(ax, [_make_cells(square, state, rows, columns, start, cell)])
    if cell >= 15:
        artists += _write_shares(ax, square, *found["ink"], start, cell)
    return artists


def _make_cells(square, state: str, rows: list, columns: list, start: int, cell: float) -> Cells:
    places = [(square.row_positions[r], j) for r, j in zip(rows, columns, strict=True)]
    y, x = (np.array(places) - start).T
    if state == "masked":
        return Cells(
            "attention",
            state,
            places,
            make_boxes(x, y),
            facecolors=style.PAPER,
            edgecolors="#d3d3da",
            linewidths=0.5 * (cell >= marks.SMALL_CELL),
            hatch=marks.HATCH,
        )
    ink = find_ink(square, rows, columns) if state == "ink" else style.FIRST_INK
    corners = make_boxes(x, y, inset=marks.get_inset(cell))
    return Cells("attention", state, places, corners, facecolors=ink)


def find_ink(square: Square, rows: list, columns: list) -> np.ndarray:
    """The ink of these cells, RGB (n, 3): paler in rows that were cropped."""
    ink = style.ink(square.weights[rows, columns])
    out = np.isin(np.array(square.row_positions)[rows], square.cropped)
    return np.where(out[:, None], style.VEILED * ink + (1 - style.VEILED), ink)


def _write_shares(ax, square: Square, rows: list, columns: list, start: int, cell: float) -> list:
    """Write the newest row's large shares as numbers in their cells."""
    artists = []
    size = 8 if cell >= 25 else 6.5 if cell >= 19 else 5.8
    for r, j in zip(rows, columns, strict=True):
        share, position = square.weights[r, j], square.row_positions[r]
        if r == square.newest and share >= style.SMALLEST_NUMBER:
            words = "1" if percent(share) >= 100 else f".{percent(share):02d}"
            x, y = j - start + 0.5, position - start + 0.5
            color = style.text_on(find_ink(square, [r], [j])[0])
            gid = f"number:{position}:{j}"
            artists.append(write(ax, x, y, words, size=size, color=color, ha="center", gid=gid))
    return artists


def _draw_not_computed(ax: Canvas, places: list[tuple[int, int]], start: int) -> list:
    """Dash the cells that this step didn't compute, each side once; of small cells, the outline.

    Each side of a cell is encoded as one number, because numbers are counted faster than pairs.
    """
    y, x = np.array(places).T - start
    across, down, upright = np.r_[x, x, x, x + 1], np.r_[y, y + 1, y, y], [0, 0, 1, 1]
    wide = across.max() + 1
    sides = (down * wide + across) * 2 + np.repeat(upright, len(x))
    sides, times = np.unique(sides, return_counts=True)
    sides = sides[times == 1] if measure_cell(ax) < marks.SMALL_CELL else sides
    upright, across, down = sides % 2, sides // 2 % wide, sides // 2 // wide
    lines = np.stack([np.c_[across, down], np.c_[across + 1 - upright, down + upright]], 1)
    area = Cells("attention", "not computed", places, make_boxes(x, y), facecolors="none")
    return add(ax, [area, marks.make_dashes(lines, "attention:not computed:dash")])


def draw_later(
    ax: Canvas, square: Square, *, span: int, start: int = 0, gap: float = GAP, top: int = 0
) -> list:
    """Draw a pale ground where the columns and rows of later steps will go.

    Columns that the newest row's position counts, but that aren't held, have a dotted outline.
    """
    n = max(0, square.n_filled - start)
    if n >= span:
        return []
    drawn, cell = max(0, square.n_columns - start), measure_cell(ax)
    gap, thick, artists = gap / cell, get_thickness(cell), []
    end = min(span, n + count_not_held(square))
    for state, to in (("to come", span), ("not held", end)):
        if to <= n or (state == "to come" and end == span):
            continue
        corner = np.array([[n, top], [to, top], [to, to], [0, to], [0, n], [n, n]])
        strips = make_boxes(drawn, [top - gap - thick, span + gap], to - drawn, thick)
        looks = {"linewidths": 0} if state == "to come" else {"linewidths": 0.8, **marks.NOT_HELD}
        grounds = PolyCollection([corner, *strips], facecolors=style.TO_COME, gid=state, **looks)
        artists.append(grounds)
    return add(ax, artists)


def count_not_held(square: Square) -> int:
    """How many columns fewer a cached step has than the newest row's position says."""
    known = max(square.row_positions, default=-1) + 1
    return max(0, known - square.n_filled) if square.cached else 0


def list_states(square: Square, span: int, start: int) -> set[str]:
    """What the legend explains of one square."""
    states = square.legend(span, start)
    if not (lacking := count_not_held(square)):
        return states
    is_full = square.n_filled + lacking - start >= span
    return (states - {"to come"} if is_full else states) | {"not held"}


def draw_veil(ax: Canvas, rows: Sequence[int], span: int) -> list:
    """Draw half-transparent paper over some rows of `span` columns; neighbours share a sheet."""
    if not rows:
        return []
    rows = np.array(rows)
    first, last = (np.diff(rows, prepend=-9) > 1), (np.diff(rows, append=rows[-1] + 9) > 1)
    tops = rows[first]
    corners, alpha = make_boxes(0, tops, span, rows[last] + 1 - tops), 1 - style.VEILED
    veil = PolyCollection(
        corners, facecolors=style.PAPER, alpha=alpha, linewidths=0, gid="veil", zorder=1.5
    )
    return add(ax, [veil])


# -- the four edges ------------------------------------------------------------------------------


def draw_keys_and_values(
    ax: Canvas, square: Square, *, span: int, start=0, gap: float = GAP, top=0, names=True
) -> list:
    """Draw keys along the top and values along the bottom of a square of `span` columns.

    `gap` is the distance from square to edge, in pixels; `top` is how many rows are left out above;
    `names` says whether to name the edges.
    """
    cell = measure_cell(ax)
    gap, thick = gap / cell, get_thickness(cell)
    places, artists = range(start, square.n_columns), []
    for role, y in (("keys", top - gap - thick), ("values", span + gap)):
        spots = [(j - start, y, 1, thick) for j in places]
        artists += _draw_edge(ax, role, places, square.edge_states(role)[start:], spots, cell)
        if names:
            artists.append(
                write(
                    ax,
                    -9 / cell,
                    y + thick / 2,
                    f"{role} ⋯" if start else role,
                    bold=True,
                    color=style.ROLES[role],
                    ha="right",
                    gid=f"name:{role}",
                )
            )
    return artists


def draw_queries_and_outputs(
    ax: Canvas, square: Square, *, span: int, start=0, gap: float = GAP, names=True
) -> list:
    """Draw queries down the left and outputs down the right, a cell for each row of this step."""
    cell = measure_cell(ax)
    gap, thick = gap / cell, get_thickness(cell)
    kept = zip(square.row_positions, square.edge_states("queries"), strict=True)
    kept = [(position, state) for position, state in kept if position >= start]
    rows, states, artists = [p for p, _ in kept], [state for _, state in kept], []
    sides = (("queries", "query", -gap - thick), ("outputs", "output", span + gap))
    for role, singular, x in sides:
        spots = [(x, p - start, thick, 1) for p in rows]
        artists += _draw_edge(ax, role, rows, states, spots, cell)
        if rows and names:
            artists.append(
                write(
                    ax,
                    x + thick / 2,
                    rows[-1] - start + 1 + 12 / cell,
                    role if len(rows) > 1 else singular,
                    bold=True,
                    color=style.ROLES[role],
                    ha="center",
                    gid=f"name:{role}",
                )
            )
    return artists


def _draw_edge(
    ax: Canvas, role: str, places: Sequence, states: Sequence[str], spots: list, cell: float
) -> list:
    """Draw the cells of one edge, a collection for each state, with the state's mark on them."""
    artists, inset = [], marks.get_inset(cell)
    for state in dict.fromkeys(states):
        here = [i for i, other in enumerate(states) if other == state]
        x, y, width, height = np.array([spots[i] for i in here], dtype=float).T
        line = style.find_outline(role, state)
        cells = Cells(
            role,
            state,
            [places[i] for i in here],
            make_boxes(x, y, width, height, inset * {"empty": 3, "cropped": 2}.get(state, 1)),
            facecolors=style.fill(role, state),
            edgecolors=line,
            linewidths=style.get_width(state) if line else 0,
        )
        middles = x + width / 2, y + height / 2
        artists += [cells, *marks.make_mark(role, state, *middles, sides=(width, height))]
    return add(ax, artists)
