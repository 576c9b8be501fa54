"""The marks every picture is made of: cells, what stands on them, words, legend swatches."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from kvviz.drawing import fonts as text
from kvviz.drawing import style

SMALL_CELL = 12  # pixels; smaller cells keep dashes to their outline, and edges stay this thick
HATCH = "/////"
DASH = (0, (2.2, 2.2))


class Cells(PolyCollection):
    """Cells of one `role` in one `state`; `places` is a column for each, or (row, column)."""

    def __init__(self, role: str, state: str, places: Iterable, corners, **looks):
        super().__init__([], **{"linewidths": 0, **looks})
        self.role, self.state, self.places = role, state, tuple(places)
        self.corners = np.asarray(corners)  # (n, 4, 2)
        self.set_gid(f"{role}:{state}")

    def get_paths(self):
        """Made when they are asked for: on a sheet they never are."""
        if not self._paths and len(self.corners):
            self.set_verts(self.corners)
        return super().get_paths()

    def draw(self, renderer):
        """Hatched cells as one path: a hatch is laid out anew for every path, and that is slow."""
        if not self.get_hatch():
            return super().draw(renderer)
        path = Path.make_compound_path_from_polys(self.corners)
        looks = {"facecolor": self.get_facecolor()[0], "linewidth": self.get_linewidth()[0]}
        looks |= {"edgecolor": self.get_edgecolor()[0], "hatch": self.get_hatch()}
        PathPatch(path, **looks, transform=self.get_transform(), snap=True).draw(renderer)


def cells(artists: Iterable) -> dict[tuple, str]:
    """What was drawn where: {(role, place): state}, place a column or (row, column)."""
    drawn = [artist for artist in artists if isinstance(artist, Cells)]
    return {(a.role, place): a.state for a in drawn for place in a.places}


def pixels(ax: Axes) -> float:
    """Width of one cell as shown, in pixels."""
    (x0, _), (x1, _) = ax.transData.transform([(0, 0), (1, 0)])
    return (x1 - x0) * style.PIXELS / ax.get_figure(root=True).dpi


def boxes(x, y, width=1.0, height=1.0, inset: float = 0) -> np.ndarray:
    """Corners [n, 4, 2] of boxes with their top left at x, y, smaller by `inset` all round."""
    x, y, width, height = np.broadcast_arrays(*np.atleast_1d(x, y, width, height))
    left, right, top, bottom = x + inset, x + width - inset, y + inset, y + height - inset
    around = left, top, right, top, right, bottom, left, bottom
    return np.stack(around, -1).reshape(-1, 4, 2).astype(float)


def inset(ax: Axes) -> float:
    """Half the white line between two cells, in cells."""
    cell = pixels(ax)
    return (0.75 if cell >= SMALL_CELL else 0.5 if cell >= 7 else 0) / cell


def add(ax: Axes, artists: list) -> list:
    """Put collections on an Axes without moving its limits."""
    for artist in artists:
        ax.add_collection(artist, autolim=False)
    return artists


def write(ax: Axes, x: float, y: float, words: str, *, size=style.LABEL, bold=False, **looks):
    """Plain text on an Axes: dollar signs are dollar signs."""
    font = looks.pop("font", None)
    if font is None:
        words, path = text.set_in(words, bold=bold)
        font = text.font(path, size)
    looks = {"color": style.TEXT, "va": "center_baseline", **looks}
    return ax.text(x, y, words, parse_math=False, fontproperties=font, **looks)


def mark(role: str, state: str, x, y, size: float = 1.0) -> list:
    """What tells a state apart without colour, centred on each x, y; `size` of a cell."""
    around = np.linspace(0, 2 * np.pi, 17)[:-1]
    dot = 0.11 * np.c_[np.cos(around), np.sin(around)]
    bar, dash = np.array([[[-0.26, 0.2], [0.26, 0.2], [0.26, 0.3], [-0.26, 0.3]]])[0], _bar(0.13)
    turn = np.array([[1, 1], [-1, 1]]) * 2**-0.5
    shapes, color = {
        "recomputed": ([dot], style.PAPER),
        "earlier": ([bar], style.ROLES[role]),
        "dropped": ([1.4 * dash @ turn, 1.4 * dash @ turn.T], style.FAINT),
        "pad": ([dash], style.FAINT),
    }.get(state, ([], None))
    looks = {"facecolors": color, "linewidths": 0, "gid": f"{role}:{state}:mark"}
    if not shapes:
        return []
    corners = np.concatenate([size * shape + np.c_[x, y][:, None] for shape in shapes])
    return [PathCollection([Path.make_compound_path_from_polys(corners)], **looks)]


def _bar(half: float, thin: float = 0.028) -> np.ndarray:
    return np.array([[-half, -thin], [half, -thin], [half, thin], [-half, thin]])


def dashes(lines, **looks) -> LineCollection:
    looks = {"colors": "#c0c0ca", "linewidths": 0.6, "linestyles": [DASH], "zorder": 0.9, **looks}
    return LineCollection(lines, **looks)


def swatch(ax: Axes, state: str, x: float, y: float, size: float = 18) -> list:
    """One legend swatch with its top left at x, y, made of the marks it explains."""
    look = {
        "masked": {"facecolors": style.PAPER, "edgecolors": style.LINE, "hatch": HATCH},
        "not computed": {"facecolors": "none", "edgecolors": "#a9a9b3", "linestyles": [DASH]},
        "not kept": {"facecolors": style.FIRST_INK, "linewidths": 0},
        "to come": {"facecolors": style.TO_COME, "edgecolors": style.LINE},
        "empty": {"facecolors": style.PAPER, "edgecolors": style.LINE},
    }.get(state, {"facecolors": style.fill("keys", state), "linewidths": 0})
    spots, wide = ([x], size) if state != "ink" else (x + size / 2 * np.arange(6), size / 2)
    if state == "ink":
        look["facecolors"] = style.ink(np.linspace(0, 1, 6))
    box = PolyCollection(boxes(spots, y, wide, size), **{"linewidths": 0.8, **look})
    artists = [box, *mark("keys", state, [x + size / 2], [y + size / 2], size)]
    for artist in artists:
        artist.set_gid(f"legend:{state}")
    return add(ax, artists)
