"""Squares laid out on a figure: sizes in pixels, so that pictures of one span are one size."""

from collections.abc import Sequence
from math import ceil

from matplotlib.figure import Figure

from kvviz.drawing import marks, style
from kvviz.drawing import sentences as say
from kvviz.drawing import square as draw
from kvviz.drawing.marks import write

WIDEST = 160  # columns in one picture's squares together; of more, the newest are drawn
LEGEND = 24  # pixels a line


def starts(squares: Sequence, strip: bool) -> int:
    """The first column drawn: 0, or what leaves as many of the newest as fit."""
    return max(0, _widest(squares) - _limit(squares, strip))


def lines(squares: Sequence, span: int, *, low: bool = False) -> int:
    """How many lines under their titles these squares need in room for `span` columns."""
    span = min(span, _limit(squares, False))
    wide = _wide(span, _sizes(span, len(squares), False, low)[1], False)
    start = starts(squares, False)
    return max(len(_notes(square, start, wide)) for square in squares)


def grid(
    squares: Sequence,
    *,
    span=None,
    titles=None,
    strip: int = 0,
    low: bool = False,
    least: int = 0,
    states=(),
    veil: int = 0,
    note: str = "",
    on: Sequence | None = None,
) -> Figure | None:
    """Squares beside each other, each on its own Axes, over one legend.

    `strip` draws them small, that many in a line, with short titles; `low` to fit a screen under
    controls. `least` lines under the title and `states` in the legend, whatever is drawn, make
    pictures of several steps alike. The first `veil` columns and rows are made pale; `note` stands
    in place of the numbers. `on` sheets, one for each square's Axes, only these are drawn anew.
    """
    widest = _widest(squares)
    if span is not None and span < widest:
        raise ValueError(f"span {span}: expected at least the {widest} columns there are")
    limit, start = _limit(squares, bool(strip)), starts(squares, bool(strip))
    crowded, span = (span or widest) > limit, min(span or widest, limit)
    across, cell = _sizes(span, strip or len(squares), bool(strip), low)
    gap, names, above, lines = (12, 52, 62, 1) if strip else (draw.GAP, 0, 82, 2 + crowded)
    edges = gap + draw.edge(cell) * cell
    wide = _wide(span, cell, bool(strip))
    notes = [_notes(square, start, 0 if strip else wide) for square in squares]
    notes = [[(line, style.QUIET) for line in _flow(note.split("; "), wide)]] if note else notes
    lines = max(lines, least, *map(len, notes))
    tall = _even(above + 2 * edges + span * cell + 38 + 16 * lines)
    width = _even(1.4 * names + across * wide)
    legends = 1 if width >= 840 else 2
    height = ceil(len(squares) / across) * tall + LEGEND * legends + 12
    states: set[str] = set(states)
    size = width / style.PIXELS, height / style.PIXELS
    figure = None if on else Figure(size, dpi=style.PIXELS)
    for i, square in enumerate(squares):
        x, y = names + i % across * wide, height - (i // across + 1) * tall
        if on:
            ax = on[i]
            ax.clear()
        else:
            ax = figure.add_axes((x / width, y / height, wide / width, tall / height))
        left, top = (wide / cell - span) / 2, (above + edges) / cell
        draw.frame(ax, span, left=left, right=left, top=top, bottom=tall / cell - top - span)
        looks = {"span": span, "start": start, "gap": gap}
        states |= {"to come"} if draw.to_come(ax, square, **looks) else set()
        artists = draw.attention_square(ax, square, start=start)
        artists += draw.kv_edges(ax, square, **looks, names=not strip or i % across == 0)
        artists += draw.query_output_edges(ax, square, **looks, names=not strip)
        states |= set(draw.cells(artists).values())
        if veil > start:
            draw.veil(ax, veil - start, span)
        if not strip and (held := say.held_bytes(square)):
            for words, down in ((held, -5), ("held", 8)):
                at = span + 7 / cell, (down - edges + draw.edge(cell) * cell / 2) / cell
                write(ax, *at, words, size=style.SMALL, color=style.QUIET)
        draw.token_labels(ax, square, start=start, gap=gap, rows=not strip, room=above - 16)
        title = titles[i] if titles and titles[i] else None
        title = title or (f"step {square.step}" if strip else say.title(square))
        _words(ax, span / 2, span + edges / cell, cell, title, notes[i], strip)
        for k, part in enumerate(() if strip else ("step", "layer", "head")):
            at, words = (-9 / cell, (12 + 14 * k) / cell - top), f"{part} {getattr(square, part)}"
            write(ax, *at, words, size=style.SMALL, ha="right", color=style.QUIET)
    if figure:
        box = (10 / width, 8 / height, 1 - 20 / width, LEGEND * legends / height)
        draw.legend(figure.add_axes(box), states, width=width - 20, lines=legends)
    return figure


def corner(ax) -> list[float]:
    """Left, top and width of a square's first cell, in pixels of the picture as shown."""
    ax.apply_aspect()
    figure = ax.get_figure()
    scale = style.PIXELS / figure.dpi
    x, y = ax.transData.transform((0, 0)) * scale
    height = figure.get_figheight() * style.PIXELS
    return [round(float(number), 2) for number in (x, height - y, marks.pixels(ax))]


def _widest(squares) -> int:
    return max(len(square.column_states) for square in squares)


def _limit(squares, strip: bool) -> int:
    return WIDEST // (4 if strip else len(squares))


def _wide(span: int, cell: float, strip: bool) -> int:
    """Pixels that one square takes across, its edges and their labels with it."""
    gap, names = (12, 6) if strip else (draw.GAP, 75)
    wide = _even(2 * (gap + draw.edge(cell) * cell + names) + span * cell)
    return wide if strip else max(wide, 480)


def _even(length: float) -> int:
    return 2 * ceil(length / 2)


def _sizes(span: int, across: int, strip: bool, low: bool) -> tuple[int, float]:
    """How many squares across, and pixels a cell, so that a picture fits a notebook's page.

    A cell is a whole number of stored pixels.
    """
    if strip:
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


def _words(ax, x: float, y: float, cell: float, title: str, notes: list, strip) -> None:
    """Title and the lines under it, centred under the square."""
    size, first = (style.NUMBERS, 17) if strip else (style.TITLE, 23)
    write(ax, x, y + 20 / cell, title, size=size, bold=True, ha="center")
    for k, (line, color) in enumerate(notes):
        look = {"size": style.SMALL if strip else style.NUMBERS, "color": color, "ha": "center"}
        write(ax, x, y + (20 + first + 16 * k) / cell, line, **look)


def _notes(square, start: int, wide: float) -> list[tuple[str, str]]:
    """Lines under the title, with their colours; `wide` 0 asks for short ones."""
    if not wide:
        n = say.tally(square)
        lines = [f"{say.count(n['rows'], 'row')}, {say.count(n['seen'], 'column')}"]
        doubt = "not to be trusted" if say.doubt(square) else ""
    else:
        lines, doubt = _flow(say.numbers(square), wide), say.doubt(square)
        lines += [say.left_out(square, start)] if start else []
    notes = [(line, style.QUIET) for line in lines]
    return notes + ([(doubt, style.ALARM)] if doubt else [])


def _flow(parts: Sequence[str], wide: float) -> list[str]:
    """Parts joined into as few lines as fit `wide` pixels."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], joined] if 6.6 * len(joined) < wide else [*lines, part]
    return lines
