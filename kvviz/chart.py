"""Curves and bars on a given Axes: named where they end, never in a box; told apart in grey too."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from kvviz import style, text
from kvviz.marks import write


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
    wide = (text.measure(name, FontProperties(fname=path, size=size)) for name, path in set_in)
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
        artists.append(_level(ax.axhline, y, name))
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
        font = FontProperties(fname=text.BOLD if out else text.REGULAR, size=style.LABEL)
        looks = {"parse_math": False, "fontproperties": font, "color": style.TEXT}
        clear = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.8}  # of a level's line
        number_at = (low + drawn, y)
        artists.append(ax.annotate(number(length), number_at, bbox=clear, **at, **looks))
        at["xytext"] = (-6, 0)
        name, path = text.set_in(name, bold=out)
        looks["fontproperties"] = FontProperties(fname=path, size=style.LABEL)
        artists.append(ax.annotate(name, (low, y), ha="right", **at, **looks))
    if log:
        ax.set_xscale("log")
    ax.set(ylim=(len(values) - 0.4, -0.6), yticks=[])
    high = max([*lengths[np.isfinite(lengths)], *levels.values()])
    ax.set_xlim((low, high * (high / low) ** 0.12) if log else (min(0, lengths.min()), high * 1.12))
    for name, x in levels.items():
        artists.append(_level(ax.axvline, x, name))
        artists.append(write(ax, x, -0.95, name, color=style.QUIET, ha="center", size=style.SMALL))
    axis_style(ax.xaxis, log=log)
    return artists


def axis_style(axis, *, log=False, whole=False) -> None:
    """Few ticks, written plainly."""
    axis.set_major_locator(LogLocator(numticks=7) if log else MaxNLocator(6, integer=whole))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _level(line, at: float, name: str):
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
