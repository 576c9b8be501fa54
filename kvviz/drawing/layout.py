"""Where everything goes: squares laid out beside each other over one legend, in numbers.

`painting` turns a `Plan` into a picture. Pictures with the same `Room` are the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from kvviz.drawing import legend, sentences, style
from kvviz.drawing.square_drawing import GAP, get_thickness
from kvviz.recording.square import Square
from kvviz.words import pluralize

WIDEST = 160  # columns in all of a picture's squares; beyond that, only the newest are drawn
TITLE = 38  # pixels for a title and the space around it
LINE = 16  # pixels for a line of words
VALUE_LABELS = 58  # pixels for labels under the values


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
    def above(self) -> float:
        """The distance from the top of a panel to the keys."""
        return 62 if self.small else 82

    @property
    def below(self) -> float:
        """The distance from a square to the words under it."""
        return self.edge + VALUE_LABELS * self.labelled

    @property
    def panel_width(self) -> int:
        beside = self.edge + (6 if self.small else 75)
        wide = _make_even(2 * beside + self.span * self.cell)
        return wide if self.small else max(wide, 480)

    @property
    def panel_height(self) -> int:
        square = self.above + 2 * self.edge + self.span * self.cell
        return _make_even(square + TITLE + LINE * self.lines + VALUE_LABELS * self.labelled)

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
        found = set(self.room.states)
        for panel in self.panels:
            found |= panel.square.legend(self.span, self.start)
        return found & style.STATES.keys()


def plan(
    squares: Sequence[Square],
    room: Room = Room(),  # noqa: B008 (it is frozen)
    *,
    titles: Sequence[str | None] | None = None,
    strip: int = 0,
    notes: Sequence[str] = (),
) -> Plan:
    """Lay out squares beside each other, over one legend.

    Args:
        titles: one for each square; by default, what the square shows.
        strip: how many small squares go in a line; 0 for full-size squares side by side.
        notes: one for each square, in place of the numbers under its title.

    Raises:
        ValueError: the room's span is smaller than the number of columns.
    """
    span, widest, small = room.span, _count_columns(squares), bool(strip)
    if span is not None and span < widest:
        raise ValueError(f"span {span}: expected at least {widest}, the number of columns")
    limit, start = _limit_columns(squares, small), find_start(squares, small)
    crowded, span = (span or widest) > limit, min(span or widest, limit)
    across, cell = _choose_cell(span, strip or len(squares), small, room.low)
    empty = Plan((), across, cell, span, start, small, 0, False, room)
    panels = [
        Panel(
            square=square,
            title=(titles and titles[i]) or sentences.write_title(square, short=small),
            notes=tuple(_write_notes(square, empty, notes[i] if notes else "")),
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


def _count_columns(squares) -> int:
    return max(square.n_columns for square in squares)


def _limit_columns(squares, small: bool) -> int:
    return WIDEST // (4 if small else len(squares))


def _make_even(length: float) -> int:
    return 2 * ceil(length / 2)


def _choose_cell(span: int, across: int, small: bool, low: bool) -> tuple[int, float]:
    """Squares in a line, and a cell's pixels, chosen so that a picture fits a notebook's page.

    A cell is a whole number of stored pixels.
    """
    if small:
        down = 1
        while (cell := (950 / ceil(across / down) - 36) / (span + 2)) < 8.5 and down < across:
            down += 1
        across, cell = ceil(across / down), min(18, cell)
    elif across == 1:
        best, least = (390, 9.4) if low else (640, 12)
        cell = min(style.CELL, max(best / (span + 3), min(least, 800 / (span + 3))))
    else:
        cell = min(style.CELL, max(310 / (span + 2), min(12, 410 / (span + 2))))
    return across, int(cell * style.SHARPNESS) / style.SHARPNESS


def _write_notes(square, made: Plan, note: str) -> list[tuple[str, str]]:
    """Lines under the title with their colours, each at most as wide as a panel."""
    start, wide = made.start, made.panel_width
    if note:
        return [(line, style.QUIET) for line in _flow(note.split("; "), wide)]
    if made.small:
        rows = pluralize(len(square.real_rows), "row")
        lines = [f"{rows}, {pluralize(square.n_visible, 'column')}"]
        doubt = "not to be trusted" if square.is_doubtful else ""
    else:
        lines = _flow(sentences.list_numbers(square), wide)
        lines += [sentences.describe_left_out(square, start)] if start else []
        doubt = sentences.describe_doubt(square)
    notes = [(line, style.QUIET) for line in lines]
    return notes + ([(doubt, style.ALARM)] if doubt else [])


def _flow(parts: Sequence[str], wide: float) -> list[str]:
    """Parts joined into as few lines as fit `wide` pixels."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], joined] if 6.6 * len(joined) < wide else [*lines, part]
    return lines
