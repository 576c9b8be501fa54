"""`draw_bars`: every bar is labelled, and readable without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kvviz.arguments import check_flag, describe, list_several
from kvviz.drawing import fonts, style
from kvviz.drawing.axes import draw_level, make_axes, measure_names, style_axis, write_number
from kvviz.drawing.inputs import (
    check_finite,
    check_words,
    read_levels,
    shorten,
    shorten_names,
    to_numbers,
)
from kvviz.drawing.marks import write
from kvviz.drawing.names import spread_out
from kvviz.drawing.picture import Picture

LEGEND = 26  # pixels that the legend's line is high
HATCH = "///"


def draw_bars(
    values: Mapping,
    *,
    title: str,
    xlabel: str = "",
    sentence: str | None = None,
    log: bool = False,
    levels: Mapping[str, float] | None = None,
    highlight: Sequence[str] = (),
    marked: str = "",
) -> Picture:
    """Draw a bar for each of `values` {name: length}, with its number at its end.

    A number is never beyond a level that its bar doesn't reach: it goes inside or before the bar.

    Args:
        highlight: names of the bars that stand out.
        marked: what these bars have in common, such as "over the gate", for a legend.
        title, sentence, log, levels: as in `draw_curves`; here the x axis is the logarithmic one.

    Raises:
        ValueError: nothing to draw, no positive number on a log axis, or a name to highlight that
            isn't in `values`.

    >>> kv.draw_bars({"uncached": 23900, "cached": 219}, title="Positions computed")
    Positions computed: uncached 23,900, cached 219
    >>> kv.draw_bars({"a": 1, "b": 3}, title="Gaps", highlight=["b"], marked="too large")
    Gaps: a 1, b 3; too large: b
    """
    check_words(title, sentence, xlabel=xlabel, marked=marked)
    log, levels = check_flag("log", log), read_levels(levels, log)
    named = shorten_names("values", values)
    values = {name: _read_length(name, value) for name, value in named.items()}
    highlight = [shorten(name) for name in list_several("highlight", highlight, "a list of names")]
    if unknown := [name for name in highlight if name not in values]:
        raise ValueError(f"highlight: expected names in values, but got {describe(unknown[0])}")
    check_finite(np.array(list(values.values())), log)
    left, bold = measure_names(values) + 28, [name for name in values if name in highlight]
    below = LEGEND if marked and bold else 0
    size = (720, 92 + 27 * len(values) + (22 if levels else 0) + below)
    figure, ax = make_axes(title, size, left=left, right=26, labels=("", ""), low=bool(levels))
    whole, box, words = figure.axes[0], ax.get_position(), f"{title}: {_say(values, levels)}"
    words += f"; {marked}: {', '.join(bold) or 'none'}" if marked else ""
    ax.set_position((box.x0, box.y0 + below / size[1], box.width, box.height - below / size[1]))
    with style.scope():
        write(whole, size[0] - 26, size[1] - 12 - below, xlabel, color=style.QUIET, ha="right")
        if below:
            _draw_legend(whole, left, size[1] - 15, marked)
        _paint_bars(ax, values, levels, bold, log)
    return Picture(figure, sentence or words)


def _read_length(name: str, value) -> float:
    length = to_numbers(repr(name), value)
    if length.ndim:
        raise ValueError(f"{name!r}: expected one number, but got {describe(value)}")
    return float(length)


def _say(values: Mapping, levels: Mapping) -> str:
    return ", ".join(
        f"{name} {write_number(value)}" for name, value in {**values, **levels}.items()
    )


def _draw_legend(ax: Axes, x: float, y: float, words: str) -> None:
    """Draw a swatch with the highlighted bars' looks, and what it means."""
    looks = {"hatch": HATCH, "facecolor": _choose_fill(True), "edgecolor": style.PAPER}
    ax.add_patch(Rectangle((x, y - 7), 22, 14, linewidth=0, gid="legend:marked", **looks))
    write(ax, x + 30, y, words, gid="name:marked")


# -- bars ----------------------------------------------------------------------------------------


def _paint_bars(ax: Axes, values: Mapping, levels: Mapping, bold: Sequence, log: bool) -> None:
    lengths = np.array(list(values.values()), dtype=float)
    positive = lengths[lengths > 0]
    low = 10 ** np.floor(np.log10(min([*positive, *levels.values()])) - 0.5) if log else 0
    if log:
        ax.set_xscale("log")
    ends = [max(each, low) if np.isfinite(each) else low for each in lengths]
    drawn = [end - low if np.isfinite(each) else 0 for end, each in zip(ends, lengths, strict=True)]
    for y, (name, length) in enumerate(zip(values, drawn, strict=True)):
        _paint_bar(ax, y, name, low, length, name in bold)
    ax.set(ylim=(len(values) - 0.4, -0.6), yticks=[])
    high = max([*lengths[np.isfinite(lengths)], *levels.values()])
    ax.set_xlim((low, high * (high / low) ** 0.12) if log else (min(0, lengths.min()), high * 1.12))
    numbers = [write_number(each) for each in lengths]
    spots = _find_spots(ax, low, ends, numbers, levels)
    if any(where == "before" for where, _ in spots):
        _make_room(ax, measure_names(numbers) + 12)
        spots = _find_spots(ax, low, ends, numbers, levels)
    _paint_levels(ax, levels)
    for y, (name, (where, x)) in enumerate(zip(values, spots, strict=True)):
        before = measure_names([numbers[y]]) + 8 if where == "before" else 0
        _write_number(ax, y, x, numbers[y], name in bold, where)
        _write_name(ax, y, low, name, name in bold, before)
    style_axis(ax.xaxis, log=log)


def _paint_levels(ax: Axes, levels: Mapping) -> None:
    """Draw dashed lines in front of the bars, on a pale ground, each under its name."""
    spots = [ax.transData.transform((x, 0))[0] for x in levels.values()]
    wide = max(map(measure_names, [[name] for name in levels]), default=0)
    names = dict(spread_out(spots, wide + 12))
    end = ax.get_figure().bbox.x1 - 8
    for i in sorted(names, key=names.get, reverse=True):  # none beyond the right edge
        half = measure_names([list(levels)[i]]) / 2
        names[i] = min(names[i], end - half)
        end = names[i] - half - 12
    for i, (name, x) in enumerate(levels.items()):
        ax.axvline(x, color=style.PAPER, linewidth=4, zorder=2.5)
        draw_level(ax.axvline, x, name).set(color=style.TEXT, zorder=2.6)
        at, _ = ax.transData.inverted().transform((names[i], 0))
        write(ax, at, -0.95, name, ha="center", gid=f"name:{name}")


def _make_room(ax: Axes, wide: float) -> None:
    """Move the left end of the bars to the right, by `wide` pixels."""
    box, share = ax.get_position(), wide / (ax.get_figure().get_figwidth() * style.PIXELS)
    ax.set_position((box.x0 + share, box.y0, box.width - share, box.height))


def _find_spots(ax: Axes, low: float, ends, numbers, levels: Mapping) -> list[tuple[str, float]]:
    """Where each number goes: ("after", "inside" or "before" its bar, its left in pixels)."""
    spots, start = [], ax.transData.transform((low, 0))[0]
    lines = sorted((at, ax.transData.transform((at, 0))[0]) for at in levels.values())
    for end, number in zip(ends, numbers, strict=True):
        tip, wide = ax.transData.transform((end, 0))[0], measure_names([number])
        x = tip + 6
        ahead = [line for at, line in lines if at > end]
        if not ahead or x + wide + 4 < ahead[0]:
            passed = [line for at, line in lines if at <= end and x - 4 < line]
            spots.append(("after", max([x, *(line + 7 for line in passed)])))
            continue
        x = tip - 6 - wide
        for line in sorted((line for _, line in lines), reverse=True):
            x = line - 7 - wide if x - 4 < line < x + wide + 4 else x
        spots.append(("inside", x) if x > start + 3 else ("before", start - 6 - wide))
    return spots


def _write_number(ax: Axes, y: int, x: float, number: str, bold: bool, where: str) -> None:
    wide, back = measure_names([number]), ax.transData.inverted().transform
    if where == "inside":  # on paper: a bar is too dark for text, and its hatch too busy
        left, right = (back((at, 0))[0] for at in (x - 4, x + wide + 4))
        ax.barh(y, right - left, 0.5, left=left, color=style.PAPER, linewidth=0, gid=f"ground:{y}")
    strong = bold or where == "before"
    write(ax, back((x, 0))[0], y, number, bold=strong, color=style.TEXT, gid=f"number:{y}")


def _choose_fill(bold: bool) -> str:
    return style.tint(style.ALARM if bold else style.QUIET, 0.75)


def _paint_bar(ax: Axes, y: int, name: str, low: float, drawn: float, bold: bool) -> None:
    ax.barh(
        y,
        drawn,
        0.66,
        left=low,
        color=_choose_fill(bold),
        hatch=HATCH if bold else None,
        edgecolor=style.PAPER,
        linewidth=0,
        gid=f"bar:{name}",
    )


def _write_name(ax: Axes, y: int, low: float, name: str, bold: bool, before: float) -> None:
    """Write a bar's name before it, and `before` pixels further, which its number takes."""
    words, path = fonts.choose_font(name, bold=bold)
    ax.annotate(
        words,
        (low, y),
        xytext=(-6 - 0.75 * before, 0),
        textcoords="offset points",
        ha="right",
        va="center_baseline",
        parse_math=False,
        fontproperties=fonts.get_font(path, style.LABEL),
        color=style.TEXT,
    )
