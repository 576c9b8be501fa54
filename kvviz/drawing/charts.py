"""`draw_bars`: every bar is labelled, and readable without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from kvviz.drawing import fonts, style
from kvviz.drawing.axes import draw_level, make_axes, measure_names, style_axis, write_number
from kvviz.drawing.inputs import check_finite, shorten, shorten_names, to_numbers
from kvviz.drawing.marks import write
from kvviz.drawing.names import spread_out
from kvviz.drawing.picture import Picture


def draw_bars(
    values: Mapping,
    *,
    title: str,
    xlabel: str = "",
    sentence: str | None = None,
    log: bool = False,
    levels: Mapping[str, float] | None = None,
    highlight: Sequence[str] = (),
) -> Picture:
    """Draw a bar for each of `values` {name: length}, with its number at its end.

    Args:
        highlight: names of the bars that stand out.
        title, sentence, log, levels: as in `draw_curves`; here the x axis is the logarithmic one.

    Raises:
        ValueError: nothing to draw, or no positive number on a log axis.

    >>> kv.draw_bars({"uncached": 23900, "cached": 219}, title="Positions computed")
    Positions computed: uncached 23,900, cached 219
    """
    values = {
        name: float(to_numbers(repr(name), value))
        for name, value in shorten_names("values", values).items()
    }
    levels, highlight = shorten_names("levels", levels or {}), [shorten(name) for name in highlight]
    check_finite(np.array(list(values.values())), log)
    left = measure_names(values) + 28
    size = (720, 92 + 27 * len(values) + (22 if levels else 0))
    figure, ax = make_axes(title, size, left=left, right=26, labels=(xlabel, ""), low=bool(levels))
    with style.scope():
        _paint_bars(ax, values, levels, highlight, log)
    words = [f"{name} {write_number(value)}" for name, value in {**values, **levels}.items()]
    return Picture(figure, sentence or f"{title}: {', '.join(words)}")


# -- bars ----------------------------------------------------------------------------------------


def _paint_bars(ax: Axes, values: Mapping, levels: Mapping, highlight: Sequence, log: bool) -> None:
    lengths = np.array(list(values.values()), dtype=float)
    positive = lengths[lengths > 0]
    low = 10 ** np.floor(np.log10(min([*positive, *levels.values()])) - 0.5) if log else 0
    if log:
        ax.set_xscale("log")
    for y, (name, length) in enumerate(values.items()):
        drawn = max(length, low) - low if np.isfinite(length) else 0
        _paint_bar(ax, y, name, low, drawn, name in highlight)
    ax.set(ylim=(len(values) - 0.4, -0.6), yticks=[])
    high = max([*lengths[np.isfinite(lengths)], *levels.values()])
    ax.set_xlim((low, high * (high / low) ** 0.12) if log else (min(0, lengths.min()), high * 1.12))
    _paint_levels(ax, levels)
    for y, (name, length) in enumerate(values.items()):
        end = max(length, low) if np.isfinite(length) else low
        _write_length(ax, y, end, write_number(length), name in highlight, levels)
    style_axis(ax.xaxis, log=log)


def _paint_levels(ax: Axes, levels: Mapping) -> None:
    """Draw dashed lines in front of the bars, on a pale ground, each under its name."""
    spots = [ax.transData.transform((x, 0))[0] for x in levels.values()]
    wide = max(map(measure_names, [[name] for name in levels]), default=0)
    names = dict(spread_out(spots, wide + 12))
    for i, (name, x) in enumerate(levels.items()):
        ax.axvline(x, color=style.PAPER, linewidth=4, zorder=2.5)
        draw_level(ax.axvline, x, name).set(color=style.TEXT, zorder=2.6)
        at, _ = ax.transData.inverted().transform((names[i], 0))
        write(ax, at, -0.95, name, ha="center", gid=f"name:{name}")


def _write_length(ax: Axes, y: int, end: float, number: str, bold: bool, levels: Mapping) -> None:
    """Write a bar's number after its end, and after any level that would cross it."""
    x, wide = ax.transData.transform((end, y))[0] + 6, measure_names([number])
    for level in sorted(ax.transData.transform((at, y))[0] for at in levels.values()):
        if x - 4 < level < x + wide + 4:
            x = level + 7
    at, _ = ax.transData.inverted().transform((x, 0))
    write(ax, at, y, number, bold=bold, gid=f"number:{y}")


def _paint_bar(ax: Axes, y: int, name: str, low: float, drawn: float, bold: bool) -> None:
    """Draw one bar, and its name before it."""
    ax.barh(
        y,
        drawn,
        0.66,
        left=low,
        color=style.tint(style.ALARM if bold else style.QUIET, 0.75),
        hatch="///" if bold else None,
        edgecolor=style.PAPER,
        linewidth=0,
        gid=f"bar:{name}",
    )
    words, path = fonts.choose_font(name, bold=bold)
    ax.annotate(
        words,
        (low, y),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va="center_baseline",
        parse_math=False,
        fontproperties=fonts.get_font(path, style.LABEL),
        color=style.TEXT,
    )
