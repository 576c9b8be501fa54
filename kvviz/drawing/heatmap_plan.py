"""Where a heat map's parts go, and how a table that's too large becomes one that fits."""

from __future__ import annotations

from math import ceil, cos, radians, sin

import numpy as np

from kvviz.drawing import fonts, style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.heatmap_facts import Table

WIDEST, WIDE, HIGH = 760, 640, 480  # pixels: the picture at most, all columns and all rows at most
SIDE, TOP, NAME = 16, 46, 140  # pixels: margins; over the table; a row's name at most
CELL, ROOMY, NAMED, ROW = 34, 52, 136, 18  # pixels: a cell, one with a number, with a name; a row
THIN, SLITS = 4 / 3, 4  # pixels: a row or column at least; a column with signs
WRITTEN = 60  # cells; in a table of more, no numbers are written
TURN = 55  # degrees: names over the columns that don't fit side by side


class Plan:
    """Where everything goes, in pixels.

    Attributes:
        values: the numbers as drawn, each the largest of `pool` (rows, columns) numbers.
        note: what that means, in words; empty if each number has its own cell.
        names: of all rows and of all columns, as they are written.
        cell, row: width of a column and height of a row.
        left, top: where the table begins; right: the room beyond its right edge.
        is_turned: whether the columns' names are turned; is_written: whether numbers are written.
    """

    def __init__(self, table: Table):
        self.names = _name_all(table, 0), _name_all(table, 1)
        rows, columns = self.names
        self.left = 2 * SIDE + max(measure_names([*rows, table.labels[0]], style.SMALL), 20)
        marked = measure_names([rows[i] for i in table.marked[0]])
        self.right = SIDE + (20 + marked if table.marked[0] else 0)
        wide = min(WIDE, WIDEST - self.left - self.right)
        sizes, least = table.values.shape, SLITS if table.signed else THIN
        self.pool = ceil(sizes[0] * THIN / HIGH), ceil(sizes[1] * least / wide)
        self.values, self.note = _pool(table.values, self.pool), _note_pool(table, self.pool)
        self.is_written = table.values.size <= WRITTEN and not table.signed
        longest = measure_names(columns, style.SMALL, bold=False)
        most, room = ROOMY if self.is_written else CELL, wide / self.values.shape[1]
        if table.names[1] is not None and longest + 10 <= min(room, NAMED):
            most = max(most, longest + 10)
        self.cell = _fit(room, most)
        self.row = _fit(HIGH / self.values.shape[0], ROW)
        self.is_turned = table.names[1] is not None and longest + 4 > self.cell
        self.header = 16
        if self.is_turned:
            self.header = 8 + longest * sin(radians(TURN)) + 8
            self.right = max(self.right, SIDE + longest * cos(radians(TURN)) + 8 - self.cell / 2)
        self.top = TOP + self.header + 14 * bool(table.labels[1]) + 16 * bool(self.note)

    @property
    def width(self) -> float:
        return self.cell * self.values.shape[1]

    @property
    def height(self) -> float:
        return self.row * self.values.shape[0]

    def find_row(self, i: int) -> float:
        """The top of the row that shows number `i` of the table's rows."""
        return self.top + self.row * (i // self.pool[0])

    def find_column(self, j: int) -> float:
        return self.left + self.cell * (j // self.pool[1])


def _fit(size: float, most: float) -> float:
    """A size of small cells that is a whole number of stored pixels, so that all look alike."""
    pixel = 1 / style.SHARPNESS
    return min(most, size if size >= 12 else max(2, int(size / pixel + 1e-6)) * pixel)


def _pool(values: np.ndarray, pool: tuple[int, int]) -> np.ndarray:
    """The largest of each block of `pool` numbers, with its sign; NaN where all are NaN."""
    if pool == (1, 1):
        return values
    n_rows, n_columns = (ceil(n / p) for n, p in zip(values.shape, pool, strict=True))
    padded = np.full((n_rows * pool[0], n_columns * pool[1]), np.nan)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(n_rows, pool[0], n_columns, pool[1]).swapaxes(1, 2)
    blocks = blocks.reshape(n_rows, n_columns, -1)
    largest = np.nan_to_num(np.abs(blocks), nan=-1).argmax(-1)
    return np.take_along_axis(blocks, largest[..., None], -1)[..., 0]


def _note_pool(table: Table, pool: tuple[int, int]) -> str:
    parts = [f"{n} {table.label(axis)}s" for axis, n in enumerate(pool) if n > 1]
    return f"each cell is the largest of {' by '.join(parts)}" if parts else ""


def _name_all(table: Table, axis: int) -> list[str]:
    names = table.names[axis]
    if names is None:
        return [str(i) for i in range(table.values.shape[axis])]
    return [fonts.make_label(name, size=style.SMALL, width=0.75 * NAME)[0] for name in names]
