"""The marks that every picture is made of: cells, the marks on them, dashed lines and words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Transform

from kvviz.drawing import fonts, style

SMALL_CELL = 12  # pixels; below this, only outlines are dashed, and edges get no thinner
HATCH = "/////"
DASH = (0, (2.2, 2.2))
NOT_HELD = {"edgecolors": style.QUIET, "linestyles": [(0, (1, 2))]}


class Canvas(Protocol):
    """The part of matplotlib's `Axes` that painting a square needs; `raster.Sheet` has only this.

    One data unit is one cell: column j lies at x = j, row p at y = p, downwards.
    """

    transData: Transform

    def get_figure(self, root: bool = False): ...
    def set_axis_off(self) -> None: ...
    def set_xlim(self, low: float, high: float): ...
    def set_ylim(self, low: float, high: float): ...
    def set_aspect(self, aspect: str) -> None: ...
    def add_collection(self, artist: Collection, autolim: bool = True): ...
    def text(self, x: float, y: float, words: str, **looks): ...


class Cells(PolyCollection):
    """Cells of one `role` in one `state`; `places` gives the column of each, or (row, column)."""

    def __init__(
        self,
        role: str,
        state: str,
        places: Iterable,
        corners,
        *,
        facecolors,
        edgecolors=None,
        linewidths: float = 0,
        hatch: str | None = None,
    ):
        super().__init__(
            [], facecolors=facecolors, edgecolors=edgecolors, linewidths=linewidths, hatch=hatch
        )
        self.role, self.state, self.places = role, state, tuple(places)
        self.corners = np.asarray(corners)  # (n, 4, 2)
        self.set_gid(f"{role}:{state}")

    def get_paths(self):
        """Make paths only when matplotlib draws them; a sheet never does."""
        if not self._paths and len(self.corners):
            self.set_verts(self.corners)
        return super().get_paths()

    def draw(self, renderer):
        """Draw hatched cells as one path: matplotlib lays out a hatch for every path, slowly."""
        if not self.get_hatch():
            return super().draw(renderer)
        PathPatch(
            Path.make_compound_path_from_polys(self.corners),
            facecolor=self.get_facecolor()[0],
            edgecolor=self.get_edgecolor()[0],
            linewidth=self.get_linewidth()[0],
            hatch=self.get_hatch(),
            transform=self.get_transform(),
            snap=True,
        ).draw(renderer)


def find_cells(artists: Iterable) -> dict[tuple, str]:
    """What was drawn where: {(role, place): state}; a place is a column or (row, column)."""
    drawn = [artist for artist in artists if isinstance(artist, Cells)]
    return {(a.role, place): a.state for a in drawn for place in a.places}


def measure_cell(ax: Canvas) -> float:
    """Width of one cell, in pixels as displayed."""
    (x0, _), (x1, _) = ax.transData.transform([(0, 0), (1, 0)])
    return (x1 - x0) * style.PIXELS / ax.get_figure(root=True).dpi


def make_boxes(x, y, width=1.0, height=1.0, inset: float = 0) -> np.ndarray:
    """Corners (n, 4, 2) of boxes with their top left at x, y, smaller by `inset` all round."""
    x, y, width, height = np.broadcast_arrays(*np.atleast_1d(x, y, width, height))
    left, right, top, bottom = x + inset, x + width - inset, y + inset, y + height - inset
    around = left, top, right, top, right, bottom, left, bottom
    return np.stack(around, -1).reshape(-1, 4, 2).astype(float)


def get_inset(cell: float) -> float:
    """Half the white line between two cells of `cell` pixels, in cells."""
    return (0.75 if cell >= SMALL_CELL else 0.5 if cell >= 7 else 0) / cell


def add(ax: Canvas, artists: list) -> list:
    """Put collections on a canvas without changing its limits."""
    for artist in artists:
        ax.add_collection(artist, autolim=False)
    return artists


def write(
    ax: Canvas | Axes,
    x: float,
    y: float,
    words: str,
    *,
    size: float = style.LABEL,
    bold: bool = False,
    font: FontProperties | None = None,
    color=style.TEXT,
    ha: str = "left",
    va: str = "center_baseline",
    rotation: float = 0,
    rotation_mode: str | None = None,
    transform: Transform | None = None,
    gid: str | None = None,
):
    """Plain text on a canvas: dollar signs stay dollar signs.

    `font` replaces `size` and `bold`: the words are then drawn as they are.
    """
    if font is None:
        words, path = fonts.choose_font(words, bold=bold)
        font = fonts.get_font(path, size)
    return ax.text(
        x,
        y,
        words,
        parse_math=False,
        fontproperties=font,
        color=color,
        ha=ha,
        va=va,
        rotation=rotation,
        rotation_mode=rotation_mode,
        transform=ax.transData if transform is None else transform,
        gid=gid,
    )


def make_mark(role: str, state: str, x, y, size: float = 1.0, sides=(1.0, 1.0)) -> list[Collection]:
    """The mark that tells a state apart without colour, centred on each x, y; `size` in cells.

    `sides` are each cell's width and height: what was cropped is struck out from end to end.
    """
    if state == "cropped":
        return [_strike(role, np.asarray(x), np.asarray(y), size * np.asarray(sides, dtype=float))]
    around = np.linspace(0, 2 * np.pi, 17)[:-1]
    dot = 0.11 * np.c_[np.cos(around), np.sin(around)]
    bar, dash = np.array([[-0.26, 0.2], [0.26, 0.2], [0.26, 0.3], [-0.26, 0.3]]), _make_bar(0.13)
    shapes, color = {
        "recomputed": ([dot], style.PAPER),
        "earlier": ([bar], style.ROLES[role]),
        "dropped": ([1.4 * dash @ _TURN, 1.4 * dash @ _TURN.T], style.FAINT),
        "pad": ([dash], style.FAINT),
    }.get(state, ([], None))
    if not shapes:
        return []
    corners = np.concatenate([size * shape + np.c_[x, y][:, None] for shape in shapes])
    path = Path.make_compound_path_from_polys(corners)
    return [PathCollection([path], facecolors=color, linewidths=0, gid=f"{role}:{state}:mark")]


def _strike(role: str, x, y, sides) -> LineCollection:
    """A line from near one corner to near the opposite one."""
    across, down = (0.36 * np.broadcast_to(side, x.shape) for side in sides)
    ends = np.stack([np.c_[x - across, y + down], np.c_[x + across, y - down]], 1)
    gid = f"{role}:cropped:mark"
    return LineCollection(ends, colors=style.ROLES[role], linewidths=1.1, zorder=2.1, gid=gid)


def _make_bar(half: float, thin: float = 0.028) -> np.ndarray:
    return np.array([[-half, -thin], [half, -thin], [half, thin], [-half, thin]])


def make_dashes(lines, gid: str) -> LineCollection:
    """Thin dashed lines (n, 2, 2), under the cells."""
    return LineCollection(
        lines, colors="#c0c0ca", linewidths=0.6, linestyles=[DASH], zorder=0.9, gid=gid
    )


def make_flaw(role: str, kind: str, x, y, size: float = 1.0) -> list[Collection]:
    """A cross ("wrong") or a plus ("extra") on paper, centred on each x, y; `size` in cells."""
    shape = {"wrong": _make_plus(0.32) @ _TURN, "extra": _make_plus(0.27)}.get(kind)
    if shape is None:
        return []
    middles, half = np.c_[x, y][:, None], 0.36 * size
    ground = half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) + middles
    path = Path.make_compound_path_from_polys(size * shape + middles)
    gid = f"{role}:{kind}:mark"
    return [
        PolyCollection(ground, facecolors=style.PAPER, linewidths=0, zorder=2.1, gid=gid),
        PathCollection([path], facecolors=style.ALARM, linewidths=0, zorder=2.2, gid=gid),
    ]


def _make_plus(long: float, thin: float = 0.065) -> np.ndarray:
    side = [(-thin, -long), (thin, -long), (thin, -thin), (long, -thin), (long, thin), (thin, thin)]
    return np.array([*side, *((-x, -y) for x, y in side)])


_TURN = np.array([[1, 1], [-1, 1]]) * 2**-0.5
