"""`draw_memory`: the memory that requests hold over time, as stacked bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np
from matplotlib.axes import Axes

from kvviz import tokens
from kvviz.arguments import describe
from kvviz.count import UNITS, in_units
from kvviz.drawing import style
from kvviz.drawing.axes import draw_level, make_axes, measure_names, style_axis, write_number
from kvviz.drawing.inputs import to_numbers
from kvviz.drawing.marks import write
from kvviz.drawing.names import ROW, find_clear_spots, shorten
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
    held, failed = _read_rows(held), failed or {}
    x = np.asarray(range(len(next(iter(held.values()), []))) if x is None else x, dtype=float)
    _check(held, x, budget, failed)
    edges = np.append(x, x[-1] + (x[-1] - x[-2] if len(x) > 1 else 1))
    tops = np.cumsum([np.zeros(len(x)), *held.values()], 0)
    limit = "" if budget is None else f"budget {in_units(round(budget))}"
    highest = max(tops.max(), budget or 0) or 1
    unit = in_units(max(highest, 2)).split()[-1]  # at least 2: the unit is in the plural
    crosses = _find_crosses(tops[-1], x, budget, failed)
    names = [shorten(name) for name in held] if len(held) <= FEW else []
    flags = [(f"{shorten(name)} failed", spot) for name, spot in crosses.items()]
    flags = flags if len(failed) <= FEW else []
    starts = [(words, at) for words, (at, _) in flags]
    starts += zip(names, (x[row.argmax()] for row in held.values()), strict=False)
    right, labels = _measure_right(limit, starts, edges), (xlabel, f"{unit} held")
    figure, ax = make_axes(title, (720, 380), left=76, right=right, labels=labels)
    with style.scope():
        ax.set_xlim(edges[0], edges[-1])
        _paint_bands(ax, list(held), edges, tops)
        _paint_limits(ax, budget, limit, crosses)
        _name_bands(ax, names, edges, tops, flags=flags, highest=highest)
        style_axis(ax.xaxis, whole=bool((x == x.round()).all()))
        style_axis(ax.yaxis, unit=UNITS.get(unit, 1))
    return Picture(
        figure, sentence or f"{title}: {_describe(tops[-1], x, held, limit, failed, xlabel)}"
    )


def _read_rows(held) -> dict[str, np.ndarray]:
    if not isinstance(held, Mapping):
        raise ValueError(f"held: expected {{name: bytes}}, but got {type(held).__name__}")
    return {name: np.atleast_1d(to_numbers(repr(name), row)) for name, row in held.items()}


def _check(held, x, budget, failed) -> None:
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
    if budget is not None and not (isinstance(budget, Real) and 0 < budget < np.inf):
        raise ValueError(f"budget: expected a number of bytes above 0, but got {describe(budget)}")
    for name, at in failed.items():
        if name not in held:
            raise ValueError(f"failed: expected a name that is in held, but got {describe(name)}")
        if at not in x:
            span = f"{write_number(x[0])} to {write_number(x[-1])}"
            expected = f"one of the moments in x, {span}"
            raise ValueError(f"failed, {name!r}: expected {expected}, but got {describe(at)}")


def _measure_right(limit: str, starts: list[tuple[str, float]], edges) -> float:
    """Pixels on the right for the budget's name, and for names that begin near the end."""
    a_moment = WIDTH / np.ptp(edges)
    beyond = [measure_names([words]) - a_moment * (edges[-1] - at) for words, at in starts]
    return 24 + max(measure_names([limit]), *beyond, 0)


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
            linewidth=0.7,
            gid=f"band:{name}",
        )
    ax.stairs(tops[-1], edges, baseline=None, color=style.TEXT, linewidth=1.4, gid="total")


def _paint_limits(ax: Axes, budget: float | None, limit: str, crosses: dict) -> None:
    if budget is not None:
        draw_level(ax.axhline, budget, "budget")
        beside = ax.get_yaxis_transform()
        write(ax, 1.015, budget, limit, color=style.QUIET, transform=beside, gid="name:budget")
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


def _describe(total, x, held, limit: str, failed, xlabel: str) -> str:
    n, most = len(held), total.argmax()
    when = f"{xlabel} {write_number(x[0])}" + f" to {write_number(x[-1])}" * (len(x) > 1)
    parts = [f"{pluralize(n, 'request')} over {when}"]
    parts += [f"at most {in_units(round(total[most]))} held, at {xlabel} {write_number(x[most])}"]
    fails = [
        f"{tokens.quoted(str(name))} failed at {xlabel} {write_number(at)}"
        for name, at in sorted(failed.items(), key=lambda fail: fail[1])
    ]
    fails = fails if len(fails) <= FEW else [f"{len(fails)} failed, the first: {fails[0]}"]
    return "; ".join([*parts, *filter(None, [limit]), *fails])


# -- the names of the bands ----------------------------------------------------------------------


def _name_bands(ax: Axes, names: Sequence[str], edges, tops, *, flags: Sequence, highest) -> None:
    """Write each band's name inside it, or on a pole above the stack if the band is too thin.

    `edges` (n + 1) bound the moments, and `tops` (bands + 1, n) the bands. The y axis shows at
    least up to `highest`, below the poles' names. `flags` [(words, (x, y))] get poles too, in red.
    """
    height = ax.bbox.height
    for rows in range(len(names) + len(flags) + 1):  # as few rows of poles as will do
        ax.set_ylim(0, highest * height / (height - 10 - ROW * rows))
        inside, over = _sort_names(ax, names, edges, tops)
        over += [(spot, words, style.ALARM) for words, spot in flags]
        over.sort(reverse=True)  # from right to left, names to the right of their poles
        spots = [ax.transData.transform(spot) for spot, *_ in over]
        base = ax.transData.transform((0, highest))[1] + 18
        tries = [[(x + 5, base + ROW * row) for row in range(len(over))] for x, _ in spots]
        found = find_clear_spots([words for _, words, _ in over], spots, tries)
        if all(y < base + ROW * rows for _, y in found):
            break
    for name, spot in inside:
        write(ax, *spot, name, bold=True, ha="center", gid=f"name:{name}")
    for ((x, y), words, color), spot in zip(over, found, strict=True):
        left, up = ax.transData.inverted().transform(spot)
        ax.plot([x, x], [y, up], color=color, linewidth=0.8, marker=".", markevery=[0], zorder=4)
        write(ax, left, up, words, bold=True, color=color, gid=f"name:{words}")


def _sort_names(ax: Axes, names: Sequence[str], edges, tops) -> tuple[list, list]:
    """[(name, spot)] of names that fit their band, [(spot, name, colour)] of those that don't."""
    inside, over = [], []
    for name, low, top in zip(names, tops, tops[1:], strict=False):
        widest = (top - low).argmax()
        if spot := _find_inside(ax, name, edges, low, top):
            inside.append((name, spot))
        elif top[widest] > low[widest]:
            spot = edges[widest : widest + 2].mean(), (top + low)[widest] / 2
            over.append((spot, name, style.TEXT))
    return inside, over


def _find_inside(ax: Axes, name: str, edges, low, top) -> tuple[float, float] | None:
    """Where `name` fits between the steps `low` and `top`, as near the middle as space allows."""
    left = ax.transData.transform(np.c_[edges, edges])[:, 0]
    centres = (left[:-1] + left[1:]) / 2
    middle = np.average(centres, weights=top - low) if (top > low).any() else 0
    spots, scale = [], ax.bbox.height / np.ptp(ax.get_ylim())
    for i, end in enumerate(np.searchsorted(left, left[:-1] + measure_names([name]) + 10)):
        if end < len(left) and (floor := low[i:end].max()) < (ceiling := top[i:end].min()):
            off = abs((left[i] + left[end]) / 2 - middle)
            spot = (edges[i] + edges[end]) / 2, (floor + ceiling) / 2
            spots.append((min(scale * (ceiling - floor), 40), -off, spot))
    deep, _, spot = max(spots, default=(0, 0, None))
    return spot if deep >= ROW + 2 else None
