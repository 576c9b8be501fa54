"""`draw_memory`: the memory that requests hold over time, as stacked bands."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from kvviz import tokens
from kvviz.arguments import check_number, describe
from kvviz.count import UNITS, in_units
from kvviz.drawing import style
from kvviz.drawing.axes import draw_level, make_axes, measure_names, style_axis, write_number
from kvviz.drawing.band_names import name_bands
from kvviz.drawing.inputs import check_words, to_numbers
from kvviz.drawing.marks import write
from kvviz.drawing.names import ROW, shorten, spread_out
from kvviz.drawing.picture import Picture
from kvviz.words import pluralize

FEW = 5  # if there are more bands or failures, they aren't named
BANDS = [style.tint(style.SERIES[1][0], share) for share in (0.66, 0.33)]
WIDTH = 450  # pixels; the x axis is at least this long


def draw_memory(
    held: Mapping,
    *,
    title: str,
    budget: float | None = None,
    failed: Mapping | None = None,
    x=None,
    xlabel: str = "step",
    sentence: str | None = None,
) -> Picture:
    """Draw the bytes held over time, a band for each request; each moment lasts until the next.

    Args:
        held: {name: n numbers}, bytes at each of n moments; 0 where a request holds nothing.
        title: what the picture shows.
        budget: bytes available, drawn as a dashed line.
        failed: {name: moment}, the moment in `x` at which a request needed more than was free.
        x: n rising numbers, the moments; 0 to n - 1 unless given.
        sentence: replaces the sentence that says how much was held at most and what failed when.

    Raises:
        ValueError: nothing to draw, lengths that differ, bytes below zero, a budget that isn't
            positive, or a failure of an unknown request or at an unknown moment.

    >>> kv.draw_memory({"a": [1024, 2048], "b": [0, 3072]}, title="Two requests")
    Two requests: 2 requests over step 0 to 1; at most 5 KiB held, at step 1
    """
    check_words(title, sentence, xlabel=xlabel)
    held, failed = _read_rows(held), {} if failed is None else failed
    x = range(len(next(iter(held.values()), []))) if x is None else x
    x = to_numbers("x", list(x) if isinstance(x, range) else x)
    budget = None if budget is None else check_number("budget", budget, above=0)
    _check(held, x, failed)
    edges = np.append(x, x[-1] + (x[-1] - x[-2] if len(x) > 1 else 1))
    many = len(held) > FEW
    if many:  # as they arrive: the one on top has seldom gone when the next one comes
        held = dict(sorted(held.items(), key=lambda band: (band[1] > 0).argmax()))
    tops = np.cumsum([np.zeros(len(x)), *held.values()], 0)
    average = float(np.average(tops[-1], weights=np.diff(edges)))
    limit = "" if budget is None else f"budget {in_units(round(budget))}"
    highest = max(tops.max(), budget or 0) or 1
    unit = in_units(max(highest, 2)).split()[-1]  # at least 2: the unit is in the plural
    crosses = _find_crosses(tops[-1], x, budget, failed)
    names = [] if many else [shorten(name) for name in held]
    beside = {limit: budget} if limit else {}
    beside |= {f"average {in_units(round(average))}": average} if many else {}
    flags = [(f"{shorten(name)} failed", spot) for name, spot in crosses.items()]
    flags = flags if len(failed) <= FEW else []
    starts = [(words, at) for words, (at, _) in flags]
    starts += zip(names, (x[row.argmax()] for row in held.values()), strict=False)
    right, labels = _measure_right([*beside], starts, edges), (xlabel, f"{unit} held")
    figure, ax = make_axes(title, (720, 380), left=76, right=right, labels=labels)
    with style.scope():
        ax.set_xlim(edges[0], edges[-1])
        _paint_bands(ax, list(held), edges, tops)
        name_bands(ax, names, edges, tops, flags=flags, highest=highest)
        _paint_limits(ax, beside)
        _paint_crosses(ax, crosses)
        if many and not failed:
            _mark_peak(ax, edges, tops[-1], budget)
        style_axis(ax.xaxis, whole=bool((x == x.round()).all()))
        style_axis(ax.yaxis, unit=UNITS.get(unit, 1))
    return Picture(
        figure, sentence or f"{title}: {_describe(tops[-1], x, held, [*beside], failed, xlabel)}"
    )


def _read_rows(held) -> dict[str, np.ndarray]:
    if not isinstance(held, Mapping):
        raise ValueError(f"held: expected {{name: bytes}}, but got {describe(held)}")
    return {name: np.atleast_1d(to_numbers(repr(name), row)) for name, row in held.items()}


def _check(held, x, failed) -> None:
    if not held or not x.size:
        raise ValueError("held: expected the bytes of at least one request")
    if x.ndim != 1 or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
        raise ValueError(f"x: expected moments in rising order, but got {x.tolist()}")
    for name, row in held.items():
        if row.shape != x.shape:
            expected = f"{len(x)} numbers, one for each moment"
            raise ValueError(f"held, {name!r}: expected {expected}, but got shape {row.shape}")
        for odd in row[~(np.isfinite(row) & (row >= 0))][:1]:
            raise ValueError(f"held, {name!r}: expected bytes, 0 or more, but got {odd:g}")
    if not isinstance(failed, Mapping):
        raise ValueError(f"failed: expected {{name: moment}}, but got {describe(failed)}")
    for name, at in failed.items():
        if name not in held:
            raise ValueError(f"failed: expected a name that is in held, but got {describe(name)}")
        if check_number(f"failed, {name!r}", at) not in x:
            span = f"{write_number(x[0])} to {write_number(x[-1])}"
            expected = f"one of the moments in x, {span}"
            raise ValueError(f"failed, {name!r}: expected {expected}, but got {describe(at)}")


def _measure_right(beside: list[str], starts: list[tuple[str, float]], edges) -> float:
    """Pixels on the right for names `beside` the Axes, and for names that begin near the end."""
    a_moment = WIDTH / np.ptp(edges)
    beyond = [measure_names([words]) - a_moment * (edges[-1] - at) for words, at in starts]
    return 24 + max(measure_names(beside), *beyond, 0)


def _find_crosses(total, x, budget, failed) -> dict[str, tuple[float, float]]:
    """Where each failure is marked: on the budget, or at the upper end of a rise or a fall."""
    asked = np.maximum(total, np.r_[0, total[:-1]])
    return {name: (at, budget or asked[x == at][0]) for name, at in failed.items()}


def _paint_bands(ax: Axes, names: list, edges, tops) -> None:
    for i, name in enumerate(names):
        ax.stairs(
            tops[i + 1],
            edges,
            baseline=tops[i],
            fill=True,
            facecolor=BANDS[i % 2],
            edgecolor=style.PAPER,
            linewidth=0.7 if len(names) <= FEW else 0.35,
            gid=f"band:{name}",
        )
    wide = 1.4 if len(names) <= FEW else 0.9
    ax.stairs(tops[-1], edges, baseline=None, color=style.TEXT, linewidth=wide, gid="total")


def _paint_limits(ax: Axes, beside: Mapping[str, float]) -> None:
    """Draw dashed lines across at {name: bytes}, each named at its right end."""
    ends = [ax.transData.transform((0, at))[1] for at in beside.values()]
    for (name, at), (_, up) in zip(beside.items(), sorted(spread_out(ends, ROW)), strict=True):
        which = name.split()[0]
        ax.axhline(at, color=style.PAPER, linewidth=3, zorder=2.5)
        dots = {} if which == "budget" else {"linestyle": (0, (1, 2))}
        draw_level(ax.axhline, at, which).set(color=style.TEXT, zorder=2.6, **dots)
        _, y = ax.transAxes.inverted().transform((0, up))
        write(ax, 1.015, y, name, transform=ax.transAxes, gid=f"name:{which}")


def _mark_peak(ax: Axes, edges, total, budget: float | None) -> None:
    """Mark the moment at which most is held, with the number over it, and not on the budget."""
    at = total.argmax()
    x, y = edges[at : at + 2].mean(), total[at]
    ax.plot(x, y, "o", color=style.TEXT, markersize=4.5, zorder=5, clip_on=False, gid="peak")
    words, back = f"peak {in_units(round(y))}", ax.transData.inverted()
    left, up = ax.transData.transform((x, y))
    wide, (low, high) = measure_names([words]), ax.bbox.intervalx
    left = min(max(left - wide / 2, low), high - wide)
    up += 12
    if budget is not None and abs(line := ax.transData.transform((0, budget))[1] - up) < 10:
        up += line + 11
    write(ax, *back.transform((left, up)), words, bold=True, gid="name:peak")


def _paint_crosses(ax: Axes, crosses: dict) -> None:
    for name, cross in crosses.items():
        ax.plot(
            *cross,
            "X",
            color=style.ALARM,
            markersize=10,
            markeredgecolor=style.PAPER,
            clip_on=False,
            zorder=5,
            gid=f"failed:{name}",
        )


def _describe(total, x, held, beside: list[str], failed, xlabel: str) -> str:
    n, most = len(held), total.argmax()
    when = f"{xlabel} {write_number(x[0])}" + f" to {write_number(x[-1])}" * (len(x) > 1)
    parts = [f"{pluralize(n, 'request')} over {when}"]
    parts += [f"at most {in_units(round(total[most]))} held, at {xlabel} {write_number(x[most])}"]
    fails = [
        f"{tokens.quoted(str(name))} failed at {xlabel} {write_number(at)}"
        for name, at in sorted(failed.items(), key=lambda fail: fail[1])
    ]
    fails = fails if len(fails) <= FEW else [f"{len(fails)} failed, the first: {fails[0]}"]
    return "; ".join([*parts, *beside, *fails])
