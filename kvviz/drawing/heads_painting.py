"""Paint the heads of a layer: each key/value head once, with its heads between keys and values."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from kvviz.drawing import labels, legend, sentences, square_drawing, style
from kvviz.drawing.heads import GAP, NAME, Plan
from kvviz.drawing.layout import LINE
from kvviz.drawing.marks import add, make_boxes, write
from kvviz.recording.square import Square


def make_figure(plan: Plan) -> Figure:
    """The picture: an Axes for each head, in order; then one for each group, title and legend."""
    figure = Figure((plan.width / style.PIXELS, plan.height / style.PIXELS), dpi=style.PIXELS)
    for k, group in enumerate(plan.groups):
        left, top = plan.corner(k)
        for i, square in enumerate(group):
            down = top + plan.edge + GAP + i * (plan.head_height + plan.apart)
            box = left - plan.before, down, plan.group_width, plan.head_height
            named = plan.named and k % plan.across == 0 and i == len(group) - 1
            _paint_head(_add_axes(figure, box), plan, square, named)
    for k, group in enumerate(plan.groups):
        left, top = plan.corner(k)
        box = left - plan.before, top, plan.group_width, 2 * plan.edge + plan.middle
        _paint_group(_add_axes(figure, box), plan, group[0], k)
    words = 0, plan.height - plan.under, plan.width, plan.under - legend.LINE * plan.legend_lines
    _write_title(_add_axes(figure, words), plan)
    tall = legend.LINE * plan.legend_lines
    ax = _add_axes(figure, (10, plan.height - tall - 8, plan.width - 20, tall))
    legend.draw_legend(ax, plan.states, width=plan.width - 20, lines=plan.legend_lines)
    return figure


def _add_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """An Axes at `box` (left, top, width, height), in pixels from the figure's top left."""
    wide, tall = (inches * style.PIXELS for inches in figure.get_size_inches())
    left, top, width, height = box
    place = left / wide, 1 - (top + height) / tall, width / wide, height / tall
    ax = figure.add_axes(place)
    ax.set_axis_off()
    return ax


def _set_scale(ax: Axes, plan: Plan, top: float, bottom: float) -> None:
    """One data unit is a cell; the first column drawn is at 0."""
    left = plan.before / plan.cell
    ax.set(xlim=(-left, plan.group_width / plan.cell - left), ylim=(bottom, top))


def _paint_head(ax: Axes, plan: Plan, square: Square, named: bool) -> None:
    """One head's rows between its queries and outputs, `named` or not; its name on the left."""
    (first, after), cell, start = plan.rows, plan.cell, plan.start
    _set_scale(ax, plan, first - start, after - start)
    square_drawing.draw_computed(ax, square, start=start)
    square_drawing.draw_queries_and_outputs(
        ax, square, span=plan.span, start=start, gap=GAP, names=named
    )
    if (n := square.n_filled - start) < plan.span:
        _draw_to_come(ax, n, plan.span, [first - start], after - first)
    x, y = -(GAP + plan.edge + 7) / cell, (first + after) / 2 - start
    write(ax, x, y, f"head {square.head}", bold=True, ha="right", gid=f"head:{square.head}")


def _paint_group(ax: Axes, plan: Plan, square: Square, k: int) -> None:
    """The keys and values that the heads of group `k` share; tokens over the first line's keys."""
    cell, start, thick = plan.cell, plan.start, plan.edge / plan.cell
    middle, named = plan.middle / cell, k % plan.across == 0
    _set_scale(ax, plan, -thick, middle + thick)
    square_drawing.draw_keys_and_values(ax, square, span=middle, start=start, gap=0, names=named)
    if square.n_columns - start < plan.span:
        _draw_to_come(ax, square.n_columns - start, plan.span, [-thick, middle], thick)
    if k < plan.across:
        labels.draw_labels(ax, square, start=start, gap=0, rows=False, above=plan.above - 16)
    labels.draw_value_labels(ax, square, span=middle, start=start, gap=0)
    if len(plan.groups) > 1:
        y = middle + thick + (plan.below - NAME - 10) / cell
        words = f"key/value head {square.kv_head}"
        write(ax, plan.span / 2, y, words, size=style.SMALL, color=style.QUIET, ha="center")


def _draw_to_come(ax: Axes, n: int, span: int, tops: list[float], tall: float) -> None:
    """A pale ground where the columns of later steps will go."""
    grounds = make_boxes(n, tops, span - n, tall)
    add(ax, [PolyCollection(grounds, facecolors=style.TO_COME, linewidths=0, gid="to come")])


def _write_title(ax: Axes, plan: Plan) -> None:
    """The title and its notes, centred over the legend."""
    box = ax.get_position()
    width, height = (plan.width * box.width, plan.height * box.height)
    ax.set(xlim=(0, width), ylim=(height, 0))
    squares = [square for group in plan.groups for square in group]
    first, sharing = squares[0], sentences.describe_sharing(squares)
    title = f"Step {first.step}, layer {first.layer}: {sharing}"
    write(ax, width / 2, 14, title, size=style.TITLE, bold=True, ha="center")
    for k, line in enumerate(plan.notes):
        y = 36 + LINE * k
        write(ax, width / 2, y, line, size=style.NUMBERS, color=style.QUIET, ha="center")
