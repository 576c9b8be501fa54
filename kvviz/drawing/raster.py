"""A fast canvas: `Sheet` collects what is painted, and `Ink` turns it into pixels.

An Axes makes an Artist of every word and lays it out again for each drawing. On a sheet, a word is
only a record: the pixels it covers are rendered once and kept as a stamp that works in any colour.
A cell is a rectangle of whole pixels. Everything else is drawn by matplotlib.
"""

import re
from collections import OrderedDict
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from kvviz.drawing.marks import Cells

STAMPS = 2000  # words remembered
PARTS = re.compile(r"[ 0-9]|[^ 0-9]+")  # of a line: one stamp per digit serves all numbers
TO_LEFT = {"left": 0, "center": 0.5, "right": 1}  # from left to anchor, in widths


class Words(NamedTuple):
    """A word and where it goes, in pixels from the bottom left."""

    text: str
    x: float
    y: float
    font: FontProperties
    color: str
    across: str
    angle: float


class Sheet:
    """A `marks.Canvas` at `box` (left, bottom, width, height), in pixels of a figure.

    It supports the calls of that protocol and no others.
    """

    def __init__(self, figure: Figure, box):
        self._figure, self._box = figure, box
        self._span, self.transData = [(0, 1), (0, 1)], Affine2D()
        self.clear()

    def clear(self) -> None:
        """Remove everything that was drawn."""
        self.collections: list[Collection] = []
        self.texts: list[Words] = []

    def get_figure(self, root: bool = False) -> Figure:
        return self._figure

    def set_axis_off(self) -> None:
        """A sheet has no axes."""

    def set_aspect(self, aspect: str) -> None:
        """The boxes of a `layout.Plan` fit already."""

    def set_xlim(self, low: float, high: float) -> None:
        self._set_scale(0, (low, high))

    def set_ylim(self, low: float, high: float) -> None:
        self._set_scale(1, (low, high))

    def _set_scale(self, axis: int, span: tuple[float, float]) -> None:
        self._span[axis] = span
        (x0, x1), (y0, y1) = self._span
        left, bottom, width, height = self._box
        self.transData.clear().translate(-x0, -y0).scale(width / (x1 - x0), height / (y1 - y0))
        self.transData.translate(left, bottom)

    def add_collection(self, artist: Collection, autolim: bool = True) -> None:
        artist.set_figure(self._figure)
        if not artist.is_transform_set():
            artist.set_transform(self.transData)
        self.collections.append(artist)

    def text(self, x, y, words, *, fontproperties, color, ha, rotation, **_) -> Words:
        """Add a word; an angled one begins at x, y, and any other is centred on y."""
        x, y = self.transData.transform((x, y))
        self.texts.append(Words(words, x, y, fontproperties, color, ha, rotation))
        return self.texts[-1]


class Ink:
    """Draws sheets into pixels (H, W, 4)."""

    def __init__(self, figure):
        width, height = (int(length) for length in figure.bbox.size)
        self._figure, dpi = figure, figure.dpi
        self.paper, self._scratch = (RendererAgg(width, height, dpi) for _ in range(2))
        self.pixels = np.asarray(self.paper.buffer_rgba())
        self._colors = self.pixels.view(np.uint32)[..., 0]  # (H, W)
        self._pages: dict[tuple, np.ndarray] = {}
        self._stamps: OrderedDict[tuple, tuple] = OrderedDict()
        self._sizes: dict[tuple, tuple[float, float]] = {}
        self._ascents: dict[tuple, float] = {}
        self._black = self._scratch.new_gc()

    def draw(self, sheet: Sheet) -> None:
        for artist in sorted(sheet.collections, key=lambda artist: artist.zorder):
            if isinstance(artist, Cells) and not artist.get_linewidth()[0]:
                self._fill(artist)
            else:
                artist.draw(self.paper)
        for words in sheet.texts:
            self._write(words)

    def _fill(self, cells: Cells) -> None:
        """Fill rectangles of whole pixels, with edges where matplotlib would snap them."""
        corners = cells.get_transform().transform(cells.corners[:, ::2].reshape(-1, 2))
        (x, y), height = np.floor(corners + 0.5).astype(int).T, len(self.pixels)
        left, right = np.sort([x[::2], x[1::2]], 0)
        top, bottom = height - np.sort([y[::2], y[1::2]], 0)[::-1]
        colors = np.rint(255 * cells.get_facecolor()).astype(np.uint8).view(np.uint32)[:, 0]
        if len(colors) == 1:  # one colour for all: cells that touch become one rectangle
            apart = (left[1:] != right[:-1]) | (top[1:] != top[:-1])
            first, last = np.flatnonzero(np.r_[True, apart]), np.flatnonzero(np.r_[apart, True])
            left, right, top, bottom = left[first], right[last], top[first], bottom[first]
            colors = colors.repeat(len(first))
        ground = self._render_hatch(cells) if cells.get_hatch() else None
        for k, color in enumerate(colors.tolist()):
            spot = slice(top[k], bottom[k]), slice(left[k], right[k])
            self._colors[spot] = color if ground is None else ground[spot]

    def _render_hatch(self, cells: Cells) -> np.ndarray:
        """A whole page of a hatch: its lines don't depend on where the cells are."""
        fill, line, hatch = cells.get_facecolor()[0], cells.get_edgecolor()[0], cells.get_hatch()
        key = hatch, tuple(fill), tuple(line)
        if key not in self._pages:
            height, width = self._colors.shape
            page = Rectangle(
                (0, 0), width, height, linewidth=0, hatch=hatch, facecolor=fill, edgecolor=line
            )
            page.draw(self._scratch)
            there = np.asarray(self._scratch.buffer_rgba())
            self._pages[key] = there.view(np.uint32)[..., 0].copy()
            there[:] = 0
        return self._pages[key]

    def _write(self, words: Words) -> None:
        """Stamp a line word by word and digit by digit: most of them were rendered before."""
        y = len(self.pixels) - words.y
        if words.angle:
            return self._stamp(words.text, words.x, y, words)
        parts = PARTS.findall(words.text) or [""]
        wide, high = self._measure(parts[-1], words.font)
        starts = [0.0, *accumulate(self._measure_advance(part, words.font) for part in parts[:-1])]
        x = words.x - TO_LEFT[words.across] * (starts[-1] + wide)
        y += max(high, self._measure("l", words.font)[1] if len(parts) > 1 else 0) / 2
        for part, start in zip(parts, starts, strict=True):
            if part != " ":
                self._stamp(part, x + start, y, words)
        return None

    def _stamp(self, word: str, x: float, y: float, words: Words) -> None:
        """Put a word on the page: its baseline begins at x, y from the top left."""
        look = words.font.get_file(), words.font.get_size_in_points(), words.angle
        key = word, *look, round(4 * (x % 1)), round(4 * (y % 1))
        if key not in self._stamps:
            self._stamps[key] = self._render(word, x, y, words.font, words.angle)
        self._stamps.move_to_end(key)
        while len(self._stamps) > STAMPS:
            self._stamps.popitem(last=False)
        coverage, left, top = self._stamps[key]
        left, top = left + int(x), top + int(y)
        under = self.pixels[top : top + coverage.shape[0], left : left + coverage.shape[1], :3]
        part = coverage[: under.shape[0], : under.shape[1]]
        under[:] = under + part * (_get_shade(words.color) - under) + 0.5

    def _render(self, word: str, x: float, y: float, font, angle) -> tuple[np.ndarray, int, int]:
        """How much of each pixel a word covers (h, w, 1); its top left, from the pixel at x, y."""
        turn, em = np.radians(angle), font.get_size_in_points() * self._scratch.dpi / 72
        right, up = em * (len(word) + 1) * np.array([np.cos(turn), np.sin(turn)])
        x0, y0 = max(0, int(x - 2 * em)), max(0, int(y - 2 * em - up))
        x1, y1 = int(x + 2 * em + right), int(y + 2 * em)
        self._scratch.draw_text(self._black, x, y, word, font, angle)
        there = np.asarray(self._scratch.buffer_rgba())[y0:y1, x0:x1]
        rows, columns = (_reach(there[..., 3].any(axis)) for axis in (1, 0))
        coverage = there[rows, columns, 3:] / np.float32(255)
        there[:] = 0
        return coverage, x0 + columns.start - int(x), y0 + rows.start - int(y)

    def _measure_advance(self, word: str, font: FontProperties) -> float:
        """Pixels from this word's start to the next one's."""
        return self._measure(f"{word}|", font)[0] - self._measure("|", font)[0]

    def _measure(self, word: str, font: FontProperties) -> tuple[float, float]:
        """Width, and height over the baseline: at least the font's ascent, as in a Text."""
        key = word, font.get_file(), font.get_size_in_points()
        if key not in self._sizes:
            wide, high, deep = self._scratch.get_text_width_height_descent(word, font, False)
            self._sizes[key] = wide, max(high - deep, self._measure_ascent(font))
        return self._sizes[key]

    def _measure_ascent(self, font: FontProperties) -> float:
        key = font.get_file(), font.get_size_in_points()
        if key not in self._ascents:
            line = Text(0, 0, ".", fontproperties=font, va="center_baseline")
            line.set_figure(self._figure)
            self._ascents[key] = 2 * line.get_window_extent(self._scratch).y1
        return self._ascents[key]


def _reach(there: np.ndarray) -> slice:
    """The slice from the first True to the last: the extent of a word's pixels."""
    places = np.flatnonzero(there)
    return slice(places[0], places[-1] + 1) if len(places) else slice(0, 0)


@cache
def _get_shade(color: str) -> np.ndarray:
    return 255 * np.array(to_rgb(color), dtype=np.float32)
