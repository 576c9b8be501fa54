"""A stepper's frames: pictures of one size, turned into PNG bytes fast.

They show and say the same as a `Picture`: the same functions lay them out and paint them. The slow
parts are done only once here: squares are painted on sheets, and only the pixels that changed are
looked up in the palette.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from kvviz.drawing import figures, layout, painting, picture, sentences, style
from kvviz.drawing.raster import Ink, Sheet
from kvviz.recording.square import TRUSTED, Square
from kvviz.widgets.pointing import list_cells
from kvviz.widgets.thumbnails import draw_thumbnail
from kvviz.widgets.zoom import plan_zoomed

KEPT = 24  # frames remembered
STRIP = (6, 5, 4, 3)  # how many steps the still picture shows: the first of these that fits
STRIP_COLUMNS = 70  # columns that fit into its width


class Frames:
    """The frames of one or two runs, by (cached, layer, head, step), and the sentence of each.

    All have the size of the largest and share one legend, so nothing jumps from frame to frame.
    While `zooms` is set, early steps are drawn larger; see `zoom`.
    """

    def __init__(
        self, runs: dict[bool, object], layers, *, sequence: int = 0, beside: bool = False
    ):
        self.runs, self.sequence, self.beside, self.zooms = runs, sequence, beside, True
        self._kept: OrderedDict[tuple, tuple[bytes, str]] = OrderedDict()
        shown = [
            self.squares(cached, layer, 0, step)
            for cached, run in runs.items()
            if cached or not beside
            for layer in _pick_layers(run, layers)
            for step in range(len(run))
        ]
        self.room = layout.find_room(shown)
        self.longest = max(map(_describe, shown), key=len)
        with style.scope():
            figure = painting.make_figure(layout.plan(shown[0], self.room))
        self.size = tuple(round(inches * style.PIXELS) for inches in figure.get_size_inches())
        self._press = Press(figure)

    def squares(self, cached: bool, layer: int, head: int, step: int) -> list[Square]:
        """What a frame shows: one square, or both runs' beside each other."""
        runs = [self.runs[False], self.runs[True]] if self.beside else [self.runs[cached]]
        return [run[step].square(layer, head, self.sequence) for run in runs]

    def make_figure(self, squares: Sequence[Square]) -> Figure:
        """A frame as a matplotlib figure, drawn the slow way."""
        with style.scope():
            return painting.make_figure(self.plan(squares))

    def plan(self, squares: Sequence[Square]) -> layout.Plan:
        """A frame in numbers: with room for every step's columns or, zoomed, for its own."""
        return (plan_zoomed if self.zooms else layout.plan)(squares, self.room)

    def sentence(self, *key) -> str:
        """What a frame shows, in words."""
        return _describe(self.squares(*key))

    def frame(self, *key) -> tuple[bytes, str]:
        """A frame's PNG and its sentence; the last few are kept."""
        if key not in self._kept:
            squares = self.squares(*key)
            self._kept[key] = self._press.print(self.plan(squares)), _describe(squares)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def cells(self, *key) -> list[dict]:
        """What you can point at in each square; see `pointing.list_cells`."""
        cached, *_, step = key
        runs = [self.runs[False], self.runs[True]] if self.beside else [self.runs[cached]]
        squares = self.squares(*key)
        plan = self.plan(squares)
        return [
            list_cells(square, plan, i, run[step])
            for i, (square, run) in enumerate(zip(squares, runs, strict=True))
        ]

    def heads(self, cached: bool, layer: int, step: int) -> tuple[list[bytes], list[str], int]:
        """A thumbnail of each head of a layer, what it attends to most, and how many rows."""
        squares = figures.pick_heads(self.runs[cached], step, layer, self.sequence)
        said = [*map(sentences.describe_head, squares)]
        return [*map(draw_thumbnail, squares)], said, len(squares[0].real_rows)

    def draw_strip(self, cached: bool, layer: int, head: int, step: int) -> picture.Picture:
        """The steps around this one, from both runs if there are two."""
        run = self.runs[cached]
        for many in STRIP:
            first = max(0, min(step - many // 2, len(run) - many))
            steps = range(first, min(first + many, len(run)))
            if many * run[steps[-1]].visible <= STRIP_COLUMNS:
                break
        return figures.draw_filmstrip(
            self.runs.get(True, run),
            uncached=self.runs[False] if len(self.runs) > 1 else None,
            steps=steps,
            layer=layer,
            head=head,
            sequence=self.sequence,
        )

    def clear(self) -> None:
        """Forget the frames that were kept."""
        self._kept.clear()


def _describe(squares: Sequence[Square]) -> str:
    return sentences.describe(squares, layout.find_start(squares))


def _pick_layers(run, layers) -> list[int]:
    """One layer of each kind: layers that see the same columns differ only in their shares."""
    kinds: dict[tuple, int] = {}
    for layer in layers:
        doubts = (step.gaps.get(layer, 0) > TRUSTED for step in run)
        columns = (step.columns_by_layer[layer] for step in run)
        kinds.setdefault((*columns, *doubts), layer)
    return list(kinds.values())


class Press:
    """Turns plans into PNG bytes, at the size of the `first` figure and over its legend.

    The figure's last Axes, the legend, is the background; a sheet replaces each of the others.
    """

    def __init__(self, first: Figure):
        first.set_dpi(style.PIXELS * style.SHARPNESS)
        *squares, legend = first.axes
        self._ink = Ink(first)
        self._pixels = self._ink.pixels
        self._pixels[:] = 255
        with style.scope():
            legend.draw(self._ink.paper)
        self._ground = self._pixels.copy()
        self._sheets = [Sheet(first, ax.get_window_extent().bounds) for ax in squares]
        self._index = np.zeros(self._pixels.shape[:2], dtype=np.uint8)  # paper is the first colour
        self._before = np.full(self._index.size, 0xFFFFFFFF, dtype=np.uint32)

    def print(self, plan: layout.Plan) -> bytes:
        """PNG bytes with a palette."""
        self._pixels[:] = self._ground
        with style.scope():
            for sheet in self._sheets:
                sheet.clear()
            painting.paint(plan, self._sheets)
            for sheet in self._sheets:
                self._ink.draw(sheet)
        colors = self._pixels.view(np.uint32).ravel()
        changed = np.flatnonzero(colors != self._before)  # usually few
        self._before[changed] = new = colors[changed]
        self._index.ravel()[changed] = style.find_colors(new.view(np.uint8).reshape(-1, 4)[:, :3])
        file = io.BytesIO()
        picture.make_paletted(self._index).save(file, "PNG", compress_level=3)
        return file.getvalue()
