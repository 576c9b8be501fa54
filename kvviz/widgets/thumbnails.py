"""Small pictures of a layer's heads, to choose one from: only the rows this step computed."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from kvviz.drawing.square_drawing import find_ink
from kvviz.recording.square import Square

WIDE, LEAST_HIGH = 216, 40  # pixels, of which half as many are displayed
GRID = 8  # pixels; from this cell on, there's a line between cells


def draw_thumbnail(square: Square) -> bytes:
    """PNG of one head's shares: a cell for each row and column, darker for more; as in the frame.

    A single row is as high as it takes to see it.
    """
    paper = np.ones(3)
    cells = np.tile(paper, (len(square.row_positions), square.n_columns, 1))
    rows, columns = square.attention_cells()["ink"]
    cells[rows, columns] = find_ink(square, rows, columns)
    cells = cells[square.real_rows]
    wide = max(1, WIDE // square.n_columns)
    high = max(wide, LEAST_HIGH // max(1, len(cells)))
    pixels = cells.repeat(high, axis=0).repeat(wide, axis=1)
    if wide >= GRID:
        pixels[high - 1 :: high], pixels[:, wide - 1 :: wide] = paper, paper
    file = io.BytesIO()
    Image.fromarray(np.rint(255 * pixels).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()
