"""`draw_heatmap`: a table of numbers as colours, so that what's large stands out."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.arguments import check_flag
from kvviz.drawing import style
from kvviz.drawing.heatmap_facts import describe_table, read_table
from kvviz.drawing.heatmap_painting import paint
from kvviz.drawing.heatmap_plan import Plan
from kvviz.drawing.inputs import check_words
from kvviz.drawing.picture import Picture


def draw_heatmap(
    values,
    *,
    title: str,
    rows: Sequence | None = None,
    columns: Sequence | None = None,
    xlabel: str = "",
    ylabel: str = "",
    percent: bool = False,
    limit: float | None = None,
    highlight: Sequence = (),
    highlight_rows: Sequence[int] = (),
    marked: str = "",
    nothing: str = "nothing there",
    sentence: str | None = None,
) -> Picture:
    """Draw a table of numbers as a heat map: the larger a number, the darker its cell.

    Shares and sizes are in ink. If any number is below zero, two colours tell the signs apart, as
    in `draw_numbers`, and those below zero have a slit. In a table that's too large to draw, each
    cell is the largest of several, and the picture says so.

    Args:
        values: (rows, columns); NaN where there is nothing.
        title: what the picture shows.
        rows, columns: a name for each; by default, they are numbered from 0.
        xlabel, ylabel: what a column and a row are, in one word, such as "channel" and "token".
        percent: the numbers are shares, 0 to 1, and shown as percents.
        limit: the number with the darkest colour; by default, a round one over the largest.
        highlight: columns to mark, as numbers from 0; or cells, each as (row, column).
        highlight_rows: rows to mark.
        marked: what the marked ones have in common, for the legend.
        nothing: what the legend calls NaN.
        sentence: replaces the sentence that says what is largest, and what stands out.

    Raises:
        ValueError: no table of numbers, infinite numbers, a wrong number of names, percents beyond
            0 to 1, a limit that isn't above 0, or something to mark that isn't there.

    >>> shares = [[0.2, 0.9], [0.7, 0.1]]
    >>> kv.draw_heatmap(shares, title="On column 0", xlabel="head", ylabel="layer", percent=True)
    On column 0: 2 layers by 2 heads; the largest is 90%, at layer 0, head 1; 2 of 4 are over 50%
    """
    words = {"xlabel": xlabel, "ylabel": ylabel, "marked": marked, "nothing": nothing}
    check_words(title, sentence, **words)
    percent = check_flag("percent", percent)
    names, labels = (rows, columns), (ylabel, xlabel)
    table = read_table(values, names, labels, percent, limit, (highlight, highlight_rows))
    plan = Plan(table)
    with style.scope():
        figure = paint(table, plan, title, marked or "marked", nothing)
    said = (
        sentence or f"{title}{'' if title.endswith('?') else ':'} {describe_table(table, marked)}"
    )
    return Picture(figure, f"{said}; {plan.note}" if plan.note else said)
