"""Where all heads of a layer go: those that read the same keys and values lie between them.

`heads_painting` turns a `Plan` into a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from kvviz.drawing import labels, layout, legend, notes, sentences, style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.square_drawing import get_thickness
from kvviz.recording.square import Square
from kvviz.words import pluralize

WIDEST, TALLEST, COMFORTABLE = 900, 1080, 560  # pixels
MOST_ABOVE = 76  # pixels for the tokens over the keys
LARGEST, SMALLEST = 20, 8  # pixels of a cell
GAP, GAP_NAMED = 10, 24  # pixels between a head and the edges around it
APART, APART_SQUARES = 5, 14  # pixels between two heads of one row, and of several
NAME, TITLE, LINE = 26, 40, 16  # pixels for a group's name, the picture's title and a line


@dataclass(frozen=True)
class Plan:
    """A picture of all heads in numbers. Lengths are in pixels as displayed.

    Attributes:
        groups: the squares that each key/value head serves, `across` groups in each line.
        cell: width of a cell.
        span: columns there's room for; start: the first column drawn.
        newest_only: whether only each head's newest row is drawn, because there are too many rows.
        above: room for the tokens over the keys of the first line.
        notes: the lines under the title.
    """

    groups: tuple[tuple[Square, ...], ...]
    across: int
    cell: float
    span: int
    start: int
    newest_only: bool
    above: float
    notes: tuple[str, ...]

    @property
    def rows(self) -> tuple[int, int]:
        """The first row drawn of each head, and the one after the last."""
        square = self.groups[0][0]
        real = [square.row_positions[r] for r in square.real_rows] or square.row_positions[-1:]
        return max(real[0], min(self.start, real[-1])), real[-1] + 1

    @property
    def edge(self) -> float:
        """Thickness of an edge."""
        return get_thickness(self.cell) * self.cell

    @property
    def before(self) -> float:
        """From a group's left to its first column: the heads' names and queries."""
        names = [f"head {square.head}" for group in self.groups for square in group]
        return measure_names([names[-1], "values"]) + 14 + self.edge + GAP

    @property
    def group_width(self) -> float:
        return self.before + self.span * self.cell + GAP + self.edge + 30

    @property
    def head_height(self) -> float:
        first, after = self.rows
        return (after - first) * self.cell

    @property
    def apart(self) -> float:
        first, after = self.rows
        return APART if after - first == 1 else APART_SQUARES

    @property
    def named(self) -> bool:
        """Whether there's room for the names of queries and outputs."""
        return self.lines <= 3

    @property
    def middle(self) -> float:
        """From the keys to the values."""
        n = max(map(len, self.groups))
        return (
            GAP + (GAP_NAMED if self.named else GAP) + n * self.head_height + (n - 1) * self.apart
        )

    @property
    def below(self) -> float:
        """From the values to the next line of groups."""
        moved = any(square.moved_values for group in self.groups for square in group)
        return layout.VALUE_LABELS * moved + NAME * (len(self.groups) > 1) + 22

    @property
    def line_height(self) -> float:
        return 2 * self.edge + self.middle + self.below

    @property
    def lines(self) -> int:
        return ceil(len(self.groups) / self.across)

    @property
    def width(self) -> int:
        return 2 * ceil(max(520, self.across * self.group_width + 16) / 2)

    @property
    def legend_lines(self) -> int:
        return 1 if self.width >= 840 else 2

    @property
    def under(self) -> float:
        """The title, its notes and the legend."""
        return TITLE + LINE * len(self.notes) + legend.LINE * self.legend_lines

    @property
    def height(self) -> int:
        return 2 * ceil((self.above + self.lines * self.line_height + self.under) / 2)

    def corner(self, k: int) -> tuple[float, float]:
        """Left and top of group `k`'s first key, from the picture's top left."""
        left = (self.width - self.across * self.group_width + 16) / 2
        column, line = k % self.across, k // self.across
        top = self.above + line * self.line_height
        return left + column * self.group_width + self.before, top

    @property
    def states(self) -> set[str]:
        """What the legend explains."""
        squares = [square for group in self.groups for square in group]
        found = {state for square in squares for state in square.legend(self.span, self.start)}
        return (found - {"not computed"}) & style.STATES.keys()


def plan(squares: Sequence[Square], *, span: int | None = None) -> Plan:
    """Lay out the heads of one layer, with room for `span` columns.

    Raises:
        ValueError: `span` is smaller than the number of columns.
    """
    first, groups = squares[0], {}
    start = layout.find_start(squares, small=True)
    span = layout.limit_span(squares, span, small=True)
    for square in squares:
        groups.setdefault(square.kv_head, []).append(square.crop(start + span))
    made = Plan(
        groups=tuple(map(tuple, groups.values())),
        across=1,
        cell=SMALLEST,
        span=span,
        start=start,
        newest_only=False,
        above=16 + min(MOST_ABOVE, labels.measure_heights([first], start=start)),
        notes=("",),
    )
    fits = _fit(made)
    if fits is None and len(first.real_rows) > 1:
        newest = tuple(tuple(map(_keep_newest, group)) for group in made.groups)
        made = replace(made, groups=newest, newest_only=True)
        fits = _fit(made)
    made = fits or replace(made, across=_count_across(made))
    return replace(made, notes=tuple(_write_notes(squares, made)))


def _fit(made: Plan) -> Plan | None:
    """The plan with the largest cells that fit a page: best in one line, or else on a long page."""
    n = len(made.groups)
    for lines, tallest, least in (
        (1, COMFORTABLE, 13),
        (n, COMFORTABLE, 13),
        (n, TALLEST, SMALLEST),
    ):
        for cell in np.arange(LARGEST, least - 0.1, -1 / style.SHARPNESS):
            tried = replace(made, cell=float(cell))
            tried = replace(tried, across=_count_across(tried))
            if tried.width <= WIDEST and tried.height <= tallest and tried.lines <= lines:
                return tried
    return None


def _count_across(made: Plan) -> int:
    """As many groups in a line as fit, spread evenly over the lines."""
    n = len(made.groups)
    most = max(1, min(n, int((WIDEST - 16) // made.group_width)))
    return ceil(n / ceil(n / most))


def _keep_newest(square: Square) -> Square:
    """The square with its newest row only."""
    r = len(square.row_positions) - 1 if square.newest is None else square.newest
    own = square.own_columns[r : r + 1]
    return replace(
        square,
        row_positions=square.row_positions[r : r + 1],
        row_states=square.row_states[r : r + 1],
        own_columns=own,
        weights=square.weights[r : r + 1],
        masked=square.masked[r : r + 1],
    )


def _write_notes(squares: Sequence[Square], made: Plan) -> list[str]:
    first = squares[0]
    rows = pluralize(len(first.real_rows), "row")
    rows = f"the newest of {rows}" if made.newest_only else rows
    parts = [f"each head: {rows}, {pluralize(first.n_visible, 'column')}"]
    if not made.newest_only and (cropped := sentences.describe_cropped(first)):
        parts.append(cropped)
    if made.start:
        parts.append(f"{sentences.name_columns(made.start)} left out")
    parts += notes.list_undrawn(first, made.start + made.span)
    doubt = ["not to be trusted"] if any(square.is_doubtful for square in squares) else []
    return notes.flow([*parts, *doubt], made.width - 32)
