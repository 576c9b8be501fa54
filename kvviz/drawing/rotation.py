"""`draw_rotation`: a key's pairs of numbers as arrows that turn with its position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from kvviz.arguments import check_texts
from kvviz.drawing import style
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.marks import add, write
from kvviz.drawing.picture import Picture
from kvviz.drawing.rotation_facts import (
    Pair,
    choose_pairs,
    describe_lengths,
    describe_rotation,
    find_changes,
    is_same,
    read_pair,
    read_vectors,
    write_angle,
)

LEFT, TOP, SIDE = 198, 92, 16  # pixels: names of pairs; over the first dials; margin
WIDE, DIAL, LEAST, SPACE, LABEL = 546, 96, 40, 16, 28  # pixels: all dials; a dial; beside, under it
MOST = WIDE // (LEAST + SPACE)  # positions in one picture
DASHES = (0, (2.5, 2))


def draw_rotation(
    keys: Mapping,
    *,
    pairs: Sequence[int] | None = None,
    values: Mapping | None = None,
    title: str | None = None,
    sentence: str | None = None,
) -> Picture:
    """Draw a key at several positions: each pair of its numbers is an arrow that turns.

    Number i pairs with number i + D/2, and they are an arrow's x and y, as in `Forge.rotate`. The
    dashed arrow is the pair at the first position, and the circle is its length. Each angle counts
    from there: with whole turns, if only one rate, up to a radian per position, fits them all.

    Args:
        keys: {position: D numbers} of one key, rotated to each of two or more positions.
        pairs: which pairs to draw; by default, the fastest, one of the middle and the slowest.
        values: {position: D numbers} of the same token; drawn for the first of `pairs`.
        title: by default, what the arrows do.
        sentence: replaces the sentence that says how far each pair turns.

    Raises:
        ValueError: no {position: D numbers} for two positions, D that is odd or differs, numbers
            that aren't finite, other positions in `values`, or a pair that isn't there.
    Source: RoFormer, arXiv 2104.09864.

    >>> forge, key = kv.Forge.small(), torch.ones(1, 1, 1, 14)
    >>> turned = {p: forge.rotate(key, forge.rotation(torch.tensor([p])))[0, 0, 0] for p in (0, 3)}
    >>> kv.draw_rotation(turned, pairs=[0])
    A key turns with its position: at positions 0 and 3; pair 0 (numbers 0 and 7) turns 57° per ...
    """
    check_texts(title=title, sentence=sentence, optional=["title", "sentence"])
    positions, vectors = read_vectors("keys", keys)
    chosen = [read_pair(i, positions, vectors) for i in choose_pairs(pairs, vectors.shape[1])]
    others = None if values is None else _read_values(values, positions, chosen[0].number)
    title = title or _write_title(vectors, chosen, others)
    left_out = len(positions) - MOST
    note = f"the last {left_out} positions aren't drawn" if left_out > 0 else ""
    with style.scope():
        figure = _paint(title, positions[:MOST], vectors, chosen, others, note)
    said = sentence or f"{title}: {describe_rotation(positions, vectors, chosen, others)}"
    return Picture(figure, f"{said}; {note}" if note else said)


def _read_values(values, positions: list[int], pair: int) -> np.ndarray:
    own, numbers = read_vectors("values", values)
    if sorted(own) != sorted(positions):
        raise ValueError(f"values: expected the keys' positions, {positions}, but got {own}")
    if pair >= numbers.shape[1] // 2:
        raise ValueError(f"pairs: a value of {numbers.shape[1]} numbers has no pair {pair}")
    return numbers[[own.index(each) for each in positions]]


def _write_title(vectors, pairs: Sequence[Pair], values) -> str:
    turns = any(angle for pair in pairs for angle in pair.angles)
    if find_changes(vectors):
        return "A key that doesn't only turn"
    if turns and values is not None and is_same(values):
        return "A key carries its position, a value doesn't"
    return "A key turns with its position" if turns else "A key that doesn't turn"


# -- painting ------------------------------------------------------------------------------------


def _paint(title, positions, vectors, pairs, values, note) -> Figure:
    n, half = len(positions), vectors.shape[1] // 2
    dial = min(DIAL, WIDE / n - SPACE)
    rows = [("key", pair) for pair in pairs]
    if values is not None:
        rows.append(("value", read_pair(pairs[0].number, range(len(values)), values)))
    said = describe_lengths(vectors)
    said = said[0].upper() + said[1:]
    wide = max(
        LEFT + n * (dial + SPACE) + SIDE,
        2 * SIDE + measure_names([title], style.TITLE),
        2 * SIDE + measure_names([said, note], bold=True),
        2 * SIDE + _measure_legend(positions[0], values is not None),
    )
    high = TOP + len(rows) * (dial + LABEL) + 18 * (values is not None) + 40 + 16 * bool(note)
    figure, ax = make_canvas(title, (wide, high))
    color = style.ALARM if find_changes(vectors) else style.QUIET
    write(ax, SIDE, 44, said, color=color, bold=color == style.ALARM, gid="lengths")
    write(ax, LEFT - 22, TOP - 14, "position", color=style.QUIET, ha="right", gid="position")
    for j, position in enumerate(positions):
        x = LEFT + (dial + SPACE) * j + dial / 2
        write(ax, x, TOP - 14, str(position), bold=True, ha="center", gid=f"position:{j}")
    y = TOP
    for kind, pair in rows:
        if kind == "value":
            rule = [[(SIDE, y + 7), (LEFT + n * (dial + SPACE) - SPACE, y + 7)]]
            add(ax, [LineCollection(rule, colors=style.LINE, linewidths=0.8, gid="rule")])
            y += 18
        _write_name(ax, kind, pair, len(values[0]) // 2 if kind == "value" else half, y + dial / 2)
        for j in range(n):
            middle = LEFT + (dial + SPACE) * j + dial / 2, y + dial / 2
            _draw_dial(ax, kind, pair, j, middle, dial / 2)
        y += dial + LABEL
    _draw_legend(ax, positions[0], values is not None, y + 18)
    write(ax, SIDE, high - 14, note, color=style.QUIET, gid="note")
    return figure


def _write_name(ax: Axes, kind: str, pair: Pair, half: int, y: float) -> None:
    role = style.KEYS if kind == "key" else style.VALUES
    numbers = f"numbers {pair.number} and {pair.number + half}"
    rate = ""
    if kind == "value":
        rate = "" if any(pair.angles) else "doesn't turn"
    elif any(angle is not None for angle in pair.angles):
        rate = pair.write_rate()
    lines = [(f"{kind}, pair {pair.number}", role, True), (numbers, style.QUIET, False)]
    lines += [(rate, style.TEXT, False)] if rate else []
    for k, (words, color, bold) in enumerate(lines):
        at = y + 15 * (k - (len(lines) - 1) / 2)
        gid = f"name:{kind}:{pair.number}:{k}"
        write(ax, LEFT - 22, at, words, color=color, bold=bold, ha="right", gid=gid)


def _draw_dial(ax: Axes, kind: str, pair: Pair, j: int, middle, radius: float) -> None:
    """An arrow from the middle, the first position's one dashed, and the angle between them."""
    longest, gid = max(pair.lengths.max(), 1e-30), f"{kind}:{pair.number}:{j}"
    role = style.KEYS if kind == "key" else style.VALUES
    scale = 0.94 * radius / longest
    first, own = scale * pair.arrows[0] * (1, -1), scale * pair.arrows[j] * (1, -1)
    around = _make_arc(middle, np.hypot(*first), 0, 2 * np.pi)
    add(ax, [LineCollection([around], colors=style.LINE, linewidths=1.1, gid=f"circle:{gid}")])
    angle = pair.angles[j]
    if j and angle:
        _draw_arc(ax, middle, first, angle, radius, role, gid)
    if j:
        ends = [[middle, middle + first]]
        dashes = LineCollection(ends, colors=style.FAINT, linewidths=1.1, linestyles=[DASHES])
        dashes.set_gid(f"first:{gid}")
        add(ax, [dashes])
    draw_arrow(ax, middle, own, role, f"arrow:{gid}")
    looks = {"bold": True} if j else {"color": style.QUIET}
    at = middle[0], middle[1] + radius + 12
    write(ax, *at, write_angle(angle), ha="center", gid=f"angle:{gid}", **looks)


def _make_arc(middle, radius, start: float, turn: float) -> np.ndarray:
    """Points (n, 2) on an arc, counter-clockwise from `start`, in radians; `radius` may grow."""
    n = max(2, int(abs(turn) * 16))
    angles = start + np.linspace(0, turn, n)
    return np.c_[np.cos(angles), -np.sin(angles)] * np.reshape(radius, (-1, 1)) + middle


def _draw_arc(ax: Axes, middle, first, degrees: int, radius: float, color: str, gid: str) -> None:
    """A tinted sector from the first arrow; beyond a whole turn, a spiral of up to three."""
    start, turn = np.arctan2(-first[1], first[0]), np.radians(degrees)
    within = np.sign(turn) * min(abs(turn), 2 * np.pi)
    inner = 0.42 * radius
    sector = np.r_[[middle], _make_arc(middle, inner, start, within)]
    fill = style.tint(color, 0.23)
    add(ax, [PolyCollection([sector], facecolors=fill, linewidths=0, gid=f"sector:{gid}")])
    turns = abs(turn) / (2 * np.pi)
    shown = turn if turns <= 3 else turn - np.sign(turn) * 2 * np.pi * int(turns - 2)
    n = max(2, int(abs(shown) * 16))
    sizes = inner * np.linspace(1, 1 + 0.28 * abs(shown) / (2 * np.pi), n) if turns > 1 else inner
    spiral = _make_arc(middle, sizes, start, shown)
    add(ax, [LineCollection([spiral], colors=style.TEXT, linewidths=1, gid=f"arc:{gid}")])


def draw_arrow(ax: Axes, start, way, color: str, gid: str) -> None:
    """Draw an arrow from `start`, by `way` (x, y) in pixels; a dot if it's too short for a head."""
    start, way = np.asarray(start, dtype=float), np.asarray(way, dtype=float)
    long = np.hypot(*way)
    if long < 2:
        dot = _make_arc(start, 2.5, 0, 2 * np.pi)
        return add(ax, [PolyCollection([dot], facecolors=color, linewidths=0, gid=gid)])
    along, head = way / long, min(9.0, 0.6 * long)
    across, neck = np.array([-along[1], along[0]]), start + way - head * along
    tip = [start + way, neck + 0.45 * head * across, neck - 0.45 * head * across]
    shaft = LineCollection([[start, neck]], colors=color, linewidths=2, gid=f"{gid}:shaft")
    return add(ax, [shaft, PolyCollection([tip], facecolors=color, linewidths=0, gid=gid)])


# -- the legend ----------------------------------------------------------------------------------


def _list_legend(first: int, has_values: bool) -> list[tuple[str, str]]:
    whose = "a pair of numbers" if has_values else "a pair of the key's numbers"
    return [
        ("arrow", whose),
        ("dashes", f"the same pair at position {first}"),
        ("arc", "the turn since then"),
    ]


def _measure_legend(first: int, has_values: bool) -> float:
    return sum(
        52 + measure_names([words], bold=False) for _, words in _list_legend(first, has_values)
    )


def _draw_legend(ax: Axes, first: int, has_values: bool, y: float) -> None:
    x = SIDE
    for kind, words in _list_legend(first, has_values):
        if kind == "arrow":
            draw_arrow(ax, (x, y), (26, 0), style.TEXT, "legend:arrow")
        elif kind == "dashes":
            line = LineCollection([[(x, y), (x + 26, y)]], colors=style.FAINT, linewidths=1.1)
            line.set(linestyles=[DASHES], gid="legend:dashes")
            add(ax, [line])
        else:
            _draw_arc(ax, (x + 4, y + 6), (20, 0), 50, 50, style.QUIET, "legend")
        write(ax, x + 34, y, words, color=style.QUIET, gid=f"legend:{kind}")
        x += 34 + measure_names([words], bold=False) + 18
