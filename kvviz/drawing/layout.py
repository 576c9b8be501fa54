"""Where everything goes: squares laid out beside each other over one legend, in numbers.

`painting` turns a `Plan` into a picture. Pictures with the same `Room` are the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from kvviz.drawing import labels, legend, notes, style
from kvviz.drawing.square_drawing import GAP, get_thickness, list_states
from kvviz.recording.square import Square

WIDEST = 160  # columns in all of a picture's squares; beyond that, only the newest are drawn
SLOTS = 5  # empty slots to leave room for; of more, the rest isn't drawn
TITLE = 38  # pixels for a title and the space around it
LINE = 16  # pixels for a line of words
VALUE_LABELS = 58  # pixels for labels under the values
BRACKETS = 26  # pixels for brackets under the values
OVER, MOST_OVER = (62, 82), (104, 130)  # pixels over the keys, in small pictures and in others


@dataclass(frozen=True)
class Room:
    """What a picture leaves room for, whatever it shows, so that pictures of all steps match.

    Attributes:
        span: columns; None for as many as there are.
        lines: lines of words under the title.
        states: what the legend explains besides what is drawn.
        low: whether the picture must fit on a screen below a stepper's controls.
        value_labels: whether there's room for labels under the values.
    """

    span: int | None = None
    lines: int = 0
    states: frozenset[str] = frozenset()
    low: bool = False
    value_labels: bool = False


@dataclass(frozen=True)
class Panel:
    """One square of a picture, its words, and whether its keys and values are named."""

    square: Square
    title: str
    notes: tuple[tuple[str, str], ...]  # (line, colour)
    named: bool


@dataclass(frozen=True)
class Plan:
    """A picture in numbers. Lengths are in pixels as displayed, unless stated in cells.

    Attributes:
        panels: the squares, `across` in each line.
        cell: width of a cell.
        span: columns there's room for; start: the first column drawn.
        top: rows left out above, of an earlier prompt: none was ever computed here.
        above: distance from the top of a panel to the keys.
        small: whether this is a strip, with small squares and short words.
        lines: lines of words under each title.
        labelled: whether there's room for labels under the values.
        room: what the picture leaves room for.
    """

    panels: tuple[Panel, ...]
    across: int
    cell: float
    span: int
    start: int
    top: int
    above: float
    small: bool
    lines: int
    labelled: bool
    room: Room

    @property
    def gap(self) -> float:
        """The distance between a square and its edges."""
        return 12 if self.small else GAP

    @property
    def edge(self) -> float:
        """The distance from a square to the far side of its edges."""
        return self.gap + get_thickness(self.cell) * self.cell

    @property
    def bracketed(self) -> bool:
        """Whether there are brackets under the values; never in pictures that must match."""
        twice = any(panel.square.twice for panel in self.panels)
        return self.top > 0 or (twice and not self.room.span)

    @property
    def below(self) -> float:
        """The distance from a square to the words under it."""
        return self.edge + VALUE_LABELS * self.labelled + BRACKETS * self.bracketed

    @property
    def panel_width(self) -> int:
        beside = self.edge + (6 if self.small else 75)
        wide = _make_even(2 * beside + self.span * self.cell)
        return wide if self.small else max(wide, 480)

    @property
    def panel_height(self) -> int:
        square = self.above + self.edge + (self.span - self.top) * self.cell + self.below
        return _make_even(square + TITLE + LINE * self.lines)

    def corner(self, i: int) -> tuple[float, float]:
        """A panel's left and bottom, measured from the picture's bottom left corner."""
        left = (52 if self.small else 0) + i % self.across * self.panel_width
        return left, self.height - (i // self.across + 1) * self.panel_height

    @property
    def width(self) -> int:
        return _make_even(1.4 * 52 * self.small + self.across * self.panel_width)

    @property
    def height(self) -> int:
        down = ceil(len(self.panels) / self.across)
        return down * self.panel_height + legend.LINE * self.legend_lines + 12

    @property
    def legend_lines(self) -> int:
        return 1 if self.width >= 840 else 2

    @property
    def states(self) -> set[str]:
        """What the legend explains."""
        found = set()
        for panel in self.panels:
            found |= list_states(panel.square, self.span, self.start)
        if not any(panel.square.past_rows(self.start + self.top) for panel in self.panels):
            found.discard("not computed")
        return (found | self.room.states) & style.STATES.keys()


def plan(
    squares: Sequence[Square],
    room: Room = Room(),  # noqa: B008 (it is frozen)
    *,
    titles: Sequence[str | None] | None = None,
    strip: int = 0,
    said: Sequence[str] = (),
) -> Plan:
    """Lay out squares beside each other, over one legend.

    Args:
        titles: one for each square; by default, what the square shows.
        strip: how many small squares go in a line; 0 for full-size squares side by side.
        said: for each square, what is said in place of the numbers under its title.

    Raises:
        ValueError: the room's span is smaller than the number of columns.
    """
    small, span = bool(strip), limit_span(squares, room.span, bool(strip))
    start, crowded = find_start(squares, small), span < (room.span or _count_columns(squares))
    top = 0 if room.span else max(0, min(square.n_unknown for square in squares) - start)
    across, cell = _choose_cell(span, strip or len(squares), small, room.low, top)
    over, longest = OVER[not small], labels.measure_heights(squares, start=start, cell=cell)
    above = over if room.span else min(MOST_OVER[not small], max(over, longest + 14))
    empty = Plan((), across, cell, span, start, top, above, small, 0, False, room)
    panels = [
        Panel(
            square=square.crop(start + span),
            title=(titles and titles[i]) or notes.write_title(square, short=small),
            notes=tuple(
                notes.write_notes(
                    square, start, start + span, empty.panel_width, small, said[i] if said else ""
                )
            ),
            named=not small or i % across == 0,
        )
        for i, square in enumerate(squares)
    ]
    least = 1 if small else 2 + crowded
    return replace(
        empty,
        panels=tuple(panels),
        lines=max(least, room.lines, *(len(panel.notes) for panel in panels)),
        labelled=room.value_labels or any(square.moved_values for square in squares),
    )


def find_room(pictures: Sequence[Sequence[Square]]) -> Room:
    """A `Room` with `low` set that fits all `pictures`, each with one or two squares."""
    squares = [square for picture in pictures for square in picture]
    room = Room(
        span=_count_columns(squares),
        low=True,
        value_labels=any(square.moved_values for square in squares),
    )
    plans = [plan(picture, room) for picture in pictures]
    lines = max(len(panel.notes) for each in plans for panel in each.panels)
    states = frozenset(state for each in plans for state in each.states)
    return replace(room, lines=lines, states=states)


def find_start(squares: Sequence[Square], small: bool = False) -> int:
    """The first column drawn: 0 if all columns fit, or else the oldest that still fits."""
    return max(0, _count_columns(squares) - _limit_columns(squares, small))


def limit_span(squares: Sequence[Square], span: int | None, small: bool = False) -> int:
    """How many columns are drawn, with room for `span`.

    Raises:
        ValueError: `span` is smaller than the number of columns.
    """
    widest = _count_columns(squares)
    if span is not None and span < widest:
        raise ValueError(f"span {span}: expected at least {widest}, the number of columns")
    return min(span or widest, _limit_columns(squares, small))


def _count_columns(squares) -> int:
    return max(min(square.n_columns, square.n_filled + SLOTS) for square in squares)


def _limit_columns(squares, small: bool) -> int:
    return WIDEST // (4 if small else len(squares))


def _make_even(length: float) -> int:
    return 2 * ceil(length / 2)


def _choose_cell(span: int, across: int, small: bool, low: bool, top: int) -> tuple[int, float]:
    """Squares in a line, and a cell's pixels, chosen so that a picture fits a notebook's page.

    A cell is a whole number of stored pixels.
    """
    if small:
        down = 1
        while (cell := (950 / ceil(across / down) - 36) / (span + 2)) < 8.5 and down < across:
            down += 1
        across, cell = ceil(across / down), min(18, cell)
    elif across == 1:
        best, least = (390, 9.4) if low else (480 if top else 640, 12)
        cell = min(style.CELL, max(best / (span + 3), min(least, 800 / (span + 3))))
    else:
        cell = min(style.CELL, max(310 / (span + 2), min(12, 410 / (span + 2))))
    return across, int(cell * style.SHARPNESS) / style.SHARPNESS
