"""`draw_curves`: every curve is named at its end, and readable without colour."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator

from kvviz.arguments import check_flag, check_number
from kvviz.drawing import style
from kvviz.drawing.axes import draw_level, make_axes, measure_names, style_axis, write_number
from kvviz.drawing.curve_names import name_ends
from kvviz.drawing.inputs import check_finite, check_words, read_levels, shorten_names, to_numbers
from kvviz.drawing.marks import write
from kvviz.drawing.picture import Picture
from kvviz.drawing.stairs import paint_stairs, write_sums

BAND = 0.13  # of the axis: the band for rounding


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
    stairs: bool = False,
    areas: str = "",
    rounding: float | None = None,
) -> Picture:
    """Draw curves {name: y} over `x`, each named at its right end; NaN is a gap or an early end.

    Args:
        x: n numbers; curves: n numbers for each name.
        title: what the picture shows.
        sentence: replaces the sentence that says where each curve begins and ends.
        log: a logarithmic y axis.
        levels: {name: y} for dashed lines across the chart.
        stairs: a filled step for each x instead of a line; x must rise.
        areas: with stairs, what their sums count, such as "positions"; each area shows its sum
            "in all", because a smaller area can hide a part of it.
        rounding: on a log axis, what is at or below it is no measurement: it's drawn as a hollow
            mark in a band called "rounding", and the sentence says "rounding" instead of a number.

    Raises:
        ValueError: nothing to draw, lengths that differ, no positive number on a log axis, stairs
            on a log axis or over an x that doesn't rise, areas without stairs, or rounding that
            isn't above 0 or isn't on a log axis.

    >>> kv.draw_curves([0, 1, 2], {"cached": [6, 1, 1]}, title="Rows", xlabel="step")
    Rows: cached goes from 6 to 1; over step 0 to 2
    >>> kv.draw_curves([0, 1], {"gap": [5, 1e-7]}, title="Gap", log=True, rounding=1e-4)
    Gap: gap goes from 5 to rounding; rounding is at most 1e-4; over x 0 to 1
    """
    check_words(title, sentence, xlabel=xlabel, ylabel=ylabel, areas=areas)
    log, stairs = check_flag("log", log), check_flag("stairs", stairs)
    x = to_numbers("x", list(x) if isinstance(x, range) else x)
    if x.ndim != 1:
        raise ValueError(f"x: expected a list of numbers, but got shape {x.shape}")
    lines = {name: to_numbers(repr(name), y) for name, y in shorten_names("curves", curves).items()}
    _check(x, lines, log, stairs, areas, rounding)
    levels = read_levels(levels, log)
    sums = {
        name: f"{write_number(np.nansum(y))} {areas} in all" for name, y in lines.items() if areas
    }
    right = measure_names([*lines, *levels, *sums.values()]) + 24
    figure, ax = make_axes(title, (720, 380), left=76, right=right, labels=(xlabel, ylabel))
    with style.scope():
        if stairs:
            ends = paint_stairs(ax, x, lines)
        else:
            ends = _paint_curves(ax, x, lines, log, rounding)
        if rounding is not None:
            ends += _paint_rounding(ax, x, lines, rounding, highest=max(levels.values(), default=0))
        for name, y in levels.items():
            draw_level(ax.axhline, y, name)
            ends.append((float(y), name, style.QUIET, False))
        ax.margins(x=0.01)
        if not log and all(y.min(initial=0, where=np.isfinite(y)) >= 0 for y in lines.values()):
            ax.set_ylim(bottom=0)
        if areas:
            ends += write_sums(ax, x, lines, sums)
        across = {name: np.full(x.shape, float(y)) for name, y in levels.items()}
        name_ends(ax, ends, x, {} if stairs else across | lines)
    said = _describe(x, lines, levels, sums, rounding, xlabel)
    return Picture(figure, sentence or f"{title}: {said}")


def _check(x, lines: Mapping, log: bool, stairs: bool, areas: str, rounding) -> None:
    for name, y in lines.items():
        if y.shape != x.shape:
            raise ValueError(f"{name!r}: expected {x.size} numbers, one for each x; got {y.shape}")
    check_finite(np.concatenate([[], *lines.values()]), log and rounding is None)
    if stairs and log:
        raise ValueError("stairs=True: expected a linear axis, because an area starts at 0")
    if stairs and (not np.isfinite(x).all() or (np.diff(x) <= 0).any()):
        raise ValueError("stairs=True: expected an x that rises from step to step")
    if areas and not stairs:
        raise ValueError("areas: expected stairs=True with it")
    if rounding is not None and not (check_number("rounding", rounding, above=0) and log):
        expected = "a number above 0, and log=True with it"
        raise ValueError(f"rounding: expected {expected}, but got log=False")


def _describe(x, lines, levels, sums, rounding, xlabel: str) -> str:
    parts = []
    for name, y in lines.items():
        small = np.zeros(y.shape, dtype=bool) if rounding is None else y <= rounding
        said = f"{name} {_say_ends(x, y, small, xlabel or 'x')}"
        if small.all():
            said = f"{name} is rounding throughout"
        elif small[1:-1].any():
            said += f", with {small.sum()} of {len(y)} rounding"
        parts.append(said + (f", {sums[name]}" if sums else ""))
    parts += [f"{name} at {write_number(y)}" for name, y in levels.items()]
    if rounding is not None:
        parts.append(f"rounding is at most {write_number(rounding)}")
    over = f"over {xlabel or 'x'} {write_number(x[0])} to {write_number(x[-1])}"
    return "; ".join([*parts, over])


def _say_ends(x, y, small, axis: str) -> str:
    """`goes from 6 to 9 at step 3`: the first and last number, and where, if not at the ends."""
    there = np.flatnonzero(np.isfinite(y))
    if not len(there):
        return "has no finite number"
    words = []
    for k, end in ((there[0], 0), (there[-1], len(y) - 1)):
        number = "rounding" if small[k] else write_number(y[k])
        words.append(number if k == end else f"{number} at {axis} {write_number(x[k])}")
    return f"goes from {' to '.join(words)}"


# -- lines ---------------------------------------------------------------------------------------


def _paint_curves(ax: Axes, x, lines: Mapping, log: bool, rounding: float | None) -> list[tuple]:
    """Draw a line for each of `lines` {name: y}; returns its ends (y, name, colour, bold)."""
    ends, every = [], max(1, len(x) // 8)
    for i, (name, y) in enumerate(lines.items()):
        color, dash, marker = style.SERIES[i % len(style.SERIES)]
        shown = y if rounding is None else np.where(y > rounding, y, np.nan)
        ax.plot(
            x,
            shown,
            color=color,
            linestyle=dash,
            marker=marker,
            markevery=(i * every // len(lines), every),  # those of lines that meet don't
            clip_on=False,
            zorder=3,
            gid=f"line:{name}",
        )
        last = np.flatnonzero(np.isfinite(y) & ((y > 0) | (not log)))[-1:]
        if rounding is None or not (y[-1:] <= rounding).any():
            ends += [(float(y[k]), name, color, True) for k in last]
    if log:
        ax.set_yscale("log")
    style_axis(ax.xaxis, whole=all(float(each).is_integer() for each in x))
    style_axis(ax.yaxis, log=log)
    return ends


def _paint_rounding(ax: Axes, x, lines: Mapping, rounding: float, highest: float) -> list[tuple]:
    """Draw the band and what is in it, a row for each curve; returns the ends that are in it.

    The axis shows at least up to `highest`.
    """
    measured = [y.max(initial=rounding, where=np.isfinite(y)) for y in lines.values()]
    high = max(1.5 * max(*measured, highest), 100 * rounding)
    tall = np.log10(high / rounding) / (1 - BAND) * BAND  # of the band, in powers of ten
    ax.set_ylim(rounding / 10**tall, high)
    ax.axhspan(rounding / 10**tall, rounding, color=style.UNMOVED, linewidth=0, gid="rounding")
    draw_level(ax.axhline, rounding, "rounding")
    ends, inside = [], [name for name, y in lines.items() if (y <= rounding).any()]
    for i, (name, y) in enumerate(lines.items()):
        if name not in inside:
            continue
        color, _, marker = style.SERIES[i % len(style.SERIES)]
        at = rounding / 10 ** (tall * (inside.index(name) + 0.5) / len(inside))
        small = y <= rounding
        ax.plot(
            x[small],
            np.full(small.sum(), at),
            linestyle="none",
            marker=marker,
            color=color,
            markerfacecolor=style.PAPER,
            markersize=6,
            markeredgewidth=1.5,
            clip_on=False,
            zorder=4,
            gid=f"rounding:{name}",
        )
        for k in np.flatnonzero(small[1:] != small[:-1]):  # into the band, or out of it
            pair = np.where(small[k : k + 2], at, y[k : k + 2])
            ax.plot(x[k : k + 2], pair, color=color, linestyle=":", linewidth=1.2)
        ends += [(at, name, color, True)] if small[-1:].any() else []
    ticks = LogLocator(numticks=7).tick_values(rounding, high)
    ax.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if rounding <= tick <= high]))
    middle = BAND / 2
    write(ax, -0.015, middle, "rounding", color=style.QUIET, ha="right", transform=ax.transAxes)
    return ends
