"""Paint a plan: every square with its labels and words, over one legend."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from kvviz.drawing import labels, layout, legend, square_drawing, style
from kvviz.drawing.layout import Panel, Plan
from kvviz.drawing.marks import Canvas, write
from kvviz.recording.square import Square


def make_figure(plan: Plan, *, veil: Sequence[int] = ()) -> Figure:
    """The picture as a figure: one Axes for each square, and the legend's Axes last.

    The rows at the positions in `veil` are pale.
    """
    width, height = plan.width, plan.height
    figure = Figure((width / style.PIXELS, height / style.PIXELS), dpi=style.PIXELS)
    wide, tall = plan.panel_width / width, plan.panel_height / height
    axes = []
    for i in range(len(plan.panels)):
        left, bottom = plan.corner(i)
        axes.append(figure.add_axes((left / width, bottom / height, wide, tall)))
    paint(plan, axes, veil=veil)
    box = (10 / width, 8 / height, 1 - 20 / width, legend.LINE * plan.legend_lines / height)
    ax = figure.add_axes(box)
    legend.draw_legend(ax, plan.states, width=width - 20, lines=plan.legend_lines)
    return figure


def paint(plan: Plan, canvases: Sequence[Canvas], *, veil: Sequence[int] = ()) -> None:
    """Draw every square with its labels and words, each on its own blank canvas."""
    cell, span, start, gap, top = plan.cell, plan.span, plan.start, plan.gap, plan.top
    side, high = (plan.panel_width / cell - span) / 2, (plan.above + plan.edge) / cell - top
    low = plan.panel_height / cell - high - span
    for panel, ax in zip(plan.panels, canvases, strict=True):
        square = panel.square
        square_drawing.set_frame(ax, span, left=side, right=side, top=high, bottom=low)
        square_drawing.draw_later(ax, square, span=span, start=start, gap=gap, top=top)
        square_drawing.draw_attention(ax, square, start=start, top=top)
        square_drawing.draw_keys_and_values(
            ax, square, span=span, start=start, gap=gap, top=top, names=panel.named
        )
        square_drawing.draw_queries_and_outputs(
            ax, square, span=span, start=start, gap=gap, names=not plan.small
        )
        square_drawing.draw_veil(ax, [p - start for p in veil if p >= start], span)
        labels.draw_labels(
            ax,
            square,
            start=start,
            gap=gap,
            top=top,
            rows=not plan.small,
            above=plan.above - 12,
            room=side * cell - plan.edge - 10,
        )
        labels.draw_value_labels(ax, square, span=span, start=start, gap=gap)
        if plan.bracketed:
            labels.draw_brackets(ax, square, span=span, start=start, gap=gap, top=top)
        _write_under(ax, plan, panel)
        if not plan.small:
            _write_corners(ax, plan, square)


def _write_under(ax: Canvas, plan: Plan, panel: Panel) -> None:
    """Title and the lines under it, centred under the square."""
    cell, x = plan.cell, plan.span / 2
    y = plan.span + plan.below / cell
    title_size, size, first = style.TITLE, style.NUMBERS, 23
    if plan.small:
        title_size, size, first = style.NUMBERS, style.SMALL, 17
    write(ax, x, y + 20 / cell, panel.title, size=title_size, bold=True, ha="center")
    for k, (line, color) in enumerate(panel.notes):
        down = (20 + first + layout.LINE * k) / cell
        write(ax, x, y + down, line, size=size, color=color, ha="center")


def _write_corners(ax: Canvas, plan: Plan, square: Square) -> None:
    """Which square this is, at the top left."""
    cell, top = plan.cell, (plan.above + plan.edge) / plan.cell - plan.top
    words = f"step {square.step}", f"layer {square.layer}", f"head {square.head}"
    for k, line in enumerate(words):
        y = (12 + 14 * k) / cell - top
        write(ax, -9 / cell, y, line, size=style.SMALL, ha="right", color=style.QUIET)
