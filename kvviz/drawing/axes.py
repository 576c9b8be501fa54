"""What all charts share: an Axes under a title, plain ticks and numbers, and dashed levels."""

from __future__ import annotations

import re

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from kvviz.drawing import fonts, style
from kvviz.drawing.marks import write


def write_number(value: float) -> str:
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


def measure_names(names, size: float = style.LABEL, bold: bool = True) -> float:
    """Width of the longest of `names`, in pixels."""
    set_in = (fonts.choose_font(name, bold=bold) for name in names)
    wide = (fonts.measure(name, fonts.get_font(path, size)) for name, path in set_in)
    return max(wide, default=0) / 0.75


def make_canvas(title: str, size) -> tuple[Figure, Axes]:
    """A figure of `size` pixels with its title at the top left, on an Axes in pixels, downwards."""
    width, height = size
    with style.scope():
        figure = Figure((width / style.PIXELS, height / style.PIXELS), dpi=style.PIXELS)
        whole = figure.add_axes((0, 0, 1, 1))
        whole.set(xlim=(0, width), ylim=(height, 0))
        whole.set_axis_off()
        write(whole, 16, 22, title, size=style.TITLE, bold=True)
        return figure, whole


def make_axes(title: str, size, *, left, right, labels=("", ""), low=False) -> tuple[Figure, Axes]:
    """A figure of `size` pixels with its title at the top left, and one Axes under it.

    `labels` are for the x axis and the y axis; `low` leaves room for words above the Axes.
    """
    (width, height), top = size, 66 if low or labels[1] else 44
    figure, whole = make_canvas(title, size)
    with style.scope():
        write(whole, 16, 48, labels[1], color=style.QUIET)
        write(whole, width - right, height - 12, labels[0], color=style.QUIET, ha="right")
        box = (left / width, 48 / height, 1 - (left + right) / width, 1 - (48 + top) / height)
        return figure, figure.add_axes(box)


def style_axis(axis, *, log=False, whole=False, unit: float = 1) -> None:
    """Set a few plainly written ticks, each at a round multiple of `unit`."""
    locator = (
        LogLocator(numticks=7) if log else MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10])
    )
    if unit != 1 and not log:
        low, high = axis.get_view_interval() / unit
        locator = FixedLocator(unit * locator.tick_values(low, high))
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write_number(value / unit)))


def draw_level(line, at: float, name: str):
    """Draw a dashed line across; `line` is the Axes' `axhline` or `axvline`."""
    return line(at, color=style.FAINT, linestyle=(0, (4, 3)), linewidth=1.2, gid=f"level:{name}")
