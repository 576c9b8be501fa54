"""Curves and bars on a given Axes: named where they end, never in a box; told apart in grey too."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from kvviz.drawing import fonts as text
from kvviz.drawing import style
from kvviz.drawing.marks import write

ROW = 15  # pixels from one name to the one above it


def number(value: float) -> str:
    """A number as a person writes it: 23,900, 0.034, 4e-5; three digits unless it is whole."""
    value = float(value)
    if not np.isfinite(value):
        return str(value)
    whole = value.is_integer() or abs(value) >= 1000
    if (whole and abs(value) < 1e9) or value == 0:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e9:
        return f"{value:.3g}"
    return re.sub(r"(\.0)?e([+-])0*", lambda e: "e-" if e[2] == "-" else "e", f"{value:.1e}")


def room(names, size: float = style.LABEL) -> float:
    """Pixels that the longest of `names` takes."""
    set_in = (text.set_in(name, bold=True) for name in names)
    wide = (text.measure(name, text.font(path, size)) for name, path in set_in)
    return max(wide, default=0) / 0.75


def page(title: str, size, *, left, right, labels=("", ""), low=False) -> tuple[Figure, Axes]:
    """A figure of `size` pixels with its title on the top left, and one Axes under it.

    `labels` of the x axis and the y axis; `low` leaves room for words over the Axes.
    """
    (width, height), top = size, 66 if low or labels[1] else 44
    with style.scope():
        figure = Figure((width / style.PIXELS, height / style.PIXELS), dpi=style.PIXELS)
        whole = figure.add_axes((0, 0, 1, 1))
        whole.set(xlim=(0, width), ylim=(height, 0))
        whole.set_axis_off()
        write(whole, 16, 22, title, size=style.TITLE, bold=True)
        write(whole, 16, 48, labels[1], color=style.QUIET)
        write(whole, width - right, height - 12, labels[0], color=style.QUIET, ha="right")
        box = (left / width, 48 / height, 1 - (left + right) / width, 1 - (48 + top) / height)
        return figure, figure.add_axes(box)


def curves(ax: Axes, x, lines: Mapping, *, log: bool, levels: Mapping[str, float]) -> list:
    """A line for each of `lines` {name: y}, named at its right end; `levels` are dashed across."""
    artists, ends = [], []
    for i, (name, y) in enumerate(lines.items()):
        color, dash, marker = style.SERIES[i % len(style.SERIES)]
        looks = {"color": color, "linestyle": dash, "clip_on": False, "gid": f"line:{name}"}
        looks |= {"marker": marker, "markevery": max(1, len(x) // 8), "zorder": 3}
        artists += ax.plot(x, y, **looks)
        last = np.flatnonzero(np.isfinite(y) & ((y > 0) | (not log)))[-1:]
        ends += [(float(y[k]), name, color, True) for k in last]
    if log:
        ax.set_yscale("log")
    for name, y in levels.items():
        artists.append(level(ax.axhline, y, name))
        ends.append((float(y), name, style.QUIET, False))
    axis_style(ax.xaxis, whole=all(float(each).is_integer() for each in x))
    axis_style(ax.yaxis, log=log)
    ax.margins(x=0.01)
    if not log and all(y.min(initial=0, where=np.isfinite(y)) >= 0 for y in lines.values()):
        ax.set_ylim(bottom=0)
    height = ax.get_window_extent().height * style.PIXELS / ax.get_figure().dpi
    spots = [ax.transAxes.inverted().transform(ax.transData.transform((0, y)))[1] for y, *_ in ends]
    for i, at in _apart(spots, 16 / height):
        _, name, color, bold = ends[i]
        look = {"color": color, "bold": bold, "transform": ax.transAxes, "gid": f"name:{name}"}
        artists.append(write(ax, 1.015, at, name, **look))
    return artists


def bars(ax: Axes, values: Mapping, *, log: bool, levels: Mapping, highlight: Sequence) -> list:
    """A bar for each of `values` {name: length}, its number at its end; `highlight` stand out."""
    lengths = np.array(list(values.values()), dtype=float)
    positive = lengths[lengths > 0]
    low = 10 ** np.floor(np.log10(min([*positive, *levels.values()])) - 0.5) if log else 0
    artists = []
    for y, (name, length) in enumerate(values.items()):
        out = name in highlight
        color, hatch = (style.ALARM, "///") if out else (style.QUIET, None)
        looks = {"color": style.tint(color, 0.75), "hatch": hatch, "edgecolor": style.PAPER}
        drawn = max(length, low) - low if np.isfinite(length) else 0
        artists += ax.barh(y, drawn, 0.66, left=low, linewidth=0, gid=f"bar:{name}", **looks)
        at = {"xytext": (5, 0), "textcoords": "offset points", "va": "center_baseline"}
        font = text.font(text.BOLD if out else text.REGULAR, style.LABEL)
        looks = {"parse_math": False, "fontproperties": font, "color": style.TEXT}
        clear = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.8}  # of a level's line
        number_at = (low + drawn, y)
        artists.append(ax.annotate(number(length), number_at, bbox=clear, **at, **looks))
        at["xytext"] = (-6, 0)
        name, path = text.set_in(name, bold=out)
        looks["fontproperties"] = text.font(path, style.LABEL)
        artists.append(ax.annotate(name, (low, y), ha="right", **at, **looks))
    if log:
        ax.set_xscale("log")
    ax.set(ylim=(len(values) - 0.4, -0.6), yticks=[])
    high = max([*lengths[np.isfinite(lengths)], *levels.values()])
    ax.set_xlim((low, high * (high / low) ** 0.12) if log else (min(0, lengths.min()), high * 1.12))
    for name, x in levels.items():
        artists.append(level(ax.axvline, x, name))
        artists.append(write(ax, x, -0.95, name, color=style.QUIET, ha="center", size=style.SMALL))
    axis_style(ax.xaxis, log=log)
    return artists


def name_bands(ax: Axes, names: Sequence[str], edges, tops, *, flags: Sequence, highest) -> None:
    """The names of bands, each inside, or on a pole over the stack where its band is too thin.

    `edges` (n + 1) of the steps, `tops` (bands + 1, n), `highest` what is to be seen of the y axis
    under the poles; `flags` [(words, (x, y))] are in alarm, on poles too.
    """
    height = ax.bbox.height
    for rows in range(len(names) + len(flags) + 1):
        ax.set_ylim(0, highest * height / (height - 10 - ROW * rows))
        inside, over = [], [(spot, words, style.ALARM) for words, spot in flags]
        for name, low, top in zip(names, tops, tops[1:], strict=False):
            widest = (top - low).argmax()
            if spot := _inside(ax, name, edges, low, top):
                inside.append((name, spot))
            elif top[widest] > low[widest]:
                spot = edges[widest : widest + 2].mean(), (top + low)[widest] / 2
                over.append((spot, name, style.TEXT))
        over.sort(reverse=True)  # from right to left, names to the right of their poles
        spots = [ax.transData.transform(spot) for spot, *_ in over]
        base = ax.transData.transform((0, highest))[1] + 18
        tries = [[(x + 5, base + ROW * row) for row in range(len(over))] for x, _ in spots]
        places = _clear([words for _, words, _ in over], spots, tries)
        if all(y < base + ROW * rows for _, y in places):
            break
    for name, spot in inside:
        write(ax, *spot, name, bold=True, ha="center", gid=f"name:{name}")
    for ((x, y), words, color), place in zip(over, places, strict=True):
        left, up = ax.transData.inverted().transform(place)
        ax.plot([x, x], [y, up], color=color, linewidth=0.8, marker=".", markevery=[0], zorder=4)
        write(ax, left, up, words, bold=True, color=color, gid=f"name:{words}")


def name_points(ax: Axes, names: Sequence[str], points: Sequence, roof) -> None:
    """The names of `points` under a `roof` of three (x, y).

    A name stands beside its point, or hangs under it by the point's colour where there is no room.
    """
    points, back = ax.transData.transform(points), ax.transData.inverted().transform
    roof, (left, low, right, high) = ax.transData.transform(roof), ax.bbox.extents
    taken = [(0, 0, right, low), (0, 0, left, high), (right + 32, 0, 2 * right, high)]
    taken += [(roof[1, 0], low, roof[1, 0] + 80, low + 18)]  # the ridge's name
    line = np.arange(left, right, 6)  # the roof and what is written on it
    for x, y in zip(line, np.interp(line, *roof.T), strict=True):
        taken.append((x, y - 3, x + 6, y + 22))
    for (x, y), up in zip(points, np.interp(points[:, 0], *roof.T), strict=True):
        taken += [(x - 6, y - 6, x + 6, y + 6), (x - 2, min(y - 45, up), x + 2, max(y, up))]
    order = np.argsort(points[:, 0])
    names, points, tries = [names[i] for i in order], points[order], []
    for name, (x, y) in zip(names, points, strict=True):
        before = x - room([name])
        hung = [(at, y - down) for down in range(22, 120, ROW) for at in (before - 5, x + 5)]
        tries.append([(x + 9, y), (before - 9, y), *hung])
    places = _clear(names, points, tries, taken)
    for i, name, (x, y), (at, down) in zip(order, names, points, places, strict=True):
        color = style.SERIES[i % len(style.SERIES)][0]
        write(ax, *back((at, down)), name, bold=True, gid=f"name:{name}")
        pole = back([(x, y), (x, down - 5 * (down < y))])
        ax.plot(*pole.T, color=color, linewidth=0.8)


def axis_style(axis, *, log=False, whole=False, unit: float = 1) -> None:
    """Few ticks, written plainly, each at a round number of `unit`."""
    locator = LogLocator(numticks=7) if log else MaxNLocator(6, integer=whole)
    if unit != 1 and not log:
        low, high = axis.get_view_interval() / unit
        locator = FixedLocator(unit * locator.tick_values(low, high))
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value / unit)))


def level(line, at: float, name: str):
    """A dashed line across, `line` being the Axes' `axhline` or `axvline`."""
    return line(at, color=style.FAINT, linestyle=(0, (4, 3)), linewidth=1.2, gid=f"level:{name}")


def _apart(spots: Sequence[float], least: float) -> list[tuple[int, float]]:
    """(index, place) of every label, moved as little as keeps `least` between neighbours."""
    order = sorted(range(len(spots)), key=lambda i: spots[i])
    places = [spots[i] for i in order]
    for _ in range(100):
        for low, high in zip(range(len(places)), range(1, len(places)), strict=False):
            short = least - (places[high] - places[low])
            if short > 1e-6:
                places[low], places[high] = places[low] - short / 2, places[high] + short / 2
    return list(zip(order, places, strict=True))


def _inside(ax: Axes, name: str, edges, low, top) -> tuple[float, float] | None:
    """Where `name` fits between `low` and `top` of steps, as near their middle as there is room."""
    left = ax.transData.transform(np.c_[edges, edges])[:, 0]
    centres = (left[:-1] + left[1:]) / 2
    middle = np.average(centres, weights=top - low) if (top > low).any() else 0
    spots, scale = [], ax.bbox.height / np.ptp(ax.get_ylim())
    for i, end in enumerate(np.searchsorted(left, left[:-1] + room([name]) + 10)):
        if end < len(left) and (floor := low[i:end].max()) < (ceiling := top[i:end].min()):
            off = abs((left[i] + left[end]) / 2 - middle)
            spot = (edges[i] + edges[end]) / 2, (floor + ceiling) / 2
            spots.append((min(scale * (ceiling - floor), 40), -off, spot))
    deep, _, spot = max(spots, default=(0, 0, None))
    return spot if deep >= ROW + 2 else None


def _clear(names, spots, tries, taken=()) -> list[tuple[float, float]]:
    """Pixels (left, middle) of each name: the first of its `tries` at which it is clear.

    A name away from its spot has a pole to it. Names keep off poles, off each other and off the
    boxes `taken` (x0, y0, x1, y1); poles keep off names.
    """
    places, words, poles = [], [], list(taken)
    for name, (x, y), each in zip(names, spots, tries, strict=True):
        wide = room([name])
        boxes = [(at, up - 7, at + wide, up + 7) for at, up in each]
        lines = [(x - 1, min(y, up), x + 1, max(y, up)) for _, up in each]
        clashes = [
            _hits(box, [*words, *poles]) + _hits(line, words)
            for box, line in zip(boxes, lines, strict=True)
        ]
        best = clashes.index(min(clashes))
        places.append(each[best])
        words.append(boxes[best])
        poles.append(lines[best])
    return places


def _hits(box, others) -> int:
    """How many of the boxes `others` it overlaps."""
    return sum(
        min(box[2], x1) > max(box[0], x0) and min(box[3], y1) > max(box[1], y0)
        for x0, y0, x1, y1 in others
    )
