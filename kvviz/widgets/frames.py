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

from kvviz import tokens
from kvviz.drawing import figures, layout, painting, picture, sentences, style
from kvviz.drawing.raster import Ink, Sheet
from kvviz.recording.square import TRUSTED, Square

KEPT = 24  # frames remembered


class Frames:
    """The frames of one or two runs, by (cached, layer, head, step), and the sentence of each.

    Every frame has room for the largest of them, and all share one legend, so nothing jumps from
    frame to frame.
    """

    def __init__(
        self, runs: dict[bool, object], layers, *, sequence: int = 0, beside: bool = False
    ):
        self.runs, self.sequence, self.beside = runs, sequence, beside
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
        figure = self.make_figure(shown[0])
        self.size = tuple(round(inches * style.PIXELS) for inches in figure.get_size_inches())
        self._press = Press(figure)
        self._corners = [painting.find_first_cell(ax) for ax in figure.axes[: len(shown[0])]]

    def squares(self, cached: bool, layer: int, head: int, step: int) -> list[Square]:
        """What a frame shows: one square, or both runs' beside each other."""
        runs = [self.runs[False], self.runs[True]] if self.beside else [self.runs[cached]]
        return [run[step].square(layer, head, self.sequence) for run in runs]

    def make_figure(self, squares: Sequence[Square]) -> Figure:
        """A frame as a matplotlib figure, drawn the slow way."""
        with style.scope():
            return painting.make_figure(layout.plan(squares, self.room))

    def sentence(self, *key) -> str:
        """What a frame shows, in words."""
        return _describe(self.squares(*key))

    def frame(self, *key) -> tuple[bytes, str]:
        """A frame's PNG and its sentence; the last few are kept."""
        if key not in self._kept:
            squares = self.squares(*key)
            self._kept[key] = self._press.print(layout.plan(squares, self.room)), _describe(squares)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def cells(self, *key) -> list[dict]:
        """What you can point at: where each square is, its tokens, its rows, and shares in percent.

        `at` is the left, top and width of the first cell, in pixels as displayed; a share is None
        where the mask let nothing through. The picture leaves out columns and rows before `start`.
        """
        squares = self.squares(*key)
        start = layout.find_start(squares)
        return [
            {"at": at, "start": start, **_list_shares(square, start)}
            for at, square in zip(self._corners, squares, strict=True)
        ]

    def heads(self, cached: bool, layer: int, step: int) -> tuple[bytes, str, list]:
        """All heads of a layer: PNG, sentence, and each head's box as fractions of the whole."""
        squares = figures.pick_heads(self.runs[cached], step, layer, self.sequence)
        shown = figures.draw_all_heads(squares, span=self.room.span)
        boxes = [ax.get_position().bounds for ax in shown.figure.axes[: len(squares)]]
        boxes = [[float(n) for n in (x, 1 - y - high, wide, high)] for x, y, wide, high in boxes]
        words = map(sentences.describe_head, squares)
        return shown.png(), shown.sentence, list(zip(boxes, words, strict=True))

    def clear(self) -> None:
        """Forget the frames that were kept."""
        self._kept.clear()


def _describe(squares: Sequence[Square]) -> str:
    return sentences.describe(squares, layout.find_start(squares))


def _list_shares(square: Square, start: int) -> dict:
    """Tokens and whole percents of the rows and columns from `start` on."""
    rows = [r for r, position in enumerate(square.row_positions) if position >= start]
    shares = [[None] * (square.n_columns - start)] * len(rows)
    if square.weights is not None:
        seen = ~square.masked & np.isfinite(square.weights)
        shares = [
            [sentences.percent(w) if there else None for w, there in zip(*row, strict=True)]
            for row in zip(square.weights[rows, start:], seen[rows, start:], strict=True)
        ]
    labels = [tokens.visible(token) for token in square.tokens[start:]]
    return {"tokens": labels, "rows": [square.row_positions[r] for r in rows], "shares": shares}


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
