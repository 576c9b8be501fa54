"""`draw_roofline`: how fast work runs, under the roof that memory and arithmetic set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from kvviz.arguments import check_number, describe, list_several
from kvviz.drawing import style
from kvviz.drawing.axes import make_axes, measure_names, style_axis, write_number
from kvviz.drawing.inputs import check_words
from kvviz.drawing.marks import write
from kvviz.drawing.names import ROW, find_clear_spots, shorten
from kvviz.drawing.picture import Picture

COUNTS = ("", "thousands of ", "millions of ", "billions of ", "trillions of ")
DROP = "the drop: overhead"  # from the roof down to a point
FAR = 2  # a point more than this factor below its roof doesn't wait for what the roof is made of
NEAR = 1.5  # within this factor of the ridge, a point is near it


def draw_roofline(
    points: Mapping,
    *,
    flops: float,
    bandwidth: float,
    title: str,
    sentence: str | None = None,
) -> Picture:
    """Draw work under a machine's roof: Williams, Waterman and Patterson 2009, CACM 52(4).

    The roof is the machine's highest possible speed: min(flops, bandwidth * operations a byte).

    Args:
        points: {name: (operations for each byte moved, operations a second)}.
        flops: the machine's peak, in operations a second.
        bandwidth: the memory's peak, in bytes a second.
        title: what the picture shows.
        sentence: replaces the sentence that says what each point waits for.

    Raises:
        ValueError: no points, or a number that isn't finite and above zero.

    >>> kv.draw_roofline({"decode": (0.5, 6e9)}, flops=1e11, bandwidth=2e10, title="A laptop")
    A laptop: decode, 0.5 operations a byte, waits for memory
    >>> kv.draw_roofline({"decode": (0.5, 2e9)}, flops=1e11, bandwidth=2e10, title="A laptop")
    A laptop: decode, 0.5 operations a byte, under memory's ceiling; the drop: overhead
    """
    check_words(title, sentence)
    points, flops, bandwidth = _read(points, flops, bandwidth)
    ridge, roof, limits = _find_roof(points, flops, bandwidth)
    power = int(np.clip((np.log10(flops) - 1) // 3, 0, len(COUNTS) - 1))
    far = [min(flops, bandwidth * x) / y > FAR for x, y in points.values()]
    labels = "operations for each byte moved", f"{COUNTS[power]}operations a second"
    figure, ax = make_axes(title, (720, 400), left=76, right=40, labels=labels)
    with style.scope():
        ax.set(xscale="log", yscale="log", xlim=roof[[0, 2], 0], ylim=limits)
        ax.vlines(ridge, limits[0], flops, color=style.LINE, linewidth=1, gid="ridge")
        ax.plot(*roof.T, color=style.TEXT, linewidth=3, gid="roof")
        for i, (name, (x, y)) in enumerate(points.items()):
            _paint_point(ax, i, name, x, y, min(flops, bandwidth * x))
        _name_roof(ax, roof)
        _draw_legend(figure.axes[0], 76, 388)
        _name_points(ax, [shorten(name) for name in points], list(points.values()), roof)
        style_axis(ax.xaxis, log=True)
        style_axis(ax.yaxis, log=True, unit=1000**power)
    words = [
        f"{name}, {write_number(x)} operation{'s' * (x != 1)} a byte, {_describe(x / ridge, below)}"
        for below, (name, (x, _)) in zip(far, points.items(), strict=True)
    ]
    words += [DROP] * any(far)
    return Picture(figure, sentence or f"{title}: {'; '.join(words)}")


def _read(points, flops, bandwidth) -> tuple[dict, float, float]:
    """The points, and the machine's two peaks, all of them numbers above 0."""
    if not isinstance(points, Mapping) or not points:
        raise ValueError(
            f"points: expected {{name: point}}, at least one, but got {describe(points)}"
        )
    flops = check_number("flops", flops, above=0)
    bandwidth, read = check_number("bandwidth", bandwidth, above=0), {}
    for name, point in points.items():
        where = f"points, {name!r}"
        expected = "(operations for each byte, operations a second)"
        if len(numbers := list_several(where, point, expected)) != 2:
            raise ValueError(f"{where}: expected {expected}, but got {describe(point)}")
        read[name] = tuple(check_number(where, number, above=0) for number in numbers)
    return read, flops, bandwidth


def _find_roof(points, flops, bandwidth) -> tuple[float, np.ndarray, tuple[float, float]]:
    """The ridge, the roof's three corners, and y limits that leave room to name both slopes."""
    ridge, (intensity, speed) = flops / bandwidth, np.array(list(points.values()), dtype=float).T
    low, high = min(*intensity / 2, ridge / 10), max(*intensity * 2, ridge * 10)
    high = max(high, ridge * (ridge / low) ** 0.4)
    low = min(low, ridge / (high / ridge) ** 0.4)
    roof = np.array([(low, bandwidth * low), (ridge, flops), (high, flops)])
    return ridge, roof, (min(*speed, bandwidth * low) / 3, 3 * max(flops, *speed))


def _paint_point(ax: Axes, i: int, name: str, x: float, y: float, roof: float) -> None:
    color, _, marker = style.SERIES[i % len(style.SERIES)]
    gid, dashes = f"up:{name}", (0, (4, 3))
    ax.plot([x, x], [y, roof], color=color, linestyle=dashes, linewidth=1.2, gid=gid)
    ax.plot(
        x,
        y,
        marker,
        color=color,
        markerfacecolor=color if i < len(style.SERIES) else style.PAPER,
        markersize=8,
        zorder=4,
        gid=f"point:{name}",
    )


def _describe(ratio: float, is_far: bool) -> str:
    """What a point waits for, or, far below its roof, only which part of the roof is over it."""
    if is_far:
        return f"under {'memory' if ratio < 1 else 'arithmetic'}'s ceiling"
    if 1 / NEAR <= ratio <= NEAR:
        return "near the ridge"
    return f"waits for {'memory' if ratio < 1 else 'arithmetic'}"


# -- names ---------------------------------------------------------------------------------------


def _name_roof(ax: Axes, roof) -> None:
    """Write what each slope of the roof waits for along it, and mark the ridge."""
    low, ridge, high = ax.transData.transform(roof)
    back = ax.transData.inverted().transform
    for one, two, part in ((low, ridge, "memory"), (ridge, high, "arithmetic")):
        along = (two - one) / np.hypot(*(two - one))
        write(
            ax,
            *back((one + two) / 2 + 13 * np.array([-along[1], along[0]])),
            f"waits for {part}",
            bold=True,
            ha="center",
            rotation=np.degrees(np.arctan2(*along[::-1])),
            rotation_mode="anchor",
            gid=f"name:waits for {part}",
        )
    words, spot = f"ridge {write_number(roof[1, 0])}", back((ridge[0] + 5, ax.bbox.y0 + 9))
    write(ax, *spot, words, size=style.SMALL, color=style.QUIET, gid="name:ridge")


def _draw_legend(whole: Axes, x: float, y: float) -> None:
    """Say what the dashed lines from the roof down to the points are, under the chart."""
    dashes = {"linestyle": (0, (4, 3)), "linewidth": 1.2}
    whole.plot([x, x + 24], [y, y], color=style.TEXT, gid="legend:drop", **dashes)
    write(whole, x + 32, y, DROP, gid="name:drop")


def _name_points(ax: Axes, names: Sequence[str], points: Sequence, roof) -> None:
    """Write the names of `points` under a `roof` of three (x, y).

    A name goes beside its point or, if there's no room, under it on a pole.
    """
    points, back = ax.transData.transform(points), ax.transData.inverted().transform
    taken = _find_taken(ax, points, ax.transData.transform(roof))
    order = np.argsort(points[:, 0])
    names, points, tries = [names[i] for i in order], points[order], []
    for name, (x, y) in zip(names, points, strict=True):
        before = x - measure_names([name])
        hung = [(at, y - down) for down in range(22, 120, ROW) for at in (before - 5, x + 5)]
        tries.append([(x + 9, y), (before - 9, y), *hung])
    found = find_clear_spots(names, points, tries, taken)
    for i, name, (x, y), (at, down) in zip(order, names, points, found, strict=True):
        color = style.SERIES[i % len(style.SERIES)][0]
        write(ax, *back((at, down)), name, bold=True, gid=f"name:{name}")
        pole = back([(x, y), (x, down - 5 * (down < y))])
        ax.plot(*pole.T, color=color, linewidth=0.8)


def _find_taken(ax: Axes, points, roof) -> list[tuple]:
    """Boxes that names must avoid: what is outside the Axes, the roof, its names, the points."""
    left, low, right, high = ax.bbox.extents
    taken = [(0, 0, right, low), (0, 0, left, high), (right + 32, 0, 2 * right, high)]
    taken += [(roof[1, 0], low, roof[1, 0] + 80, low + 18)]  # the ridge's name
    line = np.arange(left, right, 6)
    for x, y in zip(line, np.interp(line, *roof.T), strict=True):
        taken.append((x, y - 3, x + 6, y + 22))
    for (x, y), up in zip(points, np.interp(points[:, 0], *roof.T), strict=True):
        taken += [(x - 6, y - 6, x + 6, y + 6), (x - 2, min(y - 45, up), x + 2, max(y, up))]
    return taken
