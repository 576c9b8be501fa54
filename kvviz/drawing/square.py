"""Marks on a given Axes. Every function takes an Axes and returns artists; nothing is shown.

One data unit is one cell: column j lies at x = j, the row of the token at place p at y = p,
downwards, so a token keeps its column and its row from step to step. A `square` is what
`Step.square` returns. What was drawn can be asked back with `cells`.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from kvviz.drawing import fonts as text
from kvviz.drawing import marks, style
from kvviz.drawing.marks import Cells, add, boxes, cells, inset, pixels, write

__all__ = [
    "attention_square",
    "cells",
    "column",
    "decode_row",
    "frame",
    "kv_edges",
    "legend",
    "query_output_edges",
    "to_come",
    "token_labels",
    "veil",
]
GAP = 20  # pixels between a square and its edges
PAST = ("read", "earlier", "same", "dropped")  # columns whose rows were not asked
BLANK = ("pad", "empty")  # columns with nothing to attend to


def frame(ax: Axes, span: int, *, left=3.0, right=3.0, top=3.0, bottom=3.0) -> None:
    """Make room for `span` columns and as many rows, with margins in cells; no axis lines."""
    ax.set_axis_off()
    ax.set_xlim(-left, span + right)
    ax.set_ylim(span + bottom, -top)
    ax.set_aspect("equal")


def edge(cell: float) -> float:
    """Thickness of an edge, in cells of `cell` pixels."""
    return max(1.0, marks.SMALL_CELL / cell)


def percent(weight: float) -> int:
    """Whole percent. Natural ties (one eighth is 12.5%) go up, on every processor."""
    return int(np.floor(100 * float(weight) + 0.5 + 1e-3))


def newest(square) -> int | None:
    """Index into `square.row_positions` of the last row that is no padding."""
    return max((r for r, state in enumerate(square.row_states) if state != "pad"), default=None)


def attention_square(ax: Axes, square, *, start: int = 0, numbers: bool = True) -> list:
    """Rows asked this step inked, cells they may not see hatched, rows not asked dashed.

    Columns before `start` are left out. `numbers` writes the newest row's large shares.
    """
    if ax.get_autoscale_on():
        frame(ax, len(square.column_states) - start)
    asked = {p: r for r, p in enumerate(square.row_positions) if p >= start}
    real = _real(square, start)
    past = [p for p in real if p not in asked and square.column_states[p] in PAST]
    left = [(p, j) for p in past for j in real if j <= p]
    artists = _not_computed(ax, left, start) if left else []
    return artists + _rows(ax, square, {r: p - start for p, r in asked.items()}, start, numbers)


def decode_row(ax: Axes, square, *, start: int = 0) -> list:
    """Only the newest row, at y = 0, between its keys and its values."""
    if ax.get_autoscale_on():
        frame(ax, len(square.column_states) - start)
        ax.set_ylim(4, -3)
    row = newest(square)
    artists = _rows(ax, square, {} if row is None else {row: 0}, start, True)
    return artists + kv_edges(ax, square, span=1, start=start)


def _real(square, start: int) -> list[int]:
    return [j for j, s in enumerate(square.column_states) if j >= start and s not in BLANK]


def _rows(ax, square, heights: dict[int, int], start: int, numbers: bool) -> list:
    """The rows that `heights` names ({index of the row: y}): inked, hatched or left blank."""
    found: dict[str, list] = {"ink": [], "masked": [], "not kept": []}
    masked, real = square.masked.tolist(), _real(square, start)
    inked = None if square.weights is None else np.isfinite(square.weights).tolist()
    for r in heights:
        for j in real if square.row_states[r] != "pad" else ():
            if masked[r][j]:
                found["masked"].append((r, j))
            elif inked is None and square.column_states[j] != "dropped":
                found["not kept"].append((r, j))
            elif inked is not None and inked[r][j]:
                found["ink"].append((r, j))
    shares = np.array([square.weights[r, j] for r, j in found["ink"]])
    grid = 0.5 * (pixels(ax) >= marks.SMALL_CELL)
    looks = {
        "ink": {"facecolors": style.ink(shares)},
        "masked": {"facecolors": style.PAPER, "edgecolors": "#d3d3da", "linewidths": grid},
        "not kept": {"facecolors": style.FIRST_INK},
    }
    looks["masked"]["hatch"] = marks.HATCH
    artists = []
    for state, spots in found.items():
        if spots:
            x, y = [j - start for _, j in spots], [heights[r] for r, _ in spots]
            corners = boxes(x, y, inset=0 if state == "masked" else inset(ax))
            places = [(square.row_positions[r], j) for r, j in spots]
            artists += add(ax, [Cells("attention", state, places, corners, **looks[state])])
    cell, last = pixels(ax), newest(square)
    for share, (r, j) in zip(shares, found["ink"], strict=True):
        if numbers and r == last and share >= style.SMALLEST_NUMBER and cell >= 15:
            words = "1" if percent(share) >= 100 else f".{percent(share):02d}"
            look = {
                "size": 8 if cell >= 25 else 6.5 if cell >= 19 else 5.8,
                "color": style.text_on(style.ink(share)),
            }
            look |= {"ha": "center", "gid": f"number:{square.row_positions[r]}:{j}"}
            artists.append(write(ax, j - start + 0.5, heights[r] + 0.5, words, **look))
    return artists


def _not_computed(ax, places: list[tuple[int, int]], start: int) -> list:
    """Cells nobody computed this step: dashed lines, each drawn once; of small cells, the rim."""
    y, x = np.array(places).T - start
    across, down, upright = np.r_[x, x, x, x + 1], np.r_[y, y + 1, y, y], [0, 0, 1, 1]
    wide = across.max() + 1  # a side as one number: they are counted faster
    sides = (down * wide + across) * 2 + np.repeat(upright, len(x))
    sides, times = np.unique(sides, return_counts=True)
    sides = sides[times == 1] if pixels(ax) < marks.SMALL_CELL else sides
    upright, across, down = sides % 2, sides // 2 % wide, sides // 2 // wide
    lines = np.stack([np.c_[across, down], np.c_[across + 1 - upright, down + upright]], 1)
    corners = boxes(x, y)
    area = Cells("attention", "not computed", places, corners, facecolors="none")
    return add(ax, [area, marks.dashes(lines, gid="attention:not computed:dash")])


def to_come(ax: Axes, square, *, span: int, start: int = 0, gap: float = GAP) -> list:
    """A pale ground where the columns and rows of later steps will stand."""
    drawn = len(square.column_states) - start
    n = drawn - square.column_states.count("empty")
    gap, thick = gap / pixels(ax), edge(pixels(ax))
    if n >= span:
        return []
    corner = np.array([[n, 0], [span, 0], [span, span], [0, span], [0, n], [n, n]])
    strips = boxes(drawn, [-gap - thick, span + gap], span - drawn, thick)
    looks = {"facecolors": style.TO_COME, "linewidths": 0, "gid": "to come"}
    return add(ax, [PolyCollection([corner, *strips], **looks)])


def veil(ax: Axes, n: int, span: int) -> list:
    """Paper, thin enough to see through, over the first `n` rows of `span` columns."""
    corners = boxes(0, 0, span, n)
    looks = {"facecolors": style.PAPER, "alpha": 1 - style.VEILED, "linewidths": 0, "gid": "veil"}
    looks["zorder"] = 1.5
    return add(ax, [PolyCollection(corners, **looks)])


def kv_edges(ax: Axes, square, *, span=None, start=0, gap=GAP, names=True) -> list:
    """Keys along the top, values along the bottom of a square of `span` columns.

    `gap` in pixels lies between square and edge; `names` writes whose the edges are.
    """
    span = len(square.column_states) - start if span is None else span
    gap, thick = gap / pixels(ax), edge(pixels(ax))
    artists = []
    for role, y in (("keys", -gap - thick), ("values", span + gap)):
        places = range(start, len(square.column_states))
        spots = [(j - start, y, 1, thick) for j in places]
        artists += _edge(ax, role, places, [square.column_states[j] for j in places], spots)
        if names:
            at = -9 / pixels(ax), y + thick / 2
            looks = {"bold": True, "color": style.ROLES[role], "ha": "right"}
            words = f"{role} ⋯" if start else role
            artists.append(write(ax, *at, words, gid=f"name:{role}", **looks))
    return artists


def query_output_edges(ax: Axes, square, *, span=None, start=0, gap=GAP, names=True) -> list:
    """Queries down the left, outputs down the right: a cell for each row asked this step."""
    span = len(square.column_states) - start if span is None else span
    gap, thick = gap / pixels(ax), edge(pixels(ax))
    kept = [
        (p, s) for p, s in zip(square.row_positions, square.row_states, strict=True) if p >= start
    ]
    rows, states = [p for p, _ in kept], [s for _, s in kept]
    artists = []
    for role, x in (("queries", -gap - thick), ("outputs", span + gap)):
        spots = [(x, p - start, thick, 1) for p in rows]
        artists += _edge(ax, role, rows, states, spots)
        if rows and names:
            words = role if len(rows) > 1 else {"queries": "query", "outputs": "output"}[role]
            at = x + thick / 2, rows[-1] - start + 1 + 12 / pixels(ax)
            looks = {"bold": True, "color": style.ROLES[role], "ha": "center"}
            artists.append(write(ax, *at, words, gid=f"name:{role}", **looks))
    return artists


def _edge(ax, role: str, places: Sequence[int], states: Sequence[str], spots: list) -> list:
    """Cells of one edge, a collection for each state, with the state's mark upon them."""
    artists = []
    for state in dict.fromkeys(states):
        here = [i for i, other in enumerate(states) if other == state]
        x, y, width, height = np.array([spots[i] for i in here], dtype=float).T
        looks = {"facecolors": style.fill(role, state)}
        if state == "empty":
            looks |= {"edgecolors": style.LINE, "linewidths": 0.8}
        corners = boxes(x, y, width, height, inset(ax) * (3 if state == "empty" else 1))
        artists.append(Cells(role, state, [places[i] for i in here], corners, **looks))
        artists += marks.mark(role, state, x + width / 2, y + height / 2)
    return add(ax, artists)


def token_labels(ax: Axes, square, *, start=0, gap=GAP, rows=True, room=66) -> list:
    """Tokens over the keys and beside the queries, the newest bold; crowded labels are thinned.

    `room` is how long a label may be, in pixels; longer ones are cut.
    """
    cell, last = pixels(ax), newest(square)
    gap, thick = gap / cell, edge(cell)
    size, turn = (style.LABEL, 55) if cell >= 16 else (7.5, 65) if cell >= 11 else (7, 90)
    every = int(np.ceil(8.7 / cell))
    place = -1 if last is None else square.own_columns[last]
    looks = {j: {"color": style.TEXT} for j, s in enumerate(square.column_states) if s != "empty"}
    artists = []
    for j, look in looks.items():
        if square.column_states[j] in ("pad", "dropped"):
            look["color"] = style.FAINT
        crowded = j != place and ((place - j) % every or abs(place - j) < every)
        if j < start or crowded:
            continue
        words, font = text.label(square.tokens[j], bold=j == place, size=size, width=room * 0.75)
        look |= {"font": font}
        x, y = j - start + 0.5 + (4 if turn < 90 else 3.5) / cell, -gap - thick - 6 / cell
        angle = {"rotation": turn, "rotation_mode": "anchor", "va": "baseline"}
        artists.append(write(ax, x, y, words, gid=f"column:{j}", **look, **angle))
        for p in [
            p
            for p, own in zip(square.row_positions, square.own_columns, strict=True)
            if own == j and rows
        ]:
            x, y = -gap - thick - 9 / cell, p - start + 0.5
            artists.append(write(ax, x, y, words, gid=f"row:{p}", ha="right", **look))
    return artists


def column(ax: Axes, change, *, tokens: Sequence[str] = (), floor=1e-4, ceiling=1.0) -> list:
    """A column through the stack: cells of layers by places, coloured by how far each moved.

    Args:
        change: [n_layers, N], a relative change; layer 0 is drawn at the bottom.
        floor: at or below it nothing moved (a pale key); from there to `ceiling` log steps.
    """
    change = np.asarray(change, dtype=float)
    if change.ndim != 2 or not change.size:
        raise ValueError(f"change: expected [n_layers, N], and got shape {change.shape}")
    n_layers, n = change.shape
    if ax.get_autoscale_on():
        frame(ax, n)
        ax.set_ylim(n_layers + 1, -3)
    with np.errstate(divide="ignore"):
        steps = np.log(change / floor) / np.log(ceiling / floor) * len(style.CHANGES)
    level = np.where(change > floor, np.clip(steps, 0, len(style.CHANGES) - 1), -1).astype(int)
    artists = []
    for k, color in enumerate((style.UNMOVED, *style.CHANGES), -1):
        layers, places = np.nonzero(level == k)
        if len(layers):
            corners = boxes(places, n_layers - 1 - layers, inset=inset(ax))
            spots = list(zip(layers.tolist(), places.tolist(), strict=True))
            state = "unmoved" if k < 0 else f"moved {k}"
            artists.append(Cells("column", state, spots, corners, facecolors=color))
    add(ax, artists)
    (_, low), (_, high) = ax.transData.transform([(0, 1), (0, 0)])
    height = (high - low) * style.PIXELS / ax.get_figure(root=True).dpi
    for layer in range(0, n_layers, max(1, int(np.ceil(18 / height)))):
        at = -6 / pixels(ax), n_layers - layer - 0.5
        artists.append(write(ax, *at, str(layer), size=style.SMALL, ha="right", color=style.QUIET))
    for j, token in enumerate(tokens):
        words, font = text.label(token, size=style.SMALL, width=50)
        looks = {"font": font, "rotation": 55, "rotation_mode": "anchor"}
        artists.append(write(ax, j + 0.6, -6 / pixels(ax), words, va="baseline", **looks))
    return artists


def legend(ax: Axes, states: Iterable[str], *, width: float, lines: int = 1) -> list:
    """A swatch and a word for every state drawn, on an Axes of `width` x `lines` * 24 pixels."""
    ax.set_axis_off()
    ax.set(xlim=(0, width), ylim=(24 * lines, 0))
    states = set(states)
    words = {state: name for state, name in style.STATES.items() if state in states}
    for size in (9, 8.5, 8, 7.5, 7, 6.5):
        font = text.font(text.REGULAR, size)
        wide = {s: 48 + 36 * (s == "ink") + text.measure(words[s], font) / 0.75 for s in words}
        flow: list[list[str]] = [[]]
        for state in words:
            if flow[-1] and sum(wide[s] for s in (*flow[-1], state)) - 20 > width:
                flow.append([])
            flow[-1].append(state)
        if len(flow) <= lines:
            break
    artists = []
    for row, entries in enumerate(flow):
        x, y = (width - sum(wide[s] for s in entries) + 20) / 2, 24 * row + 3
        for state in entries:
            artists += marks.swatch(ax, state, x, y)
            after = x + (61 if state == "ink" else 25)
            artists.append(write(ax, after, y + 9, words[state], size=size))
            x += wide[state]
    return artists
