"""`draw_schedule`: who is fed how many rows in which step, and who waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from kvviz.arguments import check_texts, check_whole, describe
from kvviz.drawing import schedule_facts as facts
from kvviz.drawing import schedule_slots as slots
from kvviz.drawing import schedule_words, style, swatches
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.marks import add, make_boxes, write
from kvviz.drawing.picture import Picture
from kvviz.drawing.requests import CHIP, draw_name
from kvviz.drawing.schedule_facts import Schedule

SIDE, WIDTH, WAITS = 16, 940, 84  # pixels: the margins; a picture's width; a column of waits
TOP, HEAD, LINE = 46, 34, 41  # pixels: title; step numbers; a line
WIDEST, NARROWEST = 34, 6  # pixels: a step
BOX, LOWEST = 28, 15  # pixels: a box with as many rows as any, and one with a single row


def draw_schedule(
    serving,
    *,
    prompts: Mapping | None = None,
    padding: Mapping | None = None,
    by: str = "step",
    step: int | None = None,
    title: str | None = None,
    sentence: str | None = None,
) -> Picture:
    """Draw a line for each request and a column for each step, with the rows fed in each.

    Args:
        serving: a recording made by `kv.record_serving`, or a schedule as numbers: {request: rows
            in each step}, with None before a request comes and 0 while it waits.
        prompts: {request: tokens in its prompt}, for a schedule as numbers. By default, a step with
            one row decodes, and a step with more feeds the prompt.
        padding: {request: rows in each step} that are computed and thrown away, for a schedule as
            numbers: padding, or a request that has ended and keeps its place in the batch.
        by: "step", and all columns are equally wide; or "row", and a step with more rows is wider:
            it takes longer, though not in proportion.
        step: a step to frame.
        title: what the picture shows; by default, how many requests, steps and rows.
        sentence: replaces the sentence that says who is fed what, and who waits.

    Raises:
        TypeError: `serving` is neither.
        ValueError: nothing to draw, numbers that aren't rows, or no such step.

    >>> kv.draw_schedule({"sky": [9, 1, 1], "sea": [0, 7, 1]}, title="One prompt at a time")
    One prompt at a time: sky: 9, 1 (twice), first token after 1 step, at most 1 step between ...
    """
    check_texts(title=title, sentence=sentence, optional=["title", "sentence"])
    if not isinstance(by, str) or by not in ("step", "row"):
        raise ValueError(f'by: expected "step" or "row", but got {describe(by)}')
    schedule = facts.read_schedule(serving, prompts, padding)
    step = None if step is None else check_whole("step", step)
    if step is not None and not 0 <= step < schedule.n_steps:
        raise ValueError(f"step {step}: this schedule has steps 0 to {schedule.n_steps - 1}")
    with style.scope():
        figure = make_figure(schedule, title or schedule_words.write_title(schedule), by, step)
    said = schedule_words.describe_schedule(schedule, by)
    return Picture(figure, sentence or f"{title or schedule_words.write_title(schedule)}: {said}")


@dataclass(frozen=True)
class _Plan:
    """Where things are, in pixels: `edges` are the steps' left sides, and the last one's right."""

    left: float
    edges: np.ndarray
    most: int

    def box(self, line: int, step: int, rows: int) -> tuple[float, float, float, float]:
        """Left, top, width and height of a box of so many rows."""
        x, wide = self.edges[step], self.edges[step + 1] - self.edges[step]
        high = LOWEST + (BOX - LOWEST) * max(0, rows - 1) / max(1, self.most - 1)
        base = TOP + HEAD + LINE * (line + 1) - 3
        return x + 1, base - high, max(wide - 2, 1), high


def _plan(schedule: Schedule, by: str) -> _Plan:
    left = SIDE + CHIP + 18 + measure_names([line.look.name for line in schedule.lines])
    left = max(left, SIDE + measure_names(["rows in all"], bold=False) + 12)
    room, n = WIDTH - left - 2 * WAITS - SIDE, schedule.n_steps
    costs = np.array(schedule.totals if by == "row" else [1] * n, dtype=float)
    scale = room / max(1, costs.sum())
    if by == "step":
        scale = max(NARROWEST, min(WIDEST, scale))
    edges = left + scale * np.r_[0, np.cumsum(costs)]
    most = max(s.rows + s.padding for line in schedule.lines for s in line.slots)
    return _Plan(left, edges, max(1, most))


def make_figure(schedule: Schedule, title: str, by: str, step: int | None = None) -> Figure:
    """The picture as a figure; the column of `step` has a frame."""
    plan, words = _plan(schedule, by), _choose_words(schedule)
    bottom = TOP + HEAD + LINE * len(schedule.lines)
    right = plan.edges[-1] + 2 * WAITS + SIDE
    wide = max(right, 2 * SIDE + measure_names([title], style.TITLE), 560)
    lines = swatches.flow(words, wide - 2 * SIDE)
    size = np.array([wide, bottom + 42 + swatches.LINE * len(lines)])
    figure, ax = make_canvas(title, 2 * np.ceil(size / 2))
    if step is not None:
        _frame_step(ax, plan, step, bottom)
    _paint_heads(ax, schedule, plan, by, bottom)
    costs = schedule.totals if by == "row" else [1] * schedule.n_steps
    for i, line in enumerate(schedule.lines):
        y = TOP + HEAD + LINE * (i + 1) - 3 - BOX / 2
        draw_name(ax, SIDE, y, line.look)
        for k, slot in enumerate(line.slots):
            slots.paint_slot(ax, plan, line, i, k, slot)
        slots.paint_tokens(ax, plan, line, i)
        for k, wait in enumerate((line.wait_first(costs), line.wait_most(costs))):
            at = plan.edges[-1] + WAITS * (k + 0.5)
            said = "–" if wait is None else f"{wait:,}"
            write(ax, at, y, said, bold=True, ha="center", gid=f"wait:{i}:{k}")
    swatches.draw_lines(ax, lines, words, _draw_swatch, left=SIDE, top=bottom + 34)
    return figure


def _frame_step(ax: Axes, plan: _Plan, step: int, bottom: float) -> None:
    """Draw a pale column with a frame behind a step."""
    x, wide = plan.edges[step], plan.edges[step + 1] - plan.edges[step]
    box = make_boxes(x - 1, TOP + 14, wide + 2, bottom + 22 - TOP - 14)
    looks = {"facecolors": style.TO_COME, "edgecolors": style.QUIET, "linewidths": 1.0}
    add(ax, [PolyCollection(box, zorder=0.5, gid="step:frame", **looks)])


def _paint_heads(ax: Axes, schedule: Schedule, plan: _Plan, by: str, bottom: float) -> None:
    """Write the steps' numbers over the lines and their rows below, and what the waits are."""
    quiet = {"color": style.QUIET, "size": style.SMALL}
    write(ax, SIDE, TOP + 24, "step", **quiet)
    write(ax, SIDE, bottom + 12, "rows in all", **quiet)
    middles = (plan.edges[1:] + plan.edges[:-1]) / 2
    free = 0.0
    for step, (x, total) in enumerate(zip(middles, schedule.totals, strict=True)):
        wide = measure_names([str(step), str(total)], style.SMALL) + 2
        if x - wide / 2 < free - 3:  # no room for a number
            continue
        write(ax, x, TOP + 24, str(step), ha="center", gid=f"step:{step}", **quiet)
        write(ax, x, bottom + 12, str(total), ha="center", gid=f"total:{step}", **quiet)
        free = x + wide / 2
    waits = (f"{by}s to its", "first token"), (f"most {by}s", "between tokens")
    for k, words in enumerate(waits):
        at = plan.edges[-1] + WAITS * (k + 0.5)
        for row, line in enumerate(words):
            write(ax, at, TOP + 11 + 13 * row, line, ha="center", **quiet)
    rule = [[(plan.left, bottom + 1), (plan.edges[-1], bottom + 1)]]
    add(ax, [LineCollection(rule, colors=style.LINE, linewidths=0.8, gid="rule")])


def _choose_words(schedule: Schedule) -> dict[str, str]:
    """What the legend says of every state drawn, and of the marks over the boxes."""
    words = {state: facts.STATES[state] for state in schedule.states}
    if any(line.tokens for line in schedule.lines):
        words |= {"first": "first token out", "token": "another token out"}
    return words


def _draw_swatch(ax: Axes, state: str, x: float, y: float) -> None:
    if state in ("first", "token"):
        slots.draw_token(ax, x + swatches.WIDE / 2, y + 7, first=state == "first")
    elif state in ("waiting", "idle", "put back"):
        slots.draw_wait(ax, state, x, y, swatches.WIDE, swatches.HIGH)
    elif state == "padding":
        swatches.draw_box(ax, state, x, y, style.PAPER, edge="#b4b4bb", hatch=True)
    else:
        fill = style.fill_request(style.REQUESTS[0], state != "decode")
        swatches.draw_box(ax, state, x, y, fill)
        if state == "again":
            slots.add_dot(ax, x + 5, y + 5)
