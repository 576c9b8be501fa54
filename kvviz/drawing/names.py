"""Where names go, so that they don't overlap each other, a line or a point."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.drawing import fonts, style
from kvviz.drawing.axes import measure_names

ROW = 15  # pixels from one name to the one above it
LONGEST = 150  # pixels


def shorten(name) -> str:
    """A name as it is drawn: at most `LONGEST` pixels wide."""
    return fonts.make_label(str(name), bold=True, size=style.LABEL, width=0.75 * LONGEST)[0]


def spread_out(spots: Sequence[float], least: float) -> list[tuple[int, float]]:
    """(index, spot) of every name, moved just enough to keep `least` between neighbours."""
    order = sorted(range(len(spots)), key=lambda i: spots[i])
    moved = [spots[i] for i in order]
    for _ in range(100):
        for low, high in zip(range(len(moved)), range(1, len(moved)), strict=False):
            short = least - (moved[high] - moved[low])
            if short > 1e-6:
                moved[low], moved[high] = moved[low] - short / 2, moved[high] + short / 2
    return list(zip(order, moved, strict=True))


def find_clear_spots(
    names: Sequence[str], spots: Sequence, tries: Sequence, taken: Sequence = ()
) -> list[tuple[float, float]]:
    """Pixels (left, middle) of each name: whichever of its `tries` overlaps least.

    A name that isn't at its spot is joined to it by a pole. Names avoid poles, each other and the
    boxes `taken` (x0, y0, x1, y1); poles avoid names.
    """
    found, words, poles = [], [], list(taken)
    for name, (x, y), each in zip(names, spots, tries, strict=True):
        wide = measure_names([name])
        boxes = [(at, up - 7, at + wide, up + 7) for at, up in each]
        lines = [(x - 1, min(y, up), x + 1, max(y, up)) for _, up in each]
        clashes = [
            _count_hits(box, [*words, *poles]) + _count_hits(line, words)
            for box, line in zip(boxes, lines, strict=True)
        ]
        best = clashes.index(min(clashes))
        found.append(each[best])
        words.append(boxes[best])
        poles.append(lines[best])
    return found


def _count_hits(box, others) -> int:
    """How many of the boxes `others` a box overlaps."""
    return sum(
        min(box[2], x1) > max(box[0], x0) and min(box[3], y1) > max(box[1], y0)
        for x0, y0, x1, y1 in others
    )
