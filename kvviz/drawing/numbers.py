"""`draw_numbers`: keys, values, queries or outputs as the numbers they are."""

from __future__ import annotations

from math import ceil

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from kvviz.arguments import check_texts
from kvviz.drawing import fonts, style
from kvviz.drawing.axes import make_canvas, measure_names, write_number
from kvviz.drawing.figures import pick_square
from kvviz.drawing.flow_layer import draw_bracket
from kvviz.drawing.marks import add, write
from kvviz.drawing.number_cells import choose_limit, draw_scale, paint_numbers
from kvviz.drawing.numbers_facts import (
    KINDS,
    WIDEST,
    Numbers,
    check_kind,
    describe_numbers,
    list_work,
    name_head,
    read_numbers,
)
from kvviz.drawing.picture import Picture
from kvviz.recording.square import Square

WIDE, CELL, HIGH = 440, 34, 330  # pixels: all columns, a column at most, all rows
LEFT, TOP, LABELS, LINE = 58, 52, 60, 15  # pixels
FIRST = 6  # numbers of the newest that are written out


def draw_numbers(
    run,
    *,
    step: int = 0,
    layer: int | None = None,
    head: int = 0,
    kind: str = "keys",
    sequence: int = 0,
    column: int | None = None,
    title: str | None = None,
) -> Picture:
    """Draw one head's keys as numbers: a column of them for each token, one framed.

    Args:
        run: a recording that kept `kind`.
        step, layer, head, sequence: which numbers, counted from 0; by default, the first layer
            kept. `head` is a query head, and its key/value head is drawn; in a recording that kept
            neither attention nor queries, it is a key/value head.
        kind: "keys", "values", "queries" or "outputs"; queries and outputs have a column for each
            row computed in this step.
        column: the position whose first numbers are written out; by default, the newest.
        title: by default, what the numbers are.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: there is no such step, layer, head, sequence, kind or column, or it wasn't kept.

    >>> with kv.record(model, keep=("keys",)) as mine:
    ...     logits = model(ids).logits
    >>> kv.draw_numbers(mine, layer=1, head=1)
    step 0, layer 1, key/value head 1: 6 keys of 22 numbers; the newest belongs to ...
    """
    if isinstance(run, Square):
        raise TypeError("expected a recording made by kv.record, but got one step's Square")
    check_kind(kind)
    check_texts(title=title, optional=["title"])
    square = pick_square(run, step, layer, 0, sequence)
    if layer is None and (kept := run[step].kept.get(kind)):
        square = run[step].square(min(kept), 0, sequence)
    numbers = read_numbers(run, square, kind, head, column)
    start = max(0, len(numbers.columns) - WIDEST)
    with style.scope():
        figure = _paint(numbers, start, title or _write_title(numbers))
    return Picture(figure, describe_numbers(numbers, start))


def _write_title(numbers: Numbers) -> str:
    wide, one = len(numbers.values), KINDS[numbers.kind]
    return f"{'An' if one[0] == 'o' else 'A'} {one} is {wide} numbers"


def _paint(numbers: Numbers, start: int, title: str):
    values = numbers.values[:, start:]
    width, n = values.shape
    cell, row = min(CELL, WIDE / n), max(2.0, min(9.0, HIGH / width))
    top, right = TOP + LABELS, LEFT + cell * n
    bottom = top + row * width
    work = list_work(numbers)
    subtitle = f"Step {numbers.square.step}, layer {numbers.square.layer}, {name_head(numbers)}"
    long = measure_names([subtitle], bold=False)
    wide = max(right + 200, 32 + measure_names([title], style.TITLE), 32 + long, 470)
    figure, ax = make_canvas(title, (wide, bottom + 26 * len(work) + 72))
    write(ax, 16, 44, subtitle, color=style.QUIET, gid="where")
    limit = choose_limit(values)
    paint_numbers(ax, values, limit, (LEFT, top, cell, row))
    _label_columns(ax, numbers, start, (LEFT, top, cell))
    for number in (0, width - 1):
        y = top + row * (number + 0.5)
        write(ax, LEFT - 8, y, str(number), size=style.SMALL, color=style.QUIET, ha="right")
    down = bottom + 7
    for columns, words in work:
        here = [i - start for i in columns if i >= start]
        if here:
            ends = LEFT + cell * here[0] + 1, LEFT + cell * (here[-1] + 1) - 1
            draw_bracket(ax, ends, down, words, within=(LEFT, right), gid="work")
            down += 26
    if numbers.framed is not None:
        at = LEFT + cell * (numbers.framed - start)
        _frame_column(ax, numbers, (at, top, cell, row))
        _write_first(ax, numbers, right + 22, top, row, at + cell)
    draw_scale(ax, limit, LEFT, down + 22)
    return figure


def _label_columns(ax: Axes, numbers: Numbers, start: int, at) -> None:
    (left, top, cell), n = at, len(numbers.columns)
    every = ceil(14 / cell)
    for i in range(start, n):
        framed = i == numbers.framed
        if abs(numbers.framed - i if numbers.framed is not None else n - 1 - i) % every:
            continue
        words, font = fonts.make_label(numbers.tokens[i], bold=framed, size=style.LABEL, width=40)
        x = left + cell * (i - start + 0.5) + 4
        write(
            ax, x, top - 7, words, font=font, rotation=55, rotation_mode="anchor", va="baseline",
            gid=f"column:{numbers.columns[i]}",
        )  # fmt: skip


def _frame_column(ax: Axes, numbers: Numbers, at) -> None:
    left, top, cell, row = at
    bottom, color = top + row * len(numbers.values), style.ROLES[numbers.kind]
    frame = [(left, top - 1), (left + cell, top - 1), (left + cell, bottom + 1), (left, bottom + 1)]
    lines = LineCollection([[*frame, frame[0]]], colors=color, linewidths=2.2, zorder=3)
    lines.set_gid("framed")
    add(ax, [lines])


def _write_first(ax: Axes, numbers: Numbers, x: float, top: float, row: float, edge: float):
    """Write the framed column's first numbers at the right.

    Each is joined to its cell, or, if there are columns between, all are joined to the frame.
    """
    framed, color = numbers.values[:, numbers.framed], style.ROLES[numbers.kind]
    words = fonts.make_label(numbers.tokens[numbers.framed], bold=True, width=70)[0]
    between = numbers.framed < len(numbers.columns) - 1
    name = f"{KINDS[numbers.kind]} of {words}"
    write(ax, x + 12, top - 12, name, bold=True, color=color, gid="name")
    lines = []
    if between:
        lines.append([(edge, top - 3), (x + 4, top - 3), (x + 8, top - 8)])
    for k, number in enumerate(framed[:FIRST]):
        y = top + 8 + LINE * k
        if not between:
            lines.append([(edge + 1, top + row * (k + 0.5)), (x + 6, y)])
        write(ax, x + 56, y, _write_rounded(number), ha="right", gid=f"number:{k}")
    looks = (color, 1.6) if between else (style.LINE, 0.8)
    add(ax, [LineCollection(lines, colors=looks[0], linewidths=looks[1], gid="joins")])
    if len(framed) > FIRST:
        y = top + 8 + LINE * FIRST
        write(ax, x + 12, y, f"… and {len(framed) - FIRST} more", color=style.QUIET)


def _write_rounded(number: float) -> str:
    if abs(number) >= 1000:
        return write_number(float(f"{number:.2g}")).replace("-", "−")
    return f"{round(float(number), 2) + 0.0:.2f}".replace("-", "−")  # + 0.0: no minus before 0.00
