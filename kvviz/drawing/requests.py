"""How the requests of a serving engine look: a letter, a colour and a pattern for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from string import ascii_uppercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.patches import FancyBboxPatch
from matplotlib.path import Path

from kvviz.arguments import check_whole, describe
from kvviz.drawing import style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.marks import write
from kvviz.drawing.names import shorten

CHIP = 16  # pixels
SMALL = 7  # pixels; smaller cells get no pattern
LINE = 1  # pixels between a shared cell's bands


def _bar(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


# In a cell from -0.5 to 0.5: polygons.
PATTERNS = (
    [],
    [_bar(-0.07, -0.3, 0.07, 0.3)],
    [[(-0.3, 0.2), (0.2, -0.3), (0.3, -0.2), (-0.2, 0.3)]],
    [_bar(-0.3, -0.24, 0.3, -0.1), _bar(-0.3, 0.1, 0.3, 0.24)],
    [[(0, -0.3), (0.28, 0.24), (-0.28, 0.24)]],
    [_bar(-0.24, -0.3, -0.1, 0.3), _bar(0.1, -0.3, 0.24, 0.3)],
    [[(0, -0.3), (0.3, 0), (0, 0.3), (-0.3, 0)]],
    [[(-0.3, -0.2), (-0.2, -0.3), (0.3, 0.2), (0.2, 0.3)]],
)


@dataclass(frozen=True)
class Look:
    """How a request looks in every picture of a run.

    Attributes:
        name: its name, short enough to be drawn.
        letter, color, number: its chip's letter, its colour, and which pattern it has.
    """

    name: str
    letter: str
    color: str
    number: int

    @property
    def pattern(self) -> list:
        """Polygons in a cell from -0.5 to 0.5."""
        return PATTERNS[self.number % len(PATTERNS)]


def choose_looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each of `names`, in their order."""
    letters, found = cycle(ascii_uppercase), {}
    for name in names:
        if name not in found:
            i = len(found)
            color = style.REQUESTS[i % len(style.REQUESTS)]
            found[name] = Look(shorten(name), next(letters), color, i)
    return found


def list_names(serving: Iterable) -> list[str]:
    """Every request of a run, in the order in which they came; those that came together by name."""
    names: dict[str, None] = {}
    for step in serving:
        here = {*(request.name for request in step.holding), *step.waiting}
        names |= dict.fromkeys(sorted(here - names.keys(), key=_split_numbers))
    return list(names)


def _split_numbers(name: str) -> list:
    """A key that sorts req_2 before req_10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in parts]


def pick_step(serving, step: int):
    """One step of a run of a serving engine.

    Raises:
        TypeError: `serving` isn't such a run.
        ValueError: it has no such step; the message says which it has.
    """
    check_serving(serving)
    step = check_whole("step", step)
    if not 0 <= step < len(serving):
        have = f"steps 0 to {len(serving) - 1}" if len(serving) else "no steps"
        raise ValueError(f"step {step}: this recording has {have}")
    return serving[step]


def check_serving(serving) -> None:
    """Raise TypeError unless `serving` is a run of a serving engine."""
    is_run = isinstance(serving, Sequence) and not isinstance(serving, str)
    if not is_run or any(not hasattr(step, "page_size") for step in serving):
        raise TypeError(
            "expected a recording made by kv.record_serving, but got "
            + (describe(serving) if not is_run else f"{type(serving).__name__} of something else")
        )


def draw_chip(ax: Axes, x: float, y: float, look: Look, *, size: float = CHIP) -> None:
    """Draw a request's letter on its colour, in a box with its left at x and its middle at y."""
    looks = {"boxstyle": f"round,pad=0,rounding_size={size / 4}", "linewidth": 0}
    box = FancyBboxPatch((x, y - size / 2), size, size, facecolor=look.color, **looks)
    box.set_gid(f"chip:{look.name}")
    ax.add_patch(box)
    points = style.SMALL if size >= CHIP else style.SMALL - 1.5
    write(
        ax, x + size / 2, y, look.letter, size=points, bold=True, color=style.PAPER, ha="center",
        gid=f"letter:{look.name}",
    )  # fmt: skip


def draw_name(ax: Axes, x: float, y: float, look: Look) -> float:
    """Draw a request's chip and its name; returns where the name ends."""
    draw_chip(ax, x, y, look)
    write(ax, x + CHIP + 6, y, look.name, bold=True, gid=f"name:{look.name}")
    return x + CHIP + 6 + measure_names([look.name])


def make_bands(x, y, width, height, n: int, line: float = LINE) -> list[tuple]:
    """A shared cell's `n` bands, one above the other with a line between: (x, y, width, height)."""
    high = (height - line * (n - 1)) / n
    return [(x, y + (high + line) * i, width, high) for i in range(n)]


def make_pattern(look: Look, x, y, width, height, *, color: str) -> list[PathCollection]:
    """A request's pattern in each cell with its middle at x, y; nothing in very small cells."""
    x, y, width, height = np.broadcast_arrays(*np.atleast_1d(x, y, width, height))
    if not look.pattern or not len(x) or min(width.min(), height.min()) < SMALL:
        return []
    size = np.minimum(width, height)
    corners = [
        np.asarray(shape)[None] * size[:, None, None] + np.c_[x, y][:, None]
        for shape in look.pattern
    ]
    paths = [Path.make_compound_path_from_polys(each) for each in corners]
    return [
        PathCollection(
            [Path.make_compound_path(*paths)], facecolors=color, linewidths=0,
            gid=f"pattern:{look.name}",
        )
    ]  # fmt: skip
