"""A stepper's frames: `layout.grid`'s figures, all of one size, turned into PNG bytes fast.

They say and show what a `Picture` does, laid out by the same functions. What is slow there is done
once here: squares are drawn on sheets, and only pixels that changed are looked up in the palette.
"""

import io
from collections import OrderedDict

import numpy as np

from kvviz import tokens
from kvviz.drawing import figures as views
from kvviz.drawing import layout, picture, style
from kvviz.drawing import sentences as say
from kvviz.drawing import square as draw
from kvviz.drawing.raster import Ink, Sheet

KEPT = 24  # frames remembered


class Frames:
    """The frames of one or two runs by (cached, layer, head, step), and what is said of each.

    Each leaves room for the most that any of them shows, under one legend: nothing jumps.
    """

    def __init__(
        self, runs: dict[bool, object], layers, *, sequence: int = 0, beside: bool = False
    ):
        self.runs, self.sequence, self.beside = runs, sequence, beside
        self._kept: OrderedDict[tuple, tuple[bytes, str]] = OrderedDict()
        shown = [
            self._squares(cached, layer, 0, step)
            for cached, run in runs.items()
            if cached or not beside
            for layer in _kinds(run, layers)
            for step in range(len(run))
        ]
        span = max(len(square.column_states) for squares in shown for square in squares)
        self._room = {
            "low": True,
            "span": span,
            "least": max(layout.lines(squares, span, low=True) for squares in shown),
            "states": {s for squares in shown for square in squares for s in states(square, span)},
        }
        self.longest = max((picture.said(squares) for squares in shown), key=len)
        figure = self.figure(shown[0])
        self.size = tuple(round(inches * style.PIXELS) for inches in figure.get_size_inches())
        self._press = Press(figure)
        self._corners = [layout.corner(ax) for ax in figure.axes[: len(shown[0])]]

    def figure(self, squares):
        with style.scope():
            return layout.grid(squares, **self._room)

    def sentence(self, *key) -> str:
        return picture.said(self._squares(*key))

    def frame(self, *key) -> tuple[bytes, str]:
        """PNG and sentence; the last few are kept."""
        if key not in self._kept:
            squares = self._squares(*key)
            with style.scope():
                layout.grid(squares, **self._room, on=self._press.sheets)
                png = self._press.png()
            self._kept[key] = png, picture.said(squares)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def cells(self, *key) -> list[dict]:
        """What can be pointed at: for each square its place, tokens, rows, and shares in percent.

        `at` is left, top and width of the first cell in pixels as shown; a share is None where
        the mask let nothing through. Columns and rows before `start` are not in the picture.
        """
        squares = self._squares(*key)
        start = layout.starts(squares, False)
        return [
            {"at": at, "start": start, **_shares(square, start)}
            for at, square in zip(self._corners, squares, strict=True)
        ]

    def heads(self, cached: bool, layer: int, step: int) -> tuple[bytes, str, list]:
        """All heads of a layer: PNG, sentence, and for each head its box in parts of the whole."""
        squares = views.heads_of(self.runs[cached], step, layer, self.sequence)
        shown = views.of_heads(squares, span=self._room["span"])
        boxes = [ax.get_position().bounds for ax in shown.figure.axes[: len(squares)]]
        boxes = [[float(n) for n in (x, 1 - y - high, wide, high)] for x, y, wide, high in boxes]
        said = [views.said_of_head(square) for square in squares]
        return shown.png(), shown.sentence, list(zip(boxes, said, strict=True))

    def clear(self) -> None:
        self._kept.clear()

    def _squares(self, cached: bool, layer: int, head: int, step: int) -> list:
        runs = [self.runs[False], self.runs[True]] if self.beside else [self.runs[cached]]
        return [run[step].square(layer, head, self.sequence) for run in runs]


def _shares(square, start: int) -> dict:
    """Tokens and whole percents of the rows and columns from `start` on."""
    rows = [r for r, place in enumerate(square.row_positions) if place >= start]
    shares = [[None] * (len(square.column_states) - start)] * len(rows)
    if square.weights is not None:
        shown = ~square.masked & np.isfinite(square.weights)
        shares = [
            [draw.percent(w) if seen else None for w, seen in zip(*row, strict=True)]
            for row in zip(square.weights[rows, start:], shown[rows, start:], strict=True)
        ]
    labels = [tokens.visible(token) for token in square.tokens[start:]]
    return {"tokens": labels, "rows": [square.row_positions[r] for r in rows], "shares": shares}


def states(square, span: int) -> set[str]:
    """What the legend explains when this square is drawn in room for `span` columns."""
    rows = [r for r, state in enumerate(square.row_states) if state != "pad"]
    real = [j for j, state in enumerate(square.column_states) if state not in ("pad", "empty")]
    asked, masked = {square.row_positions[r] for r in rows}, square.masked[np.ix_(rows, real)]
    past = any(square.column_states[j] in draw.PAST for j in real if j not in asked)
    seen = {
        "masked": masked.any(),
        "not computed": past,
        "not kept": square.weights is None,
        "ink": square.weights is not None,
        "to come": len(square.column_states) - square.column_states.count("empty") < span,
    }
    drawn = {*square.column_states, *square.row_states}
    return drawn | {state for state, there in seen.items() if there}


def _kinds(run, layers) -> list[int]:
    """One layer of each kind: those that see the same columns read the same but for the shares."""
    kinds = {}
    for layer in layers:
        doubts = (step.gaps.get(layer, 0) > say.TRUSTED for step in run)
        columns = (step.columns_by_layer[layer] for step in run)
        kinds.setdefault((*columns, *doubts), layer)
    return list(kinds.values())


class Press:
    """Turns squares on sheets into PNG bytes, as large as the `first` figure and on its legend.

    Its last Axes, the legend, is the ground under all of them; a sheet stands for each other.
    """

    def __init__(self, first):
        first.set_dpi(style.PIXELS * style.SHARPNESS)
        *squares, legend = first.axes
        self._ink = Ink(first)
        self._pixels = self._ink.pixels
        self._pixels[:] = 255
        with style.scope():
            legend.draw(self._ink.paper)
        self._ground = self._pixels.copy()
        self.sheets = [Sheet(first, ax.get_window_extent().bounds) for ax in squares]
        self._index = np.zeros(self._pixels.shape[:2], dtype=np.uint8)  # paper is the first
        self._before = np.full(self._index.size, 0xFFFFFFFF, dtype=np.uint32)

    def png(self) -> bytes:
        """What is on the sheets now, as PNG bytes with a palette; call it in `style.scope`."""
        self._pixels[:] = self._ground
        for sheet in self.sheets:
            self._ink.draw(sheet)
        colors = self._pixels.view(np.uint32).ravel()
        changed = np.flatnonzero(colors != self._before)  # since the last: little, as a rule
        self._before[changed] = new = colors[changed]
        self._index.ravel()[changed] = style.indexed(new.view(np.uint8).reshape(-1, 4)[:, :3])
        file = io.BytesIO()
        picture.paletted(self._index).save(file, "PNG", compress_level=3)
        return file.getvalue()
