"""`draw_curves` and `draw_bars`: every curve and bar is labelled, and readable without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from kvviz.drawing import fonts, style
from kvviz.drawing.axes import draw_level, make_axes, measure_names, style_axis, write_number
from kvviz.drawing.inputs import shorten, shorten_names, to_numbers
from kvviz.drawing.marks import write
from kvviz.drawing.names import spread_out
from kvviz.drawing.picture import Picture


def draw_curves(
    x,
    curves: Mapping,
    *,
    title: str,
    xlabel: str = "",
    ylabel: str = "",
    sentence: str | None = None,
    log: bool = False,
    levels: Mapping[str, float] | None = None,
) -> Picture:
    """Draw curves {name: y} over `x`, each named at its right end.

    Args:
        x: n numbers; curves: n numbers for each name.
        title: what the picture shows.
        sentence: replaces the sentence that says where each curve begins and ends.
        log: a logarithmic y axis.
        levels: {name: y} for dashed lines across the chart.

    Raises:
        ValueError: nothing to draw, lengths that differ, or no positive number on a log axis.

    >>> kv.draw_curves([0, 1, 2], {"cached": [6, 1, 1]}, title="Rows", xlabel="step")
    Rows: cached goes from 6 to 1; over step 0 to 2
    """
    x = to_numbers("x", list(x) if isinstance(x, range) else x)
    if x.ndim != 1:
        raise ValueError(f"x: expected a list of numbers, but got shape {x.shape}")
    curves = shorten_names("curves", curves)
    lines = {name: to_numbers(repr(name), y) for name, y in curves.items()}
    for name, y in lines.items():
        if y.shape != x.shape or x.ndim != 1:
            raise ValueError(f"{name!r}: expected {x.size} numbers, one for each x; got {y.shape}")
    _check_numbers(np.concatenate([[], *lines.values()]), log)
    levels = shorten_names("levels", levels or {})
    right = measure_names([*lines, *levels]) + 24
    figure, ax = make_axes(title, (720, 380), left=76, right=right, labels=(xlabel, ylabel))
    with style.scope():
        _paint_curves(ax, x, lines, levels, log)
    ends = [
        f"{name} goes from {write_number(y[0])} to {write_number(y[-1])}"
        for name, y in lines.items()
    ]
    over = f"over {xlabel or 'x'} {write_number(x[0])} to {write_number(x[-1])}"
    marked = [f"{name} at {write_number(y)}" for name, y in levels.items()]
    return Picture(figure, sentence or f"{title}: {'; '.join([*ends, *marked])}; {over}")


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
    _check_numbers(np.array(list(values.values())), log)
    left = measure_names(values) + 28
    size = (720, 92 + 27 * len(values) + (22 if levels else 0))
    figure, ax = make_axes(title, size, left=left, right=26, labels=(xlabel, ""), low=bool(levels))
    with style.scope():
        _paint_bars(ax, values, levels, highlight, log)
    words = [f"{name} {write_number(value)}" for name, value in {**values, **levels}.items()]
    return Picture(figure, sentence or f"{title}: {', '.join(words)}")


def _check_numbers(values: np.ndarray, log: bool) -> None:
    if not np.isfinite(values).any():
        raise ValueError("expected at least one finite number to draw")
    if log and not (values[np.isfinite(values)] > 0).any():
        raise ValueError("log=True: expected at least one number above zero")


# -- curves --------------------------------------------------------------------------------------


def _paint_curves(ax: Axes, x, lines: Mapping, levels: Mapping, log: bool) -> None:
    """Draw a line for each of `lines` {name: y}, named at its right end, and dashed `levels`."""
    ends = []  # (y, name, colour, bold)
    for i, (name, y) in enumerate(lines.items()):
        color, dash, marker = style.SERIES[i % len(style.SERIES)]
        ax.plot(
            x,
            y,
            color=color,
            linestyle=dash,
            marker=marker,
            markevery=max(1, len(x) // 8),
            clip_on=False,
            zorder=3,
            gid=f"line:{name}",
        )
        last = np.flatnonzero(np.isfinite(y) & ((y > 0) | (not log)))[-1:]
        ends += [(float(y[k]), name, color, True) for k in last]
    if log:
        ax.set_yscale("log")
    for name, y in levels.items():
        draw_level(ax.axhline, y, name)
        ends.append((float(y), name, style.QUIET, False))
    style_axis(ax.xaxis, whole=all(float(each).is_integer() for each in x))
    style_axis(ax.yaxis, log=log)
    ax.margins(x=0.01)
    if not log and all(y.min(initial=0, where=np.isfinite(y)) >= 0 for y in lines.values()):
        ax.set_ylim(bottom=0)
    _name_ends(ax, ends)


def _name_ends(ax: Axes, ends: list[tuple]) -> None:
    """Write names at the right, as near to their `ends` (y, name, colour, bold) as space allows."""
    height = ax.get_window_extent().height * style.PIXELS / ax.get_figure().dpi
    spots = [ax.transAxes.inverted().transform(ax.transData.transform((0, y)))[1] for y, *_ in ends]
    for i, at in spread_out(spots, 16 / height):
        _, name, color, bold = ends[i]
        write(
            ax, 1.015, at, name, color=color, bold=bold, transform=ax.transAxes, gid=f"name:{name}"
        )


# -- bars ----------------------------------------------------------------------------------------


def _paint_bars(ax: Axes, values: Mapping, levels: Mapping, highlight: Sequence, log: bool) -> None:
    lengths = np.array(list(values.values()), dtype=float)
    positive = lengths[lengths > 0]
    low = 10 ** np.floor(np.log10(min([*positive, *levels.values()])) - 0.5) if log else 0
    for y, (name, length) in enumerate(values.items()):
        drawn = max(length, low) - low if np.isfinite(length) else 0
        _paint_bar(ax, y, name, low, drawn, write_number(length), name in highlight)
    if log:
        ax.set_xscale("log")
    ax.set(ylim=(len(values) - 0.4, -0.6), yticks=[])
    high = max([*lengths[np.isfinite(lengths)], *levels.values()])
    ax.set_xlim((low, high * (high / low) ** 0.12) if log else (min(0, lengths.min()), high * 1.12))
    for name, x in levels.items():
        draw_level(ax.axvline, x, name)
        write(ax, x, -0.95, name, color=style.QUIET, ha="center", size=style.SMALL)
    style_axis(ax.xaxis, log=log)


def _paint_bar(ax, y: int, name: str, low: float, drawn: float, number: str, bold: bool) -> None:
    """Draw one bar, its name before it, and its number after it, which covers any level there."""
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
    ax.annotate(
        number,
        (low + drawn, y),
        xytext=(5, 0),
        textcoords="offset points",
        va="center_baseline",
        bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.8},
        parse_math=False,
        fontproperties=fonts.get_font(fonts.BOLD if bold else fonts.REGULAR, style.LABEL),
        color=style.TEXT,
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
