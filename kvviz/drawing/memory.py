"""What serving costs: the memory that requests hold over time, and the roof over their work."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
from matplotlib.axes import Axes

from kvviz import tokens
from kvviz.count import UNITS, in_units
from kvviz.drawing import charts as chart
from kvviz.drawing import fonts as text
from kvviz.drawing import style
from kvviz.drawing.marks import write
from kvviz.drawing.picture import Picture

FEW = 5  # of more, neither bands nor failures are named
BANDS = [style.tint(style.SERIES[1][0], share) for share in (0.66, 0.33)]
COUNTS = ("", "thousands of ", "millions of ", "billions of ", "trillions of ")
LONGEST = 150  # pixels of a name
NEAR = 1.5  # times the ridge, or a part of it


def draw_memory(
    held: Mapping, *, title: str, budget=None, failed=None, x=None, xlabel="step", sentence=None
) -> Picture:
    """Bytes held over time, one band on the other for each request; each moment holds to the next.

    Args:
        held: {name: n numbers}, bytes at each of n moments; 0 where a request holds nothing.
        title: what to see.
        budget: bytes that there are, a dashed line across.
        failed: {name: moment}, one of `x`, at which a request asked for more than there was.
        x: n rising numbers, the moments; 0 to n - 1 unless given.
        sentence: the text twin, instead of how much was held at most, and what failed when.

    Raises:
        ValueError: nothing to draw, lengths that differ, bytes that cannot be, a budget that is not
            positive, or a failure of nobody or at no moment.
    """
    held, failed = _rows(held), failed or {}
    x = np.asarray(range(len(next(iter(held.values()), []))) if x is None else x, dtype=float)
    _check_memory(held, x, budget, failed)
    edges = np.append(x, x[-1] + (x[-1] - x[-2] if len(x) > 1 else 1))
    tops = np.cumsum([np.zeros(len(x)), *held.values()], 0)
    limit = "" if budget is None else f"budget {in_units(round(budget))}"
    highest = max(tops.max(), budget or 0) or 1
    unit = in_units(max(highest, 2)).split()[-1]  # never in the singular
    asked = np.maximum(tops[-1], np.r_[0, tops[-1][:-1]])  # the upper end of a rise or a fall
    crosses = {name: (at, budget or asked[x == at][0]) for name, at in failed.items()}
    names = [_short(name) for name in held] if len(held) <= FEW else []
    flags = [(f"{_short(name)} failed", spot) for name, spot in crosses.items()]
    flags = flags if len(failed) <= FEW else []
    starts = [(words, at) for words, (at, _) in flags]
    starts += zip(names, (x[row.argmax()] for row in held.values()), strict=False)
    after = 450 / np.ptp(edges)  # pixels, at the least, of one on the x axis
    beyond = [chart.room([words]) - after * (edges[-1] - at) for words, at in starts]
    labels, right = (xlabel, f"{unit} held"), 24 + max(chart.room([limit]), *beyond, 0)
    figure, ax = chart.page(title, (720, 380), left=76, right=right, labels=labels)
    with style.scope():
        ax.set_xlim(edges[0], edges[-1])
        _stack(ax, list(held), edges, tops)
        if budget is not None:
            chart.level(ax.axhline, budget, "budget")
            looks = {"color": style.QUIET, "transform": ax.get_yaxis_transform()}
            write(ax, 1.015, budget, limit, gid="name:budget", **looks)
        for name, cross in crosses.items():
            looks = {"color": style.ALARM, "markersize": 10, "markeredgecolor": style.PAPER}
            ax.plot(*cross, "X", clip_on=False, zorder=5, gid=f"failed:{name}", **looks)
        chart.name_bands(ax, names, edges, tops, flags=flags, highest=highest)
        chart.axis_style(ax.xaxis, whole=bool((x == x.round()).all()))
        chart.axis_style(ax.yaxis, unit=UNITS.get(unit, 1))
    return Picture(figure, sentence or f"{title}: {_memory_said(tops, x, limit, failed, xlabel)}")


def _stack(ax: Axes, names: list, edges, tops) -> None:
    for i, name in enumerate(names):
        looks = {"facecolor": BANDS[i % 2], "edgecolor": style.PAPER, "linewidth": 0.7}
        looks |= {"baseline": tops[i], "fill": True, "gid": f"band:{name}"}
        ax.stairs(tops[i + 1], edges, **looks)
    ax.stairs(tops[-1], edges, baseline=None, color=style.TEXT, linewidth=1.4, gid="total")


def _rows(held) -> dict[str, np.ndarray]:
    if not isinstance(held, Mapping):
        raise ValueError(f"held: expected {{name: bytes}}, and got {type(held).__name__}")
    return {name: np.atleast_1d(np.asarray(row, dtype=float)) for name, row in held.items()}


def _check_memory(held, x, budget, failed):
    if not held or not x.size:
        raise ValueError("held: expected bytes of at least one request, and got none")
    if x.ndim != 1 or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
        raise ValueError(f"x: expected moments, each after the one before, and got {x.tolist()}")
    for name, row in held.items():
        if row.shape != x.shape:
            expected = f"{len(x)} numbers, one for each moment"
            raise ValueError(f"held, {name!r}: expected {expected}, and got shape {row.shape}")
        for odd in row[~(np.isfinite(row) & (row >= 0))][:1]:
            raise ValueError(f"held, {name!r}: expected bytes, 0 or more, and got {odd:g}")
    if budget is not None and not (isinstance(budget, Real) and 0 < budget < np.inf):
        raise ValueError(f"budget: expected bytes, more than 0, and got {budget!r}")
    for name, at in failed.items():
        if name not in held:
            raise ValueError(f"failed: expected names that are in held, and got {name!r}")
        if at not in x:
            span = f"{chart.number(x[0])} to {chart.number(x[-1])}"
            raise ValueError(f"failed, {name!r}: expected a moment of {span}, and got {at!r}")


def _memory_said(tops, x, limit, failed, xlabel) -> str:
    n, most = len(tops) - 1, tops[-1].argmax()
    when = f"{xlabel} {chart.number(x[0])}" + f" to {chart.number(x[-1])}" * (len(x) > 1)
    said = [f"{n} request{'s' * (n > 1)} over {when}"]
    said += [f"at most {in_units(round(tops[-1][most]))} held, at {xlabel} {chart.number(x[most])}"]
    fails = [
        f"{tokens.quoted(str(name))} failed at {xlabel} {chart.number(at)}"
        for name, at in sorted(failed.items(), key=lambda fail: fail[1])
    ]
    fails = fails if len(fails) <= FEW else [f"{len(fails)} failed, the first: {fails[0]}"]
    return "; ".join([*said, *filter(None, [limit]), *fails])


def _short(name) -> str:
    return text.label(str(name), bold=True, size=style.LABEL, width=0.75 * LONGEST)[0]


def draw_roofline(
    points: Mapping, *, flops: float, bandwidth: float, title: str, sentence=None
) -> Picture:
    """Work under the roof of a machine: Williams, Waterman and Patterson 2009, CACM 52(4).

    The roof is the most that the machine can do, min(flops, bandwidth * operations a byte).

    Args:
        points: {name: (operations for each byte moved, operations a second)}.
        flops: operations a second, at most.
        bandwidth: bytes a second, at most.
        title: what to see.
        sentence: the text twin, instead of what each point waits for.

    Raises:
        ValueError: no points, or a number that is not finite and above zero.
    """
    _check_roofline(points, flops, bandwidth)
    ridge, (intensity, speed) = flops / bandwidth, np.array(list(points.values()), dtype=float).T
    low, high = min(*intensity / 2, ridge / 10), max(*intensity * 2, ridge * 10)
    high = max(high, ridge * (ridge / low) ** 0.4)  # both parts of the roof are long enough
    low = min(low, ridge / (high / ridge) ** 0.4)  # to be named
    roof = np.array([(low, bandwidth * low), (ridge, flops), (high, flops)])
    bottom, top = min(*speed, bandwidth * low) / 3, 3 * max(flops, *speed)
    power = int(np.clip((np.log10(flops) - 1) // 3, 0, len(COUNTS) - 1))
    labels = "operations for each byte moved", f"{COUNTS[power]}operations a second"
    figure, ax = chart.page(title, (720, 400), left=76, right=40, labels=labels)
    with style.scope():
        ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
        ax.vlines(ridge, bottom, flops, color=style.LINE, linewidth=1, gid="ridge")
        ax.plot(*roof.T, color=style.TEXT, linewidth=3, gid="roof")
        for i, (name, (x, y)) in enumerate(points.items()):
            color, _, marker = style.SERIES[i % len(style.SERIES)]
            up = {"linestyle": (0, (4, 3)), "linewidth": 1.2, "gid": f"up:{name}"}
            ax.plot([x, x], [y, min(flops, bandwidth * x)], color=color, **up)
            fill = color if i < len(style.SERIES) else style.PAPER
            looks = {"color": color, "markerfacecolor": fill, "markersize": 8, "zorder": 4}
            ax.plot(x, y, marker, gid=f"point:{name}", **looks)
        _name_roof(ax, roof)
        chart.name_points(ax, [_short(name) for name in points], list(points.values()), roof)
        chart.axis_style(ax.xaxis, log=True)
        chart.axis_style(ax.yaxis, log=True, unit=1000**power)
    said = [
        f"{name}, {chart.number(x)} operation{'s' * (x != 1)} a byte, {_waits(x / ridge)}"
        for name, (x, _) in points.items()
    ]
    return Picture(figure, sentence or f"{title}: {'; '.join(said)}")


def _check_roofline(points, flops, bandwidth):
    if not points or not isinstance(points, Mapping):
        raise ValueError(f"points: expected {{name: place}} of at least one, and got {points!r}")
    given = {"flops": [flops], "bandwidth": [bandwidth]}
    for name, place in points.items():
        if np.shape(place) != (2,):
            expected = "(operations for each byte, operations a second)"
            raise ValueError(f"points, {name!r}: expected {expected}, and got {place!r}")
        given[f"points, {name!r}"] = place
    for name, numbers in given.items():
        for odd in (n for n in numbers if not (isinstance(n, Real) and 0 < n < np.inf)):
            raise ValueError(f"{name}: expected a finite number above 0, and got {odd!r}")


def _waits(ratio: float) -> str:
    if 1 / NEAR <= ratio <= NEAR:
        return "near the ridge"
    return f"waits for {'memory' if ratio < 1 else 'arithmetic'}"


def _name_roof(ax: Axes, roof) -> None:
    low, ridge, high = ax.transData.transform(roof)
    back = ax.transData.inverted().transform
    for one, two, part in ((low, ridge, "memory"), (ridge, high, "arithmetic")):
        along = (two - one) / np.hypot(*(two - one))
        spot = back((one + two) / 2 + 13 * np.array([-along[1], along[0]]))
        turn = {"rotation": np.degrees(np.arctan2(*along[::-1])), "rotation_mode": "anchor"}
        turn |= {"bold": True, "ha": "center", "gid": f"name:waits for {part}"}
        write(ax, *spot, f"waits for {part}", **turn)
    looks = {"size": style.SMALL, "color": style.QUIET, "gid": "name:ridge"}
    write(ax, *back((ridge[0] + 5, ax.bbox.y0 + 9)), f"ridge {chart.number(roof[1, 0])}", **looks)
